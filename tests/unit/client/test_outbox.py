"""What goes into an outbox comes out, once, in order, and never more than there is room for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, Collector, Copier
from milepost.batch.collector import REFUSED
from milepost.client.outbox import GATHERED_ROWS, IDS_BYTES, PIECES_BYTES, Outbox
from milepost.errors import CheckFailed, InvalidValue, LimitExceeded
from milepost.query import parse_schema

NOTE = parse_schema("note: [number: int, text: string?]")
NEWER = parse_schema("note: [number: int, text: string?, more: int?]")


def put(box, row):
    try:
        box.add(row)
    except REFUSED:
        box.take(row)


def taken(box):
    while len(box):
        yield box.next().batch


@given(st.lists(st.sampled_from(["", "short", "é", "x" * 2_000, None, "bad", "newer"]), max_size=40))
def test_rows_come_out_in_order_whatever_way_they_came_in(texts):
    box = Outbox("notes", 1, NOTE)
    expected = []
    for number, text in enumerate(texts):
        if text == "bad":
            with pytest.raises(InvalidValue):
                put(box, {"number": "no", "text": ""})
        elif text == "newer":
            box.change(NEWER)
        else:
            put(box, {"number": number, "text": text})
            expected.append((number, text))
    assert len(box) == len(expected)
    found = [(row.number, row.text) for batch in taken(box) for row in batch]
    assert found == expected
    assert len(box) == 0


def test_plain_rows_are_encoded_at_once_and_others_joined():
    box = Outbox("notes", 1, NOTE)
    put(box, {"number": 1, "text": "a"})
    assert isinstance(box.collector(), Collector)
    put(box, {"number": 2, "text": "x" * 5_000})
    put(box, {"number": 3, "text": "x" * 5_000})
    assert box.collector() is None
    assert [len(batch) for batch in taken(box)] == [3]


def test_nested_rows_are_copied():
    box = Outbox("nested", 1, parse_schema("n: [list: *(int)*]"))
    put(box, {"list": [1, 2]})
    put(box, {"list": []})
    assert isinstance(box.collector(), Copier)
    assert [list(row["list"]) for batch in taken(box) for row in batch] == [[1, 2], []]


def test_it_is_bounded_in_rows_and_bytes():
    box = Outbox("notes", 1, NOTE)
    for number in range(GATHERED_ROWS):
        assert not box.full
        put(box, {"number": number, "text": None})
    assert box.full
    box.clear()
    box.gathering = True
    while not box.full:
        put(box, {"number": 1, "text": "x" * 100_000})
    assert not box.gathering
    assert len(box) < 2 * PIECES_BYTES // 100_000


def test_what_cannot_be_sent_is_not_taken():
    box = Outbox("notes", 1, NOTE, batch_bytes=1 << 20)
    with pytest.raises(LimitExceeded, match="frame_bytes"):
        put(box, {"number": 1, "text": "x" * (1 << 20)})
    size = len(Batch.encode(NOTE, [{"number": 1, "text": ""}]).data)
    with pytest.raises(LimitExceeded, match="frame_bytes"):  # its ID goes into the frame too
        put(box, {"number": 1, "text": "x" * ((1 << 20) - size - IDS_BYTES + 1)})
    checked = Outbox("checked", 1, parse_schema("c: [price: double] check (price > 0)"))
    with pytest.raises(CheckFailed):
        put(checked, {"price": -1.0})
    assert len(box) == len(checked) == 0
    put(box, {"number": 1, "text": "x" * ((1 << 20) - size - IDS_BYTES)})
    assert len(box) == 1
