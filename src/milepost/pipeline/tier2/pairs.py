"""Sequences and absences: each A with the first later B of its key.

State: ``pending``, the As that still wait, in time order, with all their columns except the flags.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from milepost.errors import ConfigError
from milepost.pipeline.tier2.columns import MOMENT, Bools, Ints, State, column, field, ints, moments, whole
from milepost.pipeline.tier2.keys import check_key, group, order_by
from milepost.pipeline.tier2.rules import FIRST, THEN, TIME, Absence, Sequence


class Paired(NamedTuple):
    """For each A, by key and then in time order: its row, the row of the next B of its key, and whether there is
    one.
    """

    firsts: Ints
    thens: Ints
    found: Bools


def pair(keys: Ints, size: int, times: Ints, first: Bools, then: Bools) -> Paired:
    """Pair rows, which must be in time order. A B at the same time as an A is not after it. `thens` is valid where
    `found`.
    """
    order = order_by(keys, size)  # stable, so in time order within a key
    count = len(order)
    keys, times = keys[order], times[order]
    # Rows of one key and time are a run. For an A, the search for a B starts after its run.
    change = np.flatnonzero((keys[1:] != keys[:-1]) | (times[1:] != times[:-1])) + 1
    ends = np.append(change, count)
    lengths = np.diff(ends, prepend=0)
    upcoming = np.append(np.where(then[order], np.arange(count), count), count)  # this row if it is a B, else none
    upcoming = np.minimum.accumulate(upcoming[::-1])[::-1]  # the first B at this row or after it
    after = np.repeat(upcoming[ends], lengths)
    places = np.flatnonzero(first[order])
    target = after[places]
    found = target < count
    target = np.where(found, target, 0)
    found &= keys[target] == keys[places]
    return Paired(order[places], order[target], found)


class PairOperator:
    """A `Sequence` or an `Absence` over rows of one schema."""

    def __init__(self, rule: Sequence | Absence, schema: pa.Schema) -> None:
        self.rule = rule
        for flag in (FIRST, THEN):
            if not pa.types.is_boolean(field(rule.rule, schema, flag)):
                raise ConfigError(f"rule {rule.rule!r}: {flag} must be boolean, not {schema.field(flag).type}")
        types = [field(rule.rule, schema, key) for key in rule.keys]
        for key, kind in zip(rule.keys, types, strict=True):
            check_key(rule.rule, key, kind)
        self._payload = [name for name in schema.names if name not in (*rule.keys, TIME, FIRST, THEN)]
        kept = [(TIME, pa.int64()), *zip(rule.keys, types, strict=True)]
        kept += [(name, field(rule.rule, schema, name)) for name in self._payload]
        self._kept = pa.schema(kept)
        self._output = self._described()

    def output(self) -> pa.Schema:
        return self._output

    def run(self, state: State, rows: pa.Table, before: int | None, watermark: int) -> tuple[State, pa.Table]:
        pending = self._pending(state)
        fresh = pa.table([_plain(rows.column(name)) for name in self._kept.names], schema=self._kept)
        everything = pa.concat_tables([pending, fresh]).combine_chunks()
        times = ints(whole(everything.column(TIME)))
        waiting = pending.num_rows
        first = np.concatenate([np.ones(waiting, np.bool_), _flags(rows, FIRST)])
        then = np.concatenate([np.zeros(waiting, np.bool_), _flags(rows, THEN)])
        some = np.flatnonzero(first | then)
        keys = [column(everything, key) for key in self.rule.keys]
        if len(some) < len(times):
            keys = [key.take(pa.array(some)) for key in keys]
        groups = group(keys, len(some))
        paired = pair(groups.codes, len(groups), times[some], first[some], then[some])
        firsts, thens = some[paired.firsts], some[paired.thens] if len(some) else paired.thens

        deadlines = times[firsts] + self.rule.within_us
        hit = paired.found & (times[thens] <= deadlines) if len(some) else paired.found
        stay = np.sort(firsts[~paired.found & (deadlines > watermark)])
        if isinstance(self.rule, Absence):
            missed = np.sort(firsts[~hit & (deadlines <= watermark)])
            emitted = self._missed(everything, times, missed)
        else:
            if self.rule.each == "last":
                hit[:-1] &= thens[:-1] != thens[1:]  # neighbouring As of one key: the last A of those with the same B
            firsts, thens = firsts[hit], thens[hit]
            order = np.lexsort((firsts, thens))
            emitted = self._met(everything, times, firsts[order], thens[order])
        return {"pending": everything.take(pa.array(stay))}, emitted

    def _missed(self, rows: pa.Table, times: Ints, firsts: Ints) -> pa.Table:
        at = times[firsts]
        table = rows.take(pa.array(firsts))
        columns = [table.column(key) for key in self.rule.keys]
        columns += [moments(at), moments(at + self.rule.within_us)]
        return pa.table(columns + [table.column(name) for name in self._payload], schema=self._output)

    def _met(self, rows: pa.Table, times: Ints, firsts: Ints, thens: Ints) -> pa.Table:
        one, two = rows.take(pa.array(firsts)), rows.select(self._payload).take(pa.array(thens))
        columns = [one.column(key) for key in self.rule.keys]
        columns += [moments(times[firsts]), moments(times[thens])]
        columns += [one.column(name) for name in self._payload] + two.columns
        return pa.table(columns, schema=self._output)

    def _described(self) -> pa.Schema:
        kinds = {name: self._kept.field(name).type for name in self._kept.names}
        columns = [(key, kinds[key]) for key in self.rule.keys] + [("first_time", MOMENT)]
        columns.append(("deadline" if isinstance(self.rule, Absence) else "then_time", MOMENT))
        for prefix in ("first_",) if isinstance(self.rule, Absence) else ("first_", "then_"):
            columns += [(prefix + name, kinds[name]) for name in self._payload]
        names = [name for name, _ in columns]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"rule {self.rule.rule!r} would emit {name!r} twice; rename one of the columns")
        return pa.schema(columns)

    def _pending(self, state: State) -> pa.Table:
        if not state:
            return self._kept.empty_table()
        pending = state["pending"]
        if pending.schema == self._kept:
            return pending
        for had in pending.schema:
            if had.name not in self._kept.names or self._kept.field(had.name).type != had.type:
                if not pending.num_rows:
                    return self._kept.empty_table()
                raise ConfigError(f"rule {self.rule.rule!r}: {had.name!r} was a {had.type} in rows that still wait")
        added = [
            pending.column(each.name) if each.name in pending.schema.names else pa.nulls(pending.num_rows, each.type)
            for each in self._kept
        ]  # a new column, which older rows do not have
        return pa.table(added, schema=self._kept)


def _plain(chunked: pa.ChunkedArray) -> pa.ChunkedArray:
    return whole(chunked) if pa.types.is_dictionary(chunked.type) else chunked


def _flags(rows: pa.Table, name: str) -> Bools:
    flags: Bools = whole(rows.column(name)).fill_null(False).to_numpy(zero_copy_only=False)
    return flags
