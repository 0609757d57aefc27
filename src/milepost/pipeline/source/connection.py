"""One client for each process and broker, kept open between calls.

Spark uses a Python worker for many tasks, and for many micro-batches: connecting for each would cost more than
a small one takes. Workers are forked, and a connection does not survive that, so a client belongs to the process
that made it.

A client waits for a broker that went away for as long as it takes. A query must not: a watch closes the client of a
broker that has been away for longer than the query's patience, and the query fails and says why.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Final
from weakref import WeakSet

from milepost.client import Client
from milepost.client.backoff import Backoff
from milepost.errors import ConnectionLost, MilepostError, StateLost, TimedOut

WINDOW_BYTES: Final = 16 << 20  # that a broker may send ahead: a task reads as fast as it can, alone in its process
PLANNING: Final = "pyspark.sql.streaming.python_streaming_source_runner"
WATCH_SECONDS: Final = 1.0  # between two looks: small beside any patience

_clients: dict[tuple[int, str], Client] = {}
_given_up: WeakSet[Client] = WeakSet()  # that the watch has closed
_lock = threading.Lock()
_closing = threading.Lock()


def client(broker: str, timeout: float, *, expected: str = "", patient: bool = True) -> Client:
    """The client of this process for a broker.

    One that is not there is waited for, `timeout` seconds at most; without patience it is a `ConnectionLost` at once.
    `expected` is the `broker_id` under which a checkpoint was written: `StateLost` when the broker has another by now.
    """
    key = os.getpid(), broker
    with _lock:
        found = _clients.get(key)
        if found is not None and found.failure is not None:  # what it did not recover from may be over by now
            _close(found)
            found = None
        if found is None:
            found = _clients[key] = _connected(broker, timeout, patient)
            _forget_others(key[0])
            _watch(key[0], broker, found, timeout)
    if expected and found.broker_id != expected:
        raise StateLost(
            f"the broker at {broker} stores {found.broker_id or 'nothing'}, and the checkpoint is of {expected}: "
            "it lost its state, or the option 'broker' names another one; begin with a new checkpoint"
        )
    return found


def undisturbed() -> None:
    """In a process that Spark has started for planning: leave a Ctrl-C to whoever runs the query, and ends it in order.

    Such a process is of the terminal's foreground, unlike the others that Spark starts.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == PLANNING and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def using(broker: str, timeout: float, *, expected: str = "") -> Iterator[Client]:
    """The same for a piece of work. A client that an error of it leaves unusable is not used again."""
    found = client(broker, timeout, expected=expected)
    try:
        yield found
    except (MilepostError, CancelledError) as error:
        drop(broker, found)
        if found in _given_up:
            raise ConnectionLost(
                f"the broker at {broker} has been away for more than {timeout:g} s, the option 'timeout'"
            ) from error
        raise


def _watch(pid: int, broker: str, watched: Client, timeout: float) -> None:
    """Close a client whose broker stays away."""

    def look() -> None:
        away = 0.0
        while _clients.get((pid, broker)) is watched:
            time.sleep(WATCH_SECONDS)
            away = 0.0 if watched.statistics().connected else away + WATCH_SECONDS
            if away >= timeout:
                _given_up.add(watched)
                drop(broker, watched)  # whoever comes next begins with patience again
                return

    threading.Thread(target=look, name="milepost watch", daemon=True).start()


def _connected(broker: str, timeout: float, patient: bool) -> Client:
    until = time.monotonic() + timeout
    backoff = Backoff()
    while True:
        made = Client(broker, timeout=timeout, window=WINDOW_BYTES)
        try:
            return made.connect()
        except (ConnectionLost, TimedOut) as error:
            left = until - time.monotonic()
            if not patient or left <= 0:
                raise ConnectionLost(f"option 'broker' = {broker!r}: {error}") from None
            time.sleep(min(left, backoff.next()))


def _forget_others(pid: int) -> None:
    """After a fork: the threads behind the parent's clients are not here, so there is nothing to close."""
    for other in [key for key in _clients if key[0] != pid]:
        del _clients[other]


def drop(broker: str, only: Client | None = None) -> None:
    """Close the client of this process, or this one, after an error or for good; the next call connects anew."""
    key = os.getpid(), broker
    with _lock:
        found = only or _clients.get(key)
        if _clients.get(key) is found:
            _clients.pop(key, None)
    if found is not None:
        _close(found)


def _close(each: Client) -> None:
    with _closing:  # the watch and the work that it ends may both get here; the second finds it done
        try:
            each.close()
        except (MilepostError, CancelledError, RuntimeError):
            pass  # it was broken already


@atexit.register
def _close_all() -> None:
    for (pid, _), each in list(_clients.items()):
        if pid == os.getpid():
            _close(each)
    _clients.clear()
