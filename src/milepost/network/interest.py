"""Interest: the filters that are wanted behind a link, as few of them as say the same.

Equal filters are one, with a count. A filter that another covers is held back, and announced when its cover goes. Past
a limit of filters a topic is widened: all of its rows are wanted. At least the rows that are wanted are sent each time,
and the subscribers' own broker selects exactly. So a widened filter costs traffic, and never a message.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from milepost.query import Predicate
from milepost.query.covering import Conjunction, alternatives, within
from milepost.query.typed import Typed

FILTERS: Final = 10_000  # announced for one topic over one link: more are widened
SCANNED: Final = 256  # filters that a new one is compared with, to hold them back: beyond, they stay announced
SHAPES: Final = 1_000  # sets of fields that a new filter looks for a cover among: beyond, it is announced
BUCKETS: Final = 256  # of a digest: two ends that differ in few filters exchange few buckets

Filter: TypeAlias = Predicate | None
"""A predicate over the rows of a topic; None wants all of them."""


class Change(NamedTuple):
    """What the other end of a link has to be told."""

    topic: str
    filter: Filter
    wanted: bool  # False: it was announced before, and is not wanted any more


Shape: TypeAlias = tuple[frozenset[Any], tuple[Typed, ...]]
"""What a conjunction speaks of: its operands and terms, and those operands that it fixes to one value, in an order."""


class _Form:
    """A predicate as covering sees it. Without alternatives only equal predicates cover each other."""

    __slots__ = ("alternatives", "fixed", "keys", "pairs")

    def __init__(self, predicate: Predicate) -> None:
        self.alternatives: tuple[Conjunction, ...] = alternatives(predicate.root) or ()
        # Of each alternative: the operands that may have one value only, with the value.
        self.fixed: list[dict[Typed, Any]] = [
            {
                operand: next(iter(allowed.values))
                for operand, allowed in each.bounds.items()
                if allowed.values is not None and len(allowed.values) == 1
            }
            for each in self.alternatives
        ]
        self.pairs = {pair for fixed in self.fixed for pair in fixed.items()}
        self.keys: set[tuple[Shape, tuple[Any, ...]]] = set()
        for each, fixed in zip(self.alternatives, self.fixed, strict=True):
            operands = tuple(sorted(fixed, key=repr))
            shape = frozenset((*each.bounds, *each.terms)), operands
            self.keys.add((shape, tuple(fixed[operand] for operand in operands)))


@dataclass(slots=True)
class _Wanted:
    """A filter that is wanted."""

    predicate: Predicate  # as it was added first: equal ones may have another text
    form: _Form
    count: int = 0
    cover: Filter = None  # the filter that it is held back for
    held: bool = False
    holds: set[Predicate] = field(default_factory=set)  # those that are held back for it


class TopicInterest:
    """The filters of one topic."""

    def __init__(self, most: int = FILTERS) -> None:
        self._most = most
        self._all = 0  # how many want all rows
        self._wanted: dict[Predicate, _Wanted] = {}
        self._open: dict[Predicate, None] = {}  # held back for no other filter, in their order
        self._shapes: dict[Shape, dict[tuple[Any, ...], dict[Predicate, None]]] = {}
        self._fixed: dict[tuple[Typed, Any], dict[Predicate, None]] = {}
        self.widened = False

    def __bool__(self) -> bool:
        return bool(self._all or self._wanted)

    @property
    def filters(self) -> list[Filter]:
        """What is announced."""
        return [None] if self._all or self.widened else list(self._open)

    @property
    def count(self) -> int:
        """Filters that were added and not removed, equal ones included."""
        return self._all + sum(each.count for each in self._wanted.values())

    def add(self, filter: Filter) -> list[tuple[Filter, bool]]:
        """One more wants these rows. Returns what changes, new filters first, so that no row falls in between."""
        if filter is None:
            self._all += 1
            return [] if self._all > 1 else self._widen()
        known = self._wanted.get(filter)
        if known is None:
            known = self._wanted[filter] = _Wanted(filter, _Form(filter))
        known.count += 1
        if known.count > 1:
            return []
        return self._shown(self._place(filter))

    def remove(self, filter: Filter) -> list[tuple[Filter, bool]]:
        """One less wants these rows. Raises `KeyError` for a filter that nobody added."""
        if filter is None:
            if not self._all:
                raise KeyError(filter)
            self._all -= 1
            return [] if self._all else self._narrow()
        known = self._wanted[filter]
        known.count -= 1
        if known.count:
            return []
        filter = known.predicate
        del self._wanted[filter]
        if known.held:
            assert known.cover is not None
            self._wanted[known.cover].holds.discard(filter)
            return []
        self._close(filter, known.form)
        changes: list[tuple[Filter, bool]] = []
        for each in sorted(known.holds, key=_order):
            self._wanted[each].held = False
            changes += self._place(each)
        return self._shown([*changes, (filter, False)])

    def _widen(self) -> list[tuple[Filter, bool]]:
        if self.widened:
            return []
        return [(None, True), *((each, False) for each in self._open)]

    def _narrow(self) -> list[tuple[Filter, bool]]:
        if self.widened:
            return []
        return [*((each, True) for each in self._open), (None, False)]

    def _shown(self, changes: list[tuple[Filter, bool]]) -> list[tuple[Filter, bool]]:
        """The changes that the other end is told."""
        if self.widened:
            if len(self._open) > self._most // 2:
                return []
            self.widened = False
            return [] if self._all else self._narrow()
        if self._all:
            return []
        if len(self._open) > self._most:
            said = {filter for filter, wanted in changes if wanted}
            gone = [filter for filter, wanted in changes if not wanted and filter not in said]
            announced = [filter for filter in self._open if filter not in said]
            self.widened = True
            return [(None, True), *((each, False) for each in (*announced, *gone))]
        # A filter that was announced and held back within one change is not told at all.
        net: dict[Filter, bool] = {}
        for filter, wanted in changes:
            if net.get(filter, wanted) != wanted:
                del net[filter]
            else:
                net[filter] = wanted
        return sorted(net.items(), key=lambda each: not each[1])

    def _place(self, filter: Predicate) -> list[tuple[Filter, bool]]:
        """Hold a filter back for one that covers it, or announce it and hold back those that it covers."""
        known = self._wanted[filter]
        cover = self._cover(known.form)
        if cover is not None:
            known.held, known.cover = True, cover
            self._wanted[cover].holds.add(filter)
            return []
        changes: list[tuple[Filter, bool]] = [(filter, True)]
        for each in self._covered(filter, known.form):
            other = self._wanted[each]
            self._close(each, other.form)
            other.held, other.cover = True, filter
            # What it held back is covered by the new one too: covering is transitive.
            for held in other.holds:
                self._wanted[held].cover = filter
            known.holds |= other.holds | {each}
            other.holds = set()
            changes.append((each, False))
        self._open[filter] = None
        for shape, values in known.form.keys:
            self._shapes.setdefault(shape, {}).setdefault(values, {})[filter] = None
        for pair in known.form.pairs:
            self._fixed.setdefault(pair, {})[filter] = None
        return changes

    def _close(self, filter: Predicate, form: _Form) -> None:
        del self._open[filter]
        for shape, values in form.keys:
            _drop(self._shapes[shape], values, filter)
            if not self._shapes[shape]:
                del self._shapes[shape]
        for pair in form.pairs:
            _drop(self._fixed, pair, filter)

    def _cover(self, form: _Form) -> Predicate | None:
        """An announced filter that covers a form."""
        if not form.alternatives:
            return None
        first, fixed = form.alternatives[0], form.fixed[0]
        speaks_of = frozenset((*first.bounds, *first.terms))
        for (wanted, operands), found in islice(self._shapes.items(), SHAPES):
            if wanted <= speaks_of and all(operand in fixed for operand in operands):
                for filter in found.get(tuple(fixed[operand] for operand in operands), ()):
                    if within(form.alternatives, self._wanted[filter].form.alternatives):
                        return filter
        return None

    def _covered(self, filter: Predicate, form: _Form) -> list[Predicate]:
        """Announced filters that a new one covers, of those that have to be looked at."""
        looked: dict[Predicate, None] = {}
        for fixed in form.fixed:
            lists: list[dict[Predicate, None]] = [self._fixed.get(pair, {}) for pair in fixed.items()] or [self._open]
            for each in min(lists, key=len):
                if len(looked) == SCANNED:
                    break
                looked[each] = None
        return [
            each
            for each in looked
            if (other := self._wanted[each].form).alternatives and within(other.alternatives, form.alternatives)
        ]


class Interest:
    """The filters of all topics behind a link."""

    def __init__(self, most: int = FILTERS) -> None:
        self._most = most
        self._topics: dict[str, TopicInterest] = {}
        self.digest: Final = Digest()

    def add(self, topic: str, filter: Filter) -> list[Change]:
        """One more wants rows of a topic. Returns what the other end has to be told."""
        found = self._topics.get(topic)
        if found is None:
            found = self._topics[topic] = TopicInterest(self._most)
        return self._told(topic, found.add(filter))

    def remove(self, topic: str, filter: Filter) -> list[Change]:
        """One less wants rows of a topic."""
        found = self._topics[topic]
        changes = self._told(topic, found.remove(filter))
        if not found:
            del self._topics[topic]
        return changes

    def _told(self, topic: str, changes: Iterable[tuple[Filter, bool]]) -> list[Change]:
        made = [Change(topic, *change) for change in changes]
        for change in made:
            self.digest.change(topic, change.filter)
        return made

    def __iter__(self) -> Iterator[tuple[str, Filter]]:
        """What is announced."""
        for topic, found in self._topics.items():
            for filter in found.filters:
                yield topic, filter

    @property
    def widened(self) -> list[str]:
        """Topics that want more than their filters say."""
        return [topic for topic, found in self._topics.items() if found.widened]

    @property
    def counts(self) -> tuple[int, int]:
        """Filters that were added, and filters that are announced for them."""
        found = self._topics.values()
        return sum(each.count for each in found), sum(len(each.filters) for each in found)


class Digest:
    """A set of filters in few bytes, whatever their order: both ends of a link compare it when they meet again.

    Each bucket has the exclusive or of the hashes of its filters, so adding and removing are the same.
    """

    def __init__(self) -> None:
        self.buckets: Final = [0] * BUCKETS

    def change(self, topic: str, filter: Filter) -> None:
        """A filter is in the set that was not, or the other way round."""
        found = hash_of(topic, filter)
        self.buckets[found % BUCKETS] ^= found

    def differing(self, other: Digest) -> set[int]:
        """The buckets whose filters differ."""
        return {place for place, (one, two) in enumerate(zip(self.buckets, other.buckets, strict=True)) if one != two}


def hash_of(topic: str, filter: Filter) -> int:
    """128 bits of a filter, the same in every broker."""
    text = f"{topic}\0{'' if filter is None else filter.text}"
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=16).digest(), "little")


def _order(predicate: Predicate) -> str:
    return predicate.text


def _drop(table: dict[Any, dict[Predicate, None]], key: Any, filter: Predicate) -> None:
    del table[key][filter]
    if not table[key]:
        del table[key]
