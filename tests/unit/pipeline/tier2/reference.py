"""The rules as their words say them: over all rows at once, one at a time, in plain Python.

Rows are dictionaries in time order. Results are lists of dictionaries in the order of emission, times as microseconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from typing import Any

from milepost.pipeline.tier2 import Absence, Aggregate, Monitor, Rule, Sequence, TimeWindow, quantile_name
from milepost.pipeline.tier2.windows import EMPTY_IN_A_ROW

Row = dict[str, Any]


def run(rule: Rule, rows: list[Row], watermark: int) -> list[Row]:
    if isinstance(rule, TimeWindow):
        return windows(rule, rows, watermark)
    if isinstance(rule, Monitor):
        return monitor(rule, rows, watermark)
    return sequence(rule, rows) if isinstance(rule, Sequence) else absence(rule, rows, watermark)


def readable(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def key(rule: TimeWindow | Sequence | Absence, row: Row) -> tuple[Any, ...]:
    return tuple(readable(row[name]) for name in rule.keys)


def windows(rule: TimeWindow, rows: list[Row], watermark: int) -> list[Row]:
    if not rows:
        return []
    emitted = []
    for number in range((rows[0]["_time"] - rule.size_us) // rule.slide_us, rows[-1]["_time"] // rule.slide_us + 1):
        start = number * rule.slide_us
        end = start + rule.size_us
        if watermark < end - 1:
            break
        groups: dict[tuple[Any, ...], list[Row]] = {}
        for row in rows:
            if start <= row["_time"] < end:
                groups.setdefault(key(rule, row), []).append(row)
        for values, group in groups.items():
            found: Row = dict(zip(rule.keys, values, strict=True))
            found |= {"window_start": start, "window_end": end, "count": len(group)}
            for each in rule.aggregates:
                found[each.name] = aggregate(each, group)
            emitted.append(found)
    return emitted


def aggregate(asked: Aggregate, rows: list[Row]) -> Any:
    if asked.column is None:
        return len(rows)
    values = [value for row in rows if (value := readable(row[asked.column])) is not None]
    if asked.function == "quantile":
        return sorted(values)[math.floor(asked.quantile * (len(values) - 1))] if values else None  # type: ignore[operator]
    return FUNCTIONS[asked.function](values)


def total(values: list[Any]) -> Any:
    if not values:
        return None
    with localcontext(prec=100):
        found = sum(values)
    if isinstance(found, int) and not -(1 << 63) <= found < 1 << 63:
        return None
    if isinstance(found, Decimal) and found.copy_abs() >= 10**36:  # two places, of 38 digits
        return None
    return readable(found)


def mean(values: list[Any]) -> Any:
    found = total(values)
    return None if found is None else float(found) / len(values)


FUNCTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "count": len,
    "sum": total,
    "avg": mean,
    "min": lambda values: min(values, default=None),
    "max": lambda values: max(values, default=None),
    "first": lambda values: values[0] if values else None,
    "last": lambda values: values[-1] if values else None,
    "distinct": lambda values: len(set(values)),
}


def payload(rule: Sequence | Absence, row: Row, prefix: str) -> Row:
    hidden = (*rule.keys, "_time", "_first", "_then")
    return {prefix + name: value for name, value in row.items() if name not in hidden}


def sequence(rule: Sequence, rows: list[Row]) -> list[Row]:
    waiting: list[Row] = []
    emitted = []
    for row in rows:
        if row["_then"]:
            before = [a for a in waiting if a["_time"] < row["_time"] and key(rule, a) == key(rule, row)]
            met = [a for a in before if row["_time"] <= a["_time"] + rule.within_us]
            for a in met if rule.each == "first" else met[-1:]:
                times = {"first_time": a["_time"], "then_time": row["_time"]}
                keys = {name: a[name] for name in rule.keys}
                emitted.append(keys | times | payload(rule, a, "first_") | payload(rule, row, "then_"))
            waiting = [a for a in waiting if all(a is not other for other in before)]
        if row["_first"]:
            waiting.append(row)
    return emitted


def absence(rule: Absence, rows: list[Row], watermark: int) -> list[Row]:
    emitted = []
    for row in rows:
        deadline = row["_time"] + rule.within_us
        if not row["_first"] or deadline > watermark:
            continue
        after = [b for b in rows if b["_then"] and row["_time"] < b["_time"] <= deadline]
        if not any(key(rule, b) == key(rule, row) for b in after):
            keys = {name: row[name] for name in rule.keys}
            emitted.append(keys | {"first_time": row["_time"], "deadline": deadline} | payload(rule, row, "first_"))
    return emitted


def monitor(rule: Monitor, rows: list[Row], watermark: int) -> list[Row]:
    emitted: list[Row] = []
    if not rows:
        return emitted
    end = (rows[0]["_time"] // rule.every_us + 1) * rule.every_us
    empty = 0
    while end - 1 <= watermark:
        inside = [row for row in rows if end - rule.window_us <= row["_time"] < end]
        empty = 0 if inside else empty + 1
        if empty <= EMPTY_IN_A_ROW:
            count = len(inside)
            found: Row = {"window_start": end - rule.window_us, "window_end": end, "count": count}
            found["rate"] = count / (rule.window_us / 1e6)
            if rule.column is not None:
                floats = [row | {"v": None if (v := row[rule.column]) is None else float(v)} for row in inside]
                for name, function in (("mean", "avg"), ("min", "min"), ("max", "max")):
                    found[name] = aggregate(Aggregate(name, function, "v"), floats)
                for each in rule.quantiles:
                    name = quantile_name(each)
                    found[name] = aggregate(Aggregate(name, "quantile", "v", each), floats)
            emitted.append(found)
        end += rule.every_us
    return emitted
