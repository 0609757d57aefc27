"""Rules of schemas, enforced at the door."""

import pytest

from milepost import query
from milepost.batch import Batch
from milepost.errors import CheckFailed, MalformedBatch, SchemaError
from milepost.schema.text import parse

SCHEMA = parse("order: [size: int, price: double?, lines: *(int)*] check (size > 0) check (price < 1e6 or size = 1)")


def row(size: int, price: float | None = None) -> dict[str, object]:
    return {"size": size, "price": price, "lines": []}


def test_messages_that_keep_the_rules_enter() -> None:
    batch = query.encode(SCHEMA, [row(1), row(2, 3.0), row(1, 1e9)])
    assert query.decode(batch.data, SCHEMA) == batch


def test_null_breaks_no_rule() -> None:
    assert len(query.encode(SCHEMA, [row(2, None), row(2, float("nan"))])) == 2


def test_the_first_broken_rule_is_named_with_its_rows() -> None:
    rows = [row(1), *[row(0)] * 7, row(2, 1e7)]
    with pytest.raises(CheckFailed) as caught:
        query.encode(SCHEMA, rows)
    assert caught.value.rule == "size > 0"
    assert caught.value.rows == (1, 2, 3, 4, 5)
    assert str(caught.value).startswith("7 of 9 messages break the rule of order: size > 0 (rows 1, 2, 3, 4, 5, …)")
    with pytest.raises(CheckFailed, match="1 of 1 messages break the rule of order: price < 1e6 or size = 1"):
        query.encode(SCHEMA, [row(2, 1e7)])


def test_rules_hold_for_bytes_too() -> None:
    data = Batch.encode(SCHEMA, [row(1), row(-1)]).data
    with pytest.raises(CheckFailed, match="size > 0"):
        query.decode(data, SCHEMA)
    with pytest.raises(MalformedBatch):
        query.decode(data[:-1], SCHEMA)


def test_rules_of_a_message_type_start_at_the_root() -> None:
    orders = parse(
        "DEFINE MESSAGETYPE m; NODE order; lines: REFERENCE TO line; END; NODE line; price: REAL; END; ROOT order; "
        "CHECK (count(lines) > 0); CHECK (all(lines, price > 0)); END;"
    )
    assert len(query.encode(orders, [{"lines": [{"price": 1.0}]}])) == 1
    with pytest.raises(CheckFailed, match="count"):
        query.encode(orders, [{"lines": []}])
    with pytest.raises(CheckFailed, match="all"):
        query.encode(orders, [{"lines": [{"price": 1.0}, {"price": -1.0}]}])


def test_a_rule_that_does_not_fit_is_found_when_it_is_compiled() -> None:
    schema = parse("m: [size: int] check (sise > 0)")
    with pytest.raises(SchemaError, match="did you mean 'size'"):
        query.rules(schema)
    with pytest.raises(SchemaError, match="a predicate takes true or false"):
        query.rules(parse("m: [size: int] check (size + 1)"))


def test_rules_are_compiled_once() -> None:
    again = parse(str(SCHEMA))
    assert again is not SCHEMA
    assert query.rules(again) is query.rules(SCHEMA)
