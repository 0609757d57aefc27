"""Batches as JSON, CSV and columns."""

import csv
import io
import json
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.batch import Ids
from milepost.cli.printer import printer
from tests.strategies import schemas
from tests.strategies import values as messages

QUOTE = milepost.parse_schema("quote: [symbol: string, price: double, at: timestamp?, tags: *(string)*]")
OTHER = milepost.parse_schema("order: [id: long]")
AT = datetime(2026, 3, 2, 14, 30, tzinfo=UTC)
ROWS = [
    {"symbol": "IBM", "price": 101.5, "at": AT, "tags": ["a", "b"]},
    {"symbol": "ACME, Inc.", "price": 2.0, "at": None, "tags": []},
]


def quotes():
    return milepost.encode(QUOTE, ROWS)


def test_json_is_a_line_for_each_message():
    lines = printer("json", False, False)("quotes", quotes()).decode().splitlines()
    assert json.loads(lines[0]) == ROWS[0] | {"at": "2026-03-02T14:30:00Z"}
    assert json.loads(lines[1]) == ROWS[1]


def test_the_envelope_says_topic_and_id():
    batch = milepost.encode(QUOTE, ROWS, Ids.single(1, 2, [5, 6]))
    lines = printer("json", True, False)("quotes", batch).decode().splitlines()
    first = json.loads(lines[0])
    assert first["topic"] == "quotes"
    assert first["id"] == str(batch.id(0))
    assert first["message"]["symbol"] == "IBM"


def test_csv_has_its_header_once():
    show = printer("csv", False, False)
    text = (show("quotes", quotes()) + show("quotes", quotes())).decode()
    found = list(csv.reader(io.StringIO(text)))
    assert found[0] == ["symbol", "price", "at", "tags"]
    assert found[1] == ["IBM", "101.5", "2026-03-02T14:30:00Z", '["a","b"]']
    assert found[2] == ["ACME, Inc.", "2.0", "", "[]"]
    assert len(found) == 5


def test_csv_of_a_pattern_names_the_topic_and_has_a_header_where_the_columns_change():
    show = printer("csv", True, False)
    text = (show("quotes", quotes()) + show("orders", milepost.encode(OTHER, [{"id": 7}]))).decode()
    found = list(csv.reader(io.StringIO(text)))
    assert found[0][0] == "topic"
    assert found[3:] == [["topic", "id"], ["orders", "7"]]


def test_columns_are_aligned_and_only_grow():
    show = printer("table", False, False)
    lines = show("quotes", quotes()).decode().splitlines()
    assert lines[0].split() == ["symbol", "price", "at", "tags"]
    assert lines[1].index("101.5") + len("101.5") == lines[2].index("2.0") + len("2.0")
    assert lines[0].index("tags") == lines[1].index("[")
    later = show("quotes", milepost.encode(QUOTE, [ROWS[0]])).decode().splitlines()
    assert later == [lines[1]]


def test_a_terminal_gets_no_control_characters_of_strangers():
    evil = milepost.encode(QUOTE, [ROWS[0] | {"symbol": "\x1b[2J\r\n" + "x" * 100}])
    shown = printer("table", False, False)("quotes", evil).decode()
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert len(shown.splitlines()) == 2
    assert "…" in shown


def test_a_graph_that_holds_itself_is_written_as_lists():
    ring = milepost.parse_schema("DEFINE MESSAGETYPE Ring; NODE a; n: INTEGER; next: REFERENCE TO a; END; ROOT a; END;")
    node = {"n": 1}
    node["next"] = [node]
    batch = milepost.encode(ring, [node])
    assert json.loads(printer("json", False, False)("rings", batch)) == {"a": [{"n": 1, "next": [0]}]}
    assert b"message" in printer("csv", False, False)("rings", batch)
    assert b"message" in printer("table", False, False)("rings", batch)


@given(st.data())
def test_every_batch_can_be_printed(data):
    schema = data.draw(schemas())
    batch = milepost.Batch.encode(schema, data.draw(st.lists(messages(schema), min_size=1, max_size=3)))
    for form in ("json", "csv", "table"):
        assert printer(form, False, False)("t", batch).endswith(b"\n")
