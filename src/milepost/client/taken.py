"""Messages out of queues, as the application gets them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from functools import cached_property, lru_cache
from typing import Any, Final, TypeAlias, TypeVar

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

SCHEMAS: Final = 1_000  # of which it is remembered what their messages are like

N = TypeVar("N", bound=Node)
Class: TypeAlias = type[N]  # messages have a member `type` themselves
Classes: TypeAlias = Mapping[str, type[Node]]
"""Those that were generated for the nodes of a message type: `NODE_CLASSES`."""


# M, S, T, priorities and abort counts, each a column: a list, or an array of NumPy.
Headers: TypeAlias = tuple[Any, Any, Any, Any, Any]


class TakenBatch:
    """Messages of one type, in order. What they contain is read when it is asked for."""

    def __init__(
        self, type: str, schema: Schema, content: Batch | Callable[[], Batch], headers: Headers,
        plain: list[Any] | None = None,
    ) -> None:  # fmt: skip
        """`content` may be a function that gives it, for whoever has the messages as `plain` values at hand."""
        self.type: Final = type
        self.headers: Final = headers
        self._content = content
        if plain is not None:
            self.plain = plain
        self._message_type = message_type = schema.message_type
        self.members: Final = None if message_type is None else message_type.node(message_type.root).members
        self.flat: Final = message_type is not None or _flat(schema.type)  # members are in `plain` as they are
        self.native: Final = _native(schema)
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
        """What the messages contain."""
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
        """What they were given, or what the queue's function made of them."""
        return np.asarray(self.headers[3], np.float64)

    @cached_property
    def aborts(self) -> npt.NDArray[np.int32]:
        """How often each was taken before."""
        return np.asarray(self.headers[4], np.int32)

    @cached_property
    def plain(self) -> list[Any]:
        """All messages as plain values, at once: a column at a time costs far less than a message at a time."""
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
        if self.native and "plain" in self.__dict__:  # the values are at hand
            return [QueueMessage(self, row, classes, values) for row, values in enumerate(self.plain)]
        return [QueueMessage(self, row, classes) for row in range(len(self))]


_NOTHING: Final[dict[str, Any]] = {}  # of a message that nobody has looked into


class QueueMessage:
    """A message out of a queue: the members of its root by attribute, or by item where a name is one of those below.

    `root` is the message itself: of a message type its root node, generic or of the classes that `dequeue` was given;
    of a type in the text notation a row.
    """

    # The dict has the members, of messages that are plain values and no more: Python finds them there by itself.
    __slots__ = ("__dict__", "_classes", "_row", "_taken", "_values")

    def __init__(
        self, taken: TakenBatch, row: int, classes: Classes | None, values: dict[str, Any] | None = None
    ) -> None:
        self._taken = taken
        self._row = row
        self._classes = classes
        self._values: Any = _NOTHING  # the row, or a dict of the root's members: whoever reads one member reads more
        if values is not None:
            self._values = self.__dict__ = values

    @property
    def mid(self) -> str:
        """Its ID: the writer, the writing transaction and the message, "S/T/M"."""
        (mids, s, t, *_), row = self._taken.headers, self._row
        return f"{s[row]}/{t[row]}/{mids[row]}"

    @property
    def number(self) -> int:
        """The message in its ID, which alone identifies it; later messages have higher ones."""
        return int(self._taken.headers[0][self._row])

    @property
    def priority(self) -> float:
        """What it was given, or what the queue's function made of it."""
        return float(self._taken.headers[3][self._row])

    @property
    def aborts(self) -> int:
        """How often it was taken before, by transactions that were undone."""
        return int(self._taken.headers[4][self._row])

    @property
    def type(self) -> str:
        """The name of its type."""
        return self._taken.type

    @property
    def enqueued_at(self) -> datetime:
        """When the broker took it."""
        return timestamp_of((self.number >> LANE_BITS) + EPOCH_US)

    @property
    def root(self) -> Any:
        """The message itself."""
        return self._taken.root(self._row, self._classes)

    def root_as(self, kind: Class[N]) -> N:
        """The root, of a class that type checkers know: one of those given to `dequeue`."""
        root = self.root
        if not isinstance(root, kind):
            raise InvalidValue(
                f"the root is a {root.__class__.__name__}, not a {kind.__name__}; give dequeue(classes=NODE_CLASSES)"
            )
        return root

    def plain(self) -> Any:
        """The message as dicts and lists; references are lists of dicts."""
        return self._taken.plain[self._row]

    @property
    def batch(self) -> Batch:
        """The message as a batch of one row."""
        return self._taken.batch.slice(self._row, self._row + 1)

    def _late(self, name: str) -> Any:
        """A member of a message that was not read yet, or that has none of this name: `KeyError`."""
        taken = self._taken
        self._values = taken.plain[self._row] if taken.flat else self.root
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
        return value if value.__class__ is not list else self.root[name]  # only a reference is a list here

    def __getattr__(self, name: str) -> Any:
        if name == "_values":
            raise AttributeError(name)  # on its way into being, as in a copy
        try:
            value = self._values[name]
        except KeyError:
            try:
                value = self._late(name)
            except KeyError:
                raise AttributeError(self._unknown(name)) from None
        return value if value.__class__ is not list else self.root[name]

    def _unknown(self, name: str) -> str:
        return f"a message of type {self.type} has no member {name!r}{did_you_mean(str(name), self)}"

    def __iter__(self) -> Iterator[str]:
        members = self._taken.members
        return iter(self.root) if members is None else (member.name for member in members)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"<{self.type} {self.mid} priority={self.priority:g}>"


@lru_cache(maxsize=SCHEMAS)
def _native(schema: Schema) -> bool:
    """Whether messages are plain values, none of which is called as something that all messages have."""
    message_type = schema.message_type
    if message_type is not None:
        members = message_type.node(message_type.root).members
        names = {member.name for member in members}
        plain = not any(isinstance(member, Reference) for member in members)
    else:
        plain = _flat(schema.type)
        names = {field.name for field in schema.type.fields} if isinstance(schema.type, Tuple) else set()
    return plain and not names & set(dir(QueueMessage))


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
