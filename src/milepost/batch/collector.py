"""Rows that are added one at a time and encoded together.

A publisher that puts single rows needs each checked at once, and all of them encoded as columns. A collector packs a
row by one `struct.pack`, which checks types and ranges as the columns would. It copies the row: the caller may change
its dict afterwards. It refuses every row that it cannot pack; `Batch.encode` then takes the row, or raises the right
error.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from operator import attrgetter, itemgetter
from typing import Any, Final

import numpy as np

from milepost.batch import atoms
from milepost.batch.batch import Batch
from milepost.batch.block import DTYPES, OFFSET
from milepost.batch.checksum import crc32
from milepost.batch.columns import Columns, pack_bits
from milepost.batch.encoder import NOT_OBJECTS
from milepost.batch.format import Format, format_of
from milepost.batch.ids import Ids
from milepost.batch.row_codec import IDENTITY, REFUSED, STAMPED_ROW
from milepost.schema.flat import AtomShape, TupleShape, width
from milepost.schema.types import Atom, Schema

__all__ = ["REFUSED", "Collector"]

FIELDS: Final = 200  # of a schema at most; the generated code grows with them
_PADDING: Final = tuple(bytes(size) for size in range(8))
Alone = Callable[[Any, int, int, int], bytes]
"""Takes a row, publisher, broker and stamp; returns the bytes of a batch of one row."""

TEXT_BYTES: Final = 1_024  # of text and bytes in one row: larger rows gain little, and need a count of bytes


class Collector:
    """Rows of one flat schema. `add` raises one of `REFUSED` for a row that it refuses, and keeps nothing of it."""

    def __init__(self, form: Format, root: TupleShape) -> None:
        self._form = form
        self._fixed: list[tuple[AtomShape, str]] = []  # columns, and their variables in a row's fixed part
        self._bits: list[tuple[int, str]] = []
        self._texts: list[tuple[AtomShape, str]] = []  # with the name of the length
        # The rows: of each its fixed part, then its texts. One flat list, not a tuple for each row, so that the garbage
        # collector has nothing to traverse. Fast callers compute the number of rows themselves, from `width`.
        self.parts: Final[list[Any]] = []
        self.row_bytes = 0  # of the largest row
        self.width = 1  # parts of a row
        self._layout = form.layout()
        self.add: Callable[[Any], None]
        self.alone: Alone  # takes a row
        self._lone: Alone  # takes the parts of a row
        self._write(root)

    @classmethod
    def of(cls, schema: Schema) -> Collector | None:
        """A collector for a schema; None when its rows are not tuples of plain values."""
        form = format_of(schema)
        if form.has_cases or schema.message_type is not None or schema.checks:
            return None
        root = form.layout().root
        if not isinstance(root, TupleShape) or not 1 <= len(root.fields) <= FIELDS:
            return None
        if not all(isinstance(shape, AtomShape) and isinstance(shape.type, Atom) for shape in root.fields.values()):
            return None
        return cls(form, root)

    def __len__(self) -> int:
        return len(self.parts) // self.width

    @property
    def schema(self) -> Schema:
        """The schema of the rows."""
        return self._form.schema

    def batch(self, ids: Ids | None = None) -> Batch:
        """The rows as a batch; the collector is empty afterwards."""
        parts = self.parts.copy()
        self.parts.clear()
        rows = len(parts) // self.width
        if rows == 1 and ids is not None:
            return Batch.lone(self._form, self._layout, self._lone(parts, *ids[0]), ids)
        table = np.frombuffer(b"".join(parts[:: self.width]), self._dtype)
        columns = Columns(self._layout, rows)
        for shape, name in self._fixed:
            columns.fixed[shape.slot] = np.ascontiguousarray(table[name])
        for slot, name in self._bits:
            columns.bits[slot] = pack_bits(table[name])
        for place, (shape, name) in enumerate(self._texts, 1):
            offsets = np.zeros(rows + 1, OFFSET)  # TEXT_BYTES and the rows of a batch stay below 2 GiB
            np.cumsum(table[name], out=offsets[1:])
            columns.var[shape.slot] = offsets, b"".join(parts[place :: self.width])
        return Batch.assemble(self._form, rows, {0: (columns, None)}, ids)

    def _write(self, root: TupleShape) -> None:
        """Generate the functions that take a row, unrolled over its fields; a loop would take twice as long.

        `add` keeps the row; `alone` makes a batch of it, without further objects; `lone` does so with a row that `add`
        has kept. The generated text contains only numbers and positions in the schema: no name and no value from
        outside.
        """
        names = tuple(root.fields)
        scope: dict[str, Any] = {
            "items": itemgetter(*names), "attributes": attrgetter(*names), "absent": dict.fromkeys(names),
            "not_objects": NOT_OBJECTS, "encode": str.encode, "append": self.parts.append,
            "extend": self.parts.extend,
        }  # fmt: skip
        flat = self._layout.flat
        fixed, bits, ends = [""] * len(flat.fixed), [""] * len(flat.bits), [""] * len(flat.var)  # terms, by slot
        kept_fixed, kept_bits = fixed.copy(), bits.copy()  # the same for a row that was kept: its variables
        checks: list[str] = []
        terms: list[str] = []
        codes: list[str] = []
        formats: list[tuple[str, Any]] = []
        texts: list[str] = []

        def word(name: str, term: str, code: str, dtype: Any) -> None:
            terms.append(term)
            codes.append(code)
            formats.append((name, dtype))

        for number, shape in enumerate(root.fields.values()):
            assert isinstance(shape, AtomShape)
            assert isinstance(shape.type, Atom)
            kind, value = shape.type.kind, f"v{number}"
            there = "" if shape.valid is None else f" if {value} is not None else "
            if shape.valid is not None:
                self._bits.append((shape.valid, f"p{number}"))
                word(f"p{number}", f"{value} is not None", "?", np.bool_)
                bits[shape.valid], kept_bits[shape.valid] = terms[-1], f"p{number}"
            if kind in ("string", "bytes"):
                taken = f"encode({value})" if kind == "string" else f"content({value})"
                scope["content"] = atoms.exactly(bytes)
                checks.append(f"t{number} = {taken}{there and there + 'empty'}")
                scope["empty"] = b""
                texts.append(f"t{number}")
                self._texts.append((shape, f"n{number}"))
                word(f"n{number}", f"len(t{number})", "I", np.dtype("<u4"))
                ends[shape.slot] = f"t{number}"
            elif kind == "bool":
                scope["truth"] = atoms.exactly(bool)
                self._bits.append((shape.slot, f"c{number}"))
                word(f"c{number}", f"truth({value}){there and there + 'False'}", "?", np.bool_)
                bits[shape.slot], kept_bits[shape.slot] = terms[-1], f"c{number}"
            else:
                convert = atoms.CONVERTERS.get(kind)
                scope[f"convert{number}"], scope[f"kind{number}"] = convert, shape.type
                taken = value if convert is None else f"convert{number}(kind{number}, {value})"
                code = atoms.CODES.get(kind, "16s")
                self._fixed.append((shape, f"c{number}"))
                zero = "zeros" if code == "16s" else "0"
                word(f"c{number}", f"{taken}{there and there + zero}", code, DTYPES[kind])
                fixed[shape.slot], kept_fixed[shape.slot] = terms[-1], f"c{number}"
        layout = struct.Struct(f"<{''.join(codes)}")
        self._dtype = np.dtype(formats)
        assert self._dtype.itemsize == layout.size
        self.row_bytes = layout.size + (TEXT_BYTES if texts else 0)
        self.width = 1 + len(texts)
        scope |= {"pack": layout.pack, "unpack": layout.unpack, "zeros": bytes(16)}
        taken = ", ".join(f"v{number}" for number in range(len(names)))
        begin = [
            "    if type(row) is dict:",
            f"        if len(row) != {len(names)}:",
            "            row = {**absent, **row}",  # optional fields may be left out
            f"            if len(row) != {len(names)}:",
            "                raise TypeError",
            f"        {taken} = items(row)",
            "    else:",
            "        if isinstance(row, not_objects):",
            "            raise TypeError",
            f"        {taken} = attributes(row)",
            *(f"    {check}" for check in checks),
        ]
        if texts:
            begin.append(f"    if {' + '.join(f'len({text})' for text in texts)} > {TEXT_BYTES}:")
            begin.append("        raise TypeError")
        lines = ["def add(row):", *begin]
        if texts:
            # One call for all parts: an interrupt between two calls would leave half a row.
            lines.append(f"    extend((pack({', '.join(terms)}), {', '.join(texts)}))")
        else:
            lines.append(f"    append(pack({', '.join(terms)}))")
        # The columns of one row, in the order of `layout` and after the header, so that one `pack` writes both.
        wide = [place for place, shape in enumerate(flat.fixed) if width(shape) >= 4]
        codes = [atoms.CODES.get(shape.type.kind, "16s") for shape in flat.fixed]  # type: ignore[union-attr]
        offsets = [f"e{place}" for place in range(len(ends) + 1)] if ends else []
        row = struct.Struct(
            f"<IQ{''.join(codes[: len(wide)])}{'I' * len(offsets)}{''.join(codes[len(wide) :])}{'?' * len(bits)}"
        )
        head = [str(STAMPED_ROW), str(self.schema.fingerprint)]

        def whole(fixed: list[str], bits: list[str]) -> Iterator[str]:
            """The lines that make a batch from words and texts."""
            words = [*head, *fixed[: len(wide)], *offsets, *fixed[len(wide) :], *bits]
            yield f"    e0 = {4 + row.size}"  # after the checksum
            for place, text in enumerate(ends):
                yield f"    e{place + 1} = e{place} + len({text})"
            parts = "".join(f"{text}, " for text in ends)
            yield f"    body = join((columns({', '.join(words)}), {parts}padding[-e{len(ends)} & 7], "
            yield "        identity(stamp, 1, 1, publisher, broker)))"
            yield "    return crc32(body).to_bytes(4, 'little') + body"

        lines += ["def alone(row, publisher, broker, stamp):", *begin, *whole(fixed, bits)]
        lines += ["def lone(parts, publisher, broker, stamp):", f"    {', '.join(['kept', *texts])}, = parts"]
        lines += [f"    {', '.join(name for name, _ in formats)}, = unpack(kept)", *whole(kept_fixed, kept_bits)]
        scope |= {
            "columns": row.pack,
            "join": b"".join,
            "crc32": crc32,
            "identity": IDENTITY.pack,
            "padding": _PADDING,
        }
        exec("\n".join(lines), scope)  # noqa: S102 - numbers from the schema only, see above
        self.add, self.alone, self._lone = scope["add"], scope["alone"], scope["lone"]
