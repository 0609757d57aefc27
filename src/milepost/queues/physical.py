"""Values of a batch's columns <-> values of a database driver, a column at a time.

`milepost.query.sql.tables` defines the form of a value in each database.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import atoms
from milepost.batch.block import DTYPES, OFFSET, Block
from milepost.batch.columns import Columns, pack_bits
from milepost.query.sql.tables import NARROW_DIGITS
from milepost.schema.flat import AtomShape
from milepost.schema.types import Atom

Mask = npt.NDArray[np.bool_]

_ABOVE: Final = 10**38  # added to a long decimal of SQLite: all become positive, with 39 digits
_SIGN: Final = np.uint64(1 << 63)
_LOW: Final = (1 << 64) - 1


def poured(block: Block, shape: AtomShape, present: Mask | None, dialect: str) -> list[Any]:
    """A column for the driver; None where `present` is false. Text must not contain U+0000: see `first_nul`."""
    assert isinstance(shape.type, Atom)
    values = _values(block, shape, shape.type, dialect)
    if present is None or present.all():
        return values
    return [value if there else None for value, there in zip(values, present.tolist(), strict=True)]


def _values(block: Block, shape: AtomShape, kind: Atom, dialect: str) -> list[Any]:
    sqlite = dialect == "sqlite"
    match kind.kind:
        case "bool":
            bits = block.values(shape)
            return listed(bits.view(np.int8) if sqlite else bits)
        case "float" | "double":
            numbers: list[Any] = block.values(shape).tolist()
            if sqlite:
                for at in np.flatnonzero(np.isnan(block.values(shape))).tolist():
                    numbers[at] = "NaN"
            return numbers
        case "uint64":
            return listed((block.values(shape) ^ _SIGN).view(np.int64))
        case "string":
            return _texts(block, shape)
        case "bytes":
            offsets, data = block.var(shape)
            first, raw = int(offsets[0]), data[offsets[0] : offsets[-1]].tobytes()
            ends = (offsets - first).tolist()
            return [raw[start:end] for start, end in pairwise(ends)]
        case "decimal":
            return _decimals(block.words(shape), kind, sqlite)
    return listed(block.values(shape))  # UUIDs are bytes to NumPy, dates and timestamps numbers


def listed(column: npt.NDArray[Any]) -> list[Any]:
    """A NumPy column as Python values."""
    return column.tolist()  # type: ignore[no-any-return]


def _texts(block: Block, shape: AtomShape) -> list[str]:
    offsets, data = block.var(shape)
    first, raw = int(offsets[0]), data[offsets[0] : offsets[-1]].tobytes()
    ends = (offsets - first).tolist()
    if raw.isascii():
        text = raw.decode()
        return [text[start:end] for start, end in pairwise(ends)]
    return [raw[start:end].decode() for start, end in pairwise(ends)]


def _decimals(words: npt.NDArray[np.int64], kind: Atom, sqlite: bool) -> list[Any]:
    if kind.precision <= NARROW_DIGITS:
        units = words[:, 0].tolist()
    else:
        units = [(high << 64) | (low & _LOW) for low, high in words.tolist()]
    if not sqlite:
        return [atoms.decimal_of(kind, number) for number in units]
    return units if kind.precision <= NARROW_DIGITS else [f"{number + _ABOVE:039d}" for number in units]


def first_nul(block: Block, shape: AtomShape, present: Mask | None) -> int | None:
    """The first element whose text contains U+0000, which PostgreSQL cannot store; None if there is none."""
    offsets, data = block.var(shape)
    found = np.flatnonzero(data[offsets[0] : offsets[-1]] == 0)
    if not len(found):
        return None
    elements = np.searchsorted(offsets, found + offsets[0], side="right") - 1
    if present is not None:
        elements = elements[present[elements]]
    return int(elements[0]) if len(elements) else None


def first_long(block: Block, shape: AtomShape, present: Mask | None, most: int) -> int | None:
    """The first element whose text or bytes are longer than `most` bytes; None if there is none."""
    long = np.diff(block.var(shape)[0]) > most
    found = np.flatnonzero(long if present is None else long & present)
    return int(found[0]) if len(found) else None


def gathered(columns: Columns, shape: AtomShape, values: Sequence[Any], optional: bool, dialect: str) -> None:
    """Fill a column and its validity bits with the driver's values; `optional`: they may contain None."""
    kind = shape.type
    assert isinstance(kind, Atom)
    if shape.valid is not None:
        columns.bits[shape.valid] = pack_bits([value is not None for value in values])
    if optional and None in values:
        nothing = _NOTHING.get(kind.kind, 0)
        if dialect == "sqlite" and kind.kind == "decimal" and kind.precision > NARROW_DIGITS:
            nothing = str(_ABOVE)
        elif kind.kind == "uint64":
            nothing = -(1 << 63)
        values = [nothing if value is None else value for value in values]
    _fill(columns, shape, kind, values, dialect)


_NOTHING: Final[dict[str, Any]] = {"string": "", "bytes": b"", "uuid": bytes(16)}


def _fill(columns: Columns, shape: AtomShape, kind: Atom, values: Sequence[Any], dialect: str) -> None:
    match kind.kind:
        case "bool":
            columns.bits[shape.slot] = pack_bits(values)
        case "string":
            text = "".join(values)
            data = text.encode()
            sizes = map(len, values) if len(data) == len(text) else (len(value.encode()) for value in values)
            columns.var[shape.slot] = offsets_of(list(sizes)), data
        case "bytes":
            columns.var[shape.slot] = offsets_of(list(map(len, values))), b"".join(values)
        case "uuid":
            columns.fixed[shape.slot] = b"".join(values)
        case "uint64":
            columns.fixed[shape.slot] = np.array(values, np.int64).view(np.uint64) ^ _SIGN
        case "decimal":
            columns.fixed[shape.slot] = _units(kind, values, dialect == "sqlite")
        case name:
            columns.fixed[shape.slot] = np.array(values, DTYPES[name])  # the text 'NaN' too


def _units(kind: Atom, values: Sequence[Any], sqlite: bool) -> Any:
    narrow = kind.precision <= NARROW_DIGITS
    if not sqlite:
        units = [atoms.unscaled(kind, value) for value in values]
    else:
        units = list(values) if narrow else [int(value) - _ABOVE for value in values]
    if not narrow:
        return b"".join([number.to_bytes(16, "little", signed=True) for number in units])
    low = np.array(units, np.int64)
    return np.stack((low, low >> 63), axis=1)


def offsets_of(sizes: Sequence[int]) -> npt.NDArray[np.int32]:
    """The offsets of values of these sizes."""
    ends = np.array(list(accumulate(sizes, initial=0)), np.int64)
    limits.require("BATCH_BYTES", int(ends[-1]), "the size of one column")
    return ends.astype(OFFSET)


def array(values: Sequence[Any]) -> str:
    """A column as the text of a PostgreSQL array. The driver takes twice as long for a list of values."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, str) and None not in values:
        return f"{{{_quoted(_NUL.join(values)).replace(_NUL, _BETWEEN)}}}"
    say = _quoted if isinstance(first, str) else _hex if isinstance(first, bytes) else str
    if None not in values:
        return f"{{{','.join(map(say, values))}}}"
    return f"{{{','.join(['NULL' if value is None else say(value) for value in values])}}}"


def _hex(value: bytes) -> str:
    return f'"\\\\x{value.hex()}"'


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_NUL: Final = "\0"  # never in stored text
_BETWEEN: Final = '","'
