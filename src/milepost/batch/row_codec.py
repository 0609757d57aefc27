"""A codec for a single row: one `struct.pack` writes it and one `unpack` checks it; columns take tens of calls.

Only for flat-tuples of atoms, as most single messages are. All other rows, and invalid ones, are left to the code for
columns, which raises the errors.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from milepost.batch import atoms
from milepost.batch.checksum import crc32
from milepost.batch.header import HEADER, VERSION, WITH_IDS, Buffer
from milepost.schema.flat import AtomShape, BoxShape, Shape, TupleShape, width
from milepost.schema.types import Atom

if TYPE_CHECKING:
    from milepost.batch.layout import Layout

REFUSED: Final = (*atoms.REFUSED, KeyError)
STAMPED_ROW: Final = 1 | (VERSION | WITH_IDS) << 24  # the header's second word of one row with its ID
SHORT_BYTES: Final = 65_536  # a longer row gains nothing
_HEAD: Final = struct.Struct("<IQ")  # the header after its checksum
IDENTITY: Final = struct.Struct("<QIIII")  # stamp, one run, the row after its last, publisher, broker


class RowCodec:
    """Packs and checks one row of a layout. `compile` returns None when the layout has more than atoms."""

    def __init__(self, layout: Layout, root: TupleShape, fingerprint: int) -> None:
        flat = layout.flat
        self.layout: Final = layout
        self._fingerprint = fingerprint
        self._row_head = _HEAD.pack(STAMPED_ROW, fingerprint)  # behind the checksum
        wide = [shape for shape in flat.fixed if width(shape) >= 4]
        narrow = flat.fixed[len(wide) :]
        self._offsets = len(flat.var) + 1 if flat.var else 0
        codes = [_code(shape) for shape in wide] + ["I"] * self._offsets
        codes += [_code(shape) for shape in narrow] + ["B"] * len(flat.bits)
        self._struct = struct.Struct(f"<{''.join(codes)}")
        self._headed = struct.Struct(f"{HEADER.format}{''.join(codes)}")
        self._size = len(codes)
        self._data = HEADER.size + self._struct.size  # start of the text; a schema with one case has no directory
        self._first_offset = len(wide)
        self._first_bit = len(codes) - len(flat.bits)
        self._place = {id(shape): place for place, shape in enumerate(wide)}
        start = len(wide) + self._offsets
        self._place |= {id(shape): start + place for place, shape in enumerate(narrow)}
        self._fill = self._tuple(root)
        self._strings = self._first_offset + flat.strings
        self._ranges = [
            (self._place[id(shape)], *bounds)
            for shape in flat.fixed
            if isinstance(shape, AtomShape) and (bounds := _bounds(shape.type)) is not None
        ]

    def is_row(self, data: Buffer) -> bool:
        """Whether a batch has one row of this schema, with its ID."""
        return data[4:16] == self._row_head

    @classmethod
    def compile(cls, layout: Layout, fingerprint: int) -> RowCodec | None:
        """The codec for a layout, if it can have one."""
        flat = layout.flat
        if flat.lists or flat.boxes or not isinstance(layout.root, TupleShape):
            return None
        if any(not isinstance(shape.type, Atom) for shape in flat.var):
            return None
        return cls(layout, layout.root, fingerprint) if _plain(layout.root) else None

    def pack(self, row: Any) -> bytes:
        """The bytes of one row. Raises one of `REFUSED` for a row that it cannot take."""
        words: list[Any] = [0] * self._size
        texts: list[bytes] = [b""] * (self._offsets - 1) if self._offsets else []
        self._fill(row, words, texts)
        if texts:
            place = self._first_offset
            words[place] = end = self._data
            for text in texts:
                place += 1
                end += len(text)
                words[place] = end
        return b"".join((self._struct.pack(*words), *texts))

    def end(self, data: Buffer, base: int) -> int | None:
        """The end of a row that starts at `base`, if its bytes are valid; None leaves it to the full validation."""
        start = base + self._struct.size
        if start > len(data):
            return None
        words = self._struct.unpack_from(data, base)
        if self._first_bit < self._size and max(words[self._first_bit :]) > 1:
            return None
        for place, low, high in self._ranges:
            value = words[place]
            if not low <= (value if isinstance(value, int) else int.from_bytes(value, "little", signed=True)) <= high:
                return None
        if not self._offsets:
            return start
        offsets = words[self._first_offset : self._first_offset + self._offsets]
        if offsets[0] != start or offsets[-1] > len(data) or list(offsets) != sorted(offsets):
            return None
        text = bytes(data[start : words[self._strings]])
        return offsets[-1] if text.isascii() else None

    def first(self, data: bytes) -> int:
        """The start of the ID of a single message, if its batch is valid; 0 leaves it to the full validation.

        Checks header, checksum, row and ID in one function: at one message a millisecond, neither code nor data is in
        the processor's caches, and every call costs.
        """
        size = len(data)
        if not self._data + IDENTITY.size <= size <= SHORT_BYTES:
            return 0
        checksum, word, fingerprint, *words = self._headed.unpack_from(data)
        if word != STAMPED_ROW or fingerprint != self._fingerprint or crc32(data[4:]) != checksum:
            return 0
        if self._first_bit < self._size and max(words[self._first_bit :]) > 1:
            return 0
        for place, low, high in self._ranges:
            value = words[place]
            if not low <= (value if isinstance(value, int) else int.from_bytes(value, "little", signed=True)) <= high:
                return 0
        end = self._data
        if self._offsets:
            offsets = words[self._first_offset : self._first_offset + self._offsets]
            if offsets[0] != end or offsets != sorted(offsets) or offsets[-1] > size:
                return 0
            if not data[end : words[self._strings]].isascii():
                return 0
            end = offsets[-1]
        at = (end + 7) & ~7
        if at + IDENTITY.size != size or any(data[end:at]):
            return 0
        _, runs, rows, _, _ = IDENTITY.unpack_from(data, at)
        return at if runs == rows == 1 else 0

    def judging(self, publisher: int, broker: int) -> bytes | None:
        """The plan with which `native.judge` does the work of `first`, for one publisher; None if it cannot.

        It has the first bytes of a batch, its ID, sizes, offsets, bits, and the ranges of numbers.
        """
        flat, codes = self.layout.flat, self._struct.format[1:]
        if len(codes) != self._size:
            return None  # a decimal or a UUID: their struct codes are longer than a letter
        places = [HEADER.size + struct.calcsize(f"<{codes[:number]}") for number in range(len(codes) + 1)]
        start = struct.pack("<IQ", STAMPED_ROW, self._fingerprint)
        start += bytes(4) + struct.pack("<IIII", 1, 1, publisher, broker)
        offsets = (self._offsets, places[self._first_offset], flat.strings)
        bits = (len(flat.bits), places[self._first_bit])
        ranges = [(places[at], struct.calcsize(f"<{codes[at]}"), low, high) for at, low, high in self._ranges]
        plan = start + struct.pack("<8I", self._data, SHORT_BYTES, *offsets, *bits, len(ranges))
        return plan + b"".join(struct.pack("<IIqq", *each) for each in ranges)

    def _tuple(self, shape: TupleShape) -> _Fill:
        fields = [(name, self._field(inner)) for name, inner in shape.fields.items()]
        count = len(fields)
        valid = None if shape.valid is None else self._first_bit + shape.valid

        def fill(row: Any, words: list[Any], texts: list[bytes]) -> None:
            if valid is not None:
                if row is None:
                    return
                words[valid] = 1
            if type(row) is not dict or len(row) != count:
                raise TypeError
            for name, field in fields:
                field(row[name], words, texts)

        return fill

    def _field(self, shape: Shape) -> _Fill:
        if isinstance(shape, TupleShape):
            return self._tuple(shape)
        assert isinstance(shape, AtomShape)
        assert isinstance(shape.type, Atom)
        store = self._atom(shape, shape.type)
        if shape.valid is None:
            return store
        valid = self._first_bit + shape.valid

        def optional(value: Any, words: list[Any], texts: list[bytes]) -> None:
            if value is not None:
                words[valid] = 1
                store(value, words, texts)

        return optional

    def _atom(self, shape: AtomShape, kind: Atom) -> _Fill:
        if kind.kind in ("string", "bytes"):
            slot = shape.slot
            as_bytes: Callable[[Any], bytes] = str.encode if kind.kind == "string" else atoms.exactly(bytes)

            def text(value: Any, words: list[Any], texts: list[bytes]) -> None:
                texts[slot] = as_bytes(value)

            return text
        place = self._first_bit + shape.slot if kind.kind == "bool" else self._place[id(shape)]
        convert = _same_bool if kind.kind == "bool" else atoms.CONVERTERS.get(kind.kind)
        if convert is None:

            def number(value: Any, words: list[Any], texts: list[bytes]) -> None:
                words[place] = value

            return number

        def converted(value: Any, words: list[Any], texts: list[bytes]) -> None:
            words[place] = convert(kind, value)

        return converted


_Fill = Callable[[Any, list[Any], list[bytes]], None]


def _plain(shape: Shape) -> bool:
    if isinstance(shape, TupleShape):
        return all(_plain(inner) for inner in shape.fields.values())
    return isinstance(shape, AtomShape)


def _code(shape: AtomShape | BoxShape) -> str:
    assert isinstance(shape, AtomShape)
    assert isinstance(shape.type, Atom)
    return atoms.CODES.get(shape.type.kind, "16s")


def _bounds(kind: Any) -> tuple[int, int] | None:
    """The least and the greatest number that are valid in a column of this type; None if all are."""
    if isinstance(kind, Atom) and kind.kind == "decimal":
        return 1 - 10**kind.precision, 10**kind.precision - 1
    return atoms.RANGES.get(kind.kind) if isinstance(kind, Atom) else None


def _same_bool(kind: Atom, value: Any) -> bool:
    if type(value) is not bool:
        raise TypeError
    return value
