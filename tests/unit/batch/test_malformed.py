"""Bytes that are no batch: always `MalformedBatch`, never another error, never memory out of proportion."""

from __future__ import annotations

import zlib
from datetime import UTC
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from milepost.batch import Batch, Ids
from milepost.batch.format import format_of
from milepost.batch.validator import Validator
from milepost.errors import LimitExceeded, MalformedBatch
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests import strategies

QUOTE = parse("quote: [symbol: string, price: double, day: date, at: timestamp, cost: decimal(5,2), ok: bool?]")
ENVELOPE = parse(
    "envelope: [priority: int, properties: *([name: string, value: string])*,"
    " payload: {absent: [] | request: [topic: string] | reply: int | list: *({a: int | b: string}?)*}]"
)
TREE = parse("tree: [v: int, kids: *(tree)*]")
GRAPH = parse("DEFINE MESSAGETYPE G; NODE a; x: INT; bs: REFERENCE TO b; END; NODE b; y: STRING; END; ROOT a; END;")


def sealed(data: bytes) -> bytes:
    """The same bytes with a checksum that fits, so that a change gets past it."""
    return zlib.crc32(data[4:]).to_bytes(4, "little") + data[4:]


def readable(data: bytes, schema: Schema) -> None:
    """Either malformed, or a batch that can be read whole."""
    try:
        batch = Batch.decode(data, schema)
    except (MalformedBatch, LimitExceeded):
        return
    batch.to_pylist()
    batch.to_arrow().validate(full=True)
    list(map(repr, batch))
    assert len(batch.take(list(range(len(batch))))) == len(batch)


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """A batch of any schema, with or without message IDs."""
    schema = draw(strategies.schemas() | st.sampled_from([ENVELOPE, QUOTE, TREE]))
    rows = draw(st.lists(strategies.values(schema), max_size=5))
    return Batch.encode(schema, rows, draw(st.none() | st.just(Ids.single(1, 2, range(1, len(rows) + 1)))))


@given(st.data(), batches())
def test_a_flipped_bit_is_always_found(data: st.DataObject, batch: Batch) -> None:
    raw = bytearray(batch.data)
    position = data.draw(st.integers(0, len(raw) * 8 - 1))
    raw[position >> 3] ^= 1 << (position & 7)
    with pytest.raises(MalformedBatch):
        Batch.decode(bytes(raw), batch.schema)


@given(st.data(), batches(), st.booleans())
def test_a_shorter_or_longer_batch_is_always_found(data: st.DataObject, batch: Batch, reseal: bool) -> None:
    size = data.draw(st.integers(0, len(batch.data) - 1))
    more = data.draw(st.binary(min_size=1, max_size=40))
    for raw in (bytes(batch.data[:size]), bytes(batch.data) + more):
        with pytest.raises(MalformedBatch):
            Batch.decode(sealed(raw) if reseal and len(raw) >= 16 else raw, batch.schema)


@given(st.data(), batches())
def test_hostile_bytes_with_a_right_checksum_are_malformed_or_readable(data: st.DataObject, batch: Batch) -> None:
    raw = bytearray(batch.data)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(raw) - 1))
        size = data.draw(st.integers(1, 8))
        raw[at : at + size] = data.draw(st.binary(min_size=size, max_size=size))[: len(raw) - at]
    readable(sealed(bytes(raw)), batch.schema)


@given(st.binary(max_size=200), st.sampled_from([QUOTE, ENVELOPE, TREE, GRAPH]), st.integers(0, 2**24 - 1))
def test_any_bytes_behind_a_right_header_are_malformed_or_readable(body: bytes, schema: Schema, rows: int) -> None:
    head = (rows | 1 << 24).to_bytes(4, "little") + schema.fingerprint.to_bytes(8, "little")
    readable(sealed(bytes(4) + head + body), schema)


@given(st.data(), strategies.schemas(variants=False, lists=False, dynamic=False))
def test_the_short_check_of_one_row_accepts_only_what_the_full_one_accepts(data: st.DataObject, schema: Schema) -> None:
    form = format_of(schema)
    assume(form.row_codec is not None)
    assert form.row_codec is not None
    raw = bytearray(Batch.encode(schema, [data.draw(strategies.values(schema))]).data)
    if len(raw) > 16 and data.draw(st.booleans()):
        at = data.draw(st.integers(16, len(raw) - 1))
        raw[at] = data.draw(st.integers(0, 255))
    short = form.row_codec.end(raw, 16)
    if short is not None:
        assert Validator(form, bytes(raw), len(raw), 0).block(form.layout(), 16, 1).end == short


@given(st.data(), strategies.schemas(variants=False, lists=False, dynamic=False))
def test_the_short_way_of_a_message_alone_agrees_with_the_full_one(data: st.DataObject, schema: Schema) -> None:
    form = format_of(schema)
    assume(form.row_codec is not None)
    assert form.row_codec is not None
    raw = bytearray(Batch.encode(schema, [data.draw(strategies.values(schema))], Ids.one(1, 2, 3)).data)
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    whole = sealed(bytes(raw))
    if form.row_codec.first(whole):
        full = Batch.decode(memoryview(whole), schema)  # of a view, which the short way leaves alone
        short = Batch.decode(whole, schema)
        assert short == full
        assert short.ids == full.ids
        assert repr(short.only()) == repr(full[0])


def changed(batch: Batch, at: int, raw: bytes) -> bytes:
    data = bytearray(batch.data)
    data[at : at + len(raw)] = raw
    return sealed(bytes(data))


def quote(**fields: Any) -> Batch:
    from datetime import date, datetime
    from decimal import Decimal

    row = {"symbol": "Ü", "price": 1.0, "day": date(2000, 1, 1), "cost": Decimal("1.00"), "ok": True}
    row["at"] = datetime(2000, 1, 1, tzinfo=UTC)
    return Batch.encode(QUOTE, [row | fields])


@pytest.mark.parametrize(
    ("at", "raw", "says"),
    [
        (7, b"\x02", "version 1"),
        (7, b"\x41", "version 1"),
        (8, b"\x00" * 8, "schema"),
        (4, b"\xff\xff\xff\x01", "ends at byte"),  # a row count that the bytes cannot hold
        (16, (10**6).to_bytes(16, "little"), "more digits than decimal(5,2)"),
        (16, (-(10**6)).to_bytes(16, "little", signed=True), "more digits than decimal(5,2)"),
        (40, (2**62).to_bytes(8, "little"), "timestamp outside"),
        (48, b"\xff\xff\xff\x7f", "date outside"),
        (52, b"\x01", "ascend from 62"),
        (56, b"\xff\xff\xff\xff", "ascend from 62"),
        (56, b"\x3f", "UTF-8"),
        (60, b"\x03", "beyond the last element"),
    ],
)
def test_each_kind_of_damage_is_named(at: int, raw: bytes, says: str) -> None:
    with pytest.raises(MalformedBatch, match=says.replace("(", r"\(").replace(")", r"\)")):
        Batch.decode(changed(quote(), at, raw), QUOTE)


def test_a_string_that_ends_inside_a_character_is_refused() -> None:
    schema = parse("two: [a: string, b: string]")
    batch = Batch.encode(schema, [{"a": "Ü", "b": ""}])
    with pytest.raises(MalformedBatch, match="inside a character"):
        Batch.decode(changed(batch, 20, b"\x1d"), schema)


@pytest.mark.parametrize("text", ["nothing: []", "m: [a: [], b: [c: []]]", "m: [v: {a: [] | b: []}]"])
def test_rows_that_take_no_bytes_are_bounded(text: str) -> None:
    schema = parse(text)
    head = (2**24 - 1 | 1 << 24).to_bytes(4, "little") + schema.fingerprint.to_bytes(8, "little")
    with pytest.raises(MalformedBatch, match="without any content"):
        Batch.decode(sealed(bytes(4) + head + (b"\x01\0\0\0\0\0\0\0" if "{" in text else b"")), schema)
    row = {"nothing: []": {}, "m: [v: {a: [] | b: []}]": {"v": {"a": {}}}}.get(text, {"a": {}, "b": {"c": {}}})
    assert len(Batch.encode(schema, [row] * 1000)) == 1000
    with pytest.raises(LimitExceeded, match="BATCH_EMPTY"):
        Batch.encode(schema, [row] * 65_537)


def test_elements_that_take_no_bytes_are_bounded() -> None:
    schema = parse("m: [xs: *([a: []])*]")
    batch = Batch.encode(schema, [{"xs": [{"a": {}}] * 3}])
    assert Batch.decode(batch.data, schema).to_pylist() == [{"xs": [{"a": {}}] * 3}]
    with pytest.raises(MalformedBatch, match="without any content"):
        Batch.decode(changed(batch, 20, b"\xff\xff\xff\x0f"), schema)


def test_what_is_required_must_be_there() -> None:
    tree = Batch.encode(TREE, [{"v": 1, "kids": [{"v": 2, "kids": []}]}])
    kids = tree.groups[0].block.items[0]
    emptied = bytes(tree.data)[: kids.base] + 2 * (kids.base + 8).to_bytes(4, "little")
    with pytest.raises(MalformedBatch, match="present, but empty"):
        Batch.decode(sealed(emptied), TREE)
    schema = parse("m: [xs: *({a: int | b: int})*]")
    batch = Batch.encode(schema, [{"xs": [{"a": 1}]}])
    untagged = bytes(batch.data)[: batch.groups[0].block.items[0].base] + b"\0"
    with pytest.raises(MalformedBatch, match="absent, but required"):
        Batch.decode(sealed(untagged), schema)


def test_a_reference_to_a_node_that_is_not_there_is_refused() -> None:
    batch = Batch.encode(GRAPH, [{"x": 7, "bs": [{"y": "s"}]}])
    position = batch.groups[0].block.items[0].items[0].base  # of the only reference
    with pytest.raises(MalformedBatch, match=r"a.bs: .* b that does not exist"):
        Batch.decode(changed(batch, position, b"\x09"), GRAPH)


def test_nesting_deeper_than_the_limit_is_refused_both_ways() -> None:
    tree: dict[str, Any] = {"v": 0, "kids": []}
    for value in range(1, 100):
        tree = {"v": value, "kids": [tree]}
    with pytest.raises(LimitExceeded, match="DYNAMIC_DEPTH"):
        Batch.encode(TREE, [tree])


def test_a_batch_of_another_schema_is_refused_by_its_fingerprint() -> None:
    with pytest.raises(MalformedBatch, match="is of schema"):
        Batch.decode(Batch.encode(TREE, []).data, QUOTE)
