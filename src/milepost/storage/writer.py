"""The writer: a thread that commits waiting operations in groups."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from milepost.errors import Closed, Fenced, InDoubt, MilepostError, StoreError, StoreUnavailable
from milepost.operations import Append, AppendRows, Entry, Move, Operation, Publish, Stage, Work
from milepost.storage.execution import POSTPONED
from milepost.storage.store import Crowded, Store
from milepost.storage.upkeep import UpkeepStep

GROUP_BYTES: Final = 8 << 20  # of batches in one transaction: a disk takes some ten milliseconds
GROUP_OPERATIONS: Final = 10_000  # the same for operations without batches
PARTS: Final = 8  # into which a group is split when too many of its operations fail
MAINTAIN_S: Final = 1.0  # seconds from a cycle of upkeep that found nothing to do to the next one
MAINTAIN_SHARE: Final = 200  # pause after a step, in multiples of its duration: half a percent of the writer's time,
BEHIND_SHARE: Final = 3  # and a quarter when it has been behind for long, so that it keeps up with any traffic
BEHIND_STEP: Final = 8  # decrease of the first each second, down to the second: a burst of seconds is hardly disturbed
MAINTAIN_MOST_S: Final = 3.0  # most seconds until the next step, however long one took: the next may be faster
COSTLY_S: Final = 0.1  # seconds of a client's expressions, from which it is costly: costly clients share half the time
COSTLY_CLIENTS: Final = 10_000  # most costly clients that are remembered
AWAY: Final = "the store went away in the middle of a commit, and is not back: see that it runs, then try again"
_log: Final = logging.getLogger(__name__)

Done = Callable[[list[tuple[Any, Any]], list[Entry]], None]


class _Given(NamedTuple):
    operation: Operation | None  # None: `session` resumes, or `function` is called
    context: Any
    session: Hashable | None
    function: Callable[[], None] | None = None


class _Held(NamedTuple):
    """A group whose commit is in doubt. `operations` is the list object that the store got: it compares by `is`."""

    chosen: list[_Given]
    operations: list[Operation]
    error: InDoubt


_UNTOLD: Final = object()  # the outcome of an operation that is held


class MaintenancePace:
    """When the next step of upkeep is due, by a monotonic clock.

    Without writes, a step that changed something is followed by the next at once. Otherwise upkeep gets its share of
    the writer's time, whatever the traffic. The share grows with each second until upkeep has caught up.
    """

    def __init__(self, rest_s: float, now: float, most_s: float = MAINTAIN_MOST_S) -> None:
        """`most_s` bounds every pause: a step also renews the broker's lease."""
        self._rest_s = min(rest_s, most_s)
        self._most_s = min(most_s, MAINTAIN_MOST_S)
        self.wrote = False  # set after a group is written
        self._caught_up = now  # when a cycle last found nothing to do
        self.due = now + self._rest_s

    def stepped(self, began: float, now: float, step: UpkeepStep) -> None:
        """Called after a step."""
        at_once = step.worked and not self.wrote
        if not step.more:
            self._caught_up = now
        share = max(BEHIND_SHARE, MAINTAIN_SHARE - BEHIND_STEP * int(now - self._caught_up))
        rest_s = 0.0 if at_once else min((now - began) * share, self._most_s)
        self.due = now + (rest_s if step.more else max(rest_s, self._rest_s))
        self.wrote = False


class Writer:
    """Takes operations from any thread and commits them in order; those that wait are committed as one group.

    `done(results, entries)` is called in the writer's thread after each group: `results` pairs each operation's context
    with its outcome, which may be an error, and `entries` are the new entries of the log. When a group fails, its
    sessions are broken: their later operations fail with the same error, so that none overtakes a failed one, until a
    `resume` in the queue is reached. After `Fenced` all operations fail, and `over` is that error; when a step of
    upkeep raised it, `done` is called without results.

    A group whose commit is in doubt is held: `done` is not called for it until the store is back and it is known
    whether the commit happened; if not, the group is written then. Operations given meanwhile fail.
    """

    def __init__(self, store: Store, *, time_us: Callable[[], int], done: Done, maintain_s: float = MAINTAIN_S) -> None:
        self._store = store
        self._time_us = time_us
        self._done = done
        self._maintain_s = maintain_s
        self._waiting: deque[_Given] = deque()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._closing = False
        self._broken: dict[Hashable, MilepostError] = {}
        self.over: Fenced | None = None  # the error of every further operation, once another process has the log
        self._costly: dict[Hashable, None] = {}  # clients whose last expressions took long
        self._resting: deque[_Given] = deque()  # their operations, until the time `_rested`
        self._rested = 0.0
        self._held: _Held | None = None
        self._hurries = False  # commits in doubt are not held any more
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="milepost-writer", daemon=True)
        self._thread.start()

    def give(self, operation: Operation, context: Any = None, session: Hashable | None = None) -> None:
        """Queue an operation. `session` is the unit of ordering: a connection or a subscription."""
        self._put(_Given(operation, context, session))

    def resume(self, session: Hashable) -> None:
        """Called when the session knows of its failure: its operations from here on are written again."""
        self._put(_Given(None, None, session))

    def call(self, function: Callable[[], None]) -> None:
        """Run a function in the writer's thread, in order with the operations."""
        self._put(_Given(None, None, None, function))

    def hurry(self) -> None:
        """The process ends soon: report a commit that is still in doubt at the next check as such, with `InDoubt`."""
        self._hurries = True

    def close(self) -> None:
        """Write the operations given so far, then end. Does not close the store. Must not be called from `done`."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join()

    def _put(self, given: _Given) -> None:
        with self._lock:
            if self._closing:
                raise Closed("the writer was closed")
            self._waiting.append(given)
            if len(self._waiting) == 1:
                self._wake.notify()

    def _run(self) -> None:
        pace = MaintenancePace(self._maintain_s, time.monotonic(), self._store.beat_s)
        while True:
            with self._wake:
                if not self._waiting and not self._closing:
                    wait_s = math.inf if self.over else max(0.0, pace.due - time.monotonic())
                    if self._resting:
                        wait_s = min(wait_s, self._resting_s())
                    self._wake.wait(None if wait_s == math.inf else wait_s)
                if not self._waiting and not self._resting and self._closing:
                    break
                group = self._group()
            if group:
                self._write(group)
                pace.wrote = True
            began = time.monotonic()
            if began >= pace.due and self.over is None and not self._closing:
                step = self._maintain()
                pace.stepped(began, time.monotonic(), step)
        self._settle_held(last=True)

    def _group(self) -> list[_Given]:
        """The next group: operations up to the bounds of a group, or a single call."""
        if self._resting and not self._resting_s():
            self._waiting.extendleft(reversed(self._resting))
            self._resting.clear()
        group: list[_Given] = []
        size = 0
        while self._waiting and size < GROUP_BYTES and len(group) < GROUP_OPERATIONS:
            if self._waiting[0].function is not None:
                if not group:
                    group.append(self._waiting.popleft())
                break
            given = self._waiting.popleft()
            if self._costly and self._rests(given.operation):
                self._resting.append(given)
                continue
            group.append(given)
            size += _size(given.operation)
        return group

    def _rests(self, operation: Operation | None) -> bool:
        """Whether the client of an operation is costly and has to wait."""
        return isinstance(operation, Work) and operation.client in self._costly and self._resting_s() > 0

    def _resting_s(self) -> float:
        """Seconds until costly clients are served again."""
        return 0.0 if self._closing else max(0.0, self._rested - time.monotonic())

    def _rest(self, chosen: list[_Given], asked_s: Mapping[int, float]) -> None:
        """Record how long clients' expressions took. Costly clients then wait for the same time."""
        totals: dict[Hashable, float] = {}
        for place, seconds in asked_s.items():
            operation = chosen[place].operation
            if isinstance(operation, Work):
                totals[operation.client] = totals.get(operation.client, 0.0) + seconds
        now = time.monotonic()
        for client, seconds in totals.items():
            self._costly.pop(client, None)
            if seconds >= COSTLY_S:
                self._costly[client] = None
                self._rested = max(self._rested, now) + seconds
        while len(self._costly) > COSTLY_CLIENTS:
            self._costly.pop(next(iter(self._costly)))

    def _write(self, group: list[_Given]) -> None:
        if group[0].function is not None:
            try:
                group[0].function()
            except Exception:  # a bug; the other operations must still be written
                _log.exception("a call in the writer's thread")
            return
        self._settle_held()
        results: list[tuple[Any, Any]] = []
        chosen: list[_Given] = []
        places: list[int] = []
        for given in group:
            if given.operation is None:
                self._broken.pop(given.session, None)
                continue
            error: MilepostError | None = self.over
            if error is None and self._broken and given.session is not None:
                given, error = self._spared(given)
            if error is None:
                chosen.append(given)
                places.append(len(results))
            results.append((given.context, error))
        entries = self._together(chosen, places, results) if chosen else []
        self._report(chosen, places, results, entries)

    def _report(
        self, chosen: list[_Given], places: Sequence[int], results: list[tuple[Any, Any]], entries: list[Entry]
    ) -> None:
        """Report outcomes. Postponed operations go into the next group; held ones are not reported."""
        if any(outcome is POSTPONED for _, outcome in results):
            postponed = [given for given, place in zip(chosen, places, strict=True) if results[place][1] is POSTPONED]
            with self._lock:
                self._waiting.extendleft(reversed(postponed))
        self._tell([each for each in results if each[1] is not _UNTOLD and each[1] is not POSTPONED], entries)

    def _together(
        self, chosen: list[_Given], places: Sequence[int], results: list[tuple[Any, Any]],
        operations: list[Operation] | None = None,
    ) -> list[Entry]:  # fmt: skip
        """Write operations as one group; when some cannot be written, in smaller groups, so that the others succeed."""
        if self._held is not None:
            self._fail(StoreUnavailable(AWAY), chosen, places, results)
            return []
        if operations is None:
            operations = [given.operation for given in chosen if given.operation]
        try:
            committed = self._store.write(operations, self._time_us())
        except InDoubt as error:
            self._held = _Held(chosen, operations, error)
            for place in places:
                results[place] = results[place][0], _UNTOLD
        except Crowded:
            return self._apart(chosen, places, results, -(-len(chosen) // PARTS))
        except MilepostError as error:
            if type(error) is StoreError and len(chosen) > 1:
                return self._apart(chosen, places, results, 1)
            self._fail(error, chosen, places, results)
        except Exception as error:  # a bug, or a value that no database accepts
            _log.exception("writing %d operations", len(chosen))
            if len(chosen) > 1:
                return self._apart(chosen, places, results, 1)
            self._fail(StoreError(f"writing failed: {error!r:.200}"), chosen, places, results)
        else:
            for place, outcome in zip(places, committed.outcomes, strict=True):
                results[place] = results[place][0], outcome
            if committed.asked_s:
                self._rest(chosen, committed.asked_s)
            return committed.entries
        return []

    def _take_held(self) -> _Held | None:
        held, self._held = self._held, None
        return held

    def _settle_held(self, *, last: bool = False) -> None:
        """Settle a commit in doubt before anything else is written; if `last`, report it even if still in doubt."""
        held = self._take_held()
        if held is None:
            return
        results: list[tuple[Any, Any]] = [(given.context, None) for given in held.chosen]
        places = range(len(results))
        entries = self._together(held.chosen, places, results, held.operations)
        if self._held is None:
            self._report(held.chosen, places, results, entries)
        elif last or self._hurries:
            self._held = None
            self._tell([(given.context, held.error) for given in held.chosen], [])

    def _apart(
        self, chosen: list[_Given], places: Sequence[int], results: list[tuple[Any, Any]], size: int
    ) -> list[Entry]:
        """Write operations in groups of `size`. After a failure, later operations of its session fail, too."""
        entries: list[Entry] = []
        for start in range(0, len(chosen), size):
            some: list[_Given] = []
            where: list[int] = []
            for given, place in zip(chosen[start : start + size], places[start : start + size], strict=True):
                error: MilepostError | None = self.over
                if error is None and given.session is not None:
                    given, error = self._spared(given)
                if error is not None:
                    results[place] = given.context, error
                else:
                    some.append(given)
                    where.append(place)
            if some:
                entries += self._together(some, where, results)
        return entries

    def _spared(self, given: _Given) -> tuple[_Given, MilepostError | None]:
        """An operation without the rows of broken sessions; or the error, when its only session is broken."""
        if type(given.operation) is not AppendRows:
            return given, self._broken.get(given.session)
        assert isinstance(given.session, tuple)
        found = [(place, self._broken.get(session)) for place, session in enumerate(given.session)]
        refused = {place: error for place, error in found if error is not None}
        return given._replace(operation=given.operation._replace(refused=refused)), None

    def _fail(
        self, error: MilepostError, chosen: list[_Given], places: Sequence[int], results: list[tuple[Any, Any]]
    ) -> None:
        if isinstance(error, Fenced):
            self.over = error
        for given, place in zip(chosen, places, strict=True):
            results[place] = given.context, error
            if type(given.operation) is AppendRows:
                assert isinstance(given.session, tuple)
                self._broken.update(dict.fromkeys(given.session, error))
            elif given.session is not None:
                self._broken[given.session] = error

    def _tell(self, results: list[tuple[Any, Any]], entries: list[Entry]) -> None:
        try:
            self._done(results, entries)
        except Exception:  # for example, its event loop is closed: further operations are still written
            _log.exception("telling of %d operations", len(results))

    def _maintain(self) -> UpkeepStep:
        try:
            self._settle_held()
            if self._held is not None:
                return UpkeepStep(more=False, worked=False)
            step = self._store.maintain(self._time_us())
            if late := self._store.late():
                self._tell([], late)
            return step
        except Fenced as error:
            self.over = error
            self._tell([], [])
        except StoreUnavailable as error:
            _log.debug("upkeep of the store: %s", error)  # `outage` has logged this
        except MilepostError as error:
            _log.warning("upkeep of the store: %s", error)
        return UpkeepStep(more=False, worked=False)


def _size(operation: Operation | None) -> int:
    if type(operation) is Append:
        parts = operation.parts
        return len(parts[0].batch.data) if len(parts) == 1 else sum(len(part.batch.data) for part in parts)
    if type(operation) is AppendRows:
        return sum(map(len, operation.datas))
    if type(operation) is Move:
        return sum(len(part.batch.data) for part in operation.dead)
    if type(operation) is Stage:
        return len(operation.batch.data)
    if isinstance(operation, Work):
        return operation.size
    if type(operation) is Publish:
        return GROUP_BYTES  # perhaps many times that: it ends its group
    return 0
