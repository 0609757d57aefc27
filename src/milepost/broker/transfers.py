"""The transfers that a broker runs, from its start to its stop: it is a client of itself, and of their targets."""

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

LOOK_S: Final = 1.0  # how often figures are told to the store, and leases renewed, while there are transfers
IDLE_LOOKS: Final = 5  # of a shared store without transfers, one look in so many: another broker may be told of one
LEASE_S: Final = (
    10.0  # after which another broker of the cell takes over; being wrong about it costs time, not messages
)
STOPPING_S: Final = 5.0  # for a transaction to be finished when a transfer stops; later it is resolved
ANSWER_S: Final = 2.0  # for the store to take the last figures

log = logging.getLogger("milepost.broker")


@dataclass
class _Running:
    record: TransferRecord
    transfer: Transfer
    task: asyncio.Task[None]
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    told: tuple[int, str] = (0, "")  # messages and error that the store knows of


class TransferRunner:
    """Runs the transfers of the store that are this broker's; `start` and `stop` are the shell's."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._changed = asyncio.Event()
        self._stopping = False
        self._looks = 0
        self._running: dict[int, _Running] = {}  # by the queue's number
        self._listener: Listener | None = None  # for this broker's own connections to itself
        self._task: asyncio.Task[None] | None = None
        self._asked: asyncio.Future[Any] | None = None  # what the store is to answer

    def start(self) -> Callable[[], None]:
        """Begin; what ends its timer."""
        self._task = asyncio.create_task(self._run(), name="milepost transfers")
        self._broker.core.transfers_changed = self._changed.set
        self._changed.set()
        return self._broker.clock.every(LOOK_S, self._look)

    async def stop(self) -> None:
        """Let transactions be finished, for a while, and end."""
        self._stopping = True
        self._changed.set()
        if self._asked is not None and not self._asked.done():  # a store that is another's by now does not answer
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
                        pass  # the store says in the log that it is away; those that run go on
                    elif isinstance(found, MilepostError):
                        log.warning("transfers cannot be looked after: %s", found)  # those that run go on
                    else:
                        await self._arrange(group, {each.number: each for each in found})
                await self._end(list(self._running.values()))
            if self._running and self._broker.failure is None:
                async with asyncio.timeout(ANSWER_S):
                    await self._ask(KeepTransfers(0, self._reports()))
        except TimeoutError:
            pass  # another broker waits until the lease has ended
        except Exception:  # a fault of ours: nothing is transferred, and everything else goes on
            log.exception("transfers have ended")
        finally:
            if self._listener is not None:
                await self._listener.close()

    async def _arrange(self, group: asyncio.TaskGroup, wanted: dict[int, TransferRecord]) -> None:
        """Run what is wanted, and nothing else."""
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
        """What the store does not know yet."""
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
