"""Rows as light views: a field is read when it is accessed, and only that field."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple

from milepost.batch import atoms
from milepost.batch.block import DTYPES, Block
from milepost.batch.format import Format
from milepost.batch.ids import MessageId
from milepost.batch.layout import Layout
from milepost.batch.plain import cell, plain
from milepost.errors import did_you_mean
from milepost.schema.flat import AtomShape, BoxShape, ChoiceShape, ListShape, Shape, TupleShape
from milepost.schema.types import Atom

if TYPE_CHECKING:
    from milepost.batch.batch import Batch

_PAIR: Final = struct.Struct("<II")
_ONE: Final = {kind: struct.Struct(f"<{code}") for kind, code in atoms.CODES.items()}


def read(form: Format, block: Block, shape: Shape, index: int) -> Any:
    """The value of one shape for one element: a Python value or a view."""
    match shape:
        case AtomShape():
            return _atom(form, block, shape, index) if _there(block, shape.valid, index) else None
        case TupleShape():
            if not _there(block, shape.valid, index):
                return None
            return (shape.view or _view_class(shape))(form, block, shape, index)
        case ListShape():
            if not _there(block, shape.valid, index):
                return None
            at = block.base + block.layout.list_at(shape, block.n) + 4 * index
            start, end = _PAIR.unpack_from(block.data, at)
            return ListView(form, block.items[shape.slot], range(start, end))
        case ChoiceShape():
            return None if shape.shape is None else VariantView(form, block, shape, index)
        case BoxShape():
            tag = block.data[block.base + block.layout.fixed_at(shape, block.n) + index]
            if not tag:
                return None
            _, ranks, cases = block.box(shape)
            return read(form, cases[tag], cases[tag].layout.root, int(ranks[index]))


def _there(block: Block, slot: int | None, index: int) -> bool:
    if slot is None:
        return True
    byte = block.data[block.base + block.layout.bit_at(slot, block.n) + (index >> 3)]
    return bool(byte >> (index & 7) & 1)


def _atom(form: Format, block: Block, shape: AtomShape, index: int) -> Any:
    kind = shape.type
    data, n = block.data, block.n
    name = kind.kind if isinstance(kind, Atom) else "dynamic"
    if name == "bool":
        return _there(block, shape.slot, index)
    if name in DTYPES:
        assert isinstance(kind, Atom)
        at = block.base + block.layout.fixed_at(shape, n) + index * DTYPES[name].itemsize
        return FROM_BYTES[name](kind, data, at)
    at = block.base + block.layout.var_at(n) + 4 * (shape.slot * n + index)
    start, end = _PAIR.unpack_from(data, at)
    raw = bytes(data[start:end])
    if name == "string":
        return raw.decode()
    if name == "bytes":
        return raw
    return cell(form, shape, raw, view=True)


def _number(kind: Atom, data: Any, at: int) -> Any:
    return _ONE[kind.kind].unpack_from(data, at)[0]


FROM_BYTES: Final[dict[str, Callable[[Atom, Any, int], Any]]] = dict.fromkeys(_ONE, _number) | {
    "date": lambda kind, data, at: atoms.date_of(_number(kind, data, at)),
    "timestamp": lambda kind, data, at: atoms.timestamp_of(_number(kind, data, at)),
    "uuid": lambda kind, data, at: atoms.uuid_of(bytes(data[at : at + 16])),
    "decimal": lambda kind, data, at: atoms.decimal_of(kind, int.from_bytes(data[at : at + 16], "little", signed=True)),
}
"""How one value of each fixed-width type is read out of a buffer."""


class TupleView(Mapping[str, Any]):
    """A tuple: fields by attribute and by item. A field hides a method of the same name.

    So code that takes views of any schema calls none of their methods: `name in view`, `view[name]` and `iter(view)`
    always mean the same.
    """

    __slots__ = ("_block", "_form", "_index", "_shape")

    def __init__(self, form: Format, block: Block, shape: TupleShape, index: int) -> None:
        self._form = form
        self._block = block
        self._shape = shape
        self._index = index

    def __getitem__(self, name: str) -> Any:
        try:
            shape = self._shape.fields[name]
        except KeyError:
            raise KeyError(f"there is no field {name!r}{did_you_mean(str(name), self._shape.fields)}") from None
        return read(self._form, self._block, shape, self._index)

    def __getattr__(self, name: str) -> Any:
        if name in TupleView.__slots__:
            raise AttributeError(name)  # not initialised yet, as in a copy: there are no fields
        shape = self._shape.fields.get(name)
        if shape is None:
            raise AttributeError(f"there is no field {name!r}{did_you_mean(name, self._shape.fields)}")
        return read(self._form, self._block, shape, self._index)

    def __iter__(self) -> Iterator[str]:
        return iter(self._shape.fields)

    def __len__(self) -> int:
        return len(self._shape.fields)

    def __contains__(self, name: object) -> bool:
        return name in self._shape.fields

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return {name: self[name] for name in self} == {name: other[name] for name in other}

    __hash__ = None  # type: ignore[assignment]

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._shape.fields]

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={self[name]!r}" for name in self)
        return f"{type(self).__name__}({inside})"


_METHODS: Final = frozenset(name for name in dir(TupleView) if not name.startswith("_"))


def _view_class(shape: TupleShape) -> type[TupleView]:
    """The view class of a tuple, kept in its shape; made on first use."""
    names = _METHODS & shape.fields.keys()
    shape.view = TupleView
    if names:
        members: dict[str, Any] = {name: property(itemgetter(name)) for name in names}
        shape.view = type("TupleView", (TupleView,), {"__slots__": (), "__module__": __name__} | members)
    made: type[TupleView] = shape.view
    return made


class MessageHeader(NamedTuple):
    """The metadata of a topic's message."""

    id: MessageId | None  # the publisher, the broker, and the time
    log: int | None = None  # of a durable topic: the number of the log,
    offset: int | None = None  # and the offset in it
    deliveries: int = 0  # earlier deliveries by a named subscription

    @property
    def publisher(self) -> int | None:
        """The number of the client that put the message."""
        return None if self.id is None else self.id.publisher

    @property
    def broker(self) -> int | None:
        """The number of the broker that the message was put to."""
        return None if self.id is None else self.id.broker


class Row(TupleView):
    """A message. `header` has its metadata, as its ID and its offset.

    No field hides `header`: a field of that name is read by item. `id` is the message ID, unless it is a field. Each
    layout has a class of its own, made by `row_class`, with a property for each field: a property costs a sixth of
    `__getattr__`.
    """

    __slots__ = ("_batch", "_row")
    _readers: ClassVar[dict[str, Callable[[Row], Any]]] = {}

    def __init__(self, block: Block, batch: Batch, index: int, row: int | None = None) -> None:
        self._block = block
        self._batch = batch  # for the header, which is made on access
        self._index = index
        self._row = index if row is None else row  # in the batch; `index` is in the block

    @property
    def header(self) -> MessageHeader:
        """The metadata of the message."""
        return self._batch.header(self._row)

    @property
    def id(self) -> MessageId | None:
        """The message ID: the publisher, the broker, and the time."""
        ids = self._batch.ids
        return None if ids is None else ids[self._row]

    def __getitem__(self, name: str) -> Any:
        reader = self._readers.get(name)
        return super().__getitem__(name) if reader is None else reader(self)

    def __copy__(self) -> Row:
        return type(self)(self._block, self._batch, self._index, self._row)


def row_class(form: Format, layout: Layout) -> type[Row]:
    """The class of one layout's messages, kept in the layout; made on first use."""
    if layout.row_class is None:
        shape = layout.root
        assert isinstance(shape, TupleShape)
        readers = {name: _reader(form, layout, inner) for name, inner in shape.fields.items()}
        members: dict[str, Any] = {"__slots__": (), "__module__": Row.__module__}
        members |= {"_form": form, "_shape": shape, "_readers": readers}
        # Fields hide everything but the header and the attributes that this module reads.
        members |= {
            name: property(reader)
            for name, reader in readers.items()
            if name != "header" and not (name.startswith("_") and hasattr(Row, name))
        }
        layout.row_class = type("Row", (Row,), members)
    return layout.row_class


def _reader(form: Format, layout: Layout, shape: Shape) -> Callable[[Row], Any]:
    """A function that reads one field of a message.

    The first messages read their value alone. When more than an eighth of them have read a field, the whole column
    becomes Python values at once, in C: that costs less than the reads so far.
    """
    if not isinstance(shape, AtomShape) or not isinstance(shape.type, Atom):
        return lambda row: read(form, row._block, shape, row._index)
    alone = _alone(form, layout, shape)

    def field(row: Row) -> Any:
        block = row._block
        values = block.read.get(shape)
        if values is None:
            count = block.asked.get(shape, 0) + 1
            if count <= _ASKED_FIRST or count <= block.n >> 3:
                block.asked[shape] = count
                return alone(block, row._index)
            values = block.read[shape] = plain(form, block, shape)
        return values[row._index]

    return field


_ASKED_FIRST: Final = 4  # values of a field that are always read one by one, however few messages there are


def _alone(form: Format, layout: Layout, shape: AtomShape) -> Callable[[Block, int], Any]:
    """A function that reads one value, with everything precomputed that the layout fixes.

    The start of a column is a linear function of the number of rows: two constants.
    """
    assert isinstance(shape.type, Atom)
    kind = shape.type.kind
    if shape.valid is None and kind == "string":
        first, step = layout.var_at(0), layout.var_at(1) - layout.var_at(0) + 4 * shape.slot
        pair = _PAIR.unpack_from

        def text(block: Block, index: int) -> str:
            data = block.data
            start, end = pair(data, block.base + first + step * block.n + 4 * index)
            return str(data[start:end], "utf-8")  # for bytes and for views of bytes

        return text
    if shape.valid is None and kind in _ONE and kind not in ("date", "timestamp"):
        first, step = layout.fixed_at(shape, 0), layout.fixed_at(shape, 1) - layout.fixed_at(shape, 0)
        unpack, size = _ONE[kind].unpack_from, _ONE[kind].size

        def number(block: Block, index: int) -> Any:
            return unpack(block.data, block.base + first + step * block.n + size * index)[0]

        return number
    return lambda block, index: read(form, block, shape, index)


class VariantView(Mapping[str, Any]):
    """A variant: `case` and `value`. The name of a case gives its value, or None when the variant is in another."""

    __slots__ = ("_block", "_form", "_index", "_shape")

    def __init__(self, form: Format, block: Block, shape: ChoiceShape, index: int) -> None:
        self._form = form
        self._block = block
        self._shape = shape
        self._index = index

    @property
    def case(self) -> str:
        """The name of the case."""
        assert self._shape.case is not None
        return self._shape.case

    @property
    def value(self) -> Any:
        """The value of the case."""
        assert self._shape.shape is not None
        return read(self._form, self._block, self._shape.shape, self._index)

    def __getitem__(self, name: str) -> Any:
        if name != self.case:
            raise KeyError(f"the variant is in case {self.case!r}, not {name!r}")
        return self.value

    def __getattr__(self, name: str) -> Any:
        if name in VariantView.__slots__:
            raise AttributeError(name)
        names = [item.name for item in self._shape.variant.cases]
        if name not in names:
            raise AttributeError(f"there is no case {name!r}{did_you_mean(name, names)}")
        return self.value if name == self.case else None

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *(item.name for item in self._shape.variant.cases)]

    def __iter__(self) -> Iterator[str]:
        yield self.case

    def __len__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"VariantView({self.case}={self.value!r})"


class ListView(Sequence[Any]):
    """A list: elements by index, read on access."""

    __slots__ = ("_block", "_form", "_range")

    def __init__(self, form: Format, block: Block, span: range) -> None:
        self._form = form
        self._block = block
        self._range = span

    def __len__(self) -> int:
        return len(self._range)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return ListView(self._form, self._block, self._range[index])
        if not -len(self._range) <= index < len(self._range):
            raise IndexError(f"there is no element {index} in a list of {len(self._range)}")
        return read(self._form, self._block, self._block.layout.root, self._range[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ListView({list(self)!r})"
