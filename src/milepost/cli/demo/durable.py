"""A scene: a broker is killed in the middle of puts, and keeps its promises."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape

from milepost.cli.demo.narrator import ClaimFailed, Narrator
from milepost.cli.terminal import logged

if TYPE_CHECKING:
    from milepost.client import AsyncClient
    from milepost.testing.ledger import Ledger

ORDERS: Final = 3_000
UNDER_WAY: Final = 100  # puts that wait for their acknowledgement at the same time
KILLED_AFTER: Final = 1_000  # acknowledgements
GOTTEN: Final = 200  # messages that one acknowledgement covers at most
REPLAYED_FROM: Final = 2_000
LARGE: Final = "size >= 900 and symbol = 'IBM'"
TRIES: Final = 3
PATIENCE_S: Final = 60.0  # ends a scene that hangs
SCHEMA: Final = "order: [number: int, symbol: string, size: int]"


def play(narrator: Narrator) -> None:
    narrator.scene("A broker is killed in the middle of puts: nothing is lost, and nothing comes twice")
    if narrator.has_broker():
        with broker_process(narrator) as broker:
            asyncio.run(_scene(narrator, broker))


@contextmanager
def broker_process(narrator: Narrator, **settings: float) -> Iterator[BrokerProcess]:
    """A running broker with some settings. The clients' logs are hidden: losing a broker is part of some scenes."""
    with TemporaryDirectory(prefix="milepost-demo-", ignore_cleanup_errors=True) as folder, logged(shown=False):
        broker = BrokerProcess(Path(folder), settings)
        try:
            with narrator.waiting("A broker starts"):
                broker.start()
            yield broker
        finally:
            broker.kill()


class BrokerProcess:
    """`milepost up` with one address and one store for all its processes."""

    def __init__(self, folder: Path, settings: Mapping[str, float]) -> None:
        self.folder = folder
        self._errors = folder / "errors"
        file = folder / "broker.toml"
        file.write_text("\n".join(["[broker]", *(f"{name} = {value}" for name, value in settings.items())]))
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = found.getsockname()[1]
        self.address = f"milepost://127.0.0.1:{port}"
        self._command = [
            sys.executable, "-m", "milepost.cli", "up", "--listen", f"127.0.0.1:{port}", "--http", "", "--zmq", "",
            "--store", str(folder / "orders.db"), "--config", str(file),
        ]  # fmt: skip
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
            )
        assert self._process.stdout is not None
        if not self._process.stdout.readline():
            raise ClaimFailed(f"a broker can be started, and it says: {self._errors.read_text().strip()[-1000:]}")

    def kill(self) -> None:
        """Kill it with SIGKILL, without time to save anything. No effect when it is dead."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None


async def _scene(narrator: Narrator, broker: BrokerProcess) -> None:
    from milepost.client import AsyncClient
    from milepost.testing.ledger import Ledger

    orders = [{"number": number, "symbol": ("IBM", "ACME")[number % 2], "size": number % 1_000}
              for number in range(ORDERS)]  # fmt: skip
    ledger = Ledger()
    ledger.subscription("desk", "orders")
    async with (
        asyncio.timeout(PATIENCE_S),
        AsyncClient(broker.address, name="feed", timeout=PATIENCE_S) as feed,
        AsyncClient(broker.address, timeout=PATIENCE_S) as desk,
    ):
        await feed.declare_topic("orders", SCHEMA, durable=True)
        await desk.subscribe("orders", name="desk", start="earliest")
        narrator.say(
            "A broker in a process of its own keeps the topic `orders` in a SQLite file. "
            f"`feed` puts {ORDERS:,} orders, {UNDER_WAY} under way at a time; `desk` gets them."
        )
        await _killed(narrator, broker, feed, desk, orders, ledger)
        await _replayed(narrator, desk, orders)
        await _dead(narrator, feed, desk)


async def _killed(
    narrator: Narrator, broker: BrokerProcess, feed: AsyncClient, desk: AsyncClient, orders: list[Any], ledger: Ledger
) -> None:
    room = asyncio.Semaphore(UNDER_WAY)
    begun = acknowledged = under_way = 0

    async def put(number: int) -> None:
        nonlocal begun, acknowledged
        ledger.put("feed", "orders", number)
        begun += 1
        await feed.put("orders", orders[number])
        ledger.stored("feed", "orders", number)
        acknowledged += 1
        room.release()

    async def get() -> None:
        count = 0
        while count < ORDERS:
            messages = await desk.get_many("orders", GOTTEN)
            ledger.got("desk", "feed", [message.number for message in messages])
            count += len(messages)

    async def kill() -> None:
        nonlocal under_way
        while acknowledged < KILLED_AFTER or begun - acknowledged < UNDER_WAY // 2:
            await asyncio.sleep(0)  # acknowledgements come by the dozen: this checks between any two turns of the loop
        broker.kill()
        before, under_way = acknowledged, begun - acknowledged
        started = time.monotonic()
        await asyncio.to_thread(broker.start)
        narrator.say(
            f"[red]SIGKILL[/]: {before:,} puts were acknowledged, {under_way} were under way. "
            f"A new process listens after {time.monotonic() - started:.1f} s."
        )

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(get())
        tasks.create_task(kill())
        for number in range(ORDERS):
            await room.acquire()
            tasks.create_task(put(number))
    # A surplus message would have to come now: nothing else is ahead of the subscription.
    more = await desk.get_many("orders", GOTTEN, timeout=0.2)
    ledger.got("desk", "feed", [message.number for message in more])
    verdict = ledger.verdict()
    narrator.claim("it was killed in the middle of puts", under_way > 0)
    narrator.claim(f"both clients came back by themselves, and all {ORDERS:,} puts were acknowledged in the end",
                verdict.acknowledged == ORDERS)  # fmt: skip
    narrator.claim(
        f"`desk` got each of the {verdict.subscriptions['desk'].delivered:,} orders exactly once and in order, "
        "by the verdict of a ledger",
        bool(verdict) and verdict.subscriptions["desk"].delivered == ORDERS,
    )
    kept = (await desk.look("orders"))["logs"][0]
    narrator.claim("the log holds each of them once", kept["rows"] == ORDERS and kept["next"] == ORDERS)


async def _replayed(narrator: Narrator, desk: AsyncClient, orders: list[Any]) -> None:
    expected = [order for order in orders[REPLAYED_FROM:] if order["size"] >= 900 and order["symbol"] == "IBM"]
    replay = await desk.subscribe("orders", where=LARGE, start=REPLAYED_FROM)
    found: list[Any] = []
    async for batch in replay.batches():
        found += batch.to_pylist()
        if len(found) >= len(expected):
            break
    await replay.detach()
    narrator.say(f"\nA log can be read again: from offset {REPLAYED_FROM:,} on, where [cyan]{escape(LARGE)}[/].")
    narrator.claim(f"the {len(found)} orders that plain Python finds there came, in order", found == expected)


async def _dead(narrator: Narrator, feed: AsyncClient, desk: AsyncClient) -> None:
    await feed.declare_topic("orders.dead", SCHEMA, durable=True)
    morgue = await desk.subscribe("orders.dead", name="morgue", start="earliest")
    careful = await desk.subscribe(
        "orders", name="careful", start="new", ack="explicit", max_deliveries=TRIES, dead_letter="orders.dead"
    )
    poison = {"number": -1, "symbol": "???", "size": 0}
    narrator.say("\nA message that cannot be handled must not be delivered for ever:")
    await feed.put_many("orders", [poison, {"number": ORDERS, "symbol": "IBM", "size": 1}])
    refusals, handled = 0, []

    async def handle() -> None:
        nonlocal refusals
        while True:
            message = await careful.get()
            if message.number < 0:
                refusals += 1
                await careful.nack(message)
            else:
                handled.append(message.number)
                await careful.ack(message)

    working = asyncio.create_task(handle())
    buried = await morgue.get()
    working.cancel()
    await asyncio.gather(working, return_exceptions=True)
    narrator.claim(f"sent back {TRIES} times, it went to the dead-letter topic, as it was",
                refusals == TRIES and dict(buried) == poison)  # fmt: skip
    narrator.claim("and the order behind it was handled", handled == [ORDERS])
