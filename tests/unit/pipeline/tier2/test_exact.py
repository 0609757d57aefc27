from __future__ import annotations

from decimal import Decimal, localcontext

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipeline.tier2 import exact, partials

DIGITS = 10**38 - 1


def summed(values: pa.Array, pieces: int = 1) -> object:
    partial = partials.partial("sum", values.type)
    parts = partial.merge(partial.lift(values[:0]), np.zeros(0, np.int64), 1)
    for piece in np.array_split(np.arange(len(values)), pieces):
        lifted = partial.lift(values.slice(int(piece[0]), len(piece)) if len(piece) else values[:0])
        both = [pa.concat_arrays([one, other]) for one, other in zip(parts, lifted, strict=True)]
        parts = partial.merge(both, np.zeros(1 + len(piece), np.int64), 1)
    return partial.finish(parts, "sum", None)[0].as_py()


@given(st.lists(st.one_of(st.none(), st.integers(-(1 << 63), (1 << 63) - 1))), st.integers(1, 4))
def test_integers(values: list[int | None], pieces: int) -> None:
    present = [value for value in values if value is not None]
    total = sum(present)
    fits = present and -(1 << 63) <= total < 1 << 63
    assert summed(pa.array(values, pa.int64()), pieces) == (total if fits else None)


@given(st.lists(st.integers(0, (1 << 64) - 1)))
def test_unsigned_integers(values: list[int]) -> None:
    total = sum(values)
    assert summed(pa.array(values, pa.uint64())) == (total if values and total < 1 << 63 else None)


@given(st.lists(st.one_of(st.none(), st.integers(-DIGITS, DIGITS), st.integers(-9, 9))), st.integers(1, 4))
def test_decimals(values: list[int | None], pieces: int) -> None:
    with localcontext(prec=60):
        decimals = [None if value is None else Decimal(value).scaleb(-5) for value in values]
        present = [value for value in values if value is not None]
        total = sum(present)
        expected = Decimal(total).scaleb(-5) if present and abs(total) <= DIGITS else None
    assert summed(pa.array(decimals, pa.decimal128(38, 5)), pieces) == expected


def test_only_the_result_overflows() -> None:
    largest = (1 << 63) - 1
    assert summed(pa.array([largest, largest, -largest])) == largest
    assert summed(pa.array([largest, 1])) is None


def test_a_slice_is_read_from_where_it_starts() -> None:
    values = pa.array([Decimal("1.5"), None, Decimal("-2.5"), Decimal("4.0")], pa.decimal128(5, 1))
    assert summed(values[1:3]) == Decimal("-2.5")
    assert exact.limbs_of(pa.string()) == 0
