"""One client for each process and broker, kept open between calls.

Spark uses a Python worker for many tasks and micro-batches, and connecting for each would take longer than a small one.
Workers are forked, and a connection does not survive a fork, so a client belongs to the process that made it.

A client waits for an absent broker without limit. A query must not: a watch closes a client whose broker has been away
for longer than the query's timeout, and the query fails with the reason.
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
WATCH_SECONDS: Final = 1.0  # between two looks: short compared with any timeout

_clients: dict[tuple[int, str], Client] = {}
_given_up: WeakSet[Client] = WeakSet()  # clients that the watch has closed
_lock = threading.Lock()
_closing = threading.Lock()


def client(broker: str, timeout: float, *, expected: str = "", patient: bool = True) -> Client:
    """The client of this process for a broker.

    Waits for an absent broker for at most `timeout` seconds. With `patient` false it raises `ConnectionLost` at once.
    `expected` is the `broker_id` in a checkpoint: raises `StateLost` when the broker has another one.
    """
    key = os.getpid(), broker
    with _lock:
        found = _clients.get(key)
        if found is not None and found.failure is not None:  # its failure may be over by now
            _close(found)
            found = None
        if found is None:
            found = _clients[key] = _connected(broker, timeout, patient)
            _forget_others(key[0])
            _watch(key[0], broker, found, timeout)
    if expected and found.broker_id != expected:
        raise StateLost(
            f"the broker at {broker} has store {found.broker_id or 'none'}, and the checkpoint belongs to {expected}: "
            "it lost its state, or the option 'broker' names another one; start with a new checkpoint"
        )
    return found


def undisturbed() -> None:
    """Ignore Ctrl-C in a process that Spark has started for planning: the process that runs the query handles it.

    Unlike Spark's other processes, this one belongs to the foreground of the terminal.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    if spec is not None and spec.name == PLANNING and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def using(broker: str, timeout: float, *, expected: str = "") -> Iterator[Client]:
    """The client as a context. A client that an error leaves unusable is not used again."""
    found = client(broker, timeout, expected=expected)
    try:
        yield found
    except (MilepostError, CancelledError) as error:
        drop(broker, found)
        if found in _given_up:
            raise ConnectionLost(
                f"the broker at {broker} has been away for more than {timeout:g} s (option 'timeout')"
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
                drop(broker, watched)  # the next caller waits for the whole timeout again
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
    """After a fork: the threads of the parent's clients do not exist here, so there is nothing to close."""
    for other in [key for key in _clients if key[0] != pid]:
        del _clients[other]


def drop(broker: str, only: Client | None = None) -> None:
    """Close the client of this process, or only this one, after an error or at the end. The next call connects
    again.
    """
    key = os.getpid(), broker
    with _lock:
        found = only or _clients.get(key)
        if _clients.get(key) is found:
            _clients.pop(key, None)
    if found is not None:
        _close(found)


def _close(each: Client) -> None:
    with _closing:  # the watch and the work that it ends may both get here; the second call does nothing
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
