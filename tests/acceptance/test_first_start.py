"""The first start after an install: a broker serves before its matching kernels are compiled, and then uses them.

Compiling takes most of a minute, so no test does. A process that would compile waits for the lock of the folder, which
the test holds; what `make warm` has compiled is copied there before the test lets go.
"""

import fcntl
import shutil
import threading
import time
from pathlib import Path

import pytest

from milepost import kernels
from milepost.client import Client

from .process import PATIENCE, Up, environment

QUOTE = "quote: [number: int, symbol: string, price: double]"
WANTED = {
    "symbol = 'IBM' and price > 50": lambda row: row["symbol"] == "IBM" and row["price"] > 50,
    "price between 10 and 20": lambda row: 10 <= row["price"] <= 20,
    "symbol = 'a long name of something else' or number % 7 = 3": lambda row: (
        row["symbol"].startswith("a long") or row["number"] % 7 == 3
    ),
    "symbol like '%B%'": lambda row: "B" in row["symbol"],
}


class Gate:
    """An empty folder for kernels, whose lock is held until `open`."""

    def __init__(self, folder):
        self.home = folder / "milepost" / "kernels"
        self.home.mkdir(parents=True)
        self._lock = (self.home / "compiling").open("a")
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def open(self):
        self._lock.close()

    def fill(self):
        for room in ("match", "batch"):
            made = kernels.folder(room)
            shutil.copytree(made, self.home / made.name)


@pytest.fixture
def gate(tmp_path, monkeypatch):
    kernels.warm()  # a moment, where `make warm` has run
    made = Gate(tmp_path / "cache")
    # Only of what is started here: this process goes on finding its own.
    monkeypatch.setattr("tests.acceptance.process.environment", lambda **more: environment(
        XDG_CACHE_HOME=str(tmp_path / "cache"), **more))  # fmt: skip
    yield made
    made.open()


def up(folder, *options):
    broker = Up(folder / "stderr", "--listen", "127.0.0.1:0", "--http", "", "--zmq", "", *options)
    assert broker.address, broker.errors.read_text()
    return broker


def children(pid):
    """The processes that a process has started, in whichever of its threads."""
    return [int(child) for file in Path(f"/proc/{pid}/task").glob("*/children") for child in file.read_text().split()]


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def row(number):
    symbol = ("IBM", "ACME", "a long name of something else", "BB")[number % 4]
    return {"number": number, "symbol": symbol, "price": float(number % 97)}


class Reader(threading.Thread):
    """What a subscription brings, until a row that all of them want."""

    def __init__(self, subscription):
        super().__init__(daemon=True)
        self._subscription = subscription
        self.numbers = []
        self.start()

    def run(self):
        for message in self._subscription:
            if message.symbol == "end":
                return
            self.numbers.append(message.number)


def test_a_broker_matches_before_during_and_after_the_kernels_come(gate, tmp_path):
    broker = up(tmp_path, "--store", tmp_path / "milepost.db")
    with Client(broker.address) as client, Client(broker.address) as others:
        for topic, durable in (("live", False), ("kept", True)):
            client.declare_topic(topic, QUOTE, durable=durable)
        readers = {
            (topic, where): Reader(others.subscribe(topic, where=f"({where}) or symbol = 'end'", **more))
            for where in WANTED
            for topic, more in (("live", {}), ("kept", {"start": "new"}))
        }
        count = 0

        def put(some):
            nonlocal count
            rows = [row(number) for number in range(count, count + some)]
            client.put_many("live", rows)
            client.put_many("kept", rows)
            client.put("live", row(count + some))  # one alone takes another way
            client.put("kept", row(count + some))
            count += some + 1

        put(500)
        assert client.status()["kernels"] == "compiling"
        gate.fill()
        gate.open()
        deadline = time.monotonic() + PATIENCE
        while client.status()["kernels"] == "compiling":
            assert time.monotonic() < deadline
            put(20)
        assert client.status()["kernels"] == "loaded"
        put(500)
        for topic in ("live", "kept"):
            client.put(topic, {"number": -1, "symbol": "end", "price": 0.0})
        for (topic, where), reader in readers.items():
            reader.join(PATIENCE)
            assert not reader.is_alive(), where
            expected = [number for number in range(count) if WANTED[where](row(number))]
            assert reader.numbers == expected, (topic, where)
    while "are compiled" not in (said := broker.errors.read_text()):
        assert time.monotonic() < deadline, said
    assert "are being compiled" in said
    broker.stop()


def test_a_broker_that_compiles_ends_at_once(gate, tmp_path):
    broker = up(tmp_path, "--store", "")
    deadline = time.monotonic() + PATIENCE
    while not (compiling := children(broker.process.pid)):
        assert time.monotonic() < deadline
    broker.stop()
    assert all(gone(child) for child in compiling)


def test_a_folder_that_cannot_be_written_is_replaced_for_a_time(gate, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr("tests.acceptance.process.environment", lambda: environment(
        XDG_CACHE_HOME=str(tmp_path / "file"), TMPDIR=str(tmp_path / "temporary")))  # fmt: skip
    broker = up(tmp_path, "--store", "")
    with Client(broker.address) as client:
        client.declare_topic("live", QUOTE)
        subscription = client.subscribe("live", where="price > 5")
        client.put_many("live", [row(number) for number in range(8)])
        assert [subscription.get(timeout=PATIENCE).number for _ in range(2)] == [6, 7]
        deadline = time.monotonic() + PATIENCE
        while not (made := [each.name for each in (tmp_path / "temporary").iterdir()]):
            assert time.monotonic() < deadline
        assert made[0].startswith("milepost-kernels-")
    broker.stop()
    assert not list((tmp_path / "temporary").iterdir())
