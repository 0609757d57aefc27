"""Messages out of queues: what they show of what a frame brought."""

import copy
from datetime import UTC, datetime

import numpy as np
import pytest

import milepost
from milepost.client.taken import TakenBatch, micros
from milepost.errors import InvalidValue, MalformedBatch, ProtocolError
from milepost.schema import Node, classes, ddl
from milepost.wire import Taken

JOB = ddl.parse("""
DEFINE MESSAGETYPE Job;
NODE job; number: INTEGER; note: STRING?; mid: STRING; parts: REFERENCE TO part; END;
NODE part; weight: DOUBLE; up: REFERENCE TO job; END;
ROOT job;
END;
""")
QUOTE = milepost.parse_schema("quote: [symbol: string, size: int, type: string, tags: *(int)*]")
MONDAY = datetime(2026, 11, 16, 8, tzinfo=UTC)


def taken(schema, rows, count=None):
    batch = milepost.encode(schema, rows)
    numbers = np.arange(len(rows) if count is None else count, dtype=np.int64)
    mids = (micros(MONDAY) - 1_704_067_200_000_000 + numbers) << 12 | 7
    made = Taken(1, schema.name, mids, numbers + 5, numbers + 6, numbers / 2, numbers.astype(np.int32), batch.data)
    return TakenBatch.read(made, schema)


def jobs(count=3):
    made = []
    for number in range(count):
        job = {"number": number, "note": None, "mid": f"own {number}"}
        job["parts"] = [{"weight": weight / 2, "up": [job]} for weight in range(number)]
        made.append(job)
    return made


def test_the_header_of_a_message():
    first, second, _ = taken(JOB.schema, jobs()).messages()
    assert first.header.number >> 12 == micros(MONDAY) - 1_704_067_200_000_000
    assert first.header.id == f"5/6/{first.header.number}"
    assert (second.priority, second.deliveries, second.type) == (0.5, 1, "Job")
    assert first.enqueued_at == MONDAY
    assert repr(second) == f"<Job 6/7/{second.header.number} priority=0.5>"
    assert repr(second.header).startswith(f"QueueHeader(id='6/7/{second.header.number}', type='Job', priority=0.5")


def test_members_by_attribute_and_by_item():
    first, _, third = taken(JOB.schema, jobs()).messages()
    assert (third.number, third["number"], third.header.number) == (2, 2, third._taken.numbers[2])
    assert (third.note, third.mid) == (None, "own 2")
    assert [part.weight for part in third.parts] == [0.0, 0.5]
    assert third.parts[1].up.one is third.root
    assert isinstance(third.root, Node)
    assert list(first) == ["number", "note", "mid", "parts"]
    assert "parts" in dir(first)
    assert first.parts == []
    with pytest.raises(AttributeError, match="no member 'prts'; did you mean 'parts'"):
        first.prts  # noqa: B018
    with pytest.raises(KeyError, match="no member 'prts'"):
        first["prts"]
    assert copy.copy(third)["number"] == 2


def test_classes_that_were_generated():
    made = classes(JOB)
    *_, last = taken(JOB.schema, jobs()).messages(made)
    root = last.root_as(made["job"])
    assert type(root) is made["job"]
    assert isinstance(root.parts[0], made["part"])
    with pytest.raises(InvalidValue, match="NODE_CLASSES"):
        last.root_as(made["part"])


def test_a_type_in_the_text_notation_is_a_row():
    row = {"symbol": "IBM", "size": 3, "type": "bid", "tags": [1, 2]}
    (only,) = taken(QUOTE, [row]).messages()
    assert (only.symbol, only["size"], only.type, only.header.type) == ("IBM", 3, "bid", "quote")
    assert list(only.tags) == [1, 2]
    assert only.plain() == row
    assert list(only) == list(row)
    assert only.batch.to_pylist() == [row]
    with pytest.raises(AttributeError, match="did you mean 'symbol'"):
        only.symbl  # noqa: B018


def test_nothing_is_read_before_it_is_asked_for():
    batch = taken(JOB.schema, jobs(100))
    messages = batch.messages()
    assert messages[0].header.id.startswith("5/6/")
    assert "plain" not in vars(batch)
    assert messages[50]["number"] == 50
    assert not batch._roots
    assert messages[50].root is messages[50].root
    assert list(batch._roots) == [50]


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(ProtocolError, match="2 numbers for 3 messages"):
        taken(JOB.schema, jobs(), count=2)
    made = taken(JOB.schema, jobs())
    with pytest.raises(MalformedBatch):
        TakenBatch.read(Taken(1, "quote", *([made.numbers] * 5), made.batch.data), QUOTE)


def test_times_have_a_zone():
    assert micros(datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)) == 1_000_000
    with pytest.raises(InvalidValue, match="time zone"):
        micros(datetime(2026, 1, 1))  # noqa: DTZ001
