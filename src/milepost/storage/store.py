"""A store: the durable state of a broker, in one database. One thread writes; any thread reads."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

from milepost.errors import (
    ConfigError,
    Fenced,
    InDoubt,
    MilepostError,
    QueryTooCostly,
    StoreError,
    StoreUnavailable,
)
from milepost.extras import extra
from milepost.operations import (
    Entry,
    Extent,
    Move,
    Operation,
    Position,
    Start,
    StoredEntry,
    SubscriptionRecord,
    TopicRecord,
    Work,
)
from milepost.storage import faults, lookups, migrations, statements, waits
from milepost.storage.database import ATTEMPTS, Database, Session
from milepost.storage.execution import Committed, Promise, Spoiled, WorkContext, execute
from milepost.storage.faults import DRIVER_ERRORS, FaultKind
from milepost.storage.memory import LogHolder, StoreMemory
from milepost.storage.sqlite import Sqlite
from milepost.storage.transaction import GroupCommit, Stale
from milepost.storage.upkeep import Upkeep, UpkeepStep
from milepost.storage.url import parsed, url_of

STALE_MOST: Final = 20  # times that other processes may invalidate this process's memory during one write
REFUSED_MOST: Final = 3  # spoiled operations of a group: for each, the whole group is written again without it
GROUP_S: Final = 0.5  # seconds that a group takes, after which `Work` of other parts waits for the next group
BEAT_PART: Final = 3  # a broker renews its lease three times in the time of the lease


class _Overtaken(Exception):
    """Another process has the log."""


class Crowded(Exception):
    """Too many operations of a group were spoiled. Nothing was written: write the group in smaller groups."""


def open_store(
    url: str,
    *,
    broker: str,
    address: str = "",
    broker_id: int,
    time_us: int,
    lease_s: float,
    remember_s: float,
    staged_s: float = 86_400.0,
    one_of_many: bool = False,
) -> Store:
    """Open a database, make or migrate its tables, and take the log of the broker of this name.

    `ConfigError` when the database belongs to another program, or when a broker of this name is alive in it.
    `one_of_many`, in a shared store: take the first free name of "name-1", "name-2" and so on.
    """
    place = parsed(url_of(url))
    database: Database
    if place.drivername.startswith("sqlite"):
        database = Sqlite(place)
    else:
        with extra("a store in PostgreSQL needs", "server"):
            from milepost.storage.postgresql import Postgresql
        database = Postgresql(place, lease_s)
    try:
        return Store(database, broker, address, broker_id, time_us, lease_s, remember_s, staged_s, one_of_many)
    except BaseException:
        database.close()
        raise


class Store:
    """Made by `open_store`."""

    def __init__(
        self, database: Database, broker: str, address: str, broker_id: int, time_us: int, lease_s: float,
        remember_s: float, staged_s: float, one_of_many: bool = False,
    ) -> None:  # fmt: skip
        self._database = database
        self._name = broker
        self._lease_s = lease_s
        self._memory = StoreMemory()
        self._looked: dict[str, Any] = {}  # memory of parts for `inspect`; several threads use it
        self._closing = threading.Event()
        self._session: Session | None = None
        self._pending: tuple[int, GroupCommit, Committed] | None = None  # a commit whose outcome is not known
        self._late: list[Entry] = []  # of commits that turned out to have happened, after their callers had an error
        self._must_mend = False
        self._seen_commits = 0  # in the log's row, when the log was taken again
        self._operations: Sequence[Operation] = ()  # of the pending commit
        self.shared: Final = database.shared
        self.beat_s: Final = lease_s / BEAT_PART if database.shared else math.inf  # between renewals of the lease
        try:
            session = database.write()
            self._session = session
            self.id: Final = migrations.migrate(database, session)
            if one_of_many and self.shared:
                # A claim lasts as long as its connection. A new process takes a free name, so there are few logs.
                names = (f"{broker}-{number}" for number in count(1))
                self._name = next(name for name in names if database.claim(session, name))
            self._holder, self._commits, self._last_us, self.broker_id = self._take(
                session, address, broker_id, time_us
            )
        except DRIVER_ERRORS as error:
            self._drop()
            raise faults.fault(error, database.place) from error
        except BaseException:
            self._drop()
            raise
        self.log: Final = self._holder.log
        self._upkeep = Upkeep(database, self._memory, remember_s, staged_s)
        self._beaten = time.monotonic()

    def _take(self, session: Session, address: str, broker_id: int, time_us: int) -> tuple[LogHolder, int, int, int]:
        """Take over the log from the process that had it."""
        free = self._database.claim(session, self._name)
        session.say(self._database.begin)
        found = session.row(statements.FIND_LOG, name=self._name, time_us=time_us)
        if found is None:
            session.run(statements.MAKE_LOG, name=self._name, broker_id=broker_id, address=address)
            found = session.row(statements.FIND_LOG, name=self._name, time_us=time_us)
        number, known_id, opening, epoch, commits, last_us, where, silent_us = found
        # The claim ends with the other process's connection. While the claim lasts, that process may be paused, or cut
        # off by the network: then its lease decides.
        if not free and silent_us < self._lease_s * 1e6:
            session.say("ROLLBACK")
            raise ConfigError(
                f"a broker named {self._name!r} is alive in {self._database.place}{f' ({where})' if where else ''}: "
                f"give this one another name, or stop the other; one that hangs is given up after {self._lease_s:g} s"
            )
        session.run(statements.OPEN_LOG, log=number, address=address, time_us=time_us)
        session.say("COMMIT")
        holder = LogHolder(number, opening + 1, epoch + 1, self.shared, int(self._lease_s * 1e6))
        return holder, commits, last_us, known_id

    # Writing

    def write(self, operations: Sequence[Operation], time_us: int) -> Committed:
        """Carry out operations in one transaction, which is synced when this returns. Called from one thread.

        Each operation has an outcome of its own. After a `StoreError` none of them was carried out; after `InDoubt`
        that is not known yet. `Crowded`: nothing was written either. `Fenced`: another process has this broker's log,
        and this one must end.
        """
        began = time.monotonic()
        until = began + GROUP_S
        asked_s: dict[int, float] = {}
        self._last_us = time_us = max(time_us, self._last_us)  # times do not go back within a log
        attempt = stale = 0
        refused: dict[int, MilepostError] = {}
        outage = self._database.outage
        while True:
            attempt += 1
            tried = time.monotonic()
            try:
                if outage is not None:
                    outage.require()
                session = self._connected()
                if self._pending is not None:
                    committed = self._settle(operations)
                    if committed is not None:
                        return self._with_late(committed)
                committed = self._attempt(session, operations, time_us, refused, until, asked_s)
                if outage is not None:
                    outage.answered(tried)
                committed = self._with_late(committed)
                return committed._replace(asked_s=asked_s) if asked_s else committed
            except _Overtaken:
                self._pending = None  # this was noticed before the commit
                self._failed(FaultKind.REFUSED)
                raise self._fenced() from None
            except Spoiled as spoiled:
                self._roll_back()
                refused[spoiled.place] = spoiled.error
                if isinstance(spoiled.error, QueryTooCostly):
                    until = 0.0  # postpone further `Work`: one such operation in a group is enough
                if len(refused) > REFUSED_MOST < len(operations):
                    raise Crowded("too many operations of one group fail: give them one by one") from None
            except Stale:
                self._pending = None  # as above: this was noticed before the commit
                self._roll_back()
                self._memory.clear()
                stale += 1
                if stale > STALE_MOST:
                    raise StoreError(
                        f"the store {self._database.place} contradicts itself: restore it from a backup"
                    ) from None
            except DRIVER_ERRORS as error:
                kind = faults.kind(error)
                self._failed(kind)
                if not self._again(kind, error, attempt, began, tried):
                    raise self._in_doubt(operations) or faults.fault(error, self._database.place) from error
            except StoreUnavailable as error:  # the outage has lasted too long; or `mend` found readers
                self._failed(FaultKind.LOST)
                if not self._again(FaultKind.LOST, error, attempt, began, tried):
                    raise self._in_doubt(operations) or error from None
            except BaseException:
                self._failed(FaultKind.REFUSED)
                raise

    def _attempt(
        self, session: Session, operations: Sequence[Operation], time_us: int, refused: dict[int, MilepostError],
        until: float, asked_s: dict[int, float],
    ) -> Committed:  # fmt: skip
        promised = not operations or any(
            each.promised if type(each) is Move else isinstance(each, tuple) or each.durable for each in operations
        )  # a tuple is no `Work`
        touch = self._database.begin_transaction(session, promised)
        holder = self._holder
        session.later(touch, self._require_held, raises=True, log=holder.log, epoch=holder.epoch, time_us=time_us)
        transaction = GroupCommit(session, holder, self._memory, time_us)
        transaction.asked_s = asked_s
        committed = transaction.run(operations, refused, until)
        pending = self._commits + 1, transaction, committed
        self._pending = pending  # from here on, an error leaves the outcome in doubt
        self._operations = operations
        if not session.commit_at_once():
            self._pending = None
            session.settle_checks()
            self._pending = pending
            session.say("COMMIT")
        self._database.require_there(session)  # if it raises, the outcome is in doubt until the file is back
        self._landed(session)
        self._beaten = time.monotonic()
        return committed

    def _require_held(self, touched: Any) -> None:
        if touched.rowcount != 1:
            raise _Overtaken  # this may happen within an operation, which must not get the error

    def _in_doubt(self, operations: Sequence[Operation]) -> InDoubt | None:
        if self._pending is None or self._operations is not operations:
            return None
        return InDoubt(
            f"the store {self._database.place} went away in the middle of a commit, and does not come back: "
            "see that it runs; whether it was stored will be known then"
        )

    def _landed(self, session: Session) -> Committed:
        assert self._pending is not None
        self._commits, transaction, committed = self._pending
        transaction.learned()
        self._pending = None
        outcomes = committed.outcomes
        for place, outcome in enumerate(outcomes):
            if isinstance(outcome, Promise):
                outcomes[place] = self._kept(outcome, session)
        return committed

    def _kept(self, promise: Promise, session: Session) -> Any:
        """The outcome of a promise. An error is its outcome, too: the committed operation must not be repeated."""
        try:
            return promise.kept(session)
        except MilepostError as error:
            return error
        except DRIVER_ERRORS as error:
            self._failed(faults.kind(error))
            return faults.fault(error, self._database.place)

    def _settle(self, operations: Sequence[Operation]) -> Committed | None:
        """Called when the log is taken again: did the pending commit happen? Its result, if it was of `operations`."""
        assert self._pending is not None
        if self._seen_commits != self._pending[0]:
            self._pending = None
            return None
        assert self._session is not None
        committed = self._landed(self._session)
        if operations is self._operations:
            return committed
        # Its caller was told `InDoubt`; readers at the end of the log still need the entries.
        self._late += committed.entries
        return None

    def _with_late(self, committed: Committed) -> Committed:
        if self._late:
            committed = Committed(committed.outcomes, self._late + committed.entries)
            self._late = []
        return committed

    def _connected(self) -> Session:
        """The writing connection; after it was lost, a new one that has taken the log again."""
        return self._session if self._session is not None else waits.aside(self._reconnect)

    def _reconnect(self) -> Session:
        if self._closing.is_set():
            raise StoreUnavailable("the store is closed")
        session = self._database.write()
        try:
            if self._must_mend:
                self._database.mend(session)
                self._must_mend = False
            holder = self._holder
            if self.shared:
                self._database.claim(session, self._name)  # the old connection may still have it; the lease covers that
                # Waits for the lock on the row, and so for the old connection's transaction.
                found = session.row(statements.REOPEN_LOG, log=holder.log, opening=holder.opening)
            else:
                found = session.row(statements.SEE_LOG, log=holder.log, opening=holder.opening)
            if found is None:
                raise self._fenced()
        except BaseException:
            session.discard()
            raise
        epoch, self._seen_commits = found
        self._holder = holder._replace(epoch=epoch)
        if self._pending is None:
            self._commits = self._seen_commits
        self._session = session
        return session

    def _fenced(self) -> Fenced:
        return Fenced(
            f"another process has taken over the log of the broker {self._name!r} in {self._database.place}: "
            "this one must end"
        )

    def _failed(self, kind: FaultKind) -> None:
        """Clean up after an error. When a commit is in doubt or the connection is lost, drop the connection."""
        if kind is FaultKind.FULL and not self.shared:
            # SQLite has not written the end of the transaction, so it did not happen; and a new connection would need
            # disk space, too.
            self._pending = None
        if self._pending is not None or kind in (FaultKind.LOST, FaultKind.CORRUPT):
            self._must_mend |= kind is FaultKind.LOST
            self._drop()
        else:
            self._roll_back()

    def _again(self, kind: FaultKind, error: BaseException, attempt: int, began: float, tried: float) -> bool:
        if self._pending is not None and kind not in (FaultKind.LOST, FaultKind.AGAIN):
            if attempt >= ATTEMPTS:
                return False
            kind = FaultKind.AGAIN  # the commit is in doubt: a retry settles that first
        return waits.aside(lambda: self._database.again(kind, error, attempt, began, tried))

    def _roll_back(self) -> None:
        if self._session is not None:
            try:
                self._session.roll_back()
            except DRIVER_ERRORS:
                self._drop()

    def _drop(self) -> None:
        if self._session is not None:
            self._session.discard()
            self._session = None

    # Reading

    def read(
        self, topic: int, log: int, offset: int, *, max_bytes: int = 4 << 20, max_rows: int | None = None
    ) -> list[StoredEntry]:
        """Entries of a topic in one log, from the one that contains `offset`; at least one, if there is one.

        The first entry may begin before `offset`, and before the retained rows: the caller cuts it. When the rows at
        `offset` were removed, the result begins with the first retained entry. `CorruptLog` when an entry is damaged.
        """
        return self._database.read(
            lambda session: lookups.read(session, topic, log, offset, max_bytes, max_rows), snapshot=False
        )

    def read_single(self, topic: int, log: int, offset: int, *, max_rows: int | None = None) -> list[bytes]:
        """The data of entries from `offset` on, if all have one row each and one schema; often an empty list.

        They are checked as in `read`. After an empty list, call `read`: it returns other entries, or raises.
        """
        return self._database.read(
            lambda session: lookups.read_single(session, topic, log, offset, max_rows), snapshot=False
        )

    def resolve(self, topic: int, start: Start) -> Position:
        """The position that a start means now, in all logs."""
        return self._database.read(lambda session: lookups.resolve(session, topic, start))

    def inspect(self, work: Work, time_us: int) -> Any:
        """Carry out an operation that only reads, from any thread."""
        context = WorkContext(time_us, self.log, self.shared, self._looked, _nothing, lambda function: function())
        return self._database.read(lambda session: execute(work, session, context))

    def pulse(self) -> dict[int, int]:
        """The number of commits of each log: a cheap query, and while it is unchanged, so is everything else."""
        return self._database.read(
            lambda session: {row[0]: row[1] for row in session.rows(statements.PULSE)}, snapshot=False
        )

    def topics(self) -> list[TopicRecord]:
        """All durable topics."""
        return self._database.read(lookups.topics)

    def extents(self, topic: int | None = None) -> dict[int, dict[int, Extent]]:
        """The extents of topics: by topic, then by log."""
        return self._database.read(lambda session: lookups.extents(session, topic), snapshot=False)

    def subscriptions(self, topic: int) -> list[SubscriptionRecord]:
        """The named subscriptions to a topic."""
        return self._database.read(lambda session: lookups.subscriptions(session, topic))

    # Upkeep and the end

    def maintain(self, time_us: int) -> UpkeepStep:
        """Do one short step of upkeep, in the writing thread. Raises as `write` does."""
        # A monotonic clock: if the wall clock were set back by an hour, this broker would be silent for that hour.
        silent = time.monotonic() - self._beaten > self.beat_s
        if self._session is None or silent:
            found = self.write((), time_us).entries  # renews the lease, and settles a commit in doubt
            self._late = found
        tried = time.monotonic()
        try:
            return self._upkeep.step(self._connected(), self._holder, time_us)
        except DRIVER_ERRORS as error:
            kind = faults.kind(error)
            self._failed(kind)
            if kind is FaultKind.LOST:
                self._database.again(kind, error, 1, tried, tried)  # other calls then wait no longer than this one
            raise faults.fault(error, self._database.place) from error
        except BaseException:
            self._failed(FaultKind.REFUSED)
            raise

    def late(self) -> list[Entry]:
        """Entries of commits that turned out to have happened, not returned by `write` yet. Each is returned once."""
        told, self._late = self._late, []
        return told

    def halt(self) -> None:
        """Stop evaluating clients' expressions, since this process is ending. From any thread."""
        self._database.halt()

    def hurry(self, seconds: float) -> None:
        """Make every wait for the database end within this many seconds. From any thread."""
        self._database.hurry(seconds)

    def close(self) -> None:
        """Release the log. Called after the last write."""
        self._closing.set()
        if self._session is not None:
            try:
                holder = self._holder
                self._session.run(statements.LEAVE_SUBSCRIPTIONS, log=holder.log, opening=holder.opening)
                if self.shared:
                    self._session.run(statements.LEAVE_LOG, log=holder.log, epoch=holder.epoch)
            except (*DRIVER_ERRORS, StoreError):
                pass  # the next process waits for the lease
            self._drop()
        self._database.close()


def _nothing(_: Any) -> None:
    raise AssertionError("who only looks changes nothing")
