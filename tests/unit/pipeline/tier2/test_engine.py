"""The engine against the reference, and against itself over the same stream cut elsewhere."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import ConfigError, InvalidValue, LimitExceeded
from milepost.pipeline.tier2 import LAST_TIME, Absence, Aggregate, Monitor, Rule, RuleEngine, Sequence, TimeWindow
from milepost.pipeline.tier2.rules import LONGEST_US
from milepost.pipeline.tier2.sketch import ACCURACY
from milepost.pipeline.tier2.windows import EMPTY_IN_A_ROW
from tests.unit.pipeline.tier2 import reference

Row = dict[str, Any]

SCHEMA = pa.schema(
    [
        ("_time", pa.int64()),
        ("_first", pa.bool_()),
        ("_then", pa.bool_()),
        ("k", pa.string()),
        ("f", pa.float64()),
        ("i", pa.int64()),
        ("u", pa.uint64()),
        ("d", pa.float64()),
        ("s", pa.string()),
        ("b", pa.bool_()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("m", pa.decimal128(38, 2)),
        ("x", pa.list_(pa.int64())),
    ]
)
END = 400

QUARTERS = st.integers(-2000, 2000).map(lambda n: n / 4)  # sums of these are exact, in whatever order
DOUBLES = st.one_of(QUARTERS, st.sampled_from([math.nan, math.inf, -math.inf, -0.0, 0.0]))
INTEGERS = st.one_of(st.integers(-5, 5), st.sampled_from([(1 << 63) - 1, -(1 << 63), 1 << 62]))
DECIMALS = st.one_of(st.integers(-99999, 99999), st.sampled_from([10**38 - 1, 1 - 10**38])).map(
    lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -2))
)
MAYBE = st.none()
ROW = st.fixed_dictionaries(
    {
        "_time": st.one_of(st.integers(-20, 60), st.integers(-20, 300)),
        "_first": st.one_of(MAYBE, st.booleans()),
        "_then": st.one_of(MAYBE, st.booleans()),
        "k": st.sampled_from([None, "a", "b"]),
        "f": st.sampled_from([None, 0.0, -0.0, math.nan, 1.5]),
        "i": st.one_of(MAYBE, INTEGERS),
        "u": st.one_of(MAYBE, st.integers(0, 3), st.just((1 << 64) - 1)),
        "d": st.one_of(MAYBE, DOUBLES),
        "s": st.one_of(MAYBE, st.sampled_from(["", "a", "é", "z", "😀", "\uffff"])),
        "b": st.one_of(MAYBE, st.booleans()),
        "t": st.one_of(MAYBE, st.integers(-9, 9)),
        "m": st.one_of(MAYBE, DECIMALS),
        "x": st.one_of(MAYBE, st.lists(st.one_of(MAYBE, st.integers(0, 9)), max_size=2)),
    }
)
ROWS = st.lists(ROW, max_size=40).map(lambda rows: sorted(rows, key=lambda row: row["_time"]))
CUTS = st.lists(st.one_of(st.integers(-25, 80), st.integers(-25, END)), max_size=8).map(sorted)
KEYS = st.sampled_from([(), ("k",), ("f",), ("k", "f"), ("b", "i", "s"), ("t", "m")])

COLUMNS = {
    "sum": "iudm",
    "avg": "iudm",
    "quantile": "iudm",
    "count": "iudsbtmx",
    "first": "iudsbtmx",
    "last": "iudsbtmx",
    "min": "iudsbtm",
    "max": "iudsbtm",
    "distinct": "iudsbtm",
}
ASKED = [(function, column) for function, columns in COLUMNS.items() for column in columns]


@st.composite
def windows(draw: st.DrawFn) -> TimeWindow:
    slide = draw(st.integers(1, 30))
    size = draw(st.one_of(st.just(slide), st.integers(slide, 90)))
    asked = draw(st.lists(st.sampled_from(ASKED), max_size=6, unique=True))
    aggregates = [Aggregate("all", "count")]
    for function, column in asked:
        quantile = draw(st.sampled_from([0.0, 0.5, 0.9, 1.0])) if function == "quantile" else None
        aggregates.append(Aggregate(f"{function} {column}", function, column, quantile))
    return TimeWindow("rule", draw(KEYS), size, slide, tuple(aggregates))


@st.composite
def monitors(draw: st.DrawFn) -> Monitor:
    every = draw(st.integers(1, 30))
    column = draw(st.sampled_from([None, "d", "i", "m"]))
    quantiles = (0.5, 0.99) if column is not None and draw(st.booleans()) else ()
    return Monitor("rule", draw(st.integers(every, 90)), every, column, quantiles)


SEQUENCES = st.builds(Sequence, st.just("rule"), KEYS, st.integers(1, 60), st.sampled_from(["first", "last"]))
ABSENCES = st.builds(Absence, st.just("rule"), KEYS, st.integers(1, 60))


def table(rows: list[Row], schema: pa.Schema = SCHEMA) -> pa.Table:
    return pa.Table.from_pylist(rows, schema=schema)


def plain(emitted: pa.Table) -> list[Row]:
    """As the reference gives it: times as microseconds."""
    for at, field in enumerate(emitted.schema):
        if pa.types.is_timestamp(field.type):
            emitted = emitted.set_column(at, field.name, emitted.column(at).cast(pa.int64()))
    return emitted.to_pylist()  # type: ignore[no-any-return]


def run(rule: Rule, rows: list[Row], cuts: list[int], end: int = END, *, idle: bool = True) -> tuple[bytes, list[Row]]:
    """The rows in micro-batches that end at the cuts; `idle`: with empty ones between, which change nothing."""
    engine, state, emitted = RuleEngine([rule]), None, []
    before = -(1 << 60)
    for watermark in [*cuts, end]:
        new = [row for row in rows if before < row["_time"] <= watermark]
        tables = {"rule": table(new)} if new or state is None or watermark % 2 else {}
        state, out = engine.run(state, tables, watermark)
        if idle:
            again, _ = engine.run(state, {}, watermark)
            assert plain(engine.run(again, {}, watermark)[1]["rule"]) == []  # nothing new, nothing emitted
        assert out["rule"].schema == engine.output_schema("rule", SCHEMA)
        out["rule"].validate(full=True)
        emitted += plain(out["rule"])
        before = watermark
    assert state is not None
    return state, emitted


def same(one: Any, other: Any) -> bool:
    """Equal, NaN to NaN."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one) and math.isnan(other):
        return True
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def near(one: Any, other: Any, quantiles: set[str]) -> bool:
    """Equal but for quantiles, which are within the sketch's accuracy."""
    if one.keys() != other.keys():
        return False
    for name in one:
        a, b = one[name], other[name]
        if name in quantiles and a is not None and b is not None:
            if not math.isclose(float(a), float(b), rel_tol=ACCURACY * (1 + ACCURACY) + 1e-9):
                return False
        elif isinstance(a, float) and isinstance(b, float) and not math.isinf(a):
            if not math.isclose(a, b, rel_tol=1e-15) and not same(a, b):
                return False
        elif not same(a, b):
            return False
    return True


def agrees(rule: Rule, rows: list[Row], cuts: list[int]) -> None:
    expected = reference.run(rule, rows, END)
    _, found = run(rule, rows, [])
    quantiles: set[str] = set()
    if isinstance(rule, TimeWindow):
        quantiles = {each.name for each in rule.aggregates if each.function == "quantile"}
    elif isinstance(rule, Monitor):
        quantiles = {"p50", "p99"}
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert near(one, other, quantiles)
    state, pieces = run(rule, rows, cuts)
    assert same(pieces, found)
    assert run(rule, rows, cuts, idle=False)[0] == state


@given(windows(), ROWS, CUTS)
def test_windows(rule: TimeWindow, rows: list[Row], cuts: list[int]) -> None:
    agrees(rule, rows, cuts)


BLANK = dict.fromkeys(SCHEMA.names)
FLAGS = st.fixed_dictionaries(
    {"_time": st.integers(0, 15), "_first": st.booleans(), "_then": st.booleans(), "k": st.sampled_from("abc")}
)
DENSE = st.lists(FLAGS, min_size=10, max_size=60).map(
    lambda rows: [BLANK | row | {"i": at} for at, row in enumerate(sorted(rows, key=lambda row: row["_time"]))]
)


FEW_CUTS = st.lists(st.integers(-1, 20), min_size=2, max_size=6).map(sorted)


@given(st.sampled_from(["first", "last"]), st.integers(1, 12), DENSE, FEW_CUTS)
def test_sequences_of_many_rows_at_few_times(each: Any, within: int, rows: list[Row], cuts: list[int]) -> None:
    agrees(Sequence("rule", ("k",), within, each), rows, cuts)


@given(st.integers(1, 12), st.sampled_from([0, 0, 0, 1, 3, 8]), DENSE, FEW_CUTS)
def test_windows_of_many_rows_at_few_times(slide: int, more: int, rows: list[Row], cuts: list[int]) -> None:
    asked = [Aggregate(each, each, "i") for each in ("sum", "min", "max", "first", "last", "distinct", "avg")]
    agrees(TimeWindow("rule", ("k",), slide + more, slide, (Aggregate("count", "count"), *asked)), rows, cuts)


@given(st.integers(1, 12), DENSE, FEW_CUTS)
def test_absences_of_many_rows_at_few_times(within: int, rows: list[Row], cuts: list[int]) -> None:
    agrees(Absence("rule", ("k",), within), rows, cuts)


@given(SEQUENCES, ROWS, CUTS)
def test_sequences(rule: Sequence, rows: list[Row], cuts: list[int]) -> None:
    agrees(rule, rows, cuts)


@given(ABSENCES, ROWS, CUTS)
def test_absences(rule: Absence, rows: list[Row], cuts: list[int]) -> None:
    agrees(rule, rows, cuts)


@given(monitors(), ROWS, CUTS)
def test_monitors(rule: Monitor, rows: list[Row], cuts: list[int]) -> None:
    for row in rows:  # a monitor's sums are of doubles, and only these are exact in whatever order
        row["i"] = None if row["i"] is None else row["i"] % 100
        row["m"] = None if row["m"] is None else Decimal(int(row["m"]) % 100) / 4
    agrees(rule, rows, cuts)


@given(
    st.lists(st.tuples(st.integers(0, 99), st.floats(allow_nan=True)), max_size=60).map(sorted),
    st.lists(st.integers(0, 99), max_size=6).map(sorted),
    st.integers(1, 40),
)
def test_sums_of_any_doubles_do_not_depend_on_cuts(pairs: list[Any], cuts: list[int], slide: int) -> None:
    """Doubles do not add up the same in another order, to the last bit."""
    asked = tuple(Aggregate(each, each, "d") for each in ("sum", "avg", "min", "max", "first", "last"))
    rule = TimeWindow("rule", (), max(slide, 40), slide, asked)
    blank = dict.fromkeys(SCHEMA.names)
    rows = [blank | {"_time": time, "d": value} for time, value in pairs]
    assert same(run(rule, rows, cuts)[1], run(rule, rows, [])[1])


def events(*told: tuple[int, str], **more: Any) -> pa.Table:
    """Rows by time and flags: "A", "B", "AB" or ""."""
    rows = [{"_time": time, "_first": "A" in flags, "_then": "B" in flags} | more for time, flags in told]
    names = [("_time", pa.int64()), ("_first", pa.bool_()), ("_then", pa.bool_())]
    return pa.Table.from_pylist(rows, schema=pa.schema(names + [(name, pa.int64()) for name in more]))


def test_a_sequence_takes_the_first_later_then() -> None:
    engine = RuleEngine([Sequence("s", (), 10)])
    _, out = engine.run(None, {"s": events((0, "A"), (0, "B"), (3, "AB"), (13, "B"), (14, "B"))}, 14)
    assert [(row["first_time"], row["then_time"]) for row in plain(out["s"])] == [(0, 3), (3, 13)]


def test_sequences_come_in_the_order_of_their_ends() -> None:
    engine = RuleEngine([Sequence("s", ("k",), 10)])
    rows = pa.table({"_time": [1, 2, 3, 4], "_first": [True, True, False, False], "_then": [False, False, True, True]})
    _, out = engine.run(None, {"s": rows.append_column("k", pa.array(["x", "y", "y", "x"]))}, 9)
    assert [(row["k"], row["first_time"], row["then_time"]) for row in plain(out["s"])] == [("y", 2, 3), ("x", 1, 4)]


def test_with_last_an_older_first_is_discharged() -> None:
    engine = RuleEngine([Sequence("s", (), 10, "last")])
    _, out = engine.run(None, {"s": events((0, "A"), (2, "A"), (3, "B"), (4, "B"))}, 14)
    assert [(row["first_time"], row["then_time"]) for row in plain(out["s"])] == [(2, 3)]


def test_an_absence_is_told_at_its_deadline_and_not_before() -> None:
    engine = RuleEngine([Absence("a", (), 10)])
    state, out = engine.run(None, {"a": events((0, "A"), (1, "A"))}, 9)
    assert out["a"].num_rows == 0
    state, out = engine.run(state, {}, 10)
    assert plain(out["a"]) == [{"first_time": 0, "deadline": 10}]
    state, out = engine.run(state, {"a": events((11, "B"))}, 11)
    assert out["a"].num_rows == 0


def test_waiting_rows_that_are_met_or_too_old_leave_the_state() -> None:
    engine = RuleEngine([Sequence("s", (), 10)])
    state, _ = engine.run(None, {"s": events(*[(time, "A") for time in range(1000)])}, 1000)
    small, _ = engine.run(state, {"s": events((1001, "B"))}, 1001)
    assert len(small) < len(engine.run(None, {"s": events((1, "A"))}, 1)[0])


def test_a_window_goes_on_in_the_next_micro_batch() -> None:
    engine = RuleEngine([TimeWindow("w", ("k",), 10, 10)])
    state, _ = engine.run(None, {"w": pa.table({"_time": [1, 1], "k": ["a", "b"]})}, 1)
    state, _ = engine.run(state, {"w": pa.table({"_time": [2, 3], "k": ["a", "c"]})}, 3)
    _, out = engine.run(state, {"w": pa.table({"_time": [4, 12], "k": ["c", "a"]})}, 12)
    assert [(row["k"], row["window_start"], row["count"]) for row in plain(out["w"])] == [
        ("a", 0, 2),
        ("b", 0, 1),
        ("c", 0, 2),
    ]


def test_windows_leave_the_state_with_their_keys() -> None:
    engine = RuleEngine([TimeWindow("w", ("k",), 10, 5, (Aggregate("q", "quantile", "v", 0.5),))])
    rows = pa.table({"_time": range(100), "k": [str(n) * 9 for n in range(100)], "v": range(100)})
    state, out = engine.run(None, {"w": rows}, 1000)
    assert out["w"].num_rows == 200
    assert len(state) == len(engine.run(None, {"w": rows[:0]}, 1000)[0])


def test_a_monitor_is_silent_after_a_bounded_number_of_empty_windows() -> None:
    engine = RuleEngine([Monitor("m", 10, 5, "v")])
    rows = pa.table({"_time": [0], "v": [1.0]})
    state, out = engine.run(None, {"m": rows}, 1 << 60)
    assert out["m"].num_rows == 2 + EMPTY_IN_A_ROW
    later = (1 << 60) + 1
    _, out = engine.run(state, {"m": pa.table({"_time": [later], "v": [2.0]})}, later + 10)
    assert [row["count"] for row in plain(out["m"])] == [1, 1]


def test_a_monitor_of_no_rows_yet_says_nothing() -> None:
    engine = RuleEngine([Monitor("m", 10, 5)])
    state, out = engine.run(None, {"m": pa.table({"_time": pa.array([], pa.int64())})}, 100)
    assert out["m"].num_rows == 0
    assert out["m"].schema.names == ["window_start", "window_end", "count", "rate"]
    _, out = engine.run(state, {}, 200)
    assert out["m"].num_rows == 0


def test_the_ends_of_time() -> None:
    rows = pa.table({"_time": [-LAST_TIME, 0, LAST_TIME], "_first": [True] * 3, "_then": [True] * 3})
    rules: list[Rule] = [
        TimeWindow("w", (), 3, 1),
        Sequence("s", (), LONGEST_US),
        Absence("a", (), LONGEST_US),
        Monitor("m", 3, 2),
    ]
    _, out = RuleEngine(rules).run(None, {rule.rule: rows for rule in rules}, LAST_TIME)
    starts = [row["window_start"] for row in plain(out["w"])]
    assert starts == [*range(-LAST_TIME - 2, -LAST_TIME + 1), -2, -1, 0, LAST_TIME - 2]
    assert out["s"].num_rows == 0
    assert [row["first_time"] for row in plain(out["a"])] == [-LAST_TIME, 0]
    assert [row["window_end"] for row in plain(out["m"]) if row["count"]] == [-LAST_TIME + 2, 2]


@pytest.mark.parametrize("count", [70_000])  # more than 16 bits
def test_more_keys_than_are_sorted_at_once(count: int) -> None:
    keys = [(number * 7919) % count for number in range(count)]
    flags = [True] * count + [False] * count
    rows = pa.table({"_time": range(2 * count), "k": keys * 2, "_first": flags, "_then": [not flag for flag in flags]})
    _, out = RuleEngine([Sequence("s", ("k",), count)]).run(None, {"s": rows}, 2 * count)
    assert out["s"].column("k").to_pylist() == keys
    assert out["s"].column("first_time").cast(pa.int64()).to_pylist() == list(range(count))


def test_many_windows_at_once_are_put_together_in_lots(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = TimeWindow("rule", ("k",), 40, 3, (Aggregate("n", "distinct", "i"), Aggregate("s", "sum", "i")))
    blank = dict.fromkeys(SCHEMA.names)
    rows = [blank | {"_time": n, "k": str(n % 3), "i": n} for n in range(200)]
    expected = run(rule, rows, [])
    monkeypatch.setattr("milepost.pipeline.tier2.windows._AT_ONCE", 50)
    assert run(rule, rows, []) == expected


def test_rules_run_side_by_side() -> None:
    rules: list[Rule] = [TimeWindow("w", (), 10, 10), Sequence("s", (), 10), Absence("a", (), 5), Monitor("m", 10, 10)]
    engine = RuleEngine(rules)
    rows = events((1, "A"), (3, "B"), (12, "A"))
    state, out = engine.run(None, {rule.rule: rows for rule in rules}, 12)
    assert {name: each.num_rows for name, each in out.items()} == {"w": 1, "s": 1, "a": 0, "m": 1}
    _, out = engine.run(state, {}, 19)
    assert {name: each.num_rows for name, each in out.items()} == {"w": 1, "s": 0, "a": 1, "m": 1}


def test_a_rule_whose_rows_were_never_seen_is_left_out() -> None:
    engine = RuleEngine([TimeWindow("w", (), 10, 10), TimeWindow("v", (), 10, 10)])
    _, out = engine.run(None, {"w": events((1, ""))}, 20)
    assert list(out) == ["w"]


def test_a_new_column_is_null_in_rows_that_wait() -> None:
    engine = RuleEngine([Absence("a", (), 10)])
    state, _ = engine.run(None, {"a": events((1, "A"), old=1)}, 1)
    _, out = engine.run(state, {"a": events((2, "A"), old=2, new=3)}, 20)
    assert [(row["first_old"], row["first_new"]) for row in plain(out["a"])] == [(1, None), (2, 3)]


def test_a_column_that_goes_while_rows_wait_is_refused() -> None:
    engine = RuleEngine([Absence("a", (), 10)])
    state, _ = engine.run(None, {"a": events((1, "A"), old=1)}, 1)
    with pytest.raises(ConfigError, match="rule 'a': 'old' was a int64 in rows that still wait"):
        engine.run(state, {"a": events((2, "A"))}, 20)
    state, _ = engine.run(state, {}, 11)
    engine.run(state, {"a": events((12, "A"))}, 20)


def test_a_window_whose_column_changes_its_type_is_refused() -> None:
    engine = RuleEngine([TimeWindow("w", ("k",), 10, 10, (Aggregate("x", "max", "v"),))])
    state, _ = engine.run(None, {"w": pa.table({"_time": [1], "k": ["a"], "v": [1]})}, 1)
    with pytest.raises(ConfigError, match="rule 'w': the types of its columns"):
        engine.run(state, {"w": pa.table({"_time": [2], "k": ["a"], "v": [1.5]})}, 2)
    with pytest.raises(ConfigError, match="rule 'w': the types of its keys"):
        engine.run(state, {"w": pa.table({"_time": [2], "k": [1], "v": [1]})}, 2)
    state, _ = engine.run(state, {}, 10)  # the window is over, and nothing kept
    _, out = engine.run(state, {"w": pa.table({"_time": [12], "k": [1], "v": [1.5]})}, 20)
    assert [(row["k"], row["x"]) for row in plain(out["w"])] == [(1, 1.5)]


def test_dictionaries_and_pieces_are_read_as_what_they_mean() -> None:
    engine = RuleEngine([TimeWindow("w", ("k",), 10, 10, (Aggregate("x", "max", "s"),))])
    parts = [
        pa.table({"_time": [n], "k": pa.array(["a"]).dictionary_encode(), "s": pa.array([str(n)]).dictionary_encode()})
        for n in range(3)
    ]
    _, out = engine.run(None, {"w": pa.concat_tables(parts)}, 20)
    assert [(row["k"], row["x"]) for row in plain(out["w"])] == [("a", "2")]


@pytest.mark.parametrize(
    ("times", "watermark", "message"),
    [
        ([3, 2], 9, "rule 'w': rows are not in the order of _time"),
        ([10], 9, "rule 'w': a row at 10 is after the watermark, 9"),
        ([0], 9, "rule 'w': a row at 0 is late: rows up to 0 were processed before"),
        ([], -1, "watermark -1 is before 0"),
        ([], 1 << 62, "beyond"),
        ([None], 9, "a row without _time"),
    ],
)
def test_rows_that_cannot_be(times: list[Any], watermark: int, message: str) -> None:
    engine = RuleEngine([TimeWindow("w", (), 10, 10)])
    state, _ = engine.run(None, {"w": pa.table({"_time": pa.array([], pa.int64())})}, 0)
    with pytest.raises(InvalidValue, match=message):
        engine.run(state, {"w": pa.table({"_time": pa.array(times, pa.int64())})}, watermark)


FLAGGED: dict[str, Any] = {"_first": [True], "_then": [True]}


@pytest.mark.parametrize(
    ("rule", "columns", "message"),
    [
        (
            TimeWindow("r", ("hots",), 1, 1),
            {"host": ["a"]},
            "rule 'r': its rows have no column 'hots'; did you mean 'host'",
        ),
        (TimeWindow("r", ("x",), 1, 1), {"x": [[1]]}, "cannot be a key"),
        (TimeWindow("r", ("x",), 1, 1), {"x": pa.array([1], pa.float16())}, "cannot be a key"),
        (Absence("r", (), 1), FLAGGED | {"x": pa.array(["a"], pa.string_view())}, "rule 'r': 'x' is a string_view"),
        (
            TimeWindow("r", (), 1, 1, (Aggregate("a", "sum", "x"),)),
            {"x": ["a"]},
            "rule 'r', aggregate 'a': there is no sum of",
        ),
        (TimeWindow("r", (), 1, 1, (Aggregate("a", "max", "x"),)), {"x": [[1]]}, "there is no max of"),
        (Monitor("r", 1, 1, "x"), {"x": ["a"]}, "a monitor needs numbers"),
        (Sequence("r", (), 1), {"_first": [True]}, "no column '_then'"),
        (Sequence("r", (), 1), {"_first": [True], "_then": [1]}, "_then must be boolean, not int64"),
        (Absence("r", (), 1), FLAGGED | {"time": [1]}, "would emit 'first_time' twice"),
    ],
)
def test_rows_that_a_rule_cannot_use(rule: Rule, columns: dict[str, Any], message: str) -> None:
    rows = pa.table({"_time": [0]} | columns)
    with pytest.raises(ConfigError, match=message):
        RuleEngine([rule]).output_schema("r", rows.schema)
    with pytest.raises(ConfigError, match=message):
        RuleEngine([rule]).run(None, {"r": rows}, 0)


def test_time_must_be_microseconds() -> None:
    with pytest.raises(ConfigError, match="_time must be int64 microseconds, not double"):
        RuleEngine([TimeWindow("r", (), 1, 1)]).output_schema("r", pa.schema([("_time", pa.float64())]))


def test_a_rule_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="there is no rule 'bursts'; did you mean 'burst'"):
        RuleEngine([TimeWindow("burst", (), 1, 1)]).run(None, {"bursts": events()}, 0)
    with pytest.raises(ConfigError, match="two rules are called 'a'"):
        RuleEngine([TimeWindow("a", (), 1, 1), Absence("a", (), 1)])


def test_a_state_that_grows_too_large_names_its_rule() -> None:
    rows = events(*[(time, "A") for time in range(100)])
    rules: list[Rule] = [Monitor("small", 10, 10), Sequence("big", (), 1000)]
    with pytest.raises(LimitExceeded, match=r"rule 'big' keeps.*100 is over STATE_ROWS = 99"):
        RuleEngine(rules, state_rows=99).run(None, {"small": rows, "big": rows}, 100)
    with pytest.raises(LimitExceeded, match=r"most of rule 'big'.* over STATE_BYTES = 700"):
        RuleEngine(rules, state_bytes=700).run(None, {"small": rows, "big": rows}, 100)


def test_values_in_sets_and_sketches_count_as_rows_of_the_state() -> None:
    rows = pa.table({"_time": range(100), "v": [2.0**n for n in range(100)]})
    for function in ("distinct", "quantile"):
        asked = Aggregate("a", function, "v", 0.5 if function == "quantile" else None)
        with pytest.raises(LimitExceeded, match="rule 'w' keeps"):
            RuleEngine([TimeWindow("w", (), 1000, 1000, (asked,))], state_rows=90).run(None, {"w": rows}, 100)


def test_doubles_mean_what_they_mean_in_queries() -> None:
    engine = RuleEngine([TimeWindow("w", ("k",), 10, 10, (Aggregate("s", "sum", "v"), Aggregate("a", "avg", "v")))])
    keys, values = [0.0, -0.0, math.nan, None, 1.0, 1.0], [1.0, 2.0, 3.0, 4.0, math.inf, -math.inf]
    _, out = engine.run(None, {"w": pa.table({"_time": [1] * 6, "k": keys, "v": values})}, 10)
    assert [(row["k"], row["count"], row["s"], row["a"]) for row in plain(out["w"])] == [
        (0.0, 2, 3.0, 1.5),  # the two zeros are one key
        (None, 2, 7.0, 3.5),  # NaN reads as null
        (1.0, 2, None, None),  # and so does a sum that is NaN
    ]
