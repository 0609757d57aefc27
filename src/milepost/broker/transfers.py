"""Runs transfers from the broker's start to its stop: the broker is a client of itself, and of their targets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from milepost.address import masked
from milepost.broker.core.effects import Effect, Write
from milepost.broker.peer import Peer
from milepost.errors import Closed, MilepostError, StoreUnavailable
from milepost.operations.transfers import KeepTransfers, Report, TransferRecord
from milepost.queues.transfer import Transfer
from milepost.transport import Address, Listener, listen

if TYPE_CHECKING:
    from milepost.broker.server import Broker

LOOK_S: Final = 1.0  # how often figures are stored and leases renewed, while there are transfers
IDLE_LOOKS: Final = 5  # without transfers, one look in five at a shared store: another broker may have set one
LEASE_S: Final = (
    10.0  # after which another broker of the cell takes over; taking over too early costs time, not messages
)
STOPPING_S: Final = 5.0  # to finish a transaction when a transfer stops; after that, it is resolved later
ANSWER_S: Final = 2.0  # for the store to take the last figures

log = logging.getLogger("milepost.broker")


@dataclass
class _Running:
    record: TransferRecord
    transfer: Transfer
    task: asyncio.Task[None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    told: tuple[int, str] = (0, "")  # messages and error last reported to the store


class TransferRunner:
    """Runs the store's transfers that are assigned to this broker; the shell calls `start` and `stop`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._changed = asyncio.Event()
        self._stopping = False
        self._looks = 0
        self._running: dict[int, _Running] = {}  # by the queue's number
        self._listener: Listener | None = None  # for this broker's own connections to itself
        self._task: asyncio.Task[None] | None = None
        self._asked: asyncio.Future[Any] | None = None  # for the store's answer

    def start(self) -> Callable[[], None]:
        """Begin; returns a function that ends its timer."""
        self._task = asyncio.create_task(self._run(), name="milepost transfers")
        self._broker.core.transfers_changed = self._changed.set
        self._changed.set()
        return self._broker.clock.every(LOOK_S, self._look)

    async def stop(self) -> None:
        """Let transactions finish for up to `STOPPING_S`, and end."""
        self._stopping = True
        self._changed.set()
        if self._asked is not None and not self._asked.done():  # a store that another process has taken does not answer
            self._asked.set_result(Closed("the broker stops"))
        if self._task is not None:
            await self._task

    def _look(self) -> None:
        self._looks += 1
        if self._running or (self._broker.core.durable.shared and self._looks % IDLE_LOOKS == 0):
            self._changed.set()

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    await self._changed.wait()
                    self._changed.clear()
                    if self._stopping:
                        break
                    found = await self._ask(KeepTransfers(int(LEASE_S * 1_000_000), self._reports()))
                    if isinstance(found, Closed):
                        break
                    if isinstance(found, StoreUnavailable):
                        pass  # the store logs that it is away; running transfers go on
                    elif isinstance(found, MilepostError):
                        log.warning("transfers cannot be looked after: %s", found)  # running transfers go on
                    else:
                        await self._arrange(group, {each.number: each for each in found})
                await self._end(list(self._running.values()))
            if self._running and self._broker.failure is None:
                async with asyncio.timeout(ANSWER_S):
                    await self._ask(KeepTransfers(0, self._reports()))
        except TimeoutError:
            pass  # another broker takes over after the lease
        except Exception:  # a broker fault: only transfers are affected
            log.exception("transfers have ended")
        finally:
            if self._listener is not None:
                await self._listener.close()

    async def _arrange(self, group: asyncio.TaskGroup, wanted: dict[int, TransferRecord]) -> None:
        """End transfers that are not wanted, and start those that are missing."""
        await self._end([each for number, each in self._running.items() if not _same(each.record, wanted.get(number))])
        for number, record in wanted.items():
            if number not in self._running:
                source = await self._own_address()
                transfer = Transfer(source, record.queue, record.address, record.target)
                stop = asyncio.Event()
                task = group.create_task(transfer.run(stop), name=f"milepost transfer {record.queue}")
                self._running[number] = _Running(record, transfer, task, stop, (0, record.error))
                log.info("queue %s is transferred to %s/%s", record.queue, masked(record.address), record.target)

    async def _end(self, running: list[_Running]) -> None:
        for each in running:
            each.stop.set()
        if running:
            _, late = await asyncio.wait([each.task for each in running], timeout=STOPPING_S)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late)
        for each in running:
            if not self._stopping:
                del self._running[each.record.number]

    async def _own_address(self) -> str:
        if self._listener is None:
            address = Address("inproc", f"transfers-{id(self):x}")
            self._listener = await listen(address, lambda: Peer(self._broker))
        return str(self._listener.address)

    # The store

    def _reports(self) -> tuple[Report, ...]:
        """Figures and errors that the store does not know yet."""
        made: list[Report] = []
        for each in self._running.values():
            progress = each.transfer.progress
            now = progress.messages, progress.error
            if now != each.told:
                made.append(Report(each.record.number, each.record.created_us, now[0] - each.told[0], now[1]))
                each.told = now
        return tuple(made)

    async def _ask(self, operation: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked = future

        def answered(outcome: Any) -> list[Effect]:
            if not future.done():
                future.set_result(outcome)
            return []

        self._broker.run([Write(operation, answered)])
        return await future


def _same(running: TransferRecord, wanted: TransferRecord | None) -> bool:
    return wanted is not None and running[:5] == wanted[:5]
