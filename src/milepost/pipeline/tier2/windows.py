"""Windows and monitors: rows are folded into panes, and panes into windows.

The state is sorted by pane, and then by the first row of a key in it: ``panes`` (key number, pane, rows, partials) and
``keys``, the keys of these numbers. A micro-batch changes at most the last stored pane, since its rows are later than
the previous watermark; the other panes are kept unchanged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from milepost.errors import ConfigError
from milepost.pipeline.tier2 import partials
from milepost.pipeline.tier2.columns import (
    MOMENT,
    Ints,
    State,
    column,
    field,
    ints,
    joined,
    moments,
    ranges,
    taken,
    whole,
)
from milepost.pipeline.tier2.keys import canonical, check_key, group, group_codes
from milepost.pipeline.tier2.panes import Grid
from milepost.pipeline.tier2.rules import TIME, Aggregate, Monitor, TimeWindow, quantile_name

EMPTY_IN_A_ROW: Final = 60  # windows of a monitor; then it is silent until rows come: an idle year costs nothing
_AT_ONCE: Final = 4_000_000  # rows and list elements of panes merged at a time: about 100 MB for a few aggregates


@dataclass(frozen=True)
class Folded:
    """Panes or windows: the key of each, its number, its rows, and the columns of its partials."""

    keys: Ints
    places: Ints
    rows: Ints
    parts: list[partials.Parts]


class WindowOperator:
    """A `TimeWindow` over rows of one schema."""

    def __init__(self, rule: TimeWindow, schema: pa.Schema, offset: int = 0) -> None:
        self.rule = rule
        self.grid = Grid(rule.size_us, rule.slide_us, offset)
        self.key_types = [field(rule.rule, schema, key) for key in rule.keys]
        for key, kind in zip(rule.keys, self.key_types, strict=True):
            check_key(rule.rule, key, kind)
        self.partials: list[partials.Partial] = []
        self.sources: list[str] = []
        self.answers: list[tuple[Aggregate, int]] = []  # the number of its partial; -1: it counts rows
        shared: dict[tuple[str, str], int] = {}
        for aggregate in rule.asked:
            if aggregate.column is None:
                self.answers.append((aggregate, -1))
                continue
            kind = field(rule.rule, schema, aggregate.column)
            name = (partials.family(aggregate.function), aggregate.column)
            if name not in shared:
                shared[name] = len(self.partials)
                try:
                    self.partials.append(partials.partial(aggregate.function, kind))
                except ConfigError as error:
                    raise ConfigError(f"rule {rule.rule!r}, aggregate {aggregate.name!r}: {error}") from None
                self.sources.append(aggregate.column)
            self.answers.append((aggregate, shared[name]))

    def output(self) -> pa.Schema:
        columns = list(zip(self.rule.keys, self.key_types, strict=True))
        columns += [("window_start", MOMENT), ("window_end", MOMENT), ("count", pa.int64())]
        for asked, number in self.answers:
            kind = pa.int64() if number < 0 else self.partials[number].result(asked.function)
            columns.append((asked.name, kind))
        return pa.schema(columns)

    def run(self, state: State, rows: pa.Table, before: int | None, watermark: int) -> tuple[State, pa.Table]:
        keys, panes = self._fold(state, rows)
        closed = self.grid.closed(watermark)
        windows = self.grid.windows(panes.places, None if before is None else self.grid.closed(before), closed)
        emitted = [self._emit(keys, each) for each in self._windows(panes, windows, len(keys[0]) if keys else 1)]
        schema = self.output()
        return self._stored(keys, panes, self.grid.done(closed)), pa.concat_tables([schema.empty_table(), *emitted])

    def _fold(self, state: State, rows: pa.Table) -> tuple[list[pa.Array], Folded]:
        """All keys, and all panes including the new rows."""
        keys, old = self._loaded(state)
        if not rows.num_rows:
            return keys, old
        places = self.grid.pane(ints(whole(rows.column(TIME))))
        fresh = [canonical(column(rows, key)) for key in self.rule.keys]
        known = len(keys[0]) if keys else 1
        together = [joined([one, other]) for one, other in zip(keys, fresh, strict=True)]
        found = group(together, known + len(places))
        keys = [taken(key, found.firsts) for key in together]
        numbers = found.codes[known:]

        frozen = int(np.searchsorted(old.places, places[0]))
        numbers = np.concatenate([old.keys[frozen:], numbers])
        places = np.concatenate([old.places[frozen:], places])
        rank = np.cumsum(np.r_[False, places[1:] != places[:-1]])
        groups = group_codes(rank * len(found) + numbers)
        counts = np.zeros(len(groups), np.int64)
        np.add.at(counts, groups.codes, np.concatenate([old.rows[frozen:], np.ones(rows.num_rows, np.int64)]))
        parts: list[partials.Parts] = []
        for each, source, stored in zip(self.partials, self.sources, old.parts, strict=True):
            lifted = each.lift(column(rows, source))
            both = [joined([was[frozen:], new]) for was, new in zip(stored, lifted, strict=True)]
            merged = each.merge(both, groups.codes, len(groups))
            parts.append([joined([was[:frozen], new]) for was, new in zip(stored, merged, strict=True)])
        return keys, Folded(
            np.concatenate([old.keys[:frozen], numbers[groups.firsts]]),
            np.concatenate([old.places[:frozen], places[groups.firsts]]),
            np.concatenate([old.rows[:frozen], counts]),
            parts,
        )

    def _windows(self, panes: Folded, windows: Ints, keys: int) -> Iterator[Folded]:
        """Assemble windows from their panes, a bounded number at a time, in time order."""
        starts, stops = self.grid.rows(panes.places, windows)
        weights = np.ones(len(panes.places), np.int64)
        for part in (part for parts in panes.parts for part in parts):
            lengths = partials.weight(part)
            weights += 0 if lengths is None else lengths
        heavy = np.concatenate([np.zeros(1, np.int64), np.cumsum(weights)])
        lot = np.cumsum(heavy[stops] - heavy[starts]) // _AT_ONCE
        for chosen in np.split(np.arange(len(windows)), np.flatnonzero(lot[1:] != lot[:-1]) + 1):
            if not len(chosen):
                continue
            rows = ranges(starts[chosen], stops[chosen])
            ranks = np.repeat(np.arange(len(chosen)), stops[chosen] - starts[chosen])
            merged = [[partials.take(part, rows) for part in parts] for parts in panes.parts]
            numbers, counts = panes.keys[rows], panes.rows[rows]
            if self.grid.size > self.grid.slide:  # otherwise a window is a pane
                groups = group_codes(ranks * keys + numbers)
                merged = [
                    each.merge(parts, groups.codes, len(groups))
                    for each, parts in zip(self.partials, merged, strict=True)
                ]
                numbers, ranks = numbers[groups.firsts], ranks[groups.firsts]
                added = np.zeros(len(groups), np.int64)
                np.add.at(added, groups.codes, counts)
                counts = added
            yield Folded(numbers, windows[chosen][ranks], counts, merged)

    def _emit(self, keys: list[pa.Array], windows: Folded) -> pa.Table:
        columns = [taken(key, windows.keys) for key in keys]
        starts = self.grid.start(windows.places)
        columns += [moments(starts), moments(starts + self.grid.size), pa.array(windows.rows)]
        for asked, number in self.answers:
            if number < 0:
                columns.append(pa.array(windows.rows))
            else:
                columns.append(self.partials[number].finish(windows.parts[number], asked.function, asked.quantile))
        return pa.table(columns, schema=self.output())

    def _schema(self) -> pa.Schema:
        columns = [("key", pa.int64()), ("pane", pa.int64()), ("rows", pa.int64())]
        for number, each in enumerate(self.partials):
            columns += [(f"{number}.{part}", kind) for part, kind in enumerate(each.types)]
        return pa.schema(columns)

    def _loaded(self, state: State) -> tuple[list[pa.Array], Folded]:
        if not state or not state["panes"].num_rows:  # nothing is kept, so types may have changed as well
            state = {
                "panes": self._schema().empty_table(),
                "keys": _numbered([pa.nulls(0, kind) for kind in self.key_types]),
            }
        panes = state["panes"]
        if panes.schema != self._schema():
            raise ConfigError(
                f"rule {self.rule.rule!r}: the types of its columns differ from its state; start with a new checkpoint"
            )
        columns = [whole(each) for each in panes.columns]
        parts, at = [], 3
        for each in self.partials:
            parts.append(columns[at : at + len(each.types)])
            at += len(each.types)
        keys = [whole(each) for each in state["keys"].columns]
        if [key.type for key in keys] != self.key_types:
            raise ConfigError(
                f"rule {self.rule.rule!r}: the types of its keys differ from its state; start with a new checkpoint"
            )
        return keys, Folded(ints(columns[0]), ints(columns[1]), ints(columns[2]), parts)

    def _stored(self, keys: list[pa.Array], panes: Folded, done: int) -> State:
        """The state without the panes before `done`, and without keys that no pane uses."""
        kept = int(np.searchsorted(panes.places, done))
        numbers = panes.keys[kept:]
        if keys:
            used = np.zeros(len(keys[0]), np.bool_)
            used[numbers] = True
            numbers = (np.cumsum(used) - 1)[numbers]
            keys = [taken(key, np.flatnonzero(used)) for key in keys]
        columns = [pa.array(numbers), pa.array(panes.places[kept:]), pa.array(panes.rows[kept:])]
        columns += [part[kept:] for parts in panes.parts for part in parts]
        return {"panes": pa.table(columns, schema=self._schema()), "keys": _numbered(keys)}


def _numbered(keys: list[pa.Array]) -> pa.Table:
    return pa.table(keys, names=[f"key {number}" for number in range(len(keys))])


class MonitorOperator:
    """A `Monitor`: a window without keys whose ends are counted from the epoch, including empty windows."""

    def __init__(self, rule: Monitor, schema: pa.Schema) -> None:
        self.rule = rule
        asked: list[Aggregate] = []
        if rule.column is not None:
            kind = field(rule.rule, schema, rule.column)
            if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
                raise ConfigError(f"rule {rule.rule!r}: {rule.column!r} is a {kind}; a monitor needs numbers")
            asked = [Aggregate(name, function, "value") for name, function in _STATISTICS]
            asked += [Aggregate(quantile_name(each), "quantile", "value", each) for each in rule.quantiles]
        window = TimeWindow(rule.rule, (), rule.window_us, rule.every_us, tuple(asked))
        inner = pa.schema([(TIME, pa.int64()), ("value", pa.float64())])
        self._window = WindowOperator(window, inner, -rule.window_us % rule.every_us)

    def output(self) -> pa.Schema:
        schema = self._window.output()
        return schema.insert(schema.get_field_index("count") + 1, pa.field("rate", pa.float64()))

    def run(self, state: State, rows: pa.Table, before: int | None, watermark: int) -> tuple[State, pa.Table]:
        grid = self._window.grid
        values = pa.nulls(rows.num_rows, pa.float64())
        if self.rule.column is not None:
            values = column(rows, self.rule.column).cast(pa.float64(), safe=False)
        inner = pa.table([whole(rows.column(TIME)), values], names=[TIME, "value"])
        last = state.get("last")
        state, emitted = self._window.run(state, inner, before, watermark)

        starts = ints(whole(emitted.column("window_start")).view(pa.int64()))
        filled = (starts - grid.offset) // grid.slide
        known = np.empty(0, np.int64) if last is None else ints(whole(last.column("window")))
        empty = self._empty(np.concatenate([known, filled]), grid.closed(watermark))
        if before is not None:
            empty = empty[empty > grid.closed(before)]
        state["last"] = pa.table({"window": pa.array(np.concatenate([known, filled])[-1:])})
        rate = pa.array(ints(whole(emitted.column("count"))) / (self.rule.window_us / 1e6))
        emitted = emitted.add_column(emitted.schema.get_field_index("count") + 1, "rate", rate)
        if not len(empty):
            return state, emitted.cast(self.output())
        together = pa.concat_tables([emitted, self._nothing(empty)], promote_options="permissive").cast(self.output())
        return state, together.take(pa.array(np.argsort(np.concatenate([filled, empty]), kind="stable")))

    def _empty(self, filled: Ints, closed: int) -> Ints:
        """The empty windows to emit: after each window with rows up to the next one, but at most a fixed number."""
        starts = filled + 1
        stops = np.minimum(np.append(filled[1:], closed + 1)[: len(filled)], starts + EMPTY_IN_A_ROW)
        return ranges(starts, np.maximum(stops, starts))

    def _nothing(self, windows: Ints) -> pa.Table:
        starts = self._window.grid.start(windows)
        zeros = np.zeros(len(windows), np.int64)
        columns = {
            "window_start": moments(starts),
            "window_end": moments(starts + self.rule.window_us),
            "count": pa.array(zeros),
            "rate": pa.array(zeros.astype(np.float64)),
        }
        return pa.table(
            [columns.get(f.name, pa.nulls(len(windows), f.type)) for f in self.output()], schema=self.output()
        )


_STATISTICS: Final = (("mean", "avg"), ("min", "min"), ("max", "max"))
