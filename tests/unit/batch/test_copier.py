"""A copier takes what `Batch.encode` takes, row by row, and nothing else."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, Copier
from milepost.batch.collector import REFUSED
from milepost.batch.copier import ROW_ROOM
from milepost.query import parse_schema
from tests.strategies import schemas, values

ORDER = parse_schema(
    "order: [id: long, customer: [name: string, city: string?], lines: *([sku: string, qty: int, price: float])*, "
    "pay: {card: string | cash: decimal(5, 2) | later: date}?]"
)
ROW = {
    "id": 1,
    "customer": {"name": "A", "city": None},
    "lines": [{"sku": "x", "qty": 1, "price": 2.5}],
    "pay": {"card": "4711"},
}


@given(st.data())
def test_what_is_taken_is_what_encode_makes_of_it(data):
    schema = data.draw(schemas())
    copier = Copier.of(schema)
    if copier is None:
        return
    taken = []
    for row in data.draw(st.lists(values(schema), max_size=5)):
        try:
            copier.add(row)
        except REFUSED:
            continue
        taken.append(row)
    assert len(copier) == len(taken)
    if taken:
        assert copier.batch() == Batch.encode(schema, taken)
        assert len(copier) == 0


wrong = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.just([]), st.just({}), st.just([1]),
    st.just("\ud800"), st.just({"card": 1}), st.just(1e39), st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
    st.just({"name": "n"}), st.just([{"sku": "s", "qty": 1}]), st.decimals(),
)  # fmt: skip


@given(st.dictionaries(st.sampled_from([*ROW, "unknown"]), wrong, max_size=3), st.sets(st.sampled_from([*ROW])))
def test_what_is_not_right_is_refused_or_encoded(changes, missing):
    row = {name: value for name, value in (ROW | changes).items() if name not in missing or name in changes}
    copier = Copier.of(ORDER)
    try:
        copier.add(row)
    except REFUSED:
        assert len(copier) == 0
        return
    assert copier.batch() == Batch.encode(ORDER, [row])


def test_what_was_taken_is_a_copy():
    copier = Copier.of(ORDER)
    row = copy.deepcopy(ROW)
    copier.add(row)
    row["lines"].append(7)
    row["customer"]["name"] = None
    row["pay"].clear()
    assert copier.batch().to_pylist() == [ROW]


def test_large_rows_are_left_to_others():
    copier = Copier.of(ORDER)
    for large in ({"lines": ROW["lines"] * ROW_ROOM}, {"customer": {"name": "x" * (ROW_ROOM + 1)}}):
        with pytest.raises(TypeError):
            copier.add(ROW | large)
    copier.add(ROW)
    assert len(copier) == 1


@pytest.mark.parametrize(
    "text",
    ["s: [a: dynamic]", "s: []", "s: [a: [], b: int]", "s: [next: s?]", "s: [a: int] check (a > 0)",
     "DEFINE MESSAGETYPE m; NODE n; a: INT; END; ROOT n; END;"],
)  # fmt: skip
def test_what_is_not_copied(text):
    assert Copier.of(parse_schema(text)) is None
