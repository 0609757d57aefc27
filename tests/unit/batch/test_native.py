"""Builtins do what the Python beside them does, or leave it to that."""

from __future__ import annotations

import gc
import struct
import sys
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from milepost.batch import Batch, Ids, projection, reader
from milepost.batch.format import format_of
from milepost.batch.reader import _compiled
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests import strategies
from tests.unit.batch.test_malformed import sealed

native = pytest.importorskip("milepost.batch.native")

FLAT = parse("flat: [a: string, b: int, c: long?, d: double, e: string?, f: uint64, g: uint32]")
ROW = {"a": "Äpfel", "b": -5, "c": None, "d": 0.5, "e": "x", "f": (1 << 64) - 1, "g": (1 << 32) - 1}
PATHS = list(ROW)


def both(schema: Schema, paths: list[str]) -> tuple[Any, list[bytes]]:
    """A projection as a builtin, and the bytes that its Python is asked about."""
    asked: list[bytes] = []
    form = format_of(schema)

    def plain(*data: bytes) -> tuple[Any, ...]:
        asked.extend(data)
        return ("asked",)

    return _compiled(form, form.layout(), paths, plain), asked


def test_a_projection_of_text_is_a_builtin() -> None:
    project = projection(FLAT, PATHS)
    assert type(project) is type(len)
    assert project(Batch.encode(FLAT, [ROW]).data) == tuple(ROW.values())


def test_what_a_builtin_does_not_take_goes_to_the_python_beside_it() -> None:
    project, asked = both(FLAT, PATHS)
    data = bytes(Batch.encode(FLAT, [ROW]).data)
    assert project(data) == tuple(ROW.values())
    assert project(memoryview(data)) == ("asked",)
    assert project(b"") == project(data[:40]) == ("asked",)
    assert project(None) == project(data, data) == ("asked",)
    assert len(asked) == 6
    with pytest.raises(TypeError):
        project(data=data)


def test_offsets_that_lead_out_of_the_bytes_are_not_followed() -> None:
    project, asked = both(FLAT, ["a"])
    form = format_of(FLAT)
    at = form.body + form.layout().var_at(1)
    data = bytes(Batch.encode(FLAT, [ROW]).data)
    for start, end in ((0, len(data) + 1), (9, 8), (0xFFFFFFFF, 0xFFFFFFFF), (len(data), 0xFFFFFFFF)):
        wrong = bytearray(data)
        struct.pack_into("<II", wrong, at, start, end)
        assert project(bytes(wrong)) == ("asked",)
    assert len(asked) == 4


def test_text_that_is_none_raises_and_leaks_nothing() -> None:
    project, _ = both(FLAT, ["e", "a"])
    data = bytes(Batch.encode(FLAT, [ROW]).data).replace("Ä".encode(), b"\xff\xfe")
    with pytest.raises(UnicodeDecodeError):
        project(data)


def test_references_are_counted() -> None:
    project, _ = both(FLAT, PATHS)
    data = bytes(Batch.encode(FLAT, [ROW]).data)
    gc.collect()
    before = sys.getrefcount(data), sys.getrefcount(native)
    kept = [project(data) for _ in range(1000)]
    counts = sys.getrefcount(kept[0]), sys.getrefcount(kept[0][0])  # not within `assert`, which holds what it shows
    del kept
    after = sys.getrefcount(data), sys.getrefcount(native)
    assert counts == (2, 2)
    assert after == before


def test_the_reader_of_one_text_is_a_builtin_too() -> None:
    row = bytes(Batch.encode(FLAT, [ROW]).data)
    without = bytes(Batch.encode(FLAT, [ROW | {"e": None}]).data)
    read = reader(FLAT, "e")
    assert type(read) is type(len)
    assert (read(row), read(without)) == ("x", None)
    assert reader(FLAT, "a")(row) == "Äpfel"
    for wrong in ((), (row, row), (b"",), (row[:40],), (None,), (memoryview(row),)):
        with pytest.raises((TypeError, struct.error)):
            read(*wrong)


@given(st.data(), strategies.schemas(variants=False, lists=False, dynamic=False))
def test_judging_one_message_is_what_the_short_way_does(data: st.DataObject, schema: Schema) -> None:
    single = format_of(schema).row_codec
    assume(single is not None)
    assert single is not None
    plan = single.judging(1, 2)
    assume(plan is not None)
    stamp, last = data.draw(st.tuples(*[st.sampled_from([1, 2, 3, (1 << 63) - 1])] * 2))
    raw = bytearray(Batch.encode(schema, [data.draw(strategies.values(schema))], Ids.one(1, 2, stamp)).data)
    for _ in range(data.draw(st.integers(0, 2))):
        raw[data.draw(st.integers(4, len(raw) - 1))] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]))
    whole = sealed(bytes(raw))
    if data.draw(st.integers(0, 9)) == 0:
        whole = bytes([whole[0] ^ 1]) + whole[1:]
    before = data.draw(st.integers(0, 20))
    buffer = bytearray(bytes(before) + whole + b"more")
    found = native.judge((plan, buffer))(before, before + len(whole), last)
    at = single.first(whole)
    ids = Ids.read_one(whole, at)[0] if at else None
    right = ids is not None and (ids.publisher, ids.broker) == (1, 2) and last < ids.stamp < 1 << 63
    assert found == (ids.stamp if right and ids is not None else 0)


def test_judging_stays_within_the_buffer() -> None:
    single = format_of(FLAT).row_codec
    assert single is not None
    data = bytes(Batch.encode(FLAT, [ROW | {"a": "plain"}], Ids.one(1, 2, 3)).data)
    judge = native.judge((single.judging(1, 2), bytearray(data)))
    assert judge(0, len(data), 2) == 3
    for start, end in ((0, len(data) + 1), (1, len(data)), (-1, len(data)), (0, -1), (8, 8), (0, 1 << 80)):
        assert judge(start, end, 2) == 0
    assert judge(0, len(data), None) == judge(0, len(data)) == judge(0, len(data), 3) == 0


def test_types_that_judging_has_no_words_for() -> None:
    single = format_of(parse("s: [a: uuid, b: int]")).row_codec
    assert single is not None
    assert single.judging(1, 2) is None
