"""What people get wrong first, and what they are told."""

from __future__ import annotations

import pickle
from typing import Any

import pandas as pd
import polars as pl
import pytest

from milepost.batch import Batch, Ids, projection, schema_of
from milepost.errors import InvalidValue, MalformedBatch
from milepost.schema.text import parse

QUOTE = parse("quote: [symbol: string, price: double, size: int]")
ROWS = [{"symbol": "IBM", "price": 1.5, "size": 2}, {"symbol": "T", "price": 2.0, "size": 3}]
ORDER = parse("DEFINE MESSAGETYPE Order; NODE order; id: INT; END; ROOT order; END;")


def batch() -> Batch:
    return Batch.encode(QUOTE, ROWS)


@pytest.mark.parametrize(
    ("slip", "says"),
    [
        (lambda: Batch.encode("quote: [a: int]", ROWS), "parse it once"),  # type: ignore[arg-type]
        (lambda: Batch.encode(ROWS, QUOTE), "expected a schema first"),  # type: ignore[arg-type]
        (lambda: Batch.encode(QUOTE, ROWS[0]), r"write \[message\] for one message"),
        (lambda: Batch.encode(parse("m: [s: string]"), {"s": "IBM"}), r"write \[message\] for one message"),
        (lambda: Batch.encode(QUOTE, 5), r"write \[message\] for one message"),
        (lambda: Batch.encode(QUOTE, "IBM"), "expected rows"),
        (lambda: Batch.encode(QUOTE, pl.DataFrame(ROWS).lazy()), "collect a lazy frame first"),
        (lambda: Batch.encode(QUOTE, pd.DataFrame({"symbol": ["a", 1]})), "Arrow cannot take"),
        (lambda: Batch.decode(batch(), QUOTE), "takes the bytes of a batch, not a Batch"),  # type: ignore[arg-type]
        (lambda: Batch.decode("abc", QUOTE), "takes the bytes of a batch"),  # type: ignore[arg-type]
        (lambda: batch().take([True]), "a mask of 1 for 2 rows"),
        (lambda: batch().take([0.9, 1.2]), "row numbers or a mask"),  # type: ignore[list-item]
        (lambda: projection(QUOTE, "symbol"), "a list of paths"),
        (
            lambda: Batch.encode(parse("m: [t: timestamp]"), [{"t": "2026-03-01T12:00:00Z"}]),
            "give a datetime with a time",
        ),
        (lambda: Batch.encode(parse("m: [d: date]"), [{"d": "2026-03-01"}]), "give a datetime.date"),
    ],
)
def test_a_slip_is_met_with_a_sentence(slip: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        slip()


def test_the_wrong_schema_is_named() -> None:
    with pytest.raises(MalformedBatch, match=r"not of Order .* read_as"):
        Batch.decode(batch().data, ORDER)


def test_a_batch_is_indexed_like_a_list() -> None:
    assert batch()[-1].symbol == "T"
    assert batch()[1:].to_pylist() == ROWS[1:]
    assert batch()[::-1].to_pylist() == ROWS[::-1]
    with pytest.raises(TypeError, match=r"see column\(\) and take\(\)"):
        batch()["symbol"]  # type: ignore[call-overload]
    with pytest.raises(IndexError, match="row 2 of 2"):
        batch()[2]


def test_a_message_type_is_a_schema() -> None:
    assert Batch.encode(ORDER.message_type, [{"id": 1}]).to_pylist() == [{"id": 1}]  # type: ignore[arg-type]


def test_a_batch_is_bytes_and_crosses_processes() -> None:
    made = Batch.encode(QUOTE, ROWS, Ids.single(1, 2, [3, 4]))
    assert bytes(made) == bytes(made.data)
    again = pickle.loads(pickle.dumps(made))  # noqa: S301 - our own bytes
    assert again == made
    assert again.ids == made.ids


def test_id_is_the_message_id_unless_there_is_such_a_field() -> None:
    ids = Ids.single(1, 2, [3])
    assert Batch.encode(QUOTE, ROWS[:1], ids)[0].id == ids[0]
    own = Batch.encode(parse("m: [id: int]"), [{"id": 9}], ids)[0]
    assert (own.id, own.header.id) == (9, ids[0])
    with pytest.raises(AttributeError):
        own.id = 5


def test_a_schema_of_rows_knows_the_fields_of_every_row() -> None:
    assert schema_of([{"a": 1}, {"a": 2, "b": "x"}], "m") == parse("m: [a: long, b: string?]")
