"""Rows that travel together, checked in one go: whatever that takes, the full validation takes, and reads the same."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, Ids
from milepost.batch.format import format_of
from milepost.batch.header import unseal
from milepost.errors import MalformedBatch
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests import strategies

PLAIN = parse(
    "plain: [symbol: string, price: double, small: int8, day: date?, at: timestamp, ok: bool, raw: bytes, who: uuid?]"
)
ROWS: list[dict[str, Any]] = [
    {
        "symbol": "ABC"[: number % 4], "price": number / 2, "small": number, "raw": bytes(number), "who": None,
        "day": date(2026, 1, 1 + number) if number % 3 else None, "at": datetime(2026, 1, 1, tzinfo=UTC),
        "ok": number % 2 == 0,
    }
    for number in range(11)
]  # fmt: skip


def sealed(data: bytes) -> bytes:
    """The same bytes with a checksum that fits, so that a change gets past it."""
    return zlib.crc32(data[4:]).to_bytes(4, "little") + data[4:]


def full(data: Any, schema: Schema) -> Batch:
    """The batch by the full validation."""
    header = unseal(data, schema.fingerprint, schema.name)
    return Batch._opened(format_of(schema), data, header, checked=True, depth=0)


def outcome(decode: Callable[[bytes, Schema], Batch], data: bytes) -> str:
    """What comes of it, or why nothing does."""
    try:
        batch = decode(data, PLAIN)
    except MalformedBatch as error:
        return str(error)
    return repr((batch.ids and batch.ids.runs, batch.ids and batch.ids.stamps.tolist(), batch.to_pylist()))


def taken(data: Any, schema: Schema) -> bool:
    validator = format_of(schema).flat_validator
    return validator is not None and validator.check(data) is not None


def same(one: Batch, other: Batch) -> None:
    assert len(one) == len(other)
    assert one.ids == other.ids
    assert strategies.identical(one.to_pylist(), other.to_pylist())
    assert [group.block.end for group in one.groups] == [group.block.end for group in other.groups]


@pytest.mark.parametrize("rows", [2, 7, 8, 11])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_flat_rows_with_ids_are_taken(rows: int, kind: Any) -> None:
    data = kind(Batch.encode(PLAIN, ROWS[:rows], Ids.single(1, 2, range(5, 5 + rows))).data)
    assert taken(data, PLAIN)
    same(Batch.decode(data, PLAIN), full(data, PLAIN))


def test_what_is_not_of_one_publisher_or_not_ascii_is_left_to_others() -> None:
    two = Ids.concat([Ids.single(1, 2, [5]), Ids.single(3, 2, [6])])
    accents = [row | {"symbol": "é"} for row in ROWS[:2]]
    for batch in (Batch.encode(PLAIN, ROWS[:2], two), Batch.encode(PLAIN, ROWS), Batch.encode(PLAIN, accents, two)):
        assert not taken(batch.data, PLAIN)
        same(Batch.decode(bytes(batch.data), PLAIN), batch)


@given(st.data())
def test_of_any_schema(data: st.DataObject) -> None:
    schema = data.draw(strategies.schemas())
    rows = data.draw(st.lists(strategies.values(schema), min_size=1, max_size=10))
    made = bytes(Batch.encode(schema, rows, Ids.single(1, 2, range(1, len(rows) + 1))).data)
    same(Batch.decode(made, schema), full(made, schema))


@given(st.data(), st.integers(1, len(ROWS)))
def test_of_changed_bytes_it_takes_what_the_full_validation_takes(data: st.DataObject, count: int) -> None:
    raw = bytearray(Batch.encode(PLAIN, ROWS[:count], Ids.single(1, 2, range(5, 5 + count))).data)
    for position, value in data.draw(
        st.lists(st.tuples(st.integers(4, len(raw) - 1), st.integers(0, 255)), max_size=2)
    ):
        raw[position] = value
    cut = data.draw(st.just(len(raw)) | st.integers(0, len(raw)))
    changed = sealed(bytes(raw[:cut]) + data.draw(st.just(b"") | st.binary(max_size=9)))
    if taken(changed, PLAIN):
        same(Batch.decode(changed, PLAIN), full(changed, PLAIN))


def test_every_byte_counts() -> None:
    """Each byte changed in turn: what is wrong is refused by either way, and in the same words."""
    given = bytes(Batch.encode(PLAIN, ROWS[:3], Ids.single(1, 2, range(5, 8))).data)
    for position in range(4, len(given)):
        for flip in (1, 0x80, 0xFF):
            raw = bytearray(given)
            raw[position] ^= flip
            changed = sealed(bytes(raw))
            assert outcome(Batch.decode, changed) == outcome(full, changed)


def test_a_checksum_that_does_not_fit() -> None:
    data = bytearray(Batch.encode(PLAIN, ROWS, Ids.single(1, 2, range(5, 5 + len(ROWS)))).data)
    data[0] ^= 1
    assert not taken(bytes(data), PLAIN)
    with pytest.raises(MalformedBatch, match="checksum"):
        Batch.decode(bytes(data), PLAIN)
