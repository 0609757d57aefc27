"""The subscription index of one schema: predicates in, snapshots out.

New entries are in a small delta. A full delta becomes a segment, and segments of similar size are merged into one: a
log-structured merge. Small ones are merged at once; large ones on a thread of their own, without the GIL, and the next
call after that installs the result.

All this needs kernels. Until they are compiled, entries stay in the delta, and the predicates are kept beside it
(`masks`) and evaluated one by one. The first snapshot with kernels uses segments.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from threading import Thread
from typing import Any, Final

import numpy as np

from milepost import kernels
from milepost.errors import QueryError
from milepost.match.access import Chooser
from milepost.match.codes import Coding
from milepost.match.columns import CodeColumns
from milepost.match.delta import Delta
from milepost.match.form import FormBuilder
from milepost.match.group import PredicateGroup
from milepost.match.masks import Masks, MaskSnapshot
from milepost.match.segment import ALIVE, Merge, Segment
from milepost.match.snapshot import NO_GROUPS, Snapshot
from milepost.match.texts import Texts
from milepost.query import Predicate
from milepost.schema.types import Schema

KEYS: Final = 1 << 31
FAN_IN: Final = 4  # segments of one size that are merged: more cost each row more look-ups, fewer cost more merges
AT_ONCE: Final = 4096  # up to so many postings are merged at once: a millisecond or two
QUIET: Final = 1000  # snapshots without a change before all segments are merged: each segment costs every row a look-up
_LEAST: Final = 512  # postings of the smallest size of segment
_TEXTS: Final = 10_000  # new texts after which unused ones are removed

_ROW: Final = 37  # numbers in the row of a segment, see `scan`
_DEAD: Final = 4_096  # removed entries that are kept while there are no kernels
_NOWHERE: Final = -1
_IN_GROUP: Final = -2


def kernels_at_hand() -> bool:
    """Whether the kernels can be used: they are loaded, or in the cache and loaded now."""
    # Look for all, even if the first is missing: `at_hand` does not wait for a module that it has missed once.
    found = [kernels.at_hand("match", module) for module in ("decoder", "probe", "builder", "assembly")]
    return all(found)


@dataclass(frozen=True, slots=True)
class IndexStatistics:
    """The contents of an index. `bytes` is the size of its arrays, with an estimate for groups and texts."""

    subscriptions: int
    groups: int  # distinct predicates that are not a plain conjunction; the others are held one by one
    indexed: int  # subscriptions that the index finds without an evaluation
    masked: int  # subscriptions whose predicate is evaluated, for the rows found by the index or for every row
    masks: int  # distinct predicates that are evaluated for every row
    columns: int
    texts: int
    clusters: int
    segments: int
    postings: int
    rebuilds: int  # merges so far
    bytes: int


class Index:
    """The subscriptions of one schema. For one thread; its snapshots are for any.

    With `background` false all merges are made at once: some calls are slower, and results are reproducible. `ready`
    returns whether there are kernels; it is not called again after it has returned true.
    """

    def __init__(self, schema: Schema, *, background: bool = True, ready: Callable[[], bool] = kernels_at_hand) -> None:
        self.schema: Final = schema
        self._background = background
        self._ready = ready
        self._masks = None if ready() else Masks(schema)
        self._texts = Texts()
        self._columns = CodeColumns(schema, self._texts)
        self._former = FormBuilder(self._columns)
        self._chooser = Chooser()
        self._now = 0
        self._count = 0
        self._masked = 0
        self.evaluated = 0  # distinct predicates that are evaluated, for the rows found by the index or for every row
        self._next = 0  # number of the next segment
        self._delta = self._new_delta()
        self._segments: dict[int, Segment] = {}
        # The place of each key's entry: the number of the segment, and of the entry in it, or of the group.
        self._segment_of = np.full(64, _NOWHERE, np.int32)
        self._entry_of = np.zeros(64, np.int32)
        self._groups: dict[int, PredicateGroup] = {}
        self._group_of: dict[Predicate, PredicateGroup] = {}
        self._free: list[int] = []  # numbers of removed groups
        self._group_place = np.full((16, 2), _NOWHERE, np.int32)  # the same for the entries of groups
        self._frozen_groups = NO_GROUPS
        self._changed_groups: dict[int, PredicateGroup | None] = {}  # since the last snapshot; None: removed
        self._snapshot: Snapshot | MaskSnapshot | None = None
        self._quiet = 0  # snapshots taken since the last change
        self._merge: Merge | None = None
        self._thread: Thread | None = None
        self._rebuilds = 0
        self._texts_kept = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: object) -> bool:
        return isinstance(key, int) and 0 <= key < len(self._segment_of) and self._segment_of[key] != _NOWHERE

    # Changes

    def add(self, key: int, predicate: Predicate) -> None:
        """Add a subscription. The caller chooses `key`, a small number. Raises ValueError if it exists."""
        if not 0 <= key < KEYS:
            raise ValueError(f"a key is a number from 0 to {KEYS - 1}, not {key}")
        if key in self:
            raise ValueError(f"key {key} is in the index already; remove it first")
        schema = predicate.schema
        if schema is not self.schema and schema.fingerprint != self.schema.fingerprint:
            raise QueryError(f"a predicate for {schema.name} cannot be in an index for {self.schema.name}")
        if key >= len(self._segment_of):
            self._grow(key)
        self._changed()  # first: installing a merge removes texts that no subscription names yet
        form = self._former.form(predicate.root)
        if form is not None and form.exact and form.disjoint:
            postings = [self._chooser.chosen(clause) for clause in form.clauses]
            self._segment_of[key] = self._delta.number
            self._entry_of[key] = self._delta.add(key, postings)
        else:
            group = self._group(predicate, form)
            group.add(key)
            self._changed_groups[group.number] = group
            self._masked += group.evaluated
            self._segment_of[key] = _IN_GROUP
            self._entry_of[key] = group.number
        self._count += 1
        if self._masks is not None:
            self._masks.add(key, predicate)
        if self._delta.full:
            self._flush()

    @property
    def evaluations(self) -> int:
        """Distinct predicates that a snapshot taken now may evaluate: all, while there are no kernels."""
        return self.evaluated if self._masks is None else len(self._masks)

    def evaluates(self, key: int) -> bool:
        """Whether a key exists and its predicate must be evaluated."""
        if key not in self:
            return False
        number, entry = int(self._segment_of[key]), int(self._entry_of[key])
        return number == _IN_GROUP and self._groups[entry].evaluated

    def remove(self, key: int) -> None:
        """Remove a subscription. Raises KeyError if it does not exist."""
        if key not in self:
            raise KeyError(key)
        self._changed()
        number, entry = int(self._segment_of[key]), int(self._entry_of[key])
        if number == _IN_GROUP:
            group = self._groups[entry]
            group.remove(key, self._now)
            self._masked -= group.evaluated
            if not group:
                self._dissolve(group)
        else:
            self._kill(number, entry)
        self._segment_of[key] = _NOWHERE
        self._count -= 1
        if self._masks is not None:
            self._masks.remove(key)
            if self._delta.dead > _DEAD and 2 * self._delta.dead > len(self._delta):
                self._begin_anew(self._masks.items())

    def _begin_anew(self, kept: list[tuple[int, Predicate]]) -> None:
        """Start again with the remaining entries: without kernels no merge would drop the removed ones."""
        self.__init__(self.schema, background=self._background, ready=self._ready)  # type: ignore[misc]
        for key, predicate in kept:
            self.add(key, predicate)

    def _changed(self) -> None:
        self._now += 1
        self._snapshot = None
        if self._merge is not None and self._thread is not None and not self._thread.is_alive():
            self._install()

    def _kill(self, number: int, entry: int) -> None:
        segment: Segment | Delta = self._delta if number == self._delta.number else self._segments[number]
        segment.died[entry] = self._now
        segment.dead += 1
        if isinstance(segment, Segment) and not segment.merging and 2 * segment.dead > len(segment.died):
            self._tidy()

    def _group(self, predicate: Predicate, form: Any) -> PredicateGroup:
        group = self._group_of.get(predicate)
        if group is not None:
            return group
        number = self._free.pop() if self._free else len(self._groups)
        group = PredicateGroup(number, predicate, form is not None, form is None or not form.exact)
        self._groups[number] = self._group_of[predicate] = group
        self.evaluated += group.evaluated
        if form is not None:
            if number >= len(self._group_place):
                more = np.full((2 * number, 2), _NOWHERE, np.int32)
                more[: len(self._group_place)] = self._group_place
                self._group_place = more
            postings = [self._chooser.chosen(clause) for clause in form.clauses]
            self._group_place[number] = self._delta.number, self._delta.add(~number, postings)
        return group

    def _dissolve(self, group: PredicateGroup) -> None:
        del self._groups[group.number], self._group_of[group.predicate]
        self._free.append(group.number)
        self.evaluated -= group.evaluated
        self._changed_groups[group.number] = None
        if group.indexed:
            number, entry = self._group_place[group.number].tolist()
            self._group_place[group.number] = _NOWHERE
            self._kill(number, entry)

    def _grow(self, key: int) -> None:
        size = max(2 * len(self._segment_of), key + 1)
        more, entries = np.full(size, _NOWHERE, np.int32), np.zeros(size, np.int32)
        more[: len(self._segment_of)] = self._segment_of
        entries[: len(self._entry_of)] = self._entry_of
        self._segment_of, self._entry_of = more, entries

    # Segments

    def _new_delta(self) -> Delta:
        self._next += 1
        return Delta(self._next)

    def _flush(self) -> None:
        """Make the delta a segment, if there are kernels."""
        delta = self._delta
        if len(delta) and self._masks is None:
            targets, postings = delta.unordered()
            segment = Segment(delta.number, targets, delta.died[: len(delta)], postings, len(self._columns))
            segment.dead = delta.dead
            self._segments[delta.number] = segment
            self._moved(segment)
            self._delta = self._new_delta()
            self._tidy()

    def _tidy(self) -> None:
        """Merge due segments, as long as it can be done at once."""
        while (sources := self._due()) is not None:
            self._start(sources)

    def _start(self, sources: list[Segment]) -> None:
        self._next += 1
        merge = Merge(sources, self._next, len(self._columns))
        if not self._background or sum(map(len, sources)) <= AT_ONCE:
            merge.run()
            self._replace(merge)
        else:
            self._merge = merge
            self._thread = Thread(target=merge.run, name="milepost-merge", daemon=True)
            self._thread.start()

    def _due(self) -> list[Segment] | None:
        """The smallest segments that are due to be merged; None if there are none, or if they must wait."""
        sizes: dict[int, list[Segment]] = {}
        for segment in self._segments.values():
            if not segment.merging:
                if 2 * segment.dead > len(segment.died):
                    sizes.setdefault(-1, []).append(segment)
                sizes.setdefault((len(segment) // _LEAST).bit_length() // 2, []).append(segment)
        for size in sorted(sizes):
            found = sizes[size]
            if len(found) >= FAN_IN or size < 0:
                busy = self._merge is not None
                if busy and sum(map(len, found)) > AT_ONCE:
                    continue
                return found
        return None

    def _install(self) -> None:
        """Install the segment that the other thread made."""
        assert self._merge is not None
        merge, self._merge, self._thread = self._merge, None, None
        self._replace(merge)
        self._tidy()

    def _replace(self, merge: Merge) -> None:
        made = merge.finish()
        for source in merge.sources:
            del self._segments[source.number]
        self._segments[made.number] = made
        self._rebuilds += 1
        self._snapshot = None
        self._moved(made)
        if len(self._texts) > 2 * self._texts_kept + _TEXTS:
            self._keep_texts()

    def _moved(self, made: Segment) -> None:
        """Record the places of a new segment's entries."""
        # Keys that were removed meanwhile may have been added again: only living entries are moved.
        entries = np.flatnonzero(made.died == ALIVE).astype(np.int32)
        targets = made.targets[entries]
        direct = targets >= 0
        self._segment_of[targets[direct]] = made.number
        self._entry_of[targets[direct]] = entries[direct]
        groups = ~targets[~direct]
        self._group_place[groups, 0] = made.number
        self._group_place[groups, 1] = entries[~direct]

    def _keep_texts(self) -> None:
        """Forget the texts that no subscription names any more."""
        if len(self._delta) or self._merge is not None:
            return
        numbered = [i for i, column in enumerate(self._columns.all) if column.coding is Coding.NUMBER]
        named = [segment.numbers(numbered) for segment in self._segments.values()]
        self._texts.keep(np.unique(np.concatenate(named)).tolist() if named else [])
        self._texts_kept = len(self._texts)

    def settle(self) -> None:
        """Merge everything into one segment and wait for it, as happens some time after the last change."""
        self._flush()
        while self._thread is not None or len(self._segments) > 1:
            if self._thread is None:
                self._start(list(self._segments.values()))
            if self._thread is not None:
                self._thread.join()
                self._install()

    # Answers

    def snapshot(self) -> Snapshot | MaskSnapshot:
        """The current subscriptions; the same object as long as nothing changes."""
        if self._masks is not None:
            if not self._ready():
                self._snapshot = self._snapshot or self._masks.snapshot()
                return self._snapshot
            self._masks = self._snapshot = None
        if self._merge is not None and self._thread is not None and not self._thread.is_alive():
            self._install()
        if self._snapshot is None:
            self._snapshot = self._taken()
            self._quiet = 0
            return self._snapshot
        self._quiet += 1
        if self._quiet == QUIET and len(self._segments) > 1 and self._merge is None:
            self._start(list(self._segments.values()))
            return self.snapshot()  # a new one, if the segments were small and are merged already
        return self._snapshot

    def _taken(self) -> Snapshot:
        if not self._delta.small:
            self._flush()
        held: list[Any] = list(self._segments.values())
        rows = [segment.row for segment in held]
        for segment in held:
            segment.row[-1] = segment.dead
        if len(self._delta):
            row, arrays = self._delta.row()
            rows.append(row)
            held.append(arrays)
        segments = np.array(rows, np.int64) if rows else np.zeros((0, _ROW), np.int64)
        if self._changed_groups:
            size = len(self._groups) + len(self._free)
            self._frozen_groups = self._frozen_groups.after(self._changed_groups, size)
            self._changed_groups = {}
        return Snapshot(self._now, self._columns, self._texts.table, segments, held, self._frozen_groups)

    def statistics(self) -> IndexStatistics:
        """The contents of the index."""
        segments = self._segments.values()
        places = self._segment_of.nbytes + self._entry_of.nbytes + self._group_place.nbytes
        groups = self._groups.values()
        return IndexStatistics(
            subscriptions=self._count,
            groups=len(self._groups),
            indexed=self._count - self._masked,
            masked=self._masked,
            masks=sum(not group.indexed for group in groups),
            columns=len(self._columns),
            texts=len(self._texts),
            clusters=sum(segment.clusters for segment in segments),
            segments=len(self._segments),
            postings=sum(map(len, segments)) + self._delta.postings,
            rebuilds=self._rebuilds,
            bytes=sum(segment.bytes for segment in segments)
            + places
            + self._texts.size
            + sum(group.bytes for group in groups),
        )
