"""One soak of queues: load, kills and recoveries, the drain, and the verdict."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from milepost import AsyncClient
from milepost.errors import MilepostError
from soak.database import Database
from soak.processes import Broker, Stuck, WorkerProcesses
from soak.queues import roles
from soak.queues.ledger import Ledger, Verdict
from soak.queues.records import ENDS
from soak.queues.roles import BROKERLESS, DRAINS, MOVERS, QUEUES, READERS, ROLES, WRITERS
from soak.queues.tables import left_over
from soak.roles import Role
from soak.verdict import judged, show

LEASE_S: Final = 1.0  # of a transaction whose client is gone
LOAD_S: Final = 0.4  # longest time between a recovery and the next kill
PAUSE_S: Final = 0.04  # longest pause of a client, within a transaction or after one
MOMENT_S: Final = 1.0  # longest wait for the moment at which a client is killed
COMMIT_S: Final = 0.01  # about the duration of a commit: its client dies before it is sent, done, or answered
RECOVERY_S: Final = 60.0  # ends a run that hangs
LOOK_S: Final = 0.02
REPORT_CYCLES: Final = 10
TAIL_BYTES: Final = 4096

# A killed broker on PostgreSQL is started again at once, and takes over when its lease is over.
SETTINGS: Final = {"sqlite": "", "postgresql": "lease_s = 1.5\n"}
BROKERS: Final = {"sqlite": 1, "postgresql": 2}  # a PostgreSQL store may have several

Show = Callable[[str], None]


class QueuesScenario:
    """Brokers of one store, and their clients. Random choices come from the seed; the timing does not."""

    def __init__(
        self, folder: Path, store: str, seed: int, *, brokers: int = 1, settings: str = "", show: Show = print,
        crash: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        self.folder = folder
        self.dice = random.Random(seed)
        self.brokers: list[Broker] = []
        for name in ("north", "south")[:brokers]:
            (folder / name).mkdir()
            told = f'name = "{name}"\nqueue_lease_s = {LEASE_S}\n{settings}'
            self.brokers.append(Broker(folder / name, store, settings=told))
        self._address = ",".join(broker.address for broker in self.brokers)
        self.brokerless = BROKERLESS if store.startswith("postgresql") else ()
        elsewhere = dict.fromkeys((role.name for role in self.brokerless), store)
        self.workers = WorkerProcesses(
            folder, self._address, seed, PAUSE_S, module="soak.queues.worker", elsewhere=elsewhere
        )  # fmt: skip
        self.kills: Counter[str] = Counter()
        self.complaints: list[str] = []  # problems that the ledger cannot see
        self._store = store
        self._show = show
        self._crash = crash  # crashes the database server, which restarts by itself

    # Steps

    def open(self) -> None:
        """Start everything, and wait until it works."""
        for broker in self.brokers:
            broker.start()
            broker.wait()
        asyncio.run(self._create())
        marks = self._marks()
        for role in ROLES:
            self.workers.start(role)
        self._served(marks)

    def cycle(self) -> None:
        """Kill one or several processes, restart them, and wait until everything works."""
        time.sleep(self.dice.uniform(0.0, LOAD_S))
        if self._crash is not None and self.dice.random() < 0.15:
            marks = self._marks()
            self._crash()
            self.kills["database"] += 1
            self._served(marks)
            return
        fallen = [broker for broker in self.brokers if self.dice.random() < 0.5 / len(self.brokers)]
        workers = self.dice.sample(ROLES, 0 if fallen and self.dice.random() < 0.6 else self.dice.choice((1, 1, 2)))
        self.strike(fallen, workers, self.dice.choice(("anywhere", "inside", "committing")))

    def strike(self, fallen: Sequence[Broker], workers: Sequence[Role], moment: str) -> None:
        """Kill these processes, the first worker at a moment of its transaction, and restart them.

        Clients without a broker must recover, because no other client can take their place at the database.
        """
        if workers:
            self._watch(workers[0], moment)
        for broker in fallen:
            broker.kill()
            self.kills["broker"] += 1
        for role in workers:
            self.workers.kill(role)
            kind = "writers" if role in WRITERS else "readers"
            self.kills[f"{kind} without a broker" if role in self.brokerless else kind] += 1
        marks = self._marks()
        for broker in fallen:
            broker.start()
        for role in workers:
            self.workers.start(role)
        for broker in fallen:
            broker.wait()
        self._served(marks, [role for role in workers if role in self.brokerless])

    def cycles(self, count: int) -> int:
        """Run at least so many kills. Returns how many there were."""
        began, told = time.monotonic(), 0
        while (done := sum(self.kills.values())) < count:
            if done >= told + REPORT_CYCLES:
                told = done
                self._show(f"  {done} of {count}: killed {self.killed()}; {time.monotonic() - began:.0f} s")
            self.cycle()
        return done

    def killed(self) -> str:
        return ", ".join(f"{number} {who}" for who, number in sorted(self.kills.items()))

    def close(self) -> Verdict:
        """Stop the writers, drain, stop the rest, and decide."""
        self.workers.stop(WRITERS)
        self._drain()
        self.workers.stop(READERS)
        self._wait(lambda: left_over(self._store), READERS[:0])
        for broker in self.brokers:
            code = broker.stop()
            if code:
                self.complaints.append(f"a broker ended with code {code} when told to end")
            if broker.failures:
                self.complaints.append(f"a broker ended by itself, with codes {broker.failures}")
        self.complaints += self.workers.failures
        ledger = Ledger()
        for role in ROLES:
            ledger.read(self.workers.records(role))
        return ledger.verdict()

    def clear(self) -> None:
        """End all processes."""
        self.workers.clear()
        for broker in self.brokers:
            broker.kill()

    # Progress

    async def _create(self) -> None:
        async with AsyncClient(self._address) as client:
            await client.declare_type(roles.SCHEMA)
            for queue in QUEUES:
                await client.declare_queue(queue, roles.TYPE, level=roles.level_of(queue))

    def _watch(self, role: Role, moment: str) -> None:
        """Wait briefly until a client is in the middle of a transaction, or commits."""
        deadline = time.monotonic() + MOMENT_S
        while moment != "anywhere" and time.monotonic() < deadline:
            last = self._lines(role, -TAIL_BYTES)[-1:]
            if last and (last[0].startswith(b'["commits"') if moment == "committing" else _inside(last[0])):
                time.sleep(self.dice.uniform(0.0, COMMIT_S))
                return
            time.sleep(0.0005)

    def _marks(self) -> dict[str, int]:
        """The current lengths of the records."""
        paths = {role.name: self.workers.records(role) for role in ROLES}
        return {name: path.stat().st_size if path.exists() else 0 for name, path in paths.items()}

    def _lines(self, role: Role, since: int) -> list[bytes]:
        path = self.workers.records(role)
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(since if since >= 0 else max(0, path.stat().st_size + since))
            return file.read().split(b"\n")[:-1]

    def _served(self, marks: dict[str, int], back: Sequence[Role] = ()) -> None:
        """Wait until a transaction of each kind, and of each client in `back`, has committed since."""

        def missing() -> list[str]:
            kinds = [group[0].kind for group in (WRITERS, MOVERS, DRAINS) if not any(map(moved, group))]
            return kinds + [role.name for role in back if not moved(role)]

        def moved(role: Role) -> bool:
            return any(line.startswith(b'["committed"') for line in self._lines(role, marks[role.name]))

        self._wait(missing, ROLES)

    def _wait(self, missing: Callable[[], list[str]], roles: tuple[Role, ...]) -> None:
        deadline = time.monotonic() + RECOVERY_S
        while waiting := missing():
            self._keep_going(roles)
            if time.monotonic() > deadline:
                raise Stuck(f"for {RECOVERY_S:g} s: {', '.join(waiting)}; the last words:\n{self._last_words()}")
            time.sleep(LOOK_S)

    def _keep_going(self, roles: tuple[Role, ...]) -> None:
        """Restart processes that ended without being killed."""
        for broker in self.brokers:
            if not broker.alive():
                broker.start()
                broker.wait()
        self.workers.revive(roles)

    def _last_words(self) -> str:
        return "\n".join([*(broker.last_words() for broker in self.brokers), self.workers.last_words()])

    def _drain(self) -> None:
        """Let readers take the rest."""
        deadline, least = time.monotonic() + RECOVERY_S, None
        while True:
            try:
                left = asyncio.run(self._left())
            except MilepostError as error:
                left = -1
                self._show(f"  draining: {error}")
            if not left:
                return
            if least is None or 0 <= left < least:
                least, deadline = left, time.monotonic() + RECOVERY_S
            if time.monotonic() > deadline:
                raise Stuck(f"{left} messages wait, and no consumer takes them; the last words:\n{self._last_words()}")
            self._keep_going(READERS)
            time.sleep(5 * LOOK_S)

    async def _left(self) -> int:
        """Messages in queues, in any state. Queues are read one after the other, so that moved messages are not
        missed.
        """
        async with AsyncClient(self._address) as client:
            return sum([sum(_counts((await client.queue(queue)).figures)) for queue in (*QUEUES, *QUEUES)])


def _counts(figures: Mapping[str, int]) -> list[int]:
    return [figures[each] for each in ("waiting", "delayed", "taken", "uncommitted")]


def _inside(line: bytes) -> bool:
    return not line.startswith((*ENDS, b'["reach"'))


def soak_queues(store: str, seed: int, cycles: int, keep: bool = False) -> int:
    """Run one store for the command line. Returns 0 when all is well."""
    print(f"queues on {store}: {cycles} kills, seed {seed}", flush=True)
    again = f"python -m soak --queues only --store {store} --queues-cycles {cycles} --seed {seed}"

    def made(folder: Path, base: Database) -> QueuesScenario:
        return QueuesScenario(
            folder, base.url, seed, brokers=BROKERS[store], settings=SETTINGS[store], show=show, crash=base.crash
        )

    def run(scenario: QueuesScenario) -> str:
        scenario.cycles(cycles)
        return scenario.killed()

    return judged(store, made, run, again, keep)
