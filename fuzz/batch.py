"""Bytes into `Batch.decode`: every value of an accepted batch must be readable.

An input is ``schema u8 · mode u8 · bytes``. With an even mode the bytes are used unchanged, and the checksum nearly
always refuses them. With an odd mode version, fingerprint and checksum are corrected first, so that mutations reach the
code behind these checks.
"""

from __future__ import annotations

import datetime
import decimal
import sys
import uuid
import zlib

from fuzz.target import guided, start

with guided():
    from milepost.batch import Batch, Ids
    from milepost.batch.header import HEADER, VERSION, WITH_IDS
    from milepost.errors import LimitExceeded, MalformedBatch
    from milepost.schema.text import parse


UTC = datetime.UTC
LEAF = {"value": 4, "children": []}
SAMPLES = [
    ("flat: [a: int, b: string, c: double?, d: bool]", [{"a": 1, "b": "é", "c": None, "d": True}] * 3),
    (
        "wide: [u: uuid, n: decimal(12,2), t: timestamp, d: date, s: int16, b: bytes?, o: [x: int8, y: string]?]",
        [
            {"u": uuid.UUID(int=7), "n": decimal.Decimal("-1.25"), "t": datetime.datetime(1969, 1, 1, tzinfo=UTC),
             "d": datetime.date(2000, 2, 29), "s": -1, "b": b"\x00\xff", "o": {"x": 1, "y": "z"}},
            {"u": uuid.UUID(int=8), "n": decimal.Decimal("0.00"), "t": datetime.datetime(2026, 1, 1, tzinfo=UTC),
             "d": datetime.date(1, 1, 1), "s": 1, "b": None, "o": None},
        ],
    ),
    (
        "order: [id: long, lines: *([name: string, marks: *(uint8)*, tags: *(string)*?])*]",
        [
            {"id": 1, "lines": [{"name": "a", "marks": [1, 2], "tags": None}, {"name": "", "marks": [], "tags": [""]}]},
            {"id": 2, "lines": []},
        ],
    ),
    (
        "either: [k: int, what: {text: string | point: [x: float, y: float] | none: []}, more: {a: int | b: *(int)*}]",
        [
            {"k": 1, "what": {"text": "t"}, "more": {"a": 1}},
            {"k": 2, "what": {"point": {"x": 1, "y": 2}}, "more": {"b": [1]}},
            {"k": 3, "what": {"none": {}}, "more": {"a": 5}},
        ],
    ),
    (
        "boxes: [items: *({i: int | s: string | l: *([q: bool, w: string?])* | n: {x: int8 | y: []}})*]",
        [
            {"items": [{"i": 1}, {"s": "s"}, {"l": [{"q": True, "w": None}]}, {"n": {"x": 1}}, {"n": {"y": {}}}]},
            {"items": []},
        ],
    ),
    (
        "tree: [value: int, children: *(tree)*]",
        [{"value": 1, "children": [{"value": 2, "children": []}, {"value": 3, "children": [LEAF]}]}],
    ),
    (
        "DEFINE MESSAGETYPE Order; NODE order; id: IDENT; lines: REFERENCE TO line; END; "
        "NODE line; no: INTEGER; back: REFERENCE TO order; END; ROOT order; END;",
        [{"id": 1, "lines": [{"no": 1, "back": []}, {"no": 2, "back": []}]}],
    ),
    ("nothing: []", [{}, {}]),
]  # fmt: skip
SCHEMAS = [parse(text) for text, _ in SAMPLES]


def seeds() -> list[bytes]:
    made = []
    for number, (schema, (_, rows)) in enumerate(zip(SCHEMAS, SAMPLES, strict=True)):
        some = Ids.single(1, 2, range(1, len(rows) + 1))
        for batch in (Batch.encode(schema, rows), Batch.encode(schema, rows[:1]), Batch.encode(schema, rows, ids=some)):
            made.append(bytes([number, 1]) + bytes(batch.data))
    return made


def one_input(data: bytes) -> None:
    if len(data) < 2:
        return
    schema = SCHEMAS[data[0] % len(SCHEMAS)]
    body = data[2:]
    if data[1] % 2 and len(body) >= HEADER.size:
        word = int.from_bytes(body[4:8], "little") & ~(0xFF << 24) | (VERSION | body[7] & WITH_IDS) << 24
        behind = word.to_bytes(4, "little") + schema.fingerprint.to_bytes(8, "little") + body[16:]
        body = zlib.crc32(behind).to_bytes(4, "little") + behind
    try:
        batch = Batch.decode(body, schema)
    except (MalformedBatch, LimitExceeded):
        return
    rows = batch.to_pylist()
    assert len(rows) == len(batch)
    assert batch.to_arrow().num_rows == len(batch)
    again = Batch.encode(schema, rows)
    assert repr(again.to_pylist()) == repr(rows)  # as text: NaN is equal to itself there


if __name__ == "__main__":
    start(one_input, seeds())
    sys.exit(0)
