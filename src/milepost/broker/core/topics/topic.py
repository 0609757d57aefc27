"""A topic: a name with its schemas, and who wants which rows of it."""

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
        """The predicates. Made with the first of them: Numba may come with it, which takes a second to import."""
        from milepost.match import Index

        return Index(self.read_as)

    @cached_property
    def log_index(self) -> Index:
        """The predicates of durable subscriptions that clients are attached to."""
        from milepost.match import Index

        return Index(self.read_as)

    @property
    def evaluated(self) -> int:
        """Distinct predicates of plain subscriptions that are evaluated: those that no index answers."""
        return self.index.evaluations if "index" in self.__dict__ else 0

    @property
    def followers(self) -> Index | None:
        """`log_index`, if there are any."""
        return self.log_index if "log_index" in self.__dict__ and len(self.log_index) else None

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
        self.subscriptions: dict[int, PlainSubscription] = {}  # by key; those with a predicate
        self.everything: dict[int, list[int]] = {}  # connection number -> tags of its subscriptions without one
        self.owners: npt.NDArray[np.int32] = np.zeros(16, np.int32)  # key -> connection number
        self.tags: npt.NDArray[np.uint32] = np.zeros(16, np.uint32)  # key -> the client's number
        self.counts: npt.NDArray[np.int64] = np.zeros(16, np.int64)  # key -> rows that matched
        self.evaluated = 0  # distinct predicates that no index answers, of plain subscriptions to the newest version
        # For rows of the log that the shell is to match, in order: the sources whose credit goes back when it has.
        self.unmatched: deque[list[Any]] = deque()
        self.examining = 0  # batches that are being matched on a snapshot right now
        self._predicates = predicates
        # Connection number -> its predicates that no index answers, and how many of its subscriptions have each.
        self._by_connection: dict[int, Counter[str | None]] = {}
        self._members: dict[int, Connection] = {}
        self._audience: list[tuple[tuple[int, ...], list[Connection]]] | None = None
        self._free: list[int] = []
        self._resting: list[int] = []  # keys that a snapshot in use may still name
        self._keys = 0

        self.stored = 0  # the store's number of a durable topic; 0: a live one
        self.retention = Retention()
        self.ends: dict[int, int] = {}  # log -> the offset of the next row
        # The broker's own log -> the offset after the last row that went to plain subscriptions. Rows that are stored
        # and that the core has not heard of may be in `ends` already.
        self.entered: dict[int, int] = {}
        self.moved = 0  # what `Core.moves` was when its logs last grew
        self.log_subscriptions: dict[int, LogSubscription] = {}  # durable subscriptions that clients are attached to
        self._log_keys: list[int] = []  # used before, and free

        self.rows_in = self.rows_out = self.bytes_in = self.bytes_out = self.batches_in = 0
        self._rebuilds: WeakSet[Rebuild] = WeakSet()  # under way; those who wait for one keep it
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
            number=self.number,
            name=self.name,
            schemas=texts,
            slow=self.slow,
            durable=bool(self.stored),
            stored=self.stored,
        )
        return self._told

    def add_versions(self, schemas: list[Schema]) -> None:
        """Take rows of further versions too. All predicates are read anew, against what all versions have now.

        Raises `Uncompiled`, and changes nothing, when that is too much for the event loop and not done yet.
        """
        rebuild = self.prepare_versions(schemas)
        self.versions = rebuild.finish()
        self._count_evaluated()
        self.family = rebuild.family
        for other in self._rebuilds:
            other.give_up()  # they were for the versions of before
        self._rebuilds.clear()

    def prepare_versions(self, schemas: list[Schema]) -> Rebuild:
        """The versions that there will be, unless that raises `Uncompiled`."""
        wanted = self.family
        for schema in schemas:
            wanted = wanted.joined(schema)
        # Outside of an attempt nothing waits for a rebuild that is elsewhere.
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
        """Clients are attached to a durable subscription. `QueryError` when it does not fit the topic's schemas."""
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
        """Raise what is wrong with a predicate, if anything is; `Uncompiled` as `require_compiled` does."""
        self.require_compiled([where])
        self._predicates.compile(where, self.schema)

    def require_compiled(self, texts: Iterable[str]) -> None:
        """Raise `Uncompiled` within an attempt, unless these predicates are at hand for all versions."""
        read_as = [self.schema, *(version.read_as for version in self.versions.values())]
        self._predicates.require((text, schema) for text in texts for schema in read_as)

    def fits(self, where: str | None) -> bool:
        """Whether a predicate makes sense of the topic's schemas."""
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
                pass  # it made sense of the version it was written for; here it can be true of no row
        self._note(True, subscription.key, subscription.where)

    def leave(self, subscription: LogSubscription) -> None:
        """Nobody is attached to a durable subscription any more."""
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
        """A predicate as it reads rows of a version; None when it can be true of none."""
        try:
            return self._predicates.compile(where, version.read_as)
        except QueryError:
            return None

    def subscribe(self, subscription: PlainSubscription) -> None:
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
        # `index` is made when it is needed, so a version without predicates may have none.
        self.evaluated = max((each.evaluated for each in self.versions.values()), default=0)

    def unsubscribe(self, subscription: PlainSubscription) -> None:
        """Remove a subscription that this topic has."""
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
        """A batch that was being matched is done."""
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
        """How far plain subscriptions have been served; of other brokers' logs, where they end."""
        return self.ends | self.entered

    def rows_of(self, subscription: PlainSubscription) -> int:
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
            self.tags = np.concatenate([self.tags, np.zeros(more, np.uint32)])
            self.counts = np.concatenate([self.counts, np.zeros(more, np.int64)])
        self._keys += 1
        return self._keys - 1
