"""The writer: a thread that commits whatever waits, in groups."""

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

GROUP_BYTES: Final = 8 << 20  # of batches in one transaction: some ten milliseconds of a disk
GROUP_OPERATIONS: Final = 10_000  # the same for what has no batches
PARTS: Final = 8  # that a group falls into of which too much fails
MAINTAIN_S: Final = 1.0  # seconds from a cycle of upkeep that found nothing to do to the next one
MAINTAIN_SHARE: Final = 200  # times as long as a step took, until the next one: half a percent of the writer's time,
BEHIND_SHARE: Final = 3  # and a quarter of it when it has been behind for long: no traffic outruns it for ever
BEHIND_STEP: Final = 4  # by which the first becomes the second, each second: a burst of a minute is hardly disturbed
MAINTAIN_MOST_S: Final = 3.0  # seconds until the next step, however long one took: what was slow may not be any more
COSTLY_S: Final = 0.1  # seconds for a client's expressions, beyond which it is one of those that share half the time
COSTLY_CLIENTS: Final = 10_000  # of these that are remembered
AWAY: Final = "the store went away in the middle of a commit, and is not back: see that it runs, then try again"
_log: Final = logging.getLogger(__name__)

Done = Callable[[list[tuple[Any, Any]], list[Entry]], None]


class _Given(NamedTuple):
    operation: Operation | None  # None: `session` goes on, or `function` is called
    context: Any
    session: Hashable | None
    function: Callable[[], None] | None = None


class _Held(NamedTuple):
    """A group whose commit is in doubt. `operations` is the very list that the store was given: it knows it by that."""

    chosen: list[_Given]
    operations: list[Operation]
    error: InDoubt


_UNTOLD: Final = object()  # the outcome of an operation that is held


class MaintenancePace:
    """When the next step of upkeep is due, by a monotonic clock.

    Steps that work follow each other at once while nobody writes. Beside writes, and while they only look, upkeep has
    its share of the writer's time, whatever the traffic. The share grows with each second until it has caught up.
    """

    def __init__(self, rest_s: float, now: float, most_s: float = MAINTAIN_MOST_S) -> None:
        """`most_s` bounds every rest: a broker says within a step that it is alive."""
        self._rest_s = min(rest_s, most_s)
        self._most_s = min(most_s, MAINTAIN_MOST_S)
        self._wrote = False
        self._caught_up = now  # when a cycle last found nothing to do
        self.due = now + self._rest_s

    def wrote(self) -> None:
        """A group was written."""
        self._wrote = True

    def stepped(self, began: float, now: float, step: UpkeepStep) -> None:
        """A step is done."""
        at_once = step.worked and not self._wrote
        if not step.more:
            self._caught_up = now
        share = max(BEHIND_SHARE, MAINTAIN_SHARE - BEHIND_STEP * int(now - self._caught_up))
        rest_s = 0.0 if at_once else min((now - began) * share, self._most_s)
        self.due = now + (rest_s if step.more else max(rest_s, self._rest_s))
        self._wrote = False


class Writer:
    """Takes operations from any thread and commits them in the order they came; whatever waits goes together.

    `done(results, entries)` is called in the writer's thread after each group: `results` pairs each operation's context
    with its outcome, which may be an error, and `entries` is what the log has got. When a group fails, its sessions are
    broken: what they give after it fails in the same way, so that nothing overtakes what failed, until `resume` has
    come through the queue. After `Fenced` everything fails, and `over` is that error; when it was upkeep that found
    out, `done` is called without results.

    A group whose commit is in doubt is held: `done` is not called for it until the store is back and says whether the
    commit happened; if it did not, the group is written then. What is given meanwhile fails.
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
        self._over: Fenced | None = None  # set once another process has the log
        self._costly: dict[Hashable, None] = {}  # clients whose expressions took long, the last time
        self._resting: deque[_Given] = deque()  # what they want, until `_rested`
        self._rested = 0.0
        self._held: _Held | None = None
        self._hurries = False  # what is in doubt is not held
        self._begin()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._run, name="milepost-writer", daemon=True)
        self._thread.start()

    @property
    def over(self) -> Fenced | None:
        """Why nothing will be written any more: another process has the log."""
        return self._over

    def give(self, operation: Operation, context: Any = None, session: Hashable | None = None) -> None:
        """Have an operation written. `session` is whose order counts: a connection's, a subscription's."""
        self._put(_Given(operation, context, session))

    def resume(self, session: Hashable) -> None:
        """The session knows what failed: what it gives from here on is written again."""
        self._put(_Given(None, None, session))

    def call(self, function: Callable[[], None]) -> None:
        """Run something in the writer's thread, after what was given before it and before what comes after."""
        self._put(_Given(None, None, None, function))

    def hurry(self) -> None:
        """Somebody waits for all outcomes, to end: tell of a commit in doubt that it is, with the next look at it."""
        self._hurries = True

    def close(self) -> None:
        """Write what was given, then end. Does not close the store. Not to be called from `done`."""
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
                    wait_s = math.inf if self._over else max(0.0, pace.due - time.monotonic())
                    if self._resting:
                        wait_s = min(wait_s, self._resting_s())
                    self._wake.wait(None if wait_s == math.inf else wait_s)
                if not self._waiting and not self._resting and self._closing:
                    break
                group = self._group()
            if group:
                self._write(group)
                pace.wrote()
            began = time.monotonic()
            if began >= pace.due and self._over is None and not self._closing:
                step = self._maintain()
                pace.stepped(began, time.monotonic(), step)
        self._settle_held(last=True)

    def _group(self) -> list[_Given]:
        """What is written next: up to the bounds of a group, or a single call."""
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
            if self._rests(given.operation):
                self._resting.append(given)
                continue
            group.append(given)
            size += _size(given.operation)
        return group

    def _rests(self, operation: Operation | None) -> bool:
        """Whether an operation is of a client that has to wait."""
        if not self._costly or not isinstance(operation, Work) or operation.client not in self._costly:
            return False
        return self._resting_s() > 0

    def _resting_s(self) -> float:
        """Seconds until clients whose expressions took long are served again."""
        return 0.0 if self._closing else max(0.0, self._rested - time.monotonic())

    def _rest(self, chosen: list[_Given], asked_s: Mapping[int, float]) -> None:
        """Note how long clients' expressions took. Where that was long, the writer is for others for as long again."""
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
            except Exception:  # a fault of ours, or of whoever gave it; what else waits is still to be written
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
            error: MilepostError | None = self._over
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
        """Tell what came of operations. What is postponed goes into the next group; of what is held, nobody is told."""
        if any(outcome is POSTPONED for _, outcome in results):
            postponed = [given for given, place in zip(chosen, places, strict=True) if results[place][1] is POSTPONED]
            with self._lock:
                self._waiting.extendleft(reversed(postponed))
        self._tell([each for each in results if each[1] is not _UNTOLD and each[1] is not POSTPONED], entries)

    def _together(
        self, chosen: list[_Given], places: Sequence[int], results: list[tuple[Any, Any]],
        operations: list[Operation] | None = None,
    ) -> list[Entry]:  # fmt: skip
        """Write operations as one group; or, when some of them cannot be, so that the others do not suffer for it."""
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
        except Exception as error:  # a fault of ours, or something that no database takes
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
        """Find out what became of a commit in doubt, before anything else is written; the `last` time, tell anyhow."""
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
        """Write operations in groups of so many. What follows a failure of its session fails in the same way."""
        entries: list[Entry] = []
        for start in range(0, len(chosen), size):
            some: list[_Given] = []
            where: list[int] = []
            for given, place in zip(chosen[start : start + size], places[start : start + size], strict=True):
                error: MilepostError | None = self._over
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
        """An operation without what belongs to broken sessions; or the error, when all of it does."""
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
            self._over = error
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
        except Exception:  # as when its event loop is closed: what was given is written all the same
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
            self._over = error
            self._tell([], [])
        except StoreUnavailable as error:
            _log.debug("upkeep of the store: %s", error)  # that it is away is in the log: see `outage`
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
        return GROUP_BYTES  # perhaps many times that: nothing more goes together with it
    return 0
