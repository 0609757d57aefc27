"""What `enqueue` takes for one message, and what for many."""

import numpy as np
import pyarrow as pa
import pytest

import milepost
from milepost.client.queue_session import batch_of
from milepost.errors import InvalidValue

NOTE = milepost.parse_schema("note: [text: string, size: int]")
LISTED = milepost.parse_schema("listed: [texts: *(string)*, sizes: *(int)*]")
COLUMNS = {"text": ["a", "b"], "size": [1, 2]}
ROWS = [{"text": "a", "size": 1}, {"text": "b", "size": 2}]


def test_a_dict_is_one_message_and_tables_are_many():
    lists = {"texts": ["a", "b"], "sizes": [1, 2]}
    assert batch_of(LISTED, lists).to_pylist() == [lists]
    assert batch_of(NOTE, ROWS[0]).to_pylist() == ROWS[:1]
    for many in (ROWS, tuple(ROWS), iter(ROWS), pa.table(COLUMNS), pa.RecordBatch.from_pylist(ROWS)):
        assert batch_of(NOTE, many).to_pylist() == ROWS


@pytest.mark.parametrize("columns", [COLUMNS, {name: np.array(column) for name, column in COLUMNS.items()}])
def test_columns_are_told_how_they_go_in(columns):
    with pytest.raises(InvalidValue, match="a dict is one message: give columns as an Arrow table"):
        batch_of(NOTE, columns)
    assert milepost.encode(NOTE, columns).to_pylist() == ROWS, "as the error says"
    with pytest.raises(InvalidValue) as mistake:
        batch_of(NOTE, {"text": "a", "size": [1, 2]})
    assert "one message" not in str(mistake.value), "that is a mistake in a message"
