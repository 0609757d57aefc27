"""Outages of a database server: how long calls wait for an answer, and how the end of an outage is noticed."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol
from weakref import WeakSet

from milepost.errors import StoreUnavailable

PAUSE_S: Final = 0.05  # between probes of a server that does not answer; outages last for seconds
CHECKS: Final = 20  # checks of waits within the limit: a wait ends at most a twentieth of the limit late
LOOK_S: Final = 0.5  # most seconds between two checks
QUIET_S: Final = 10.0  # between two log lines about outages, so that an unstable server does not fill the log

_log: Final = logging.getLogger(__name__)


class WatchedConnection(Protocol):
    """A connection. `since` is when it began to wait for an answer; 0.0 when it does not wait."""

    since: float

    def cut(self) -> None:
        """Break the connection, from any thread: a call that waits on it fails."""


class Outage:
    """The state of one server. Any thread may use it.

    A call waits for the server for at most `limit_s` seconds. When no call had an answer for that long, the outage
    begins to refuse: waiting calls fail together, and new calls fail at once, until a thread that keeps calling `probe`
    (which raises when it fails) has an answer. A wait of half the limit starts probes, too: at the limit it is then
    known whether the server is away or only one statement is slow. In both cases the wait ends.
    """

    def __init__(self, place: str, limit_s: float, probe: Callable[[], None]) -> None:
        self.limit_s = limit_s
        self._place = place
        self._probe = probe
        self._changed = threading.Condition()
        self._lines: WeakSet[WatchedConnection] = WeakSet()
        self._since: float | None = None  # when the outage began; None: no outage
        self._said = "the broker is stopping"
        self._refusing = False
        self._probes = 0  # number of probes that had an answer
        self._probing = False
        self._heard = 0.0  # when the server last gave an answer
        self._checked = self._resumed = (
            0.0  # when waits were last checked; and when this process last resumed after a stop
        )
        self._end = math.inf  # time when every wait ends, whatever `limit_s` is
        self._logged = -math.inf
        self._told = False  # this outage was logged
        self._closed = threading.Event()
        self._watches = False

    # Connections

    def add(self, line: WatchedConnection) -> None:
        """Watch a connection: from now on its waits are limited."""
        with self._changed:
            self._lines.add(line)
            if not self._watches:
                self._watches = True
                self._checked = time.monotonic()
                threading.Thread(target=self._watch, name="milepost-watch", daemon=True).start()

    def remove(self, line: WatchedConnection) -> None:
        """Stop watching a connection, which is closed."""
        with self._changed:
            self._lines.discard(line)

    # Calls

    def require(self) -> None:
        """Raise `StoreUnavailable` when the outage has lasted so long that calls no longer wait."""
        if self._refusing or time.monotonic() >= self._end:
            raise StoreUnavailable(
                f"the store {self._place} does not answer ({self._said}): see that it runs, then try again"
            )

    def answered(self, tried: float) -> None:
        """Called when the server has answered a request of the time `tried`; a later outage may have begun."""
        self._heard = max(self._heard, tried)
        if self._since is not None and tried > self._since:
            self._back()

    def failed(self, said: str, began: float, tried: float) -> bool:
        """Wait for the server after an attempt failed that began at `tried`, of a call that began at `began`.

        True: retry. False: the time is up.
        """
        with self._changed:
            self._look_at_itself()
            began, tried = max(began, self._resumed), max(tried, self._resumed)
            if time.monotonic() >= tried + self.limit_s:
                said = f"no answer within {self.limit_s:g} s"  # the driver's message is about the cut connection
            if self._since is None:
                self._since, self._said = max(tried, self._heard), said
                self._tell()
            probes = self._probes
            self._ask()
            while self._probes == probes and not self._refusing:
                now = time.monotonic()
                end = min(self._since + self.limit_s, self._end) if self._since is not None else self._end
                if now >= end:
                    self._refuse()
                    return False
                if now >= began + self.limit_s:
                    return False
                self._changed.wait(min(end, began + self.limit_s) - now)
            return not self._refusing and time.monotonic() < min(began + self.limit_s, self._end)

    def left_s(self) -> float:
        """Seconds until the oldest current wait must end; without a wait, until a new one would have to."""
        with self._changed:
            now = time.monotonic()
            first = min((line.since for line in self._lines if line.since), default=now)
            return min(first + self.limit_s, self._end) - now

    def pause(self) -> None:
        """Sleep `PAUSE_S` before a retry that does not wait for the server."""
        self._closed.wait(PAUSE_S)

    # The end

    def hurry(self, seconds: float) -> None:
        """Make every wait end within this many seconds, and refuse calls after that."""
        with self._changed:
            self._end = min(self._end, time.monotonic() + seconds)
            self._changed.notify_all()

    def close(self) -> None:
        """End the threads: the outage is no longer used."""
        self._closed.set()

    # In threads of its own

    def _watch(self) -> None:
        while not self._closed.wait(min(self.limit_s / CHECKS, LOOK_S)):
            with self._changed:
                now = self._look_at_itself()
                for line in self._lines:
                    since = max(line.since, self._resumed) if line.since else 0.0
                    if since and now >= min(since + self.limit_s, self._end):
                        line.cut()
                    elif since and now >= since + self.limit_s / 2:
                        self._ask()

    def _look_at_itself(self) -> float:
        """The current time. Notices when this process was stopped: that time does not count as waiting."""
        now = time.monotonic()
        if self._watches and now - self._checked > self.limit_s / 2 + LOOK_S:
            self._resumed = now
        self._checked = now
        return now

    def _ask(self) -> None:
        """Start the thread that probes the server, unless it runs."""
        if not self._probing and not self._closed.is_set():
            self._probing = True
            threading.Thread(target=self._ask_until_back, name="milepost-probe", daemon=True).start()

    def _ask_until_back(self) -> None:
        while not self._closed.wait(PAUSE_S):
            asked = time.monotonic()
            try:
                self._probe()
            except Exception as error:
                _log.debug("the store %s is asked in vain: %s", self._place, error)
                continue
            with self._changed:
                self._heard = max(self._heard, asked)
                if self._since is not None and asked <= self._since:
                    continue  # the probe was sent before the outage began
                self._probing = False
                self._probes += 1
                self._back()
                return

    # State

    def _refuse(self) -> None:
        self._refusing = True
        if self._told:
            _log.error("the store %s has not answered for %g s: calls fail until it does", self._place, self.limit_s)
        for line in self._lines:
            if line.since:
                line.cut()
        self._changed.notify_all()

    def _back(self) -> None:
        with self._changed:
            away_s = time.monotonic() - self._since if self._since is not None else 0.0
            if self._told and not self._closed.is_set():  # before calls resume, so that log lines are in order
                self._told = False
                _log.warning("the store %s answers again, after %.1f s", self._place, away_s)
            self._since, self._refusing = None, False
            self._changed.notify_all()

    def _tell(self) -> None:
        now = time.monotonic()
        if now >= self._logged + QUIET_S:
            self._logged, self._told = now, True
            _log.warning("the store %s does not answer: %s", self._place, self._said)
