"""Messages out of queues, as the application gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property, lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch
from milepost.batch.atoms import timestamp_of
from milepost.errors import InvalidValue, ProtocolError, did_you_mean
from milepost.query.header import EPOCH_US, LANE_BITS
from milepost.schema import Node, Schema, build
from milepost.schema.messagetype import Reference
from milepost.schema.types import Atom, Optional, Tuple, Type
from milepost.wire import Taken

SCHEMAS: Final = 1_000  # schemas whose members are cached

N = TypeVar("N", bound=Node)
F = TypeVar("F", bound=Callable[..., Any])
Class: TypeAlias = type[N]  # an alias, because messages have a member `type` themselves
Classes: TypeAlias = Mapping[str, type[Node]]
"""The classes generated for the nodes of a message type: `NODE_CLASSES`."""


# M, S, T, priorities and earlier deliveries, each a column: a list or a NumPy array.
Headers: TypeAlias = tuple[Any, Any, Any, Any, Any]


class TakenBatch:
    """Messages of one type, in order. Their content is decoded on first use."""

    def __init__(
        self, type: str, schema: Schema, content: Batch | Callable[[], Batch], headers: Headers,
        plain: list[Any] | None = None,
    ) -> None:  # fmt: skip
        """`content` may be a function that makes the batch, when the messages are given as `plain` values."""
        self.type: Final = type
        self.headers: Final = headers
        self._content = content
        if plain is not None:
            self.plain = plain
        self._message_type = schema.message_type
        self.names, self.flat, self.native = _members(schema)
        self._roots: dict[int, Any] = {}

    @classmethod
    def read(cls, taken: Taken, schema: Schema) -> TakenBatch:
        """The messages of a TAKEN frame."""
        batch = Batch.decode(taken.data, schema)
        if len(batch) != len(taken.mids):
            raise ProtocolError(f"a TAKEN has {len(taken.mids)} numbers for {len(batch)} messages")
        headers = taken.mids, taken.writers, taken.transactions, taken.priorities, taken.aborts
        return cls(taken.type, schema, batch, headers)

    @cached_property
    def batch(self) -> Batch:
        """The content of the messages."""
        return self._content if isinstance(self._content, Batch) else self._content()

    def __len__(self) -> int:
        return len(self.headers[0])

    @cached_property
    def numbers(self) -> npt.NDArray[np.int64]:
        """M of the messages."""
        return np.asarray(self.headers[0], np.int64)

    @cached_property
    def writers(self) -> npt.NDArray[np.int64]:
        """S of the messages."""
        return np.asarray(self.headers[1], np.int64)

    @cached_property
    def transactions(self) -> npt.NDArray[np.int64]:
        """T of the messages."""
        return np.asarray(self.headers[2], np.int64)

    @cached_property
    def priorities(self) -> npt.NDArray[np.float64]:
        """The priorities that messages were given, or the results of the queue's function."""
        return np.asarray(self.headers[3], np.float64)

    @cached_property
    def deliveries(self) -> npt.NDArray[np.int32]:
        """How often each was delivered before, to transactions that were aborted."""
        return np.asarray(self.headers[4], np.int32)

    @cached_property
    def plain(self) -> list[Any]:
        """All messages as plain values at once: decoding by column costs far less than by message."""
        return self.batch.to_pylist()

    def root(self, row: int, classes: Classes | None) -> Any:
        """A message as its root node, or as a row; the same object each time."""
        found = self._roots.get(row)
        if found is None:
            message_type = self._message_type
            found = self.batch[row] if message_type is None else build(message_type, self.plain[row], classes)
            self._roots[row] = found
        return found

    def messages(self, classes: Classes | None = None) -> list[QueueMessage]:
        """One object for each message."""
        if self.native and "plain" in self.__dict__:  # the values are already decoded
            return [QueueMessage(self, row, classes, values) for row, values in enumerate(self.plain)]
        return [QueueMessage(self, row, classes) for row in range(len(self))]


_NOTHING: Final[dict[str, Any]] = {}  # of a message that was not read yet


class QueueHeader:
    """The metadata of a message of a queue."""

    __slots__ = ("_row", "_taken")

    def __init__(self, taken: TakenBatch, row: int) -> None:
        self._taken = taken
        self._row = row

    @property
    def id(self) -> str:
        """Its ID: the writer, the writing transaction and the message, "S/T/M"."""
        (mids, s, t, *_), row = self._taken.headers, self._row
        return f"{s[row]}/{t[row]}/{mids[row]}"

    @property
    def number(self) -> int:
        """The number M of its ID, which alone identifies the message; later messages have higher ones."""
        return int(self._taken.headers[0][self._row])

    @property
    def priority(self) -> float:
        """The priority that it was given, or the result of the queue's function."""
        return float(self._taken.headers[3][self._row])

    @property
    def deliveries(self) -> int:
        """How often it was delivered before, to transactions that were aborted."""
        return int(self._taken.headers[4][self._row])

    @property
    def type(self) -> str:
        """The name of its type."""
        return self._taken.type

    @property
    def enqueued_at(self) -> datetime:
        """When the broker accepted it."""
        return timestamp_of((int(self._taken.headers[0][self._row]) >> LANE_BITS) + EPOCH_US)

    def __repr__(self) -> str:
        return (
            f"QueueHeader(id={self.id!r}, type={self.type!r}, priority={self.priority:g}, "
            f"deliveries={self.deliveries}, enqueued_at={self.enqueued_at.isoformat()})"
        )


if TYPE_CHECKING:
    _unless_member = property
else:

    class _unless_member:
        """A property that returns the message's member of the same name if its type has one."""

        def __init__(self, read: Any) -> None:
            self._read = read
            self.__doc__ = read.__doc__

        def __set_name__(self, owner: Any, name: str) -> None:
            self._name = name

        def __get__(self, message: Any, owner: Any = None) -> Any:
            if message is None:
                return self
            return message[self._name] if self._name in message._taken.names else self._got(message)

        def _got(self, message: Any) -> Any:
            return self._read(message)


if TYPE_CHECKING:

    def _method_unless_member(method: F) -> F: ...

else:

    class _method_unless_member(_unless_member):
        def __call__(self, message: Any, *values: Any) -> Any:
            return self._read(message, *values)

        def _got(self, message: Any) -> Any:
            return partial(self._read, message)


class QueueMessage:
    """A message from a queue: the members of its root, by attribute and by item.

    `header` is its metadata. Only `header` hides a member of its name, which is then read by item. All other names
    below, among them those of the header, are available unless a member has the name. `root` is the message itself: its
    root node, generic or of the classes given to `dequeue`, for a message type; a row for a type in the text notation.
    When a member hides a method, call it on the class: `QueueMessage.plain(message)`.
    """

    # For messages of plain values only, the dict holds the members, where Python finds them as attributes.
    __slots__ = ("__dict__", "_classes", "_row", "_taken", "_values")

    def __init__(
        self, taken: TakenBatch, row: int, classes: Classes | None, values: dict[str, Any] | None = None
    ) -> None:
        self._taken = taken
        self._row = row
        self._classes = classes
        self._values: Any = (
            _NOTHING  # the row, or a dict of the root's members: a program that reads one member reads more
        )
        if values is not None:
            self._values = self.__dict__ = values

    @property
    def header(self) -> QueueHeader:
        """Its ID, type, priority, earlier deliveries and time."""
        return QueueHeader(self._taken, self._row)

    if TYPE_CHECKING:
        id: str
        mid: str  # the ID, as queries and receipts call it
        number: int
        priority: float
        deliveries: int
        type: str
        enqueued_at: datetime
    else:  # the header's fields, read without making a header
        id = _unless_member(QueueHeader.id.fget)
        mid = _unless_member(QueueHeader.id.fget)
        number = _unless_member(QueueHeader.number.fget)
        priority = _unless_member(QueueHeader.priority.fget)
        deliveries = _unless_member(QueueHeader.deliveries.fget)
        type = _unless_member(QueueHeader.type.fget)
        enqueued_at = _unless_member(QueueHeader.enqueued_at.fget)

    @_unless_member
    def root(self) -> Any:
        """The message itself."""
        return self._root()

    @_method_unless_member
    def root_as(self, kind: Class[N]) -> N:
        """The root as `kind`, one of the classes given to `dequeue`, for type checkers."""
        root = self._root()
        if not isinstance(root, kind):
            raise InvalidValue(
                f"the root is a {root.__class__.__name__}, not a {kind.__name__}; give dequeue(classes=NODE_CLASSES)"
            )
        return root

    @_method_unless_member
    def plain(self) -> Any:
        """The message as dicts and lists; references are lists of dicts."""
        return self._taken.plain[self._row]

    @_unless_member
    def batch(self) -> Batch:
        """The message as a batch of one row."""
        return one_row(self)

    def _root(self) -> Any:
        return self._taken.root(self._row, self._classes)

    def _late(self, name: str) -> Any:
        """A member of a message that was not read yet. Raises `KeyError` if there is none of this name."""
        taken = self._taken
        self._values = taken.plain[self._row] if taken.flat else self._root()
        if taken.native:
            self.__dict__ = self._values
        return self._values[name]

    def __getitem__(self, name: str) -> Any:
        try:
            value = self._values[name]
        except KeyError:
            try:
                value = self._late(name)
            except KeyError:
                raise KeyError(self._unknown(name)) from None
        return value if value.__class__ is not list else self._root()[name]  # only a reference is a list here

    def __getattr__(self, name: str) -> Any:
        if name == "_values":
            raise AttributeError(name)  # the object is still being made, as in a copy
        try:
            value = self._values[name]
        except KeyError:
            try:
                value = self._late(name)
            except KeyError:
                raise AttributeError(self._unknown(name)) from None
        return value if value.__class__ is not list else self._root()[name]

    def _unknown(self, name: str) -> str:
        near = "; it is called deliveries now" if name == "aborts" else did_you_mean(str(name), self)
        return f"a message of type {self._taken.type} has no member {name!r}{near}"

    def __iter__(self) -> Iterator[str]:
        return iter(self._taken.names)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        header = self.header
        return f"<{header.type} {header.id} priority={header.priority:g}>"


def one_row(message: QueueMessage) -> Batch:
    """A message as a batch, whatever the names of its members."""
    return message._taken.batch.slice(message._row, message._row + 1)


class _Members(NamedTuple):
    """The members that messages of a schema have."""

    names: dict[str, None]  # in order, and quick to look up
    flat: bool  # members can be read from `plain` directly
    native: bool  # … and are plain values, which can be the attributes of an object


@lru_cache(maxsize=SCHEMAS)
def _members(schema: Schema) -> _Members:
    message_type = schema.message_type
    if message_type is None:
        fields = schema.type.fields if isinstance(schema.type, Tuple) else ()
        flat = _flat(schema.type)
        return _Members(dict.fromkeys(field.name for field in fields), flat, flat)
    members = message_type.node(message_type.root).members
    native = not any(isinstance(member, Reference) for member in members)
    return _Members(dict.fromkeys(member.name for member in members), True, native)


def _flat(kind: Type) -> bool:
    """Whether a message is a tuple of plain values."""
    if not isinstance(kind, Tuple):
        return False
    types = (field.type for field in kind.fields)
    return all(isinstance(each.type if isinstance(each, Optional) else each, Atom) for each in types)


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    if moment.tzinfo is None:
        raise InvalidValue(f"{moment} has no time zone; say which, as in datetime.now(UTC)")
    return (moment - _EPOCH) // timedelta(microseconds=1)


_EPOCH: Final = timestamp_of(0)
