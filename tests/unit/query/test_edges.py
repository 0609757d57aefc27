"""Every operation on every pair of awkward values: both back ends, exhaustively."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from milepost import query
from milepost.batch import Batch
from milepost.query import ast
from milepost.query.functions import FUNCTIONS
from milepost.query.mask import exact
from milepost.query.mask.comparison import FEW
from milepost.query.mask.functions import IMPLEMENTED
from milepost.query.number import nearest_double, scaled
from milepost.query.python.functions import function
from milepost.schema import types as t
from tests.unit.query.strategies import AWKWARD, COMPARISONS, awkward

NUMBERS = [
    t.INT8, t.INT64, t.UINT64, t.FLOAT, t.DOUBLE,
    t.decimal(6, 2), t.decimal(18, 4), t.decimal(38, 10), t.decimal(38, 30),
]  # fmt: skip
OTHERS = [t.BOOL, t.STRING, t.BYTES, t.DATE, t.TIMESTAMP, t.UUID, t.IDENT]


def table(**kinds: t.Atom) -> tuple[t.Schema, list[dict[str, Any]], Batch]:
    """All combinations of awkward values, and of none."""
    schema = t.Schema("m", t.Tuple(tuple(t.Field(name, t.Optional(kind)) for name, kind in kinds.items())))
    rows = [dict(zip(kinds, values, strict=True)) for values in product(*([*awkward(k), None] for k in kinds.values()))]
    return schema, rows, Batch.encode(schema, rows)


def agree(text: str, schema: t.Schema, rows: list[dict[str, Any]], batch: Batch) -> None:
    expression = query.expression(text, schema)
    expected = [expression.value(row) for row in rows]
    got = expression.column(batch).to_pylist()
    wrong = [(row, a, b) for row, a, b in zip(rows, got, expected, strict=True) if a != b or type(a) is not type(b)]
    assert not wrong[:3], text


@pytest.mark.parametrize("left", NUMBERS, ids=str)
@pytest.mark.parametrize("right", NUMBERS, ids=str)
def test_two_numbers(left: t.Atom, right: t.Atom) -> None:
    values = table(a=left, b=right)
    signs = [*COMPARISONS, "+", "-", "/", "%"]
    if left.scale + right.scale <= 38:
        signs.append("*")
    for sign in signs:
        agree(f"a {sign} b", *values)
    agree("coalesce(a, b)", *values)
    agree("a between b and b + 1", *values)


@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_one_number(kind: t.Atom) -> None:
    values = table(a=kind)
    for text in ("-a", "abs(a)", "floor(a)", "ceil(a)", "round(a)", "a is null", "a + 1", "a * 3", "a % 7", "1 / a"):
        agree(text, *values)
    constants = [str(ast.Literal("integer", value)) for value in (*awkward(t.INT64), *awkward(t.UINT64))]
    constants += [
        str(ast.Literal("decimal", value)) for value in (*awkward(t.decimal(6, 2)), *awkward(t.decimal(38, 30)))
    ]
    constants += [
        str(ast.Literal("double", value)) for value in AWKWARD["double"] if abs(value) < 1e309 and value == value
    ]
    for constant in constants:
        for sign in COMPARISONS:
            agree(f"a {sign} {constant}", *values)
            agree(f"{constant} {sign} a", *values)
        agree(f"a - {constant}", *values)
    agree(f"a in ({', '.join(constants)})", *values)
    agree(f"a in ({', '.join(constants[:FEW])})", *values)
    agree(f"a not in ({', '.join(constants[:7])}, null)", *values)


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_two_values(kind: t.Atom) -> None:
    values = table(a=kind, b=kind)
    for sign in COMPARISONS:
        agree(f"a {sign} b", *values)
    agree("coalesce(a, b)", *values)
    agree("a not between b and a", *values)
    name = {"bool": "boolean", "ident": "integer"}.get(kind.kind, kind.kind)
    constants = [str(ast.Literal(name, value)) for value in awkward(kind)]
    agree(f"a in ({', '.join(constants[: FEW + 1])})", *values)
    agree(f"b in ({constants[0]}, {constants[-1]}, a)", *values)
    for constant in constants:
        agree(f"a <= {constant}", *values)


def test_strings() -> None:
    values = table(a=t.STRING, b=t.STRING)
    for text in (
        "length(a)",
        "lower(a)",
        "upper(a)",
        "trim(a)",
        "ltrim(a)",
        "rtrim(a)",
        "a || b",
        "in_subnet(a, '::/0')",
    ):
        agree(text, *values)
    for name in ("starts_with", "ends_with", "contains", "position"):
        agree(f"{name}(a, b)", *values)
        for constant in AWKWARD["string"]:
            agree(f"{name}(a, {ast.Literal('string', constant)})", *values)
    for start, size in product((-5, 0, 1, 2, 9, 2**63 - 1, -(2**63)), (-1, 0, 1, 2, 2**63 - 1)):
        agree(f"substring(a, {start}, {size})", *values)
        agree(f"substring(a, {start})", *values)
    agree("substring(a, length(b), 2)", *values)


@pytest.mark.parametrize("kind", [t.DATE, t.TIMESTAMP], ids=str)
def test_times(kind: t.Atom) -> None:
    values = table(a=kind, b=kind)
    names = ["year", "month", "day", "weekday"]
    names += ["hour", "minute", "second", "date"] if kind == t.TIMESTAMP else []
    for name in names:
        agree(f"{name}(a)", *values)
    between = "seconds_between" if kind == t.TIMESTAMP else "days_between"
    agree(f"{between}(a, b)", *values)


def test_every_function_has_both_implementations() -> None:
    assert {*FUNCTIONS, "||"} == IMPLEMENTED
    for name, description in FUNCTIONS.items():
        first = description.signatures[0].parameters[0]
        assert isinstance(first, type(query.expression("1", t.Schema("m", t.Tuple(()))).type))
        assert callable(function(name, (first,)))


@pytest.mark.parametrize("aggregate", ["sum", "min", "max", "avg"])
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_aggregates_of_numbers(kind: t.Atom, aggregate: str) -> None:
    schema = t.Schema("m", t.Tuple((t.Field("a", t.Optional(t.List(t.Optional(kind)))),)))
    some = [*awkward(kind), None]
    rows: list[dict[str, Any]] = [{"a": list(values)} for size in range(3) for values in product(some, repeat=size)]
    rows += [{"a": None}, {"a": some}, {"a": []}, {"a": [some[0]] * 50}, {"a": [None, None]}]
    batch = Batch.encode(schema, rows)
    agree(f"{aggregate}(a)", schema, rows, batch)
    agree(f"{aggregate}(a, coalesce(it, 1))", schema, rows, batch)
    agree("count(a, it > 0)", schema, rows, batch)
    agree("any(a, it > 0)", schema, rows, batch)
    agree("all(a, it > 0)", schema, rows, batch)
    agree("1 in a", schema, rows, batch)
    agree("a[1]", schema, rows, batch)


@pytest.mark.parametrize("kind", OTHERS, ids=str)
def test_aggregates_of_other_values(kind: t.Atom) -> None:
    schema = t.Schema("m", t.Tuple((t.Field("a", t.List(t.Optional(kind))),)))
    some = [*awkward(kind), None]
    rows: list[dict[str, Any]] = [{"a": list(values)} for size in range(3) for values in product(some, repeat=size)]
    batch = Batch.encode(schema, rows)
    for text in ("min(a)", "max(a)", "count(a, it is null)", "a[0]", "any(a, it = it)"):
        agree(text, schema, rows, batch)


def test_zeros_stay_zeros_in_units_beyond_64_bits() -> None:
    schema = t.Schema("m", t.Tuple((t.Field("a", t.INT64), t.Field("b", t.decimal(38, 30)))))
    rows: list[dict[str, Any]] = [{"a": 0, "b": scaled(0, 30)}] * 2
    for sign in ("+", "-", "%", "<", "="):
        agree(f"a {sign} b", schema, rows, Batch.encode(schema, rows))


def test_large_unsigned_integers_are_not_found_among_their_neighbours() -> None:
    # So many that NumPy sorts them, in an array of one type with the column: that must not be float64.
    agree(f"a in (-1, {', '.join(str(2**63 - number) for number in range(1, 60))})", *table(a=t.UINT64))


@pytest.mark.parametrize("scale", range(39))
def test_decimals_become_the_nearest_doubles(scale: int) -> None:
    rng = np.random.default_rng(scale)
    for most in (2**53, 2**55, 2**63 - 1):
        units = rng.integers(-most, most, 200)
        expected = [nearest_double(value, scale) for value in units.tolist()]
        assert exact.doubled(units, scale).tolist() == expected
