"""A topic: a name with its schemas, and who wants which rows of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import Batch
from milepost.broker.core.predicates import Predicates
from milepost.errors import QueryError
from milepost.query import Predicate
from milepost.schema import Schema, Versions
from milepost.schema.relax import relaxed
from milepost.storage.operations import Retention
from milepost.wire import Topic as Announcement

if TYPE_CHECKING:
    from milepost.broker.core.connection import Connection, Subscription
    from milepost.broker.core.stream import Stream
    from milepost.match import Index

SLOW: Final = ("throttle", "drop", "disconnect")
NOBODY: Final = 0  # as the owner of a key that nobody has; connections count from 1
EVERYTHING: Final = -1  # as the key of a subscription without a predicate


class Version:
    """One version of a topic's schema, and the predicates as they read its rows.

    `merged` has everything that any version has: what a version lacks, predicates find absent.
    """

    def __init__(self, schema: Schema, merged: Schema) -> None:
        self.schema = schema
        self.merged = merged
        self.read_as = schema if schema is merged else relaxed(merged, schema)

    @cached_property
    def index(self) -> Index:
        """The predicates. Made with the first of them: Numba comes with it, which takes a second to import."""
        from milepost.match import Index

        return Index(self.read_as)

    @cached_property
    def streams(self) -> Index:
        """The predicates of durable subscriptions that clients are attached to."""
        from milepost.match import Index

        return Index(self.read_as)

    def view(self, batch: Batch) -> Batch:
        """The rows of a batch of this version as the predicates read them."""
        return batch if self.schema is self.merged else batch.read_as(self.merged)


class Topic:
    """Who wants which rows. Keys number the subscriptions that have a predicate; they are dense and used again."""

    def __init__(self, number: int, name: str, schema: Schema, slow: str, predicates: Predicates) -> None:
        self.number = number
        self.name = name
        self.slow = slow
        self.family = Versions.of([schema])
        self._told: Announcement | None = None
        self.versions: dict[int, Version] = {}  # by fingerprint
        self.subscriptions: dict[int, Subscription] = {}  # by key; those with a predicate
        self.everything: dict[int, list[int]] = {}  # connection number -> marks of its subscriptions without one
        self.owners: npt.NDArray[np.int32] = np.zeros(16, np.int32)  # key -> connection number
        self.marks: npt.NDArray[np.uint32] = np.zeros(16, np.uint32)  # key -> the client's number
        self.counts: npt.NDArray[np.int64] = np.zeros(16, np.int64)  # key -> rows that matched
        self.examining = 0  # batches that are being matched on a snapshot right now
        self._predicates = predicates
        self._members: dict[int, Connection] = {}
        self._audience: list[tuple[tuple[int, ...], list[Connection]]] | None = None
        self._free: list[int] = []
        self._resting: list[int] = []  # keys that a snapshot in use may still name
        self._keys = 0

        self.stored = 0  # the store's number of a durable topic; 0: a live one
        self.retention = Retention()
        self.ends: dict[int, int] = {}  # log -> the offset of the next row
        self.streams: dict[int, Stream] = {}  # durable subscriptions that clients are attached to
        self._stream_keys: list[int] = []  # used before, and free

        self.rows_in = self.rows_out = self.bytes_in = self.bytes_out = self.batches_in = 0
        self.versions[schema.fingerprint] = Version(schema, schema)

    @property
    def schema(self) -> Schema:
        """What predicates are written for: everything that any version has. Mostly that is the newest version."""
        return self.family.merged

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """All versions, the newest last."""
        return self.family.schemas

    def announcement(self) -> Announcement:
        """What clients are told. Printing schemas takes its time, and a new version goes to thousands: made once."""
        if self._told is not None and self._told.slow == self.slow and len(self._told.schemas) == len(self.schemas):
            return self._told
        texts = [str(schema.message_type or schema) for schema in self.schemas]
        self._told = Announcement(
            number=self.number, name=self.name, schemas=texts, slow=self.slow, durable=bool(self.stored)
        )
        return self._told

    def add_version(self, schema: Schema) -> None:
        """Take rows of another version too. All predicates are read anew, against what all versions have now."""
        self.family = self.family.joined(schema)
        self.versions = {each.fingerprint: Version(each, self.schema) for each in self.schemas}
        for key, subscription in self.subscriptions.items():
            assert subscription.where is not None
            for version in self.versions.values():
                try:
                    version.index.add(key, self._predicates.compile(subscription.where, version.read_as))
                except QueryError:
                    pass  # it made sense of the version it was written for; here it can be true of no row
        for stream in self.streams.values():
            if stream.follows:
                self._index(stream)

    def serve(self, stream: Stream) -> None:
        """Clients are attached to a durable subscription. `QueryError` when it does not fit the topic's schemas."""
        if stream.where is not None:
            self.require(stream.where)
        stream.key = self._stream_keys.pop() if self._stream_keys else len(self.streams) + 1
        self.streams[stream.key] = stream
        if stream.follows:
            self._index(stream)

    def require(self, where: str) -> None:
        """Raise what is wrong with a predicate, if anything is."""
        self._predicates.compile(where, self.schema)

    def _index(self, stream: Stream) -> None:
        assert stream.where is not None
        for version in self.versions.values():
            try:
                version.streams.add(stream.key, self._predicates.compile(stream.where, version.read_as))
            except QueryError:
                pass  # as above

    def leave(self, stream: Stream) -> None:
        """Nobody is attached to a durable subscription any more."""
        if self.streams.get(stream.key) is not stream:
            return
        del self.streams[stream.key]
        self._stream_keys.append(stream.key)
        if stream.follows:
            for version in self.versions.values():
                if stream.key in version.streams:
                    version.streams.remove(stream.key)

    def predicate(self, where: str, version: Version) -> Predicate | None:
        """A predicate as it reads rows of a version; None when it can be true of none."""
        try:
            return self._predicates.compile(where, version.read_as)
        except QueryError:
            return None

    def subscribe(self, subscription: Subscription) -> None:
        """Add a subscription. A predicate that does not fit the schemas raises its error, and nothing changes."""
        connection = subscription.connection
        limits.require(
            "SUBSCRIPTIONS_PER_CONNECTION", connection.keys + 1, "the topics of all subscriptions of a connection"
        )
        if subscription.where is None:
            connection.keys += 1
            self.everything.setdefault(connection.number, []).append(subscription.number)
            self._members[connection.number] = connection
            self._audience = None
            subscription.keys[self.number] = EVERYTHING
            subscription.since[self.number] = self.rows_in
            return
        newest = self._predicates.compile(subscription.where, self.schema)
        compiled = []
        for version in reversed(self.versions.values()):
            if version.read_as is self.schema:
                compiled.append((version, newest))
            elif (predicate := self.predicate(subscription.where, version)) is not None:
                compiled.append((version, predicate))
        connection.keys += 1
        key = self._take_key()
        for version, predicate in compiled:
            version.index.add(key, predicate)
        self.subscriptions[key] = subscription
        self.owners[key], self.marks[key], self.counts[key] = connection.number, subscription.number, 0
        subscription.keys[self.number] = key

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscription that this topic has."""
        key = subscription.keys.pop(self.number)
        subscription.since.pop(self.number, None)
        subscription.connection.keys -= 1
        number = subscription.connection.number
        if key == EVERYTHING:
            marks = self.everything[number]
            marks.remove(subscription.number)
            if not marks:
                del self.everything[number], self._members[number]
            self._audience = None
            return
        del self.subscriptions[key]
        for version in self.versions.values():
            if key in version.index:
                version.index.remove(key)
        self.owners[key] = NOBODY
        (self._resting if self.examining else self._free).append(key)

    def examined(self) -> None:
        """A batch that was being matched is done."""
        self.examining -= 1
        if not self.examining and self._resting:
            self._free += self._resting
            self._resting = []

    def audience(self) -> list[tuple[tuple[int, ...], list[Connection]]]:
        """The connections that want every row, grouped by their marks, so that each group shares one frame."""
        if self._audience is None:
            groups: dict[tuple[int, ...], list[Connection]] = {}
            for number, marks in self.everything.items():
                groups.setdefault(tuple(marks), []).append(self._members[number])
            self._audience = list(groups.items())
        return self._audience

    def rows_of(self, subscription: Subscription) -> int:
        """How many rows were for a subscription."""
        key = subscription.keys[self.number]
        return int(self.counts[key]) if key != EVERYTHING else self.rows_in - subscription.since[self.number]

    @property
    def receivers(self) -> int:
        """Roughly how many connections or subscriptions a batch is looked at for."""
        return len(self.everything) + len(self.subscriptions)

    def __len__(self) -> int:
        return len(self.subscriptions) + sum(map(len, self.everything.values()))

    def _take_key(self) -> int:
        if self._free:
            return self._free.pop()
        if self._keys == len(self.owners):
            more = len(self.owners)
            self.owners = np.concatenate([self.owners, np.zeros(more, np.int32)])
            self.marks = np.concatenate([self.marks, np.zeros(more, np.uint32)])
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
        self._keys += 1
        return self._keys - 1
