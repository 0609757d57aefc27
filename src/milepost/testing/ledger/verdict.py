"""The verdict of a ledger, in printable form."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

SHOWN: Final = 5  # offenders of a kind that are named; the others are only counted

KINDS: Final = {
    "lost": "acknowledged and never delivered",
    "uneven": "delivered elsewhere, but not here",
    "invented": "delivered and never attempted",
    "refused": "refused, but delivered",
    "unwanted": "delivered, although the filter excludes them",
    "duplicate": "delivered again after they were consumed",
    "unmarked": "delivered again without a mark",
    "order": "delivered after a later one of their publisher",
    "cursor": "backward moves of a cursor",
    "records": "impossible events: the records are wrong, and so is the verdict",
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
    again: int  # permitted deliveries of messages that were delivered before
    in_hand: int  # messages that were lost with a consumer that had reached for them
    windows: int  # deaths of consumers that had reached for messages
    reach: int  # most messages that these windows could excuse

    def __str__(self) -> str:
        text = f"{self.delivered:,} delivered"
        if self.again:
            text += f", {self.again:,} of them again"
        if self.windows:
            text += f", {self.in_hand:,} died in a consumer's hands ({self.windows:,} deaths while reaching)"
        return text


@dataclass
class Verdict:
    """The verdict, true when nothing was found. `str()` shows the figures and all findings."""

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
        """Messages that were attempted, and neither acknowledged nor refused: their publishers died, or got no
        answer.
        """
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
