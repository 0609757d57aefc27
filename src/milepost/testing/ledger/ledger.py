"""The ledger: collects events, and decides.

A message is one number, as in `keys`. Deciding means sorting such numbers, so that millions of them take seconds.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost.testing.ledger.keys import (
    NEVER,
    PUBLISHERS,
    SEQUENCE_BITS,
    Keys,
    Window,
    among,
    disordered,
    excuse,
    late,
    numbers,
    without,
)
from milepost.testing.ledger.records import (
    BeganRecord,
    Book,
    BrokeRecord,
    CursorRecord,
    Damage,
    DoneRecord,
    EndedRecord,
    Event,
    GotRecord,
    PutRecord,
    ReachRecord,
    RefusedRecord,
    StoredRecord,
    read_records,
)
from milepost.testing.ledger.verdict import SHOWN, Finding, Tally, Verdict

Wanted: TypeAlias = Callable[[str, Keys], npt.NDArray[np.bool_]]
Mode: TypeAlias = Literal["once", "at least once"]


@dataclass
class _Puts:
    """Ranges of messages: their first keys and their lengths."""

    first: array[int] = field(default_factory=lambda: array("q"))
    count: array[int] = field(default_factory=lambda: array("q"))

    def keys(self) -> Keys:
        first, count = numbers(self.first), numbers(self.count)
        ends = np.cumsum(count)
        within = np.arange(ends[-1] if len(ends) else 0, dtype=np.int64) - np.repeat(ends - count, count)
        keys: Keys = np.repeat(first, count) + within
        return keys


@dataclass
class _Topic:
    attempted: _Puts = field(default_factory=_Puts)
    stored: _Puts = field(default_factory=_Puts)
    refused: _Puts = field(default_factory=_Puts)


@dataclass
class _Seen:
    """The deliveries of one subscription, in columns."""

    key: array[int] = field(default_factory=lambda: array("q"))
    at: array[int] = field(default_factory=lambda: array("q"))
    member: array[int] = field(default_factory=lambda: array("q"))
    again: array[int] = field(default_factory=lambda: array("q"))
    done_key: array[int] = field(default_factory=lambda: array("q"))
    done_at: array[int] = field(default_factory=lambda: array("q"))
    windows: list[Window] = field(default_factory=list)
    reaching: dict[str, ReachRecord] = field(default_factory=dict)  # by member
    given_up: dict[str, tuple[int, int]] = field(default_factory=dict)  # by member: since when, most messages held
    cursors: dict[int, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))  # log -> at, offset


@dataclass(frozen=True)
class _Rule:
    topic: str
    mode: Mode
    wants: Wanted | None
    marked: bool


class Ledger(Book):
    """Collects events, from this process or from files in any order, and decides about all of them at the end.

    For each subscription this must hold: every acknowledged message that it wants was delivered; every delivered
    message was attempted, and not refused; nothing was delivered twice; the messages of a publisher came in its order;
    cursors never moved back. And the log is the same for all subscriptions: a message whose put was never answered, but
    that one subscription got, must reach the other subscriptions of the topic as well, and so must the other parts of
    an atomic put (`together`).

    There is one gap: a consumer that is killed after the broker has committed its `get` and before it could record the
    messages. So it records `reach` before each `get`. A death after a `reach` is a window, which excuses as many
    messages as the `reach` named, if they fit there by their publisher's order. A `get` that timed out may have
    messages on their way, which the next ones return: until that many have come, they count as reached for. Windows and
    the messages that they excuse are counted. Deaths of brokers and publishers excuse nothing, and neither do deaths of
    consumers that acknowledge explicitly, since they record messages before they acknowledge them.
    """

    def __init__(self) -> None:
        self._publishers: dict[str, int] = {}
        self._members: dict[str, int] = {}
        self._topics: dict[str, _Topic] = defaultdict(_Topic)
        self._rules: dict[str, _Rule] = {}
        self._seen: dict[str, _Seen] = defaultdict(_Seen)
        self._together: list[tuple[str, tuple[str, ...]]] = []
        self._broke: list[tuple[int, int]] = []  # since, until
        self._damaged: list[tuple[str, int]] = []
        self._torn = 0

    # Expectations

    def subscription(
        self, name: str, topic: str, mode: Mode = "once", *, wants: Wanted | None = None, marked: bool = True
    ) -> None:
        """A durable subscription that existed before the first put, and is drained when the ledger decides.

        `mode` "once": nothing may be delivered twice (`get`). "at least once": a message may be delivered again if it
        is marked as redelivered and its acknowledgement was not confirmed before; without the mark only if a broker was
        killed in between (`broke`), or with `marked=False`. `wants` is the filter: it gets a publisher and an array of
        sequences, and returns which of them match.
        """
        if mode not in ("once", "at least once"):
            raise ValueError(f'a subscription is "once" or "at least once", not {mode!r}')
        self._rules[name] = _Rule(topic, mode, wants, marked)

    def together(self, publisher: str, topics: Sequence[str]) -> None:
        """Declare that a publisher puts each message into all of these topics, under one sequence, in an atomic put."""
        self._together.append((publisher, tuple(topics)))

    # Events

    def read(self, path: Path | str) -> None:
        """Read the events of a file that a `Recorder` wrote, up to its end or to the death of its writer."""
        for event in read_records(path):
            if not isinstance(event, Damage):
                self.note(event)
            elif event.torn:
                self._torn += 1
            else:
                self._damaged.append((str(path), event.line))

    def note(self, event: Event) -> None:
        kind = type(event)
        if kind is GotRecord:
            self._got(event)  # type: ignore[arg-type]  # `is` is a third of the cost of `isinstance`, and millions come
        elif isinstance(event, StoredRecord):
            self._ranges(self._topics[event.topic].stored, event)
        elif isinstance(event, RefusedRecord):
            self._ranges(self._topics[event.topic].refused, event)
        elif isinstance(event, PutRecord):
            self._ranges(self._topics[event.topic].attempted, event)
        elif isinstance(event, DoneRecord):
            seen = self._seen[event.subscription]
            seen.done_key.extend(self._keys(event.publishers, event.sequences))
            seen.done_at.extend([event.at] * len(event.sequences))
        elif isinstance(event, ReachRecord):
            self._seen[event.subscription].reaching[event.member] = event
        elif isinstance(event, CursorRecord):
            self._seen[event.subscription].cursors[event.log].append((event.at, event.offset))
        elif isinstance(event, BrokeRecord):
            self._broke.append((event.at, event.until))
        elif isinstance(event, BeganRecord):
            for seen in self._seen.values():
                window = _window(seen, event.member, event.at)
                if window is not None:
                    seen.windows.append(window)
                    _let_go(seen, event.member)
        elif isinstance(event, EndedRecord):
            for seen in self._seen.values():
                _let_go(seen, event.member)

    def _got(self, event: GotRecord) -> None:
        seen, rows = self._seen[event.subscription], len(event.sequences)
        reach = seen.reaching.pop(event.member, None)
        if not rows:
            if reach is not None:
                since, count = seen.given_up.get(event.member, (reach.at, 0))
                seen.given_up[event.member] = since, max(count, reach.count)
            return
        if seen.given_up and event.member in seen.given_up:
            since, count = seen.given_up.pop(event.member)
            if count > rows:
                seen.given_up[event.member] = since, count - rows
        member = self._members.setdefault(event.member, len(self._members))
        seen.key.extend(self._keys(event.publishers, event.sequences))
        seen.at.extend([event.at] * rows)
        seen.member.extend([member] * rows)
        seen.again.extend(event.again or [0] * rows)

    def _ranges(self, puts: _Puts, event: PutRecord) -> None:
        if event.count < 0 or event.first < 0 or event.first + event.count > 1 << SEQUENCE_BITS:
            raise ValueError(
                f"{event.count} sequences from {event.first} on exceed the range 0 to 2**{SEQUENCE_BITS} - 1"
            )
        puts.first.append(self._publisher(event.publisher) << SEQUENCE_BITS | event.first)
        puts.count.append(event.count)

    def _publisher(self, name: str) -> int:
        code = self._publishers.setdefault(name, len(self._publishers))
        if code >= PUBLISHERS:
            raise ValueError(f"more than {PUBLISHERS} publishers")
        return code

    def _keys(self, publishers: list[str], sequences: list[int]) -> list[int]:
        if sequences and not 0 <= min(sequences) <= max(sequences) < 1 << SEQUENCE_BITS:
            raise ValueError(
                f"sequences from {min(sequences)} to {max(sequences)} exceed the range 0 to 2**{SEQUENCE_BITS} - 1"
            )
        code = self._publisher
        return [code(name) << SEQUENCE_BITS | number for name, number in zip(publishers, sequences, strict=True)]

    # Decision

    def verdict(self) -> Verdict:
        """Decide about all events so far."""
        made = Verdict(torn=self._torn)
        if self._damaged:
            shown = tuple(f"{path} line {line}" for path, line in self._damaged[:SHOWN])
            made.findings.append(Finding("records", "files", len(self._damaged), shown))
        attempted, stored, refused = dict[str, Keys](), dict[str, Keys](), dict[str, Keys]()
        for name, topic in self._topics.items():
            tries = np.sort(topic.attempted.keys())
            attempted[name] = np.unique(tries)
            stored[name] = np.unique(topic.stored.keys())
            refused[name] = np.unique(topic.refused.keys())
            made.attempted += len(attempted[name])
            made.acknowledged += len(stored[name])
            made.refused += len(refused[name])
            self._find(made, "records", f"{name}, put twice", tries[1:][tries[1:] == tries[:-1]])
            for what, keys in (("stored", stored[name]), ("refused", refused[name])):
                self._find(made, "records", f"{name}, {what} and not put", without(keys, attempted[name]))
            self._find(made, "records", f"{name}, stored and refused", among(stored[name], refused[name]))
        nothing = np.empty(0, np.int64)
        there = self._there()
        for name in self._seen.keys() - self._rules.keys():
            made.findings.append(Finding("records", f"{name}, which was not announced", 1, (name,)))
        for name, rule in self._rules.items():
            tables = [table.get(rule.topic, nothing) for table in (attempted, stored, refused, there)]
            self._judge(made, name, rule, *tables)
        return made

    def _there(self) -> dict[str, Keys]:
        """By topic: the messages that must be in its log, because they or another part of their atomic put were
        delivered.
        """
        found: dict[str, list[Keys]] = defaultdict(list)
        for name, rule in self._rules.items():
            keys = np.unique(numbers(self._seen[name].key))
            found[rule.topic].append(keys)
            for publisher, topics in self._together:
                if rule.topic in topics and publisher in self._publishers:
                    parts = keys[keys >> SEQUENCE_BITS == self._publishers[publisher]]
                    for topic in topics:
                        found[topic].append(parts)
        return {topic: np.unique(np.concatenate(parts)) for topic, parts in found.items()}

    def _judge(
        self, made: Verdict, name: str, rule: _Rule, attempted: Keys, stored: Keys, refused: Keys, there: Keys
    ) -> None:
        seen = self._seen[name]
        at = numbers(seen.at)
        order = np.argsort(at, kind="stable")
        at, key = at[order], numbers(seen.key)[order]
        member, again = numbers(seen.member)[order], numbers(seen.again)[order]
        first_keys, first_rows = np.unique(key, return_index=True)  # the first of several equal ones

        self._find(made, "invented", name, without(first_keys, attempted))
        self._find(made, "refused", name, among(first_keys, refused))
        self._find(made, "unwanted", name, first_keys[~self._wanted(rule, first_keys)])

        later = np.ones(len(key), np.bool_)
        later[first_rows] = False
        again_done = later
        if rule.mode != "once":
            again_done = later & late(numbers(seen.done_key), numbers(seen.done_at), key, at)
        self._find(made, "duplicate", name, key[again_done])
        if rule.mode != "once" and rule.marked:
            before = at[first_rows][np.searchsorted(first_keys, key)]  # when each was delivered first
            self._find(made, "unmarked", name, key[later & ~again_done & self._unmarked(again, before, at)])
        self._find(made, "order", name, disordered(key[~later], member[~later] if rule.mode == "once" else None))

        # Reported where they were delivered, and expected nowhere.
        ghosts = np.union1d(refused, without(there, attempted))
        expected = without(np.union1d(stored, there), ghosts)
        expected = expected[self._wanted(rule, expected)]
        ends = [_window(seen, each, NEVER) for each in {*seen.reaching, *seen.given_up}]
        windows = sorted([*seen.windows, *(window for window in ends if window is not None)])
        missing = without(expected, first_keys)
        excused, missing = excuse(missing, first_keys, at[first_rows], windows)
        self._find(made, "lost", name, among(missing, stored))
        self._find(made, "uneven", name, without(missing, stored))

        for log, positions in sorted(seen.cursors.items()):
            positions.sort(key=lambda each: each[0])
            back = [(a, b) for (_, a), (_, b) in pairwise(positions) if b < a]
            if back:
                shown = tuple(f"{before} to {after}" for before, after in back[:SHOWN])
                made.findings.append(Finding("cursor", f"{name}, log {log}", len(back), shown))
        reach = sum(count for _, _, count in windows)
        made.subscriptions[name] = Tally(len(first_keys), int(later.sum()), excused, len(windows), reach)

    def _unmarked(self, again: Keys, before: Keys, at: Keys) -> npt.NDArray[np.bool_]:
        """Which deliveries have neither a redelivery mark nor a death of a broker since the first delivery."""
        wrong: npt.NDArray[np.bool_] = again == 0
        for since, until in self._broke:
            wrong &= ~((before <= until) & (at >= since))
        return wrong

    def _wanted(self, rule: _Rule, keys: Keys) -> npt.NDArray[np.bool_]:
        """Which of the sorted keys the subscription's filter matches."""
        mask = np.ones(len(keys), np.bool_)
        if rule.wants is None:
            return mask
        for name, code in self._publishers.items():
            start, end = np.searchsorted(keys, [code << SEQUENCE_BITS, (code + 1) << SEQUENCE_BITS])
            if end > start:
                mask[start:end] = rule.wants(name, keys[start:end] & ((1 << SEQUENCE_BITS) - 1))
        return mask

    def _find(self, made: Verdict, kind: str, where: str, keys: Keys) -> None:
        if len(keys):
            names = list(self._publishers)
            low = (1 << SEQUENCE_BITS) - 1
            shown = tuple(f"{names[int(key) >> SEQUENCE_BITS]} #{int(key) & low}" for key in keys[:SHOWN])
            made.findings.append(Finding(kind, where, len(keys), shown))


def _window(seen: _Seen, member: str, dead: int) -> Window | None:
    """The messages that a dead member may have had in hand."""
    reach, given_up = seen.reaching.get(member), seen.given_up.get(member)
    found = [each for each in (given_up, (reach.at, reach.count) if reach is not None else None) if each is not None]
    if not found:
        return None
    return min(at for at, _ in found), dead, max(count for _, count in found)


def _let_go(seen: _Seen, member: str) -> None:
    seen.reaching.pop(member, None)
    seen.given_up.pop(member, None)
