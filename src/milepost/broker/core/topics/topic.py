"""A topic: a name with its schemas, and its subscriptions."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import Batch
from milepost.broker.core.predicates import Predicates
from milepost.broker.core.topics.rebuild import Rebuild
from milepost.errors import LimitExceeded, MilepostError, QueryError
from milepost.operations import Retention
from milepost.query import Predicate
from milepost.schema import Schema, Versions
from milepost.schema.relax import relaxed
from milepost.wire import TopicAnnounced as Announcement

if TYPE_CHECKING:
    from milepost.broker.core.log.subscription import LogSubscription
    from milepost.broker.core.sessions.connection import Connection, PlainSubscription
    from milepost.match import Index

SLOW: Final = ("throttle", "drop", "disconnect")
NOBODY: Final = 0  # owner of an unused key; connection numbers start at 1
EVERYTHING: Final = -1  # key of a subscription without a predicate


class Version:
    """One version of a topic's schema, and the predicates compiled for its rows.

    `merged` has the fields of all versions; to a predicate, a field that this version lacks is absent.
    """

    def __init__(self, schema: Schema, merged: Schema) -> None:
        self.schema = schema
        self.merged = merged
        self.read_as = schema if schema is merged else relaxed(merged, schema)

    @cached_property
    def index(self) -> Index:
        """The predicates of plain subscriptions. Made with the first one: it may import Numba, which takes a second."""
        from milepost.match import Index

        return Index(self.read_as)

    @cached_property
    def log_index(self) -> Index:
        """The predicates of durable subscriptions that clients are attached to."""
        from milepost.match import Index

        return Index(self.read_as)

    @property
    def evaluated(self) -> int:
        """Number of distinct predicates of plain subscriptions that the index cannot answer: they are evaluated."""
        return self.index.evaluations if "index" in self.__dict__ else 0

    @property
    def followers(self) -> Index | None:
        """`log_index`, if it has predicates."""
        return self.log_index if "log_index" in self.__dict__ and len(self.log_index) else None

    def view(self, batch: Batch) -> Batch:
        """A batch of this version in the form that the predicates read."""
        return batch if self.schema is self.merged else batch.read_as(self.merged)


class Topic:
    """A topic and its subscriptions. Keys number the subscriptions with a predicate; they are dense and reused."""

    def __init__(self, number: int, name: str, schema: Schema, slow: str, predicates: Predicates) -> None:
        self.number = number
        self.name = name
        self.slow = slow
        self.family = Versions.of([schema])
        self._told: Announcement | None = None
        self.versions: dict[int, Version] = {}  # by fingerprint
        self.subscriptions: dict[int, PlainSubscription] = {}  # with a predicate, by key
        self.everything: dict[int, list[int]] = {}  # connection number -> tags of its subscriptions without a predicate
        self.owners: npt.NDArray[np.int32] = np.zeros(16, np.int32)  # key -> connection number
        self.tags: npt.NDArray[np.uint32] = np.zeros(16, np.uint32)  # key -> the client's number of the subscription
        self.counts: npt.NDArray[np.int64] = np.zeros(16, np.int64)  # key -> rows that matched
        self.evaluated = 0  # the largest `Version.evaluated` of its versions
        # For each batch of stored rows that the shell is matching, in order: puts whose credit is returned afterwards.
        self.unmatched: deque[list[Any]] = deque()
        self.examining = 0  # batches that are being matched on a snapshot
        self._predicates = predicates
        # Connection number -> its predicates that no index answers, and how many of its subscriptions have each.
        self._by_connection: dict[int, Counter[str | None]] = {}
        self._members: dict[int, Connection] = {}
        self._audience: list[tuple[tuple[int, ...], list[Connection]]] | None = None
        self._free: list[int] = []
        self._resting: list[int] = []  # freed keys that a snapshot in use may still contain
        self._keys = 0

        self.stored = 0  # the store's number of a durable topic; 0: a live one
        self.retention = Retention()
        self.ends: dict[int, int] = {}  # log -> the offset after its last row
        # The broker's own log -> the offset after the last row that went to plain subscriptions. `ends` may be ahead:
        # it may include stored rows whose commit the core has not been told of.
        self.entered: dict[int, int] = {}
        self.moved = 0  # `Core.moves` when its logs last grew
        self.log_subscriptions: dict[int, LogSubscription] = {}  # by key: those that are served
        self._log_keys: list[int] = []  # free keys of them

        self.rows_in = self.rows_out = self.bytes_in = self.bytes_out = self.batches_in = 0
        self._rebuilds: WeakSet[Rebuild] = WeakSet()  # under way; the events that wait for one keep it alive
        self.versions[schema.fingerprint] = Version(schema, schema)

    @property
    def schema(self) -> Schema:
        """The schema that predicates are written for: the fields of all versions, mostly the newest version."""
        return self.family.merged

    @property
    def schemas(self) -> tuple[Schema, ...]:
        """All versions, the newest last."""
        return self.family.schemas

    def announcement(self) -> Announcement:
        """The announcement for clients. Made once: printing schemas is slow, and thousands of clients get it."""
        if self._told is not None and self._told.slow == self.slow and len(self._told.schemas) == len(self.schemas):
            return self._told
        texts = [str(schema.message_type or schema) for schema in self.schemas]
        self._told = Announcement(
            number=self.number,
            name=self.name,
            schemas=texts,
            slow=self.slow,
            durable=bool(self.stored),
            stored=self.stored,
        )
        return self._told

    def add_versions(self, schemas: list[Schema]) -> None:
        """Add versions of the schema. All predicates are compiled again for the new merged schema.

        Raises `Uncompiled`, and changes nothing, when that is too long for the event loop and not done yet.
        """
        rebuild = self.prepare_versions(schemas)
        self.versions = rebuild.finish()
        self._count_evaluated()
        self.family = rebuild.family
        for other in self._rebuilds:
            other.give_up()  # they are for the old versions
        self._rebuilds.clear()

    def prepare_versions(self, schemas: list[Schema]) -> Rebuild:
        """The rebuild for these versions, ready to be finished; or raises `Uncompiled`."""
        wanted = self.family
        for schema in schemas:
            wanted = wanted.joined(schema)
        # Outside of an attempt, the caller cannot wait for a rebuild that a thread is working on.
        waits = self._predicates.results is not None
        same = [each for each in self._rebuilds if each.family.schemas == wanted.schemas and (waits or not each.away)]
        rebuild = same[0] if same else Rebuild(self, wanted, self._predicates)
        self._rebuilds.add(rebuild)
        rebuild.prepare()
        return rebuild

    def _note(self, durable: bool, key: int, where: str | None) -> None:
        for rebuild in self._rebuilds:
            rebuild.note(durable, key, where)

    def serve(self, subscription: LogSubscription) -> None:
        """Serve a durable subscription. Raises `QueryError` when its predicate does not fit the topic's schemas."""
        if subscription.where is not None:
            self.require(subscription.where)
        subscription.key = self._log_keys.pop() if self._log_keys else len(self.log_subscriptions) + 1
        self.log_subscriptions[subscription.key] = subscription
        if subscription.follows:
            self._index(subscription)
            newest = self.versions[self.schemas[-1].fingerprint].log_index
            if newest.evaluates(subscription.key) and newest.evaluated > limits.EVALUATED_PER_TOPIC:
                self.leave(subscription)
                limits.require("EVALUATED_PER_TOPIC", newest.evaluated + 1, f"{self._evaluated_what}, of durable ones")

    def require(self, where: str) -> None:
        """Raise for an invalid predicate; raises `Uncompiled` as `require_compiled` does."""
        self.require_compiled([where])
        self._predicates.compile(where, self.schema)

    def require_compiled(self, texts: Iterable[str]) -> None:
        """Raise `Uncompiled` within an attempt, unless these predicates are compiled for all versions."""
        read_as = [self.schema, *(version.read_as for version in self.versions.values())]
        self._predicates.require((text, schema) for text in texts for schema in read_as)

    def fits(self, where: str | None) -> bool:
        """Whether a predicate fits the topic's schemas."""
        try:
            return where is None or bool(self._predicates.compile(where, self.schema))
        except MilepostError:
            return False

    def _index(self, subscription: LogSubscription) -> None:
        assert subscription.where is not None
        for version in self.versions.values():
            try:
                version.log_index.add(subscription.key, self._predicates.compile(subscription.where, version.read_as))
            except MilepostError:
                pass  # it fits the version it was written for; in this one it matches no row
        self._note(True, subscription.key, subscription.where)

    def leave(self, subscription: LogSubscription) -> None:
        """Stop serving a durable subscription."""
        if self.log_subscriptions.get(subscription.key) is not subscription:
            return
        del self.log_subscriptions[subscription.key]
        self._log_keys.append(subscription.key)
        if subscription.follows:
            for version in self.versions.values():
                if subscription.key in version.log_index:
                    version.log_index.remove(subscription.key)
            self._note(True, subscription.key, None)

    def predicate(self, where: str, version: Version) -> Predicate | None:
        """A predicate compiled for a version; None when it can match no row of it."""
        try:
            return self._predicates.compile(where, version.read_as)
        except QueryError:
            return None

    def subscribe(self, subscription: PlainSubscription) -> None:
        """Add a subscription. Raises, and changes nothing, when its predicate does not fit the schemas."""
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
        self.require_compiled([subscription.where])
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
        try:
            self._require_room(subscription, key, self.versions[self.schemas[-1].fingerprint].index)
        except LimitExceeded:
            for version, _ in compiled:
                version.index.remove(key)
            self._free.append(key)
            connection.keys -= 1
            raise
        self._count_evaluated()
        self._note(False, key, subscription.where)
        self.subscriptions[key] = subscription
        self.owners[key], self.tags[key], self.counts[key] = connection.number, subscription.number, 0
        subscription.keys[self.number] = key

    def _require_room(self, subscription: PlainSubscription, key: int, index: Index) -> None:
        """Count a predicate that no index answers; `LimitExceeded` when there are too many of them."""
        if not index.evaluates(key):
            return
        what = self._evaluated_what
        limits.require("EVALUATED_PER_TOPIC", index.evaluated, f"{what}, of all clients")
        mine = self._by_connection.get(subscription.connection.number, Counter())
        limits.require("EVALUATED_PER_CONNECTION", len(mine.keys() | {subscription.where}), f"{what}, of one client")
        mine[subscription.where] += 1
        self._by_connection[subscription.connection.number] = mine

    @property
    def _evaluated_what(self) -> str:
        return f"the predicates on topic {self.name} that no index answers, and that are evaluated for each message"

    def _count_evaluated(self) -> None:
        self.evaluated = max((each.evaluated for each in self.versions.values()), default=0)

    def unsubscribe(self, subscription: PlainSubscription) -> None:
        """Remove a subscription of this topic."""
        key = subscription.keys.pop(self.number)
        subscription.since.pop(self.number, None)
        subscription.connection.keys -= 1
        number = subscription.connection.number
        if key == EVERYTHING:
            tags = self.everything[number]
            tags.remove(subscription.number)
            if not tags:
                del self.everything[number], self._members[number]
            self._audience = None
            return
        del self.subscriptions[key]
        for version in self.versions.values():
            if key in version.index:
                version.index.remove(key)
        self._note(False, key, None)
        self._count_evaluated()
        if (mine := self._by_connection.get(number)) is not None:
            mine[subscription.where] -= 1
            if mine[subscription.where] <= 0:
                del mine[subscription.where]
            if not mine:
                del self._by_connection[number]
        self.owners[key] = NOBODY
        (self._resting if self.examining else self._free).append(key)

    def examined(self) -> None:
        """Called when a batch is matched: free the keys of ended subscriptions once no snapshot is in use."""
        self.examining -= 1
        if not self.examining and self._resting:
            self._free += self._resting
            self._resting = []

    def audience(self) -> list[tuple[tuple[int, ...], list[Connection]]]:
        """The connections that want every row, grouped by their tags, so that each group shares one frame."""
        if self._audience is None:
            groups: dict[tuple[int, ...], list[Connection]] = {}
            for number, tags in self.everything.items():
                groups.setdefault(tuple(tags), []).append(self._members[number])
            self._audience = list(groups.items())
        return self._audience

    @property
    def position(self) -> dict[int, int]:
        """The position up to which plain subscriptions were served; for logs of other brokers, their ends."""
        return self.ends | self.entered

    def rows_of(self, subscription: PlainSubscription) -> int:
        """How many rows matched a subscription."""
        key = subscription.keys[self.number]
        return int(self.counts[key]) if key != EVERYTHING else self.rows_in - subscription.since[self.number]

    @property
    def receivers(self) -> int:
        """Roughly how many connections or subscriptions a batch may go to."""
        return len(self.everything) + len(self.subscriptions)

    def __len__(self) -> int:
        return len(self.subscriptions) + sum(map(len, self.everything.values()))

    def _take_key(self) -> int:
        if self._free:
            return self._free.pop()
        if self._keys == len(self.owners):
            more = len(self.owners)
            self.owners = np.concatenate([self.owners, np.zeros(more, np.int32)])
            self.tags = np.concatenate([self.tags, np.zeros(more, np.uint32)])
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
        self._keys += 1
        return self._keys - 1
