"""Arrow record batches, and other objects with the Arrow interface -> columns. Each column is copied once.

Arrow is less strict than a schema: any value may be null, and the children of a null struct may have any value. So
required values are checked here, and values under a null become zero: equal messages have equal bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost import limits
from milepost.batch import atoms
from milepost.batch.arrow import ABSENT, field_type
from milepost.batch.block import DTYPES, OFFSET, arrow_type
from milepost.batch.columns import Bytes, Columns, pack_bits
from milepost.batch.format import BOXED, Format
from milepost.batch.layout import Layout
from milepost.errors import InvalidValue, did_you_mean
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape, ListShape, Shape, SuperVariant, TupleShape
from milepost.schema.types import Atom, Optional, Schema, Tuple, Type, Variant

Mask = npt.NDArray[np.bool_] | None


def record_batch(schema: Schema, source: Any) -> pa.RecordBatch:
    """An Arrow object, or a mapping of columns, as one record batch with the schema's columns in order."""
    assert isinstance(schema.type, Tuple)
    names = [item.name for item in schema.type.fields]
    if isinstance(source, Mapping):
        _known(source.keys(), names)
        for name, values in source.items():
            if isinstance(values, str | bytes | Mapping) or not hasattr(values, "__len__"):
                raise InvalidValue(f"{values!r:.60} is not a column; write [message] for one message", name)
        cases = SuperVariant(schema.type, schema)
        columns = {
            item.name: _as_array(source[item.name], field_type(cases, item.type), item.name)
            for item in schema.type.fields
            if item.name in source
        }
        sizes = {name: len(column) for name, column in columns.items()}
        if len(set(sizes.values())) > 1:
            raise InvalidValue(f"columns of different lengths: {sizes}")
        return pa.RecordBatch.from_pydict(columns)
    if isinstance(source, pa.RecordBatch):
        table = source
    elif hasattr(source, "__arrow_c_stream__"):
        whole = as_table(source).combine_chunks()
        chunks = whole.to_batches()
        table = chunks[0] if chunks else pa.RecordBatch.from_pylist([], schema=whole.schema)
    else:
        table = pa.record_batch(source)
    _known(table.schema.names, names)
    return table


def as_table(source: Any) -> pa.Table:
    """A frame as an Arrow table."""
    try:
        return pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as reason:
        raise InvalidValue(f"Arrow cannot take this {type(source).__name__}: {reason}") from None


def _known(found: Iterable[str], names: list[str]) -> None:
    seen = set()
    for name in found:
        if name in seen:
            raise InvalidValue(f"two columns are called {name!r}")
        seen.add(name)
        if name not in names:
            raise InvalidValue(f"there is no field {name!r}{did_you_mean(str(name), names)}")


def _as_array(values: Any, kind: pa.DataType, path: str) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        return values.combine_chunks()
    if isinstance(values, pa.Array):
        return values
    try:
        if isinstance(values, np.ndarray):
            # The mask of a masked array marks absent values; NaN stays a value.
            mask = np.ma.getmaskarray(values) if np.ma.isMaskedArray(values) else None
            data = np.ma.getdata(values)
            as_given = data.dtype != object
            return pa.array(data, None if as_given else kind, mask=mask, from_pandas=False)
        return pa.array(values, kind)
    except (pa.ArrowException, TypeError, ValueError) as reason:
        raise InvalidValue(f"not a column of {kind}: {reason}", path) from None


def groups_of(
    form: Format, table: pa.RecordBatch, *, lenient: bool = False
) -> dict[int, tuple[Columns, npt.NDArray[np.intp] | None]]:
    """The columns of each flat-tuple case in a record batch, with their rows.

    With `lenient`, the table is of another version of the schema, and columns that `form` does not know are ignored.
    """
    reader = _Reader(form, lenient)
    root = table.to_struct_array()
    if not form.has_cases:
        return {0: (reader.columns(form.layout(), root), None)}
    codes = np.zeros(0, np.int64)
    if not form.always_boxed:  # else the codes would not fit 64 bits
        codes = _Codes(form.cases, lenient).codes(form.schema.type, root)
    distinct = np.unique(codes)
    if not 0 < len(distinct) <= limits.BATCH_GROUPS:
        return {BOXED: (reader.columns(form.boxed, root), None)}
    groups: dict[int, tuple[Columns, npt.NDArray[np.intp] | None]] = {}
    for code in distinct.tolist():
        mine = np.flatnonzero(codes == code)
        chosen = root if len(distinct) == 1 else root.take(pa.array(mine))
        groups[code] = reader.columns(form.layout(code), chosen), mine
    return groups


class _Codes:
    """The multi-choice codes of values in Arrow form, a column at a time."""

    def __init__(self, cases: SuperVariant, lenient: bool) -> None:
        self.cases = cases
        self.lenient = lenient  # a case of another version counts as absence

    def codes(self, kind: Type, array: pa.Array) -> npt.NDArray[np.int64]:
        """The code of every element."""
        zeros = np.zeros(len(array), np.int64)
        array = _unsliced(array)
        if self.cases.count_of(kind) == 1 or pa.types.is_null(array.type):
            return zeros
        kind = self.cases.inline(kind)
        match kind:
            case Optional(Variant() as inner):
                numbers = _numbers(array, inner, self.lenient)
                return np.where(numbers < 0, 0, 1 + self._variant(inner, array, numbers))
            case Optional(inner):
                return np.where(_valid(array), self.codes(inner, array), 0)
            case Tuple(fields):
                codes = zeros
                for item in fields:
                    count = self.cases.count_of(item.type)
                    if count > 1:
                        index = array.type.get_field_index(item.name)
                        # A field without a column is absent; if it is required, reading the column raises the error.
                        codes = codes * count + (self.codes(item.type, array.field(index)) if index >= 0 else 0)
                return codes
            case Variant():
                return self._variant(kind, array, _numbers(array, kind, self.lenient))
        raise AssertionError(kind)

    def _variant(self, kind: Variant, array: pa.Array, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        codes = np.zeros(len(array), np.int64)
        base = 0
        for number, item in enumerate(kind.cases):
            mine = np.flatnonzero(numbers == number)
            codes[mine] = base + self.codes(item.type, _case(array, item.name, mine)) if len(mine) else 0
            base += self.cases.count_of(item.type)
        return codes


def _numbers(array: pa.Array, kind: Variant, lenient: bool) -> npt.NDArray[np.int64]:
    """The position of each element's case among the variant's; -1 for absence."""
    if not isinstance(array, pa.UnionArray):
        raise InvalidValue(f"a variant must be a union in Arrow, not {array.type}")
    names = [item.name for item in kind.cases]
    positions = np.full(128, -2, np.int64)
    for number, code in enumerate(array.type.type_codes):
        name = array.type.field(number).name
        positions[code] = -1 if name == ABSENT else names.index(name) if name in names else -2
    found: npt.NDArray[np.int64] = positions[np.asarray(array.type_codes)]
    if lenient:
        return np.maximum(found, -1)
    if bool((found == -2).any()):
        raise InvalidValue(f"a union has a case that is none of {', '.join(names)}")
    return found


def _unsliced(array: pa.Array | None) -> pa.Array | None:
    """A copy of a sliced union: Arrow gives the codes and offsets of a union without regard to its slice."""
    if isinstance(array, pa.UnionArray) and (array.offset or len(array.type_codes) != len(array)):
        return array.take(pa.array(np.arange(len(array))))
    return array


def _case(array: pa.UnionArray, name: str, rows: npt.NDArray[np.intp]) -> pa.Array:
    """The values of some elements of a union, all in one case."""
    number = next(number for number in range(array.type.num_fields) if array.type.field(number).name == name)
    child = array.field(number)
    dense = array.type.mode == "dense"
    return child.take(pa.array(np.asarray(array.offsets)[rows] if dense else rows))


def _valid(array: pa.Array) -> npt.NDArray[np.bool_]:
    bitmap = array.buffers()[0]
    if bitmap is None or pa.types.is_union(array.type):
        return np.asarray(array.is_valid().to_numpy(zero_copy_only=False))
    bits = np.unpackbits(np.frombuffer(bitmap, np.uint8), count=array.offset + len(array), bitorder="little")
    flags = bits.view(np.bool_)  # eight times as fast as by Arrow
    return flags[array.offset :] if array.offset else flags


class _Reader:
    """Fills columns from Arrow arrays. `outer` is a mask: where the tuples around a value are present."""

    def __init__(self, form: Format, lenient: bool) -> None:
        self.form = form
        self.lenient = lenient  # the table is of another version of the schema

    def columns(self, layout: Layout, array: pa.Array) -> Columns:
        """The columns of one level."""
        columns = Columns(layout, len(array))
        self._fill(columns, layout.root, array, None)
        return columns

    def _fill(self, columns: Columns, shape: Shape, array: pa.Array | None, outer: Mask) -> None:
        if array is not None and isinstance(array, pa.ExtensionArray):
            array = array.storage
        array = _unsliced(array)
        if array is not None and pa.types.is_null(array.type):
            array = None  # a column of Arrow's null type is the same as no column
        match shape:
            case AtomShape():
                self._atom(columns, shape, array, outer)
            case TupleShape():
                self._tuple(columns, shape, array, outer)
            case ListShape():
                self._list(columns, shape, array, outer)
            case ChoiceShape():
                self._choice(columns, shape, array, outer)
            case BoxShape():
                self._box(columns, shape, array, outer)

    def _present(self, columns: Columns, shape: Any, array: pa.Array | None, outer: Mask) -> Mask:
        """Write the validity bits, and return where values are present. Refuses a null in a required field."""
        n = columns.n
        valid: Mask = None
        if array is None:
            valid = np.zeros(n, np.bool_)
        elif array.null_count:
            valid = _valid(array)
        if shape.valid is not None:
            if valid is None:
                valid = outer
            elif outer is not None:
                valid = valid & outer
            columns.bits[shape.valid] = pack_bits(np.ones(n, np.bool_) if valid is None else valid)
            return valid
        if valid is not None:
            missing = ~valid if outer is None else ~valid & outer
            if bool(missing.any()):
                raise InvalidValue("missing; a value is required here", shape.path, int(np.argmax(missing)))
        return outer

    def _atom(self, columns: Columns, shape: AtomShape, array: pa.Array | None, outer: Mask) -> None:
        kind = arrow_type(shape.type)
        if array is not None and array.type != kind:
            array = _cast(array, kind, shape)
        nulls = array is not None and bool(array.null_count) and not array.offset
        if nulls and outer is None and shape.valid is not None and isinstance(shape.type, Atom):
            masks = _MASKS.get(shape.type.kind)
            if masks is not None:
                return _numbers_with_nulls(columns, shape, array, masks)
        present = self._present(columns, shape, array, outer)
        if array is None:
            array = pa.nulls(columns.n, kind)
        _store(columns, shape, array, present)

    def _tuple(self, columns: Columns, shape: TupleShape, array: pa.Array | None, outer: Mask) -> None:
        if array is not None and not pa.types.is_struct(array.type):
            raise InvalidValue(f"a tuple must be a struct in Arrow, not {array.type}", shape.path)
        present = self._present(columns, shape, array, outer)
        if array is not None and not self.lenient:
            _known([array.type.field(number).name for number in range(array.type.num_fields)], list(shape.fields))
        for name, inner in shape.fields.items():
            index = -1 if array is None else array.type.get_field_index(name)
            self._fill(columns, inner, None if array is None or index < 0 else array.field(index), present)

    def _list(self, columns: Columns, shape: ListShape, array: pa.Array | None, outer: Mask) -> None:
        layout = columns.layout.items[shape.slot]
        if array is None and self.lenient and shape.valid is None:
            # Only in a message type: nodes or references that the writer's version does not have.
            array = pa.Array.from_buffers(
                pa.list_(pa.null()), columns.n, [None, pa.py_buffer(bytes(4 * columns.n + 4))], children=[pa.nulls(0)]
            )
        present = self._present(columns, shape, array, outer)
        if array is None:
            array = pa.nulls(columns.n, pa.list_(pa.null()))
        if not pa.types.is_list(array.type):
            if not (pa.types.is_large_list(array.type) or pa.types.is_fixed_size_list(array.type)):
                raise InvalidValue(f"a list must be a list in Arrow, not {array.type}", shape.path)
            array = array.cast(pa.list_(array.type.value_field))
        offsets = np.frombuffer(array.buffers()[1] or bytes(4), OFFSET)[array.offset :][: len(array) + 1]
        values = array.values
        if present is not None and not present.all():
            # Arrow lets a null list have elements: leave them out.
            starts, sizes = offsets[:-1], np.where(present, np.diff(offsets), 0)
            ends = np.concatenate(([0], np.cumsum(sizes)))
            values = values.take(pa.array(np.repeat(starts - ends[:-1], sizes) + np.arange(ends[-1])))
            offsets = ends.astype(OFFSET)
        else:
            values = values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
        columns.lists[shape.slot] = offsets, self.columns(layout, values)

    def _choice(self, columns: Columns, shape: ChoiceShape, array: pa.Array | None, outer: Mask) -> None:
        if shape.shape is None:
            return
        if array is None:
            self._none_required(columns, shape, outer)
            return self._fill(columns, shape.shape, None, np.zeros(columns.n, np.bool_))
        number = [item.name for item in shape.variant.cases].index(shape.case or "")
        mine = _numbers(array, shape.variant, self.lenient) == number
        wrong = ~mine if outer is None else ~mine & outer
        if bool(wrong.any()):
            raise InvalidValue("missing; a variant is required here", shape.path, int(np.argmax(wrong)))
        if bool(mine.all()):
            self._fill(columns, shape.shape, _case(array, shape.case or "", np.arange(len(array))), outer)
            return
        places = np.zeros(len(array), np.int64)
        chosen = np.flatnonzero(mine)
        places[chosen] = np.arange(len(chosen))
        inner = _case(array, shape.case or "", chosen).take(pa.array(places, mask=~mine))
        self._fill(columns, shape.shape, inner, mine if outer is None else outer & mine)

    def _none_required(self, columns: Columns, shape: ChoiceShape | BoxShape, outer: Mask) -> None:
        if columns.n and (outer is None or bool(outer.any())):
            raise InvalidValue("missing; a variant is required here", shape.path)

    def _box(self, columns: Columns, shape: BoxShape, array: pa.Array | None, outer: Mask) -> None:
        if array is None:
            if not shape.optional:
                self._none_required(columns, shape, outer)
            columns.fixed[shape.slot] = bytes(columns.n)
            return
        numbers = _numbers(array, shape.variant, self.lenient)
        there = numbers >= 0 if outer is None else (numbers >= 0) & outer
        missing = ~there if outer is None else ~there & outer
        if not shape.optional and bool(missing.any()):
            raise InvalidValue("missing; a variant is required here", shape.path, int(np.argmax(missing)))
        tags = np.zeros(columns.n, np.uint8)
        chosen = np.flatnonzero(there)
        tags[chosen] = 1 + _Codes(shape.cases, self.lenient).codes(shape.variant, array.take(pa.array(chosen)))
        columns.fixed[shape.slot] = tags
        for tag in np.unique(tags[tags > 0]).tolist():
            mine = array.take(pa.array(np.flatnonzero(tags == tag)))
            columns.boxes[shape.index][tag] = self.columns(columns.layout.case(shape, tag), mine)


def _store(columns: Columns, shape: AtomShape, array: pa.Array, present: Mask) -> None:
    """Copy a column into its slot, with zeros for absent values."""
    n = len(array)
    if shape.type == Atom("bool"):
        whole = pa.Array.from_buffers(array.type, n, [None, array.buffers()[1]], offset=array.offset)  # without nulls
        flags = whole.to_numpy(zero_copy_only=False)
        columns.bits[shape.slot] = pack_bits(flags if present is None else flags & present)
    elif isinstance(shape.type, Atom) and (kind := shape.type.kind) in DTYPES:
        dtype = DTYPES[kind]
        column = np.frombuffer(array.buffers()[1] or b"", dtype, n, array.offset * dtype.itemsize)
        if present is not None:
            column = _zeroed(column, present)
        if kind in _BOUNDED:
            _in_range(shape, shape.type, column.view(dtype), array)
        columns.fixed[shape.slot] = column
    else:
        if present is not None:
            array = pc.if_else(pa.array(present), array, pa.scalar("" if _is_text(array.type) else b"", array.type))
        if shape.type == Atom("string"):
            _utf8(array, shape)
        _, offsets, data = array.buffers()
        edges = np.frombuffer(offsets or bytes(4), OFFSET)[array.offset :][: n + 1]
        columns.var[shape.slot] = edges, data or b""


def _zeroed(column: npt.NDArray[Any], present: npt.NDArray[np.bool_]) -> npt.NDArray[Any]:
    """The column's bytes with zeros for absent values.

    Uses a mask of all ones or all zeros, four times as fast as an assignment. The result's type is an integer.
    """
    mask = -present.view(np.int8)
    if column.dtype.itemsize == 16:
        return column.view(np.int64).reshape(-1, 2) & mask[:, None]
    return column.view(_WHOLE[column.dtype.itemsize]) & mask


def _numbers_with_nulls(columns: Columns, shape: AtomShape, array: pa.Array, masks: npt.NDArray[Any]) -> None:
    """`_store` for the most common column, numbers with nulls, in half the time."""
    n = columns.n
    bitmap, values = array.buffers()
    bits: Bytes = np.frombuffer(bitmap, np.uint8, (n + 7) >> 3)
    assert shape.valid is not None
    mask = masks.take(bits, 0).ravel()
    if n % 8:  # clear the bits behind the last row: Arrow leaves them undefined
        mask = mask[:n]
        bits = pack_bits(mask)
    columns.bits[shape.valid] = bits
    mask &= np.frombuffer(values, mask.dtype, n)
    columns.fixed[shape.slot] = mask


_WHOLE: Final = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}
_BITS: Final = np.arange(256)[:, None] >> np.arange(8) & 1
# By type, for each byte of a bitmap: eight numbers that are all ones, or all zeros.
_MASKS: Final = {
    kind: -_BITS.astype(_WHOLE[dtype.itemsize])
    for kind, dtype in DTYPES.items()
    if kind not in (*atoms.RANGES, "uuid", "decimal")
}
_BOUNDED: Final = {"date", "timestamp", "decimal"}  # types for which some bytes are invalid


def _in_range(shape: AtomShape, kind: Atom, column: npt.NDArray[Any], array: pa.Array) -> None:
    if kind.kind in atoms.RANGES:
        if not len(column):
            return
        low, high = atoms.RANGES[kind.kind]
        if int(column.min()) < low or int(column.max()) > high:
            raise InvalidValue(f"a {kind} outside the years 1 to 9999", shape.path)
    else:
        try:
            array.validate(full=True)
        except pa.ArrowInvalid:
            raise InvalidValue(f"more digits than {kind} has", shape.path) from None


def _utf8(array: pa.Array, shape: AtomShape) -> None:
    _, offsets, data = array.buffers()
    if data is None:
        return
    edges = np.frombuffer(offsets, OFFSET)[array.offset :]
    if bytes(memoryview(data)[edges[0] : edges[len(array)]]).isascii():
        return  # at memory speed; Arrow's own check goes string by string
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as reason:
        raise InvalidValue(f"not text: {reason}", shape.path) from None


def _cast(array: pa.Array, kind: pa.DataType, shape: AtomShape) -> pa.Array:
    """A column converted from a similar type: other widths, other units, dictionaries; never text to numbers."""
    source = array.type.value_type if pa.types.is_dictionary(array.type) else array.type
    if not any(test(source) and test(kind) for test in _FAMILIES) and not pa.types.is_null(source):
        raise InvalidValue(f"a column of {array.type} cannot become a column of {shape.type}", shape.path)
    try:
        cast = array.cast(kind)
        if pa.types.is_float32(kind) and pc.any(pc.and_(pc.is_inf(cast), pc.is_finite(array))).as_py():
            raise InvalidValue(f"a number too large for {shape.type}", shape.path)
        return cast
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as reason:
        raise InvalidValue(f"a column of {array.type} does not fit {shape.type}: {reason}", shape.path) from None


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind))


def _is_exact(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_decimal(kind))  # a float as a decimal would be rounded


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_bytes(kind: pa.DataType) -> bool:
    others = pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind)
    return bool(pa.types.is_binary(kind) or others)


_FAMILIES: Final = (
    _is_number,
    _is_exact,
    _is_text,
    _is_bytes,
    pa.types.is_boolean,
    pa.types.is_date,
    pa.types.is_timestamp,
)
