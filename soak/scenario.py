"""One soak: load, kills and recoveries, the drain, and the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from milepost import AsyncClient
from milepost.errors import MilepostError
from milepost.testing.ledger import Recorder, Verdict
from soak import roles
from soak.processes import Broker, Stuck, WorkerProcesses
from soak.roles import CONSUMERS, FOLLOWER, MORTALS, PUBLISHERS, REQUESTERS, ROLES, TOPICS, Role

LOAD_S = 0.12  # longest time between a recovery and the next kill
PAUSE_S = 0.02  # longest time between two puts of a publisher, so that consumers that sync each message keep up
RECOVERY_S = 60.0  # ends a run that hangs
LOOK_S = 0.02  # between two checks for the recovery
REPORT_CYCLES = 10

Show = Callable[[str], None]


class Scenario:
    """A broker and its clients on one store. Random choices come from the seed; the timing does not."""

    def __init__(
        self, folder: Path, store: str, seed: int, *, show: Show = print, settings: str = "",
        before: tuple[str, ...] = (), broker_may_end: bool = False, crash: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.dice = random.Random(seed)
        self.broker = Broker(folder, store, settings=settings, before=before, zeromq=True)
        elsewhere = dict.fromkeys((role.name for role in REQUESTERS), self.broker.zeromq)
        self.workers = WorkerProcesses(folder, self.broker.address, seed, PAUSE_S, elsewhere=elsewhere)
        self.kills: Counter[str] = Counter()
        self.complaints: list[str] = []  # problems that the ledger cannot see
        self._show = show
        self._broker_may_end = broker_may_end
        self._crash = crash  # crashes the database server, which restarts by itself
        self._alive = time.monotonic_ns()  # when the broker was last seen running
        self._book = Recorder(folder / "observer.records", "observer")

    # Steps

    def open(self) -> None:
        """Start everything, and wait until it works."""
        self.broker.start()
        self.broker.wait()
        asyncio.run(self._declare())
        marks = self.marks()
        self.workers.start(FOLLOWER)
        asyncio.run(self._followed())
        for role in MORTALS:
            self.workers.start(role)
        self.recovered(ROLES, marks)

    def cycle(self) -> None:
        """Kill one or several processes at a random moment, restart them, and wait until everything works."""
        time.sleep(self.dice.uniform(0.0, LOAD_S))
        if self._crash is not None and self.dice.random() < 0.1:
            since = time.monotonic_ns()
            self._crash()
            self.kills["database"] += 1
            self._served(self.marks())
            self.forgiven(since)  # and then the kill of this cycle
        broker = self.dice.random() < 0.5
        workers = self.dice.sample(
            MORTALS, 0 if broker and self.dice.random() < 0.7 else self.dice.choice((1, 1, 1, 2))
        )
        marks = self.marks()
        killed = time.monotonic_ns()
        if broker:
            self.broker.kill()
            self.kills["broker"] += 1
        for role in workers:
            self.workers.kill(role)
            self.kills["publishers" if role in PUBLISHERS else "consumers"] += 1
        if broker:
            self.broker.start()
        for role in workers:
            self.workers.start(role)
        if broker:
            self.broker.wait()
            self._book.broke(killed)
        self.recovered(tuple(workers), marks)
        if broker:
            self._served(marks)
            asyncio.run(self._observe())

    def cycles(self, count: int, seconds: float) -> int:
        """Run so many cycles, or for so long. Returns the number of cycles."""
        began = time.monotonic()
        done = 0
        while done < count and time.monotonic() - began < seconds:
            self.cycle()
            done += 1
            if done % REPORT_CYCLES == 0 or done == count:
                each = (time.monotonic() - began) / done
                killed = ", ".join(f"{number} {who}" for who, number in sorted(self.kills.items()))
                self._show(f"  cycle {done} of {count}: killed {killed}; {each:.2f} s a cycle")
        return done

    def load(self, seconds: float) -> None:
        """Let it run without kills."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.keep_going()
            time.sleep(LOOK_S)

    def close(self) -> Verdict:
        """Stop the publishers, drain, stop the rest, and decide."""
        self.workers.stop(PUBLISHERS)
        self._drain()
        self.workers.stop((*CONSUMERS, FOLLOWER))
        code = self.broker.stop()
        if code:
            self.complaints.append(f"the broker ended with code {code} when told to end")
        self._book.close()
        self.complaints += self.workers.failures
        if self.broker.failures and not self._broker_may_end:
            self.complaints.append(f"the broker ended by itself, with codes {self.broker.failures}")
        return self.verdict()

    def verdict(self) -> Verdict:
        """The verdict about the records so far."""
        ledger = roles.ledger()
        for path in sorted(self.folder.glob("*.records")):
            ledger.read(path)
        return ledger.verdict()

    def clear(self) -> None:
        """End all processes."""
        self.workers.clear()
        self.broker.kill()

    # Progress

    def marks(self) -> dict[str, int]:
        """The current lengths of the records."""
        return {role.name: _size(self.workers.records(role)) for role in ROLES}

    def recovered(self, roles: tuple[Role, ...], marks: dict[str, int]) -> None:
        """Wait until each of these roles has put or got something since."""
        self._wait(lambda: [role for role in roles if not self._moved(role, marks)])

    def _served(self, marks: dict[str, int]) -> None:
        """Wait until a put has returned and a message has arrived. Other clients may still be reconnecting."""
        groups = (PUBLISHERS, CONSUMERS)
        self._wait(lambda: [group[0] for group in groups if not any(self._moved(role, marks) for role in group)])

    def _moved(self, role: Role, marks: dict[str, int]) -> bool:
        return _moved(self.workers.records(role), marks[role.name])

    def _wait(self, missing: Callable[[], list[Role]]) -> None:
        deadline = time.monotonic() + RECOVERY_S
        while waiting := missing():
            self.keep_going()
            if time.monotonic() > deadline:
                names = ", ".join(sorted(role.name for role in waiting))
                raise Stuck(
                    f"nothing of {names} for {RECOVERY_S:g} s; the broker's last words:\n{self.broker.stuck_at()}\n"
                    f"and the workers':\n{self.workers.last_words()}"
                )
            time.sleep(LOOK_S)

    def keep_going(self, roles: tuple[Role, ...] = ROLES) -> None:
        """Restart processes that ended without being killed."""
        if self.broker.alive():
            self._alive = time.monotonic_ns()
        else:
            self.broker.start()
            self.broker.wait()
            self._book.broke(self._alive)
        self.workers.revive(roles)

    def forgiven(self, since: int) -> None:
        """Excuse missing redelivery marks: the broker could store nothing for a while, so messages may come again
        without a mark, as after a kill.

        It counts deliveries in memory, and loses the count when a subscription has no members any more.
        """
        self._book.broke(since)

    def mend(self) -> None:
        """Restart the broker without the command that makes its calls fail."""
        killed = time.monotonic_ns()
        self.broker.mend()
        self._book.broke(killed)

    async def _declare(self) -> None:
        async with AsyncClient(self.broker.address) as client:
            for topic in TOPICS:
                await client.declare_topic(topic, roles.SCHEMA, durable=True)
            for role in REQUESTERS:
                if role.subscription:  # a SUB begins at the next message, and others may be faster
                    await (await client.subscribe(role.topic, name=role.subscription)).detach()

    async def _followed(self) -> None:
        """Wait until the follower has subscribed."""
        deadline = time.monotonic() + RECOVERY_S
        async with AsyncClient(self.broker.address) as client:
            while not (await client.status())["subscriptions"]:
                if time.monotonic() > deadline:
                    raise Stuck(f"the follower has not subscribed:\n{self.workers.last_words()}")
                await asyncio.sleep(LOOK_S)

    async def _observe(self) -> int:
        """Record the cursors. Returns the number of messages that wait for consumers."""
        behind = 0
        async with AsyncClient(self.broker.address) as client:
            for topic in TOPICS:
                for each in (await client.look(topic))["subscriptions"]:
                    behind += each["behind"]
                    for log, offset in each["cursor"].items():
                        self._book.cursor(each["name"], log, offset)
        return behind

    def _drain(self) -> None:
        """Let consumers take the rest."""
        deadline, least = time.monotonic() + RECOVERY_S, None
        while True:
            try:
                behind = asyncio.run(self._observe())
            except MilepostError as error:
                behind = -1
                self._show(f"  draining: {error}")
            if not behind:
                return
            if least is None or 0 <= behind < least:
                least, deadline = behind, time.monotonic() + RECOVERY_S
            if time.monotonic() > deadline:
                raise Stuck(
                    f"{behind} messages wait, and no consumer takes them; the workers' last words:\n"
                    f"{self.workers.last_words()}"
                )
            self.keep_going(CONSUMERS)
            time.sleep(LOOK_S)


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _moved(path: Path, since: int) -> bool:
    """Whether the records have a put that returned, or a message that came."""
    if _size(path) <= since:
        return False
    with path.open("rb") as file:
        file.seek(since)
        lines = file.read().split(b"\n")
    return any(
        line.startswith(b'["stored"') or (line.startswith(b'["got"') and b",[],[]" not in line) for line in lines
    )
