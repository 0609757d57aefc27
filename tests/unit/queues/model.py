"""What queues promise, in plain Python: the four levels, one message at a time, and what becomes of transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

NAMED = 10  # of the messages that remain of a block, in the error about it


@dataclass
class Message:
    mid: int
    s: int
    t: int
    text: str
    priority: float
    state: str  # as the paper's log state flag: e, c, d, b
    owner: int | None  # the transaction that brought it there; None: nobody
    aborts: int = 0
    size: int = 0

    @property
    def id(self) -> str:
        return f"{self.s}/{self.t}/{self.mid}"


@dataclass(frozen=True)
class Wanted:
    """A selection and an order: in words, and as they are meant."""

    select: str | None = None
    order: str | None = None
    good: Callable[[Message], bool] = lambda _: True
    key: Callable[[Message], float] | None = None  # instead of the priority


ANY = Wanted()


@dataclass
class ModelQueue:
    name: str
    level: str = "none"
    direction: str = "desc"
    priority: float = 0.0
    dead: ModelQueue | None = None
    max_deliveries: int = 0
    messages: list[Message] = field(default_factory=list)
    reserved: dict[int, int] = field(default_factory=dict)  # writer or block -> transaction

    def member(self, message: Message) -> int | None:
        if self.level == "none":
            return None
        return message.t if self.level == "blockwise" else message.s

    def arrival(self, message: Message) -> tuple[int, ...]:
        return (message.t, message.mid) if "blockwise" in self.level else (message.mid,)

    def rank(self, message: Message, wanted: Wanted) -> tuple[Any, ...]:
        first = message.priority if self.direction == "asc" else -message.priority
        return (first if wanted.key is None else wanted.key(message), *self.arrival(message))

    def sees(self, number: int, message: Message) -> bool:
        member = self.member(message)
        if member is not None and self.reserved.get(member, number) != number:
            return False
        return message.state == "c" or (message.state == "e" and message.owner == number)

    def next(self, number: int, wanted: Wanted) -> Message | None:
        """The message that a transaction gets."""
        seen = [message for message in self.messages if self.sees(number, message)]
        if self.level in ("ordered", "ordered blockwise"):  # the oldest of each writer
            seen = [min((m for m in seen if m.s == s), key=self.arrival) for s in {m.s for m in seen}]
        seen = [message for message in seen if wanted.good(message)]
        if self.level == "blockwise":  # what it has begun comes first
            seen = [m for m in seen if m.state == "c" and self.reserved.get(m.t) == number] or seen
        return min(seen, key=lambda message: self.rank(message, wanted), default=None)

    def take(self, number: int, count: int, wanted: Wanted = ANY) -> list[Message]:
        """Several messages are as many times one."""
        taken: list[Message] = []
        while len(taken) < count:
            message = self.next(number, wanted)
            if message is None:
                break
            if message.state == "c":
                member = self.member(message)
                if member is not None:
                    self.reserved[member] = number
                message.state = "d"
            else:
                message.state = "b"
            message.owner = number
            taken.append(message)
        return taken

    def remaining(self, number: int) -> list[str]:
        """What a transaction would have to read before it may commit."""
        if "blockwise" not in self.level:
            return []
        begun = {m.t for m in self.messages if m.state == "d" and m.owner == number}
        return [m.id for m in sorted(self.messages, key=self.arrival) if m.state == "c" and m.t in begun]

    def end(self, number: int, commit: bool, counted: bool) -> set[str]:
        """A transaction is over; queues in which others may find more now."""
        touched: set[str] = set()
        kept = []
        for message in self.messages:
            if message.owner != number or message.state == "c":
                kept.append(message)
            elif (message.state == "e") if commit else (message.state == "d"):
                if message.state == "d" and counted:
                    message.aborts += 1
                message.state, message.owner = "c", None
                touched.add(self.name)
                if not commit and counted and self.dead is not None and message.aborts >= self.max_deliveries:
                    self.dead.messages.append(message)
                    touched.add(self.dead.name)
                else:
                    kept.append(message)
        self.messages = kept
        self.reserved = {member: owner for member, owner in self.reserved.items() if owner != number}
        return touched

    def free(self) -> list[Message]:
        """Committed, and nobody's."""
        found = [m for m in self.messages if m.state == "c" and self.member(m) not in self.reserved]
        return sorted(found, key=lambda message: message.mid)

    def figures(self) -> dict[str, int]:
        states = [message.state for message in self.messages]
        found = {
            "waiting": states.count("c"),
            "taken": states.count("d") + states.count("b"),
            "uncommitted": states.count("e"),
        }
        return {name: count for name, count in found.items() if count}
