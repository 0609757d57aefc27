"""Batches joined as bytes are what they are joined one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.batch import Batch, Ids

SCHEMAS = {
    "flat": "m: [n: long, s: string, f: bool, small: int8, note: string?, d: double?, b: bytes]",
    "fixed": "m: [n: long]",
    "listed": "m: [n: long, xs: *(int)*]",
    "variant": "m: [n: long, what: {a: int | b: string}]",
    "text": "m: [s: string]",
}
PARSED = {name: milepost.parse_schema(text) for name, text in SCHEMAS.items()}
ROW = st.fixed_dictionaries({
    "n": st.integers(-5, 5),
    "s": st.text(max_size=4),
    "f": st.booleans(),
    "small": st.integers(-128, 127),
    "note": st.none() | st.text(max_size=3),
    "d": st.none() | st.floats(allow_nan=False),
    "b": st.binary(max_size=3),
    "xs": st.lists(st.integers(0, 9), max_size=3),
    "what": st.fixed_dictionaries({"a": st.integers(0, 9)}) | st.fixed_dictionaries({"b": st.text(max_size=3)}),
})  # fmt: skip


def batches(name, parts, publishers, with_ids=True):
    schema = PARSED[name]
    fields = [field.name for field in schema.type.fields]
    made, stamp = [], 1
    for part, publisher in zip(parts, publishers, strict=False):
        rows = [{field: row[field] for field in fields} for row in part]
        ids = Ids.single(publisher, 7, list(range(stamp, stamp + len(rows)))) if with_ids else None
        made.append(Batch.encode(schema, rows, ids))
        stamp += len(rows)
    return made


@given(
    name=st.sampled_from(sorted(SCHEMAS)),
    parts=st.lists(st.lists(ROW, min_size=1, max_size=3), min_size=1, max_size=6),
    alone=st.booleans(),
    publishers=st.lists(st.sampled_from([1, 2, (1 << 32) - 1]), min_size=6, max_size=6),
)
def test_they_are_what_concat_makes_of_them(name, parts, alone, publishers):
    if alone:
        parts = [part[:1] for part in parts]
    made = batches(name, parts, publishers)
    joined = Batch.joined([bytes(each) for each in made], PARSED[name])
    assert bytes(joined) == bytes(Batch.concat(made))
    again = Batch.decode(bytes(joined), PARSED[name])
    assert again.to_pylist() == [row for each in made for row in each.to_pylist()]
    assert [again.ids[row] for row in range(len(again))] == [each.ids[row] for each in made for row in range(len(each))]


@pytest.mark.parametrize("count", [1, 2, 5])
def test_rows_without_ids_join_too(count):
    row = {"n": 3}
    made = batches("fixed", [[row]] * count, [1] * count, with_ids=False)
    joined = Batch.joined([bytes(each) for each in made], PARSED["fixed"])
    assert (joined.ids, joined.to_pylist()) == (None, [row] * count)
