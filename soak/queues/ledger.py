"""Compares the records of all clients of queues: what was committed, and what came out.

A transaction is *committed* when its commit returned, and *undone* when it was aborted, failed, or died before it asked
for its commit. A transaction that died during its commit is *open*: what other clients saw of it decides, and all of
that must agree.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from soak.queues import records
from soak.queues.records import read_records
from soak.queues.roles import level_of

SHOWN: Final = 5  # offenders of a kind that are named; the others are only counted
KINDS: Final = {
    "lost": "committed, and taken by no transaction that committed",
    "twice": "taken by several transactions that committed",
    "leaked": "of a transaction that was undone, but seen",
    "torn": "transactions without an answer, done in part",
    "early": "seen before their commit was asked for",
    "shared": "taken by two clients at once",
    "order": "taken after a later one of their writer",
    "block": "committed with a part of a block",
    "changed": "not as they were written",
}


class Message(NamedTuple):
    """A message. Its writer numbers its messages over all queues."""

    queue: str
    member: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.member}/{self.sequence} in {self.queue!r}"


class Taking(NamedTuple):
    """One dequeue that returned something."""

    deal: Deal
    reached: int  # nanoseconds
    at: int
    messages: list[Message]


@dataclass(eq=False)
class Deal:
    """A transaction."""

    member: str
    number: int
    wrote: list[Message] = field(default_factory=list)
    takings: list[Taking] = field(default_factory=list)
    said: str = ""  # commits, refused, committed, undone; "": nothing about its end
    asked: int | None = None  # when it asked for its commit
    committed: bool = False
    reached: int = 0

    def __str__(self) -> str:
        return f"{self.member} {self.number}"

    @property
    def open(self) -> bool:
        return self.said == "commits"

    @property
    def took(self) -> list[Message]:
        return [message for taking in self.takings for message in taking.messages]


@dataclass
class Verdict:
    """The verdict, true when nothing was found. `str()` shows the figures and all findings."""

    figures: Counter[str]
    findings: dict[str, list[str]]

    def __bool__(self) -> bool:
        return not self.findings

    def __str__(self) -> str:
        of = self.figures
        lines = [
            f"{of['committed']:,} transactions committed, {of['undone']:,} undone; {of['inside']:,} died on their way, "
            f"{of['open']:,} while they asked for the commit, of which {of['open committed']:,} were committed",
            f"{of['written']:,} messages written, {of['moved']:,} moved, {of['drained']:,} drained; "
            f"{of['again']:,} taken again after an abort",
        ]
        for kind, offenders in self.findings.items():
            more = ", …" if len(offenders) > SHOWN else ""
            lines.append(f"{kind}: {len(offenders):,} {KINDS[kind]}: {', '.join(offenders[:SHOWN])}{more}")
        lines.append(f"verdict: {'good' if self else 'BAD'}")
        return "\n".join(lines)


class Ledger:
    """Reads the records of all clients, then decides."""

    def __init__(self) -> None:
        self._deals: dict[tuple[str, int], Deal] = {}
        self._writer: dict[Message, Deal] = {}
        self._seen: dict[Message, list[Taking]] = defaultdict(list)
        self._origins: dict[Message, str] = {}
        self._findings: dict[str, list[str]] = defaultdict(list)

    def read(self, path: Path) -> None:
        """Read the file of one client."""
        for event in read_records(path):
            self.note(event)

    def note(self, event: records.Event) -> None:
        """Add an event. Events of one client come in their order, one client after the other."""
        if isinstance(event, records.Began):
            return
        deal = self._deals.setdefault((event.member, event.number), Deal(event.member, event.number))
        match event:
            case records.Write():
                for sequence in range(event.first, event.first + event.count):
                    message = Message(event.queue, event.member, sequence)
                    deal.wrote.append(message)
                    self._writer[message] = deal
            case records.Reach():
                deal.reached = event.at
            case records.Took():
                messages = [Message(event.queue, *each) for each in zip(event.writers, event.sequences, strict=True)]
                taking = Taking(deal, deal.reached, event.at, messages)
                deal.takings.append(taking)
                for message, number, origin in zip(messages, event.numbers, event.origins, strict=True):
                    self._seen[message].append(taking)
                    if self._origins.setdefault(message, f"{number} {origin}") != f"{number} {origin}":
                        self._findings["changed"].append(str(message))
            case records.Refused() | records.Committed() | records.Undone():
                deal.said = type(event).__name__.lower()
            case records.Commits():
                deal.said, deal.asked = "commits", event.at

    def verdict(self) -> Verdict:
        """The verdict about everything that was read, once the queues are empty."""
        self._resolve()
        self._came_out_once()
        self._seen_in_time()
        self._as_written()
        for queue in sorted({message.queue for message in self._writer}):
            level = level_of(queue)
            if level.startswith("ordered"):
                self._in_order(queue)
            if level.endswith("blockwise"):
                self._whole_blocks(queue)
        return Verdict(self._figures(), dict(self._findings))

    def _found(self, kind: str, what: object) -> None:
        self._findings[kind].append(str(what))

    def _resolve(self) -> None:
        """Decide which transactions are committed."""
        for deal in self._deals.values():
            deal.committed = deal.said == "committed"
            if deal.open and deal.wrote:
                self._decide(deal, [message in self._seen for message in deal.wrote])
        for deal in self._deals.values():  # transactions that only took messages: did no other one take them?
            if deal.open and not deal.wrote:
                self._decide(deal, [not self._consumers(message) for message in deal.took])

    def _decide(self, deal: Deal, told: list[bool]) -> None:
        deal.committed = any(told)
        if deal.committed and not all(told):
            self._found("torn", deal)

    def _consumers(self, message: Message) -> list[Deal]:
        return [taking.deal for taking in self._seen.get(message, ()) if taking.deal.committed]

    def _came_out_once(self) -> None:
        for message, deal in self._writer.items():
            if deal.committed:
                consumers = self._consumers(message)
                if len(consumers) != 1:
                    self._found("twice" if consumers else "lost", message)
            elif message in self._seen:
                self._found("leaked", message)

    def _seen_in_time(self) -> None:
        for message, takings in self._seen.items():
            deal = self._writer.get(message)
            if deal is not None and deal.asked is not None and any(each.at < deal.asked for each in takings):
                self._found("early", message)
            # A committed transaction had its messages from the answer to its dequeue until it asked for the commit.
            for having in takings:
                ended = having.deal.asked if having.deal.committed else None
                if ended is not None and any(
                    each.deal is not having.deal and having.at < each.reached and each.at < ended for each in takings
                ):
                    self._found("shared", message)

    def _as_written(self) -> None:
        for message, told in self._origins.items():
            deal = self._writer.get(message)
            if deal is None or told.partition(" ")[0] != str(deal.number):
                self._found("changed", message)
        for deal in self._deals.values():
            if deal.committed and deal.wrote and deal.takings:
                took = sorted(f"{message.member}/{message.sequence}" for message in deal.took)
                made = sorted(self._origins.get(message, "").partition(" ")[2] for message in deal.wrote)
                if took != made:
                    self._found("changed", f"what {deal} made")

    def _in_order(self, queue: str) -> None:
        """Check the order. Messages without an answer are left out: they may be written after their writer has
        restarted.
        """
        last: dict[str, int] = {}
        takings = [each for each in self._takings(queue) if each.deal.committed]
        for taking in sorted(takings, key=lambda each: each.at):
            for message in taking.messages:
                writer = self._writer.get(message)
                if writer is None or writer.open:
                    continue
                if message.sequence < last.get(message.member, 0):
                    self._found("order", message)
                last[message.member] = max(message.sequence, last.get(message.member, 0))

    def _whole_blocks(self, queue: str) -> None:
        for deal in self._deals.values():
            if deal.committed:
                took = {message for message in deal.took if message.queue == queue}
                for writer in {self._writer[message] for message in took if message in self._writer}:
                    if not {message for message in writer.wrote if message.queue == queue} <= took:
                        self._found("block", f"{deal} of what {writer} wrote to {queue!r}")

    def _takings(self, queue: str) -> list[Taking]:
        found = [taking for deal in self._deals.values() for taking in deal.takings]
        return [taking for taking in found if taking.messages[0].queue == queue]

    def _figures(self) -> Counter[str]:
        figures: Counter[str] = Counter()
        for deal in self._deals.values():
            if not (deal.wrote or deal.takings):
                continue  # it found nothing, and did nothing
            figures["open"] += deal.open
            figures["open committed"] += deal.open and deal.committed
            figures["committed"] += deal.said == "committed"
            figures["undone"] += deal.said == "undone"
            figures["inside"] += deal.said in ("", "refused")
            if deal.committed:
                figures["moved" if deal.takings else "written"] += len(deal.wrote)
                figures["drained"] += 0 if deal.wrote else len(deal.took)
        figures["again"] = sum(len(takings) - 1 for takings in self._seen.values())
        return figures
