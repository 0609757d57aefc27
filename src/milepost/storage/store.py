"""A store: what a broker keeps, in one database. One thread writes; any thread reads."""

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

STALE_MOST: Final = 20  # times that others may change what this process remembers, during one write
REFUSED_MOST: Final = 3  # operations that a group is written again without: each time costs as much as all of it
GROUP_S: Final = 0.5  # seconds that a group takes, before what other parts give it waits for the next one
BEAT_PART: Final = 3  # a broker says three times in its lease that it is alive


class _Overtaken(Exception):
    """Another process has the log."""


class Crowded(Exception):
    """Too many of a group's operations fail half done, and nothing was written: write it in smaller groups."""


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

    `ConfigError` when the database is not ours to open, or when a broker of this name is alive in it. `one_of_many`, in
    a shared store: the name is that of many, "name-1" and so on, and the first that nobody has is taken.
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
        self._looked: dict[str, Any] = {}  # what parts remember that only look; their threads are several
        self._closing = threading.Event()
        self._session: Session | None = None
        self._pending: tuple[int, GroupCommit, Committed] | None = None  # a commit whose outcome is not known
        self._late: list[Entry] = []  # of commits that were found to have happened, after their callers had an error
        self._must_mend = False
        self._seen_commits = 0  # what the log's row said when it was taken again
        self._operations: Sequence[Operation] = ()  # of the pending commit
        self.shared: Final = database.shared
        self.beat_s: Final = lease_s / BEAT_PART if database.shared else math.inf  # how often it says that it is alive
        try:
            session = database.write()
            self._session = session
            self.id: Final = migrations.migrate(database, session)
            if one_of_many and self.shared:
                # A claim lasts as long as its connection. Whoever comes takes a name that was left: logs stay few.
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
        """Take the log over from the process that had it."""
        free = self._database.claim(session, self._name)
        session.say(self._database.begin)
        found = session.row(statements.FIND_LOG, name=self._name, time_us=time_us)
        if found is None:
            session.run(statements.MAKE_LOG, name=self._name, broker_id=broker_id, address=address)
            found = session.row(statements.FIND_LOG, name=self._name, time_us=time_us)
        number, known_id, opening, epoch, commits, last_us, where, silent_us = found
        # The claim ends with the other process's connection. While it stands, that process may be paused, or behind a
        # broken network: then its lease decides.
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

        Each operation has an outcome of its own. A `StoreError` says that none of them was carried out, or, when it is
        `InDoubt`, that nobody knows yet. `Crowded`: nothing was written either. `Fenced`: another
        process has this broker's log, and this one must end.
        """
        began = time.monotonic()
        until = began + GROUP_S
        asked_s: dict[int, float] = {}
        self._last_us = time_us = max(time_us, self._last_us)  # times do not go back within a log
        attempt = stale = 0
        refused: dict[int, MilepostError] = {}
        while True:
            attempt += 1
            tried = time.monotonic()
            try:
                self._database.require()
                session = self._connected()
                if self._pending is not None:
                    committed = self._settle(operations)
                    if committed is not None:
                        return self._with_late(committed)
                committed = self._attempt(session, operations, time_us, refused, until, asked_s)
                self._database.answered(tried)
                committed = self._with_late(committed)
                return committed._replace(asked_s=asked_s) if asked_s else committed
            except _Overtaken:
                self._pending = None  # it was found out before the commit
                self._failed(FaultKind.REFUSED)
                raise self._fenced() from None
            except Spoiled as spoiled:
                self._roll_back()
                refused[spoiled.place] = spoiled.error
                if isinstance(spoiled.error, QueryTooCostly):
                    until = 0.0  # one of them in a group is enough
                if len(refused) > REFUSED_MOST < len(operations):
                    raise Crowded("too many operations of one group fail: give them one by one") from None
            except Stale:
                self._pending = None  # the same
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
            except StoreUnavailable as error:  # it is waited for no longer; or, from mending, it is being read
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
        self._pending = pending  # from here on, an error leaves the outcome open
        self._operations = operations
        if not self._database.commit_at_once(session):
            self._pending = None
            session.settle_checks()
            self._pending = pending
            session.say("COMMIT")
        self._database.require_there(session)  # otherwise the outcome is open, until the file is back
        self._landed(session)
        self._beaten = time.monotonic()
        return committed

    def _require_held(self, touched: Any) -> None:
        if touched.rowcount != 1:
            raise _Overtaken  # in the middle of some operation, which is not to blame for it

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
        """What is committed is not carried out again, whatever is in the way of finding out what came of it."""
        try:
            return promise.kept(session)
        except MilepostError as error:
            return error
        except DRIVER_ERRORS as error:
            self._failed(faults.kind(error))
            return faults.fault(error, self._database.place)

    def _settle(self, operations: Sequence[Operation]) -> Committed | None:
        """Now that the log is ours again: did the last commit happen? Its result, if that is what is asked for."""
        assert self._pending is not None
        if self._seen_commits != self._pending[0]:
            self._pending = None
            return None
        assert self._session is not None
        committed = self._landed(self._session)
        if operations is self._operations:
            return committed
        # Its caller was told that nobody knows; whoever follows the end of the log needs the entries all the same.
        self._late += committed.entries
        return None

    def _with_late(self, committed: Committed) -> Committed:
        if self._late:
            committed = Committed(committed.outcomes, self._late + committed.entries)
            self._late = []
        return committed

    def _connected(self) -> Session:
        """The writing connection; a new one, with the log in hand, after the old one was lost."""
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
                self._database.claim(session, self._name)  # may still be the old connection's; the lease covers that
                # Waits for the row, and so for whatever the old connection still does with it.
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
        """Clean up after an error. When a commit's outcome is open, or the connection lost, begin with a new one."""
        if kind is FaultKind.FULL and not self.shared:
            # SQLite has not written the end of the transaction, so it did not happen; and a new connection would want
            # room that is not there.
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
            kind = FaultKind.AGAIN  # nobody knows whether it is committed: that is found out first
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
        """Entries of a topic in one log, from the one that holds `offset` on, at least one when there is one.

        The first entry may begin before `offset`, and before what is retained: the caller cuts it. When rows from
        `offset` on were removed, it begins with what is there. `CorruptLog` when an entry is not what was written.
        """
        return self._database.read(
            lambda session: lookups.read(session, topic, log, offset, max_bytes, max_rows), snapshot=False
        )

    def read_single(self, topic: int, log: int, offset: int, *, max_rows: int | None = None) -> list[bytes]:
        """The data of entries from `offset` on that are of one row each, and of one schema; mostly there are none.

        They are checked as `read` checks them. When there is nothing, `read` says what there is, or what is wrong.
        """
        return self._database.read(
            lambda session: lookups.read_single(session, topic, log, offset, max_rows), snapshot=False
        )

    def resolve(self, topic: int, start: Start) -> Position:
        """Where a start is now, in all logs."""
        return self._database.read(lambda session: lookups.resolve(session, topic, start))

    def inspect(self, work: Work, time_us: int) -> Any:
        """Do work that changes nothing, from any thread."""
        context = WorkContext(time_us, self.log, self.shared, self._looked, _nothing, lambda function: function())
        return self._database.read(lambda session: execute(work, session, context))

    def pulse(self) -> dict[int, int]:
        """How often each log was written to: quickly asked, and all else is as it was while this is."""
        return self._database.read(
            lambda session: {row[0]: row[1] for row in session.rows(statements.PULSE)}, snapshot=False
        )

    def topics(self) -> list[TopicRecord]:
        """All durable topics."""
        return self._database.read(lookups.topics)

    def extents(self, topic: int | None = None) -> dict[int, dict[int, Extent]]:
        """What topics have: by topic, then by log."""
        return self._database.read(lambda session: lookups.extents(session, topic), snapshot=False)

    def subscriptions(self, topic: int) -> list[SubscriptionRecord]:
        """The named subscriptions to a topic."""
        return self._database.read(lambda session: lookups.subscriptions(session, topic))

    # Upkeep and the end

    def maintain(self, time_us: int) -> UpkeepStep:
        """One short step of upkeep, from the writing thread. Raises as `write` does."""
        # By a clock that nobody sets: an hour back, and this broker would be silent for that hour.
        silent = time.monotonic() - self._beaten > self.beat_s
        if self._session is None or silent:
            found = self.write((), time_us).entries  # says that this broker is alive, and settles what is open
            self._late = found
        tried = time.monotonic()
        try:
            return self._upkeep.step(self._connected(), self._holder, time_us)
        except DRIVER_ERRORS as error:
            kind = faults.kind(error)
            self._failed(kind)
            if kind is FaultKind.LOST:
                self._database.again(kind, error, 1, tried, tried)  # others wait no longer for it than this has
            raise faults.fault(error, self._database.place) from error
        except BaseException:
            self._failed(FaultKind.REFUSED)
            raise

    def late(self) -> list[Entry]:
        """Entries whose commit was found to have happened, and that no `write` has told of; told once."""
        told, self._late = self._late, []
        return told

    def halt(self) -> None:
        """Evaluate no more expressions of clients: this process is ending. From any thread."""
        self._database.halt()

    def hurry(self, seconds: float) -> None:
        """Let every wait for the database end within so many seconds: nobody has longer. From any thread."""
        self._database.hurry(seconds)

    def close(self) -> None:
        """Give the log back. Called after the last write."""
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
