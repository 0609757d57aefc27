"""What an index promises beside being right: who may be in it, what snapshots are, what is shared, what may fail."""

from __future__ import annotations

from threading import Event, Thread
from typing import Any

import pytest

from milepost import limits, query
from milepost.batch import Batch
from milepost.errors import LimitExceeded, QueryError
from milepost.match import Index
from milepost.match import index as index_module
from milepost.match.segment import Merge
from milepost.query import Predicate
from milepost.schema.text import parse
from tests.unit.match.test_agreement import naive, rows_of

QUOTES = parse("quote: [symbol: string, price: double, size: int, venue: string?]")
ROWS = [
    {"symbol": "IBM", "price": 101.5, "size": 200, "venue": None},
    {"symbol": "a symbol of many letters", "price": 18.25, "size": 100, "venue": "N"},
    {"symbol": "T", "price": float("nan"), "size": -5, "venue": "a venue of many letters"},
]
BATCH = Batch.encode(QUOTES, ROWS)


def wanted(text: str) -> Predicate:
    return query.compile(text, QUOTES)


def filled(*texts: str) -> Index:
    index = Index(QUOTES)
    for key, text in enumerate(texts):
        index.add(key, wanted(text))
    return index


def test_what_can_never_be_true_and_came_first_hides_nothing():
    schema = parse("m: [u: uint64, b: bool]")
    batch = Batch.encode(schema, [{"u": row, "b": bool(row % 2)} for row in range(7)])
    index = Index(schema)
    index.add(4, query.compile("u between 1 and 0", schema))
    assert not len(index.snapshot().match(batch).keys)  # without any column to look at
    index.add(5, query.compile("b <= true", schema))
    assert index.snapshot().match(batch).keys.tolist() == [5] * 7


def test_empty() -> None:
    index = Index(QUOTES)
    assert rows_of(index.snapshot(), BATCH) == [[], [], []]
    assert len(index) == 0
    assert 0 not in index
    assert rows_of(filled("true", "false").snapshot(), Batch.encode(QUOTES, [])) == []


def test_keys_are_there_once() -> None:
    index = filled("size > 0")
    assert 0 in index
    with pytest.raises(ValueError, match="already"):
        index.add(0, wanted("size > 1"))
    with pytest.raises(ValueError, match="number"):
        index.add(-1, wanted("size > 1"))
    index.remove(0)
    with pytest.raises(KeyError):
        index.remove(0)
    with pytest.raises(KeyError):
        index.remove(10**9)
    index.add(0, wanted("size = -5"))
    assert rows_of(index.snapshot(), BATCH) == [[], [], [0]]


def test_schemas_must_fit() -> None:
    other = parse("other: [size: int]")
    index = filled("size > 0")
    with pytest.raises(QueryError):
        index.add(1, query.compile("size > 0", other))
    with pytest.raises(QueryError):
        index.snapshot().match(Batch.encode(other, [{"size": 1}]))


def test_a_snapshot_stays_what_it_was() -> None:
    index = filled("size > 0", "price > 50 or size < 0", "symbol like '%a%'", "symbol = 'a symbol of many letters'")
    before = index.snapshot()
    assert index.snapshot() is before
    found = rows_of(before, BATCH)
    index.remove(0)
    index.remove(1)
    index.add(0, wanted("size < 0"))
    index.add(1, wanted("true"))
    index.add(9, wanted("symbol like '%a%'"))
    after = index.snapshot()
    assert after is not before
    for _ in range(2):
        assert rows_of(before, BATCH) == found == [[0, 1], [0, 2, 3], [1]]
        assert rows_of(after, BATCH) == [[1], [1, 2, 3, 9], [0, 1]]
        index.remove(9)
        index.settle()
        index.add(9, wanted("size <> 0"))


@pytest.mark.parametrize(
    ("text", "indexed"),
    [
        ("symbol = 'IBM' and price > 100", True),
        ("symbol in ('IBM', 'T', 'a symbol of many letters')", True),
        ("symbol like 'I%' and venue is null", True),
        ("symbol like 'a symbol%'", False),  # longer than a code: the index leads there, the predicate decides
        ("venue is not null and not size = 5", True),
        ("size between 1 and 7 or price < 2.5", True),
        ("size > 2.5 and size <= 1e3", True),
        ("symbol like '%B%'", False),
        ("size * 2 > 7", False),
        ("size = 7 and price * size > 7", False),
    ],
)
def test_what_is_indexed(text: str, indexed: bool) -> None:
    statistics = filled(text).statistics()
    assert statistics.subscriptions == 1
    assert statistics.indexed == indexed
    assert statistics.masked == (not indexed)


class Counted(Predicate):
    """A predicate that counts how often a batch is asked about."""

    asked = 0

    def mask(self, batch: Batch, header: Any = None) -> Any:
        Counted.asked += 1
        return super().mask(batch, header)

    def test(self, message: Any, header: Any = None) -> bool | None:
        Counted.asked += 1
        return super().test(message, header)


def test_shared_expressions_are_evaluated_once() -> None:
    index = Index(QUOTES)
    plain = wanted("symbol like '%B%'")
    for key in range(1000):
        index.add(key, Counted(plain.text, plain.schema, plain.tree, plain.root))
    Counted.asked = 0
    assert rows_of(index.snapshot(), BATCH) == [list(range(1000)), [], []]
    assert Counted.asked == len(BATCH)  # few rows are looked at one by one, and many at once
    assert index.statistics().masks == 1
    Counted.asked = 0
    assert rows_of(index.snapshot(), Batch.concat([BATCH] * 10)) == [list(range(1000)), [], []] * 10
    assert Counted.asked == 1
    for key in range(999):
        index.remove(key)
    assert rows_of(index.snapshot(), BATCH) == [[999], [], []]
    index.remove(999)
    assert index.statistics().groups == 0


def test_a_match_lets_others_run_between_evaluations() -> None:
    index = filled(*[f"size * {number} = 400" for number in range(50)])
    paused: list[int] = []
    for rows in (1, 30):
        batch = Batch.encode(QUOTES, ROWS[:1] * rows)
        before = len(paused)
        found = index.snapshot().match(batch, lambda: paused.append(1))
        assert len(paused) - before == index.snapshot().evaluations == 50
        assert found.keys.tolist() == [2] * rows


def test_predicates_that_come_together_are_noted_together() -> None:
    index = filled("size * 2 = 400", "size > 0")
    before = index.snapshot()
    for key in range(10, 500):
        index.add(key, wanted(f"size * {key} = {200 * key}"))
    index.add(500, wanted("size * 2 = 400"))
    index.remove(0)
    after = index.snapshot()
    assert rows_of(before, BATCH)[0] == [0, 1]
    assert rows_of(after, BATCH)[0] == [1, *range(10, 501)]
    for key in range(10, 500):
        index.remove(key)
    assert rows_of(index.snapshot(), BATCH)[0] == [1, 500]
    assert index.snapshot().evaluations == 1
    assert rows_of(after, BATCH)[0] == [1, *range(10, 501)]


def test_a_failing_expression_disturbs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    schema = parse("m: [size: int, xs: *(int)*]")
    batch = Batch.encode(schema, [{"size": 1, "xs": list(range(20))}, {"size": 2, "xs": [1]}])
    index = Index(schema)
    for key, text in enumerate(
        ["size = 1", "any(xs, count(xs, it = 3) > 0 and it = 1)", "any(xs, it = 1)", "size > 0"]
    ):
        index.add(key, query.compile(text, schema))
    index.add(7, query.compile("any(xs, count(xs, it = 3) > 0 and it = 1)", schema))
    monkeypatch.setattr(limits, "QUERY_BINDINGS", 100)
    found = index.snapshot().match(batch)
    assert [key for key, _ in found.failed] == [1, 7]
    assert all(isinstance(error, LimitExceeded) for _, error in found.failed)
    assert sorted(found.keys[: found.offsets[1]].tolist()) == [0, 2, 3]
    assert sorted(found.keys[found.offsets[1] :].tolist()) == [2, 3]


def test_a_merge_in_progress_changes_nothing() -> None:
    index = Index(QUOTES)
    held: dict[int, Predicate] = {}
    for key in range(60):
        held[key] = wanted(["size > 0", "symbol = 'T'", "size < 0 or price > 50", "venue = 'N'", "size <> 7"][key % 5])
        index.add(key, held[key])
        if key % 30 == 29:
            index._flush()
    gate = Event()
    merge = Merge(list(index._segments.values()), 10**6, len(index._columns))

    def run() -> None:
        gate.wait()
        merge.run()

    index._merge, index._thread = merge, Thread(target=run)
    index._thread.start()
    for key in range(0, 60, 7):  # while it has not begun
        index.remove(key)
        del held[key]
    for key in (0, 7, 61):
        held[key] = wanted("size = -5")
        index.add(key, held[key])
    assert rows_of(index.snapshot(), BATCH) == naive(held, ROWS)
    before = index.snapshot()
    gate.set()
    index._thread.join()
    for key in (1, 2, 61):  # when it is done, and not in place: the first of these calls puts it there
        index.remove(key)
    assert index._merge is None
    assert rows_of(before, BATCH) == naive(held, ROWS)
    for key in (1, 2, 61):
        del held[key]
    assert rows_of(index.snapshot(), BATCH) == naive(held, ROWS)
    index.settle()
    assert rows_of(index.snapshot(), BATCH) == naive(held, ROWS)
    assert index.statistics().segments == 1


@pytest.mark.slow
def test_a_long_life_leaves_nothing_behind() -> None:
    """Subscriptions come and go, each with a text of its own: neither texts nor the dead pile up."""
    index = Index(QUOTES, background=False)
    template = wanted("symbol = 'a text of its own, number 0' and size > 1").root
    held: dict[int, Predicate] = {}
    for turn in range(30_000):
        key = turn % 500
        if key in held:
            index.remove(key)
        root = _with_text(template, f"a text of its own, number {turn}")
        held[key] = Predicate("", QUOTES, wanted("true").tree, root) if turn == 0 else Predicate("", QUOTES, TREE, root)
        index.add(key, held[key])
        if turn % 100 == 0:
            index.snapshot()
    index.settle()
    statistics = index.statistics()
    assert statistics.subscriptions == 500
    assert statistics.postings < 2_000
    assert statistics.texts < 25_000
    rows = [{"symbol": f"a text of its own, number {n}", "price": 1.0, "size": 2, "venue": None} for n in (29_999, 3)]
    assert rows_of(index.snapshot(), Batch.encode(QUOTES, rows)) == [[29_999 % 500], []]


TREE = query.compile("true", QUOTES).tree


def _with_text(root: Any, text: str) -> Any:
    from milepost.query import typed

    equal, size = root.terms
    return typed.And((typed.Compare("=", equal.left, typed.Const(text, equal.right.kind)), size))


def test_extremes_that_share_a_code() -> None:
    schema = parse("m: [l: long, u: uint64]")
    least, most = -(2**63), 2**64 - 1
    rows = [{"l": least + i, "u": most - i} for i in range(3)] + [{"l": 2**63 - 1 - i, "u": i} for i in range(3)]
    batch = Batch.encode(schema, rows)
    index = Index(schema)
    held = {}
    for sign in ("=", "<>", "<", "<=", ">", ">="):
        for name, values in (("l", [row["l"] for row in rows]), ("u", [row["u"] for row in rows])):
            for value in values:
                key = len(held)
                held[key] = query.compile(f"{name} {sign} {value}", schema)
                index.add(key, held[key])
    for _ in range(2):
        assert rows_of(index.snapshot(), batch) == naive(held, rows)
        index.settle()
    assert index.statistics().indexed > len(held) // 2


def test_many_subscriptions_and_many_rows() -> None:
    """Enough of both that rows are put in an order first: that way gives what the other gives."""
    from random import Random

    from milepost.match import snapshot as module

    schema = parse("m: [a: int, b: int?, s: string]")
    rng = Random(5)
    rows = [
        {
            "a": rng.randrange(40),
            "b": rng.choice([None, rng.randrange(1000)]),
            "s": rng.choice("xyz") * rng.randrange(12),
        }
        for _ in range(module.MANY_ROWS * 3)
    ]
    batch = Batch.encode(schema, rows)
    texts = [f"a = {rng.randrange(40)} and b > {rng.randrange(1000)}" for _ in range(60)]
    texts += [f"b between {low} and {low + rng.randrange(200)}" for low in rng.sample(range(1000), 60)]
    texts += [f"s = '{rng.choice('xyz') * rng.randrange(12)}' or a = {rng.randrange(40)}" for _ in range(20)]
    texts += ["b is null", "b <> 5 and a <> 3", "s like 'xx%'", "a < 10", "a in (1, 2, 3) and s like 'x%'"]
    held = {key: query.compile(text, schema) for key, text in enumerate(texts)}
    index = Index(schema)
    for key, predicate in held.items():
        index.add(key, predicate)
        if key % 50 == 49:
            index._flush()
    expected = naive(held, rows)
    for _ in range(2):
        snapshot = index.snapshot()
        assert rows_of(snapshot, batch) == expected
        snapshot._postings = module.MANY_POSTINGS
        assert rows_of(snapshot, batch) == expected
        index.settle()


def test_columns_in_turn() -> None:
    """More postings beside each other than are tested one by one, with the same column at both ends."""
    schema = parse("m: [a: int, b: int, c: int]")
    rows = [{"a": a, "b": b, "c": c} for a in range(3) for b in range(3) for c in range(2)]
    batch = Batch.encode(schema, rows)
    for pattern in ("{} = {}", "{} <> {}", "c = 1 and {} < {}", "c = 1 and {} <> {}", "c <> 1 and {} <= {}"):
        index = Index(schema)
        held = {}
        for key in range(41):
            held[key] = query.compile(pattern.format("ab"[key % 2], key % 3), schema)
            index.add(key, held[key])
        for _ in range(2):
            assert rows_of(index.snapshot(), batch) == naive(held, rows), pattern
            index.settle()


def test_what_was_removed_without_kernels_is_forgotten():
    index = Index(QUOTES, ready=lambda: False)
    index.add(0, wanted("symbol = 'IBM'"))
    for number in range(3 * index_module._DEAD):
        index.add(1, wanted(f"symbol = 'S{number}'"))
        index.remove(1)
    found = index.statistics()
    assert (found.subscriptions, len(index)) == (1, 1)
    assert found.postings <= 2 * index_module._DEAD
    assert found.texts <= 2 * index_module._DEAD
    assert rows_of(index.snapshot(), BATCH) == [[0], [], []]
