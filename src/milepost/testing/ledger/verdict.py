"""What a ledger decides, in a form to print."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SHOWN: Final = 5  # offenders of a kind that are named; the rest is a number

KINDS: Final = {
    "lost": "acknowledged and never delivered",
    "uneven": "delivered to others, or with others, and not here",
    "invented": "delivered and never attempted",
    "refused": "refused, and delivered all the same",
    "unwanted": "delivered, though the filter does not want them",
    "duplicate": "delivered again after they were consumed",
    "unmarked": "delivered again without a mark",
    "order": "delivered behind a later one of their publisher",
    "cursor": "steps back of a cursor",
    "records": "events that cannot be: the records are wrong, and the verdict with them",
}


@dataclass(frozen=True)
class Finding:
    """One kind of violation at one place."""

    kind: str  # a key of `KINDS`
    where: str  # the subscription, topic or file
    count: int
    examples: tuple[str, ...]

    def __str__(self) -> str:
        more = ", …" if self.count > len(self.examples) else ""
        return f"{self.kind}, {self.where}: {self.count:,} {KINDS[self.kind]}: {', '.join(self.examples)}{more}"


@dataclass(frozen=True)
class Tally:
    """The figures of one subscription."""

    delivered: int  # different messages
    again: int  # deliveries of messages that had been there before, as they may
    in_hand: int  # messages that died with a consumer which had reached for them
    windows: int  # deaths of consumers that had reached for something
    reach: int  # how many messages those windows might have excused

    def __str__(self) -> str:
        text = f"{self.delivered:,} delivered"
        if self.again:
            text += f", {self.again:,} of them again"
        if self.windows:
            text += f", {self.in_hand:,} died in a consumer's hands ({self.windows:,} deaths while reaching)"
        return text


@dataclass
class Verdict:
    """True when nothing was found. `str()` shows the figures and every finding."""

    attempted: int = 0
    acknowledged: int = 0
    refused: int = 0
    torn: int = 0  # lines cut off by the death of their writers
    subscriptions: dict[str, Tally] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def __bool__(self) -> bool:
        return not self.findings

    @property
    def unknown(self) -> int:
        """Attempted, and neither acknowledged nor refused: their publishers died, or heard nothing."""
        return self.attempted - self.acknowledged - self.refused

    def __str__(self) -> str:
        lines = [
            f"{self.attempted:,} attempted, {self.acknowledged:,} acknowledged, {self.refused:,} refused, "
            f"{self.unknown:,} without an answer; {self.torn:,} torn lines"
        ]
        lines += [f"{name}: {tally}" for name, tally in self.subscriptions.items()]
        lines += [str(finding) for finding in self.findings]
        kinds = len(self.findings)
        lines.append("verdict: good" if self else f"verdict: BAD, {kinds} finding{'s' if kinds > 1 else ''}")
        return "\n".join(lines)
