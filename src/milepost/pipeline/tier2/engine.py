"""The engine: rules, a state and the rows of one micro-batch in; the next state and the emitted rows out.

It is a pure function. Between runs it keeps only what it has derived from schemas, it reads no clock, and it gives the
same bytes for the same input. All emitted rows together do not depend on how the stream is cut into micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa

from milepost.errors import ConfigError, InvalidValue, LimitExceeded, did_you_mean
from milepost.pipeline.tier2 import partials
from milepost.pipeline.tier2.columns import field, ints, whole
from milepost.pipeline.tier2.pairs import PairOperator
from milepost.pipeline.tier2.rules import TIME, Monitor, Rule, TimeWindow, fingerprint
from milepost.pipeline.tier2.state import read, write
from milepost.pipeline.tier2.windows import MonitorOperator, WindowOperator

LAST_TIME: Final = 1 << 61  # microseconds before and after the epoch: 73,000 years; the sum of two times fits 64 bits
# A state is one value in Spark's store. Each micro-batch reads, checks and writes it, and holds it three times
# meanwhile. At half a gigabyte that takes a second and most of an executor's usual memory.
STATE_BYTES: Final = 1 << 29
STATE_ROWS: Final = 20_000_000  # of one rule: waiting As, panes of keys, and values in sketches and sets

# One rule, for rows of one schema. `run` processes the rows in (before, watermark]; at the beginning `before` is None
# and the state is empty.
Operator: TypeAlias = WindowOperator | MonitorOperator | PairOperator


class RuleEngine:
    """Inter-event rules over rows in time order."""

    def __init__(self, rules: Iterable[Rule], *, state_rows: int = STATE_ROWS, state_bytes: int = STATE_BYTES) -> None:
        self.rules = tuple(rules)
        self._names = [rule.rule for rule in self.rules]
        for name in self._names:
            if self._names.count(name) > 1:
                raise ConfigError(f"two rules are called {name!r}; give one of them another name")
        self._fingerprint = fingerprint(self.rules)
        self._state_rows, self._state_bytes = state_rows, state_bytes
        self._operators: dict[str, tuple[pa.Schema, Operator]] = {}

    def output_schema(self, rule: str, input_schema: pa.Schema) -> pa.Schema:
        """The schema of what `rule` emits for rows of `input_schema`. Raises `ConfigError` when it cannot run on
        them.
        """
        return self._operator(self._rule(rule), input_schema).output()

    def run(
        self, state: bytes | None, tables: Mapping[str, pa.Table], watermark_us: int
    ) -> tuple[bytes, dict[str, pa.Table]]:
        """Process the rows with times in (last watermark, `watermark_us`], one table for each rule.

        A rule without a table has no new rows. Emitted rows are in time order. A rule that never had a table has no
        columns, and is left out of the result. An error changes nothing: the old state can be used again.
        """
        if not -LAST_TIME <= watermark_us <= LAST_TIME:
            raise InvalidValue(f"watermark {watermark_us} is beyond {LAST_TIME} microseconds from the epoch")
        for name in tables:
            self._rule(name)
        before, stored = None, dict[str, pa.Table]()
        if state is not None:
            found = read(state, self._fingerprint)
            before, stored = found.watermark, found.tables
            if watermark_us < before:
                raise InvalidValue(f"watermark {watermark_us} is before {before}, the watermark of the state")
        kept: dict[str, pa.Table] = {}
        emitted: dict[str, pa.Table] = {}
        for number, rule in enumerate(self.rules):
            own = f"{number}/"
            parts = {name.removeprefix(own): table for name, table in stored.items() if name.startswith(own)}
            known = parts.pop("input", None)
            rows = tables.get(rule.rule, known)
            if rows is None:
                continue
            rows = rows.replace_schema_metadata(None)
            operator = self._operator(rule, rows.schema)
            _check(rule.rule, rows, before, watermark_us)
            after, emitted[rule.rule] = operator.run(parts, rows, before, watermark_us)
            self._bound_rows(rule.rule, after)
            kept[own + "input"] = rows.schema.empty_table()
            kept.update({own + name: table for name, table in after.items()})
        self._bound_bytes(kept)
        return write(self._fingerprint, watermark_us, kept), emitted

    def _rule(self, name: str) -> Rule:
        if name not in self._names:
            raise ConfigError(f"there is no rule {name!r}{did_you_mean(name, self._names)}")
        return self.rules[self._names.index(name)]

    def _operator(self, rule: Rule, schema: pa.Schema) -> Operator:
        schema = schema.remove_metadata()
        known = self._operators.get(rule.rule)
        if known is not None and known[0] == schema:
            return known[1]
        if field(rule.rule, schema, TIME) != pa.int64():
            raise ConfigError(f"rule {rule.rule!r}: {TIME} must be int64 microseconds, not {schema.field(TIME).type}")
        operator: Operator
        if isinstance(rule, TimeWindow):
            operator = WindowOperator(rule, schema)
        elif isinstance(rule, Monitor):
            operator = MonitorOperator(rule, schema)
        else:
            operator = PairOperator(rule, schema)
        self._operators[rule.rule] = (schema, operator)
        return operator

    def _bound_rows(self, rule: str, after: dict[str, pa.Table]) -> None:
        rows = 0
        for table in after.values():
            rows += table.num_rows
            for chunked in table.columns:
                rows += sum(
                    int(lengths.sum()) for chunk in chunked.chunks if (lengths := partials.weight(chunk)) is not None
                )
        if rows > self._state_rows:
            what = f"rows that rule {rule!r} keeps (use a shorter window, fewer keys or more shards)"
            raise LimitExceeded("STATE_ROWS", rows, self._state_rows, what)

    def _bound_bytes(self, kept: dict[str, pa.Table]) -> None:
        sizes = dict.fromkeys(range(len(self.rules)), 0)
        for name, table in kept.items():
            sizes[int(name.split("/")[0])] += table.nbytes
        total = sum(sizes.values())
        if total > self._state_bytes:
            largest = self._names[max(sizes, key=lambda number: sizes[number])]
            what = f"bytes of state, most of rule {largest!r} (use a shorter window, fewer keys or more shards)"
            raise LimitExceeded("STATE_BYTES", total, self._state_bytes, what)


def _check(rule: str, rows: pa.Table, before: int | None, watermark: int) -> None:
    if not rows.num_rows:
        return
    column = whole(rows.column(TIME))
    if column.null_count:
        raise InvalidValue(f"rule {rule!r}: a row without {TIME}")
    times = ints(column)
    if np.any(times[1:] < times[:-1]):
        raise InvalidValue(f"rule {rule!r}: rows are not in the order of {TIME}")
    if times[-1] > watermark:
        raise InvalidValue(f"rule {rule!r}: a row at {times[-1]} is after the watermark, {watermark}")
    if times[0] < -LAST_TIME or (before is not None and times[0] <= before):
        seen = -LAST_TIME if before is None else before
        raise InvalidValue(f"rule {rule!r}: a row at {times[0]} is late: rows up to {seen} were processed before")
