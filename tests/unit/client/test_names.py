"""A field comes before whatever else a message has of its name; the header is always there."""

import copy

import numpy as np
import pytest

import milepost
from milepost.batch import Batch
from milepost.batch.ids import Ids, MessageId
from milepost.batch.row import MessageHeader, Row
from milepost.client.logbatch import LogBatch
from milepost.client.queue_session import QueueSession
from milepost.client.taken import QueueHeader, QueueMessage, TakenBatch
from milepost.schema import Node, ddl
from milepost.wire import Taken

NAMES = sorted(
    {name for kind in (Row, Node, QueueMessage, MessageHeader, QueueHeader) for name in dir(kind) if name[0] != "_"}
    | {"mid", "aborts", "message_id", "_row", "_batch", "_taken", "_values"}
)
TEXT = {  # messages that are plain values, and others
    "plain": ("m: [{name}: int, other: string]", {"other": "x"}),
    "listed": ("m: [{name}: int, other: string, more: *(int)*]", {"other": "x", "more": [1, 2]}),
    "nested": ("m: [{name}: int, other: string, inner: [{name}: int]]", {"other": "x", "inner": None}),
}
GRAPH = """DEFINE MESSAGETYPE m; NODE top; {name}: INTEGER; other: STRING; below: REFERENCE TO low; END;
NODE low; {name}: INTEGER; END; ROOT top; END;"""


def cases(name):
    for text, more in TEXT.values():
        schema = milepost.parse_schema(text.format(name=name))
        yield schema, {name: 7} | more | ({"inner": {name: 8}} if "inner" in more else {})
    if name != "other":
        yield ddl.parse(GRAPH.format(name=name)).schema, {name: 7, "other": "x", "below": [{name: 8}]}


def from_a_topic(schema, row):
    sent = Batch.encode(schema, [row], Ids.one(1, 2, 3))
    handed = LogBatch.opened(sent.data, schema, 4, np.array([5], np.uint64), np.array([6], np.uint32))
    return sent[0], handed[0]


def from_a_queue(schema, row):
    batch = Batch.encode(schema, [row])
    one = np.ones(1, np.int64)
    taken = Taken(1, schema.name, 3 * one, one, 2 * one, 0.5 * one, 6 * one.astype(np.int32), batch.data)
    late = TakenBatch.read(taken, schema).messages()
    ready = TakenBatch.read(taken, schema)
    ready.plain  # noqa: B018 - as those have it that are read without a broker
    return *late, *ready.messages()


@pytest.mark.parametrize("name", NAMES)
def test_a_field_comes_before_everything_but_the_header(name):
    for schema, row in cases(name):
        for message in (*from_a_topic(schema, row), *from_a_queue(schema, row)):
            assert message[name] == 7
            kind = Row if isinstance(message, Row) else type(message)
            if name == "header" or (name[0] == "_" and hasattr(kind, name)):
                assert getattr(message, name) != 7, "the header, and what messages themselves are made of"
            else:
                assert getattr(message, name) == 7
                assert getattr(copy.copy(message), name) == 7
            assert list(message) == list(row)
            assert message.other == message["other"] == "x"
            if "inner" in row and name != "header":
                assert getattr(message["inner"], name) == message["inner"][name] == 8
            if "below" in row:
                assert message["below"][0][name] == 8
            header = message.header
            if isinstance(header, QueueHeader):
                assert (header.id, header.number, header.priority, header.deliveries) == ("1/2/3", 3, 0.5, 6)
                assert (header.type, header.enqueued_at.year) == ("m", 2024)
                assert QueueMessage.plain(message) == row
            else:
                assert (header.id, header.publisher, header.broker) == (MessageId(1, 2, 3), 1, 2)
                assert (header.log, header.offset, header.deliveries) in ((None, None, 0), (4, 5, 6))


@pytest.mark.parametrize("name", NAMES)
def test_messages_of_any_names_can_be_put_and_asked_about(name):
    for schema, row in cases(name):
        views = from_a_topic(schema, row)
        assert Batch.encode(schema, list(views)).to_pylist() == [row, row]
        if schema.message_type is None:
            assert views[0] == views[1] == milepost.encode(schema, [row])[0]
            assert milepost.compile(f'"{name}" = 7', schema).test(views[0])
        encoded = QueueSession.encoded(None, schema, [*from_a_queue(schema, row)])
        assert encoded.to_pylist() == [row, row]


def test_the_names_of_the_header_are_there_where_no_field_has_them():
    schema = milepost.parse_schema("m: [other: string]")
    sent, handed = from_a_topic(schema, {"other": "x"})
    assert sent.id == handed.id == sent.header.id
    for message in from_a_queue(schema, {"other": "x"}):
        for name in ("id", "number", "priority", "deliveries", "type", "enqueued_at"):
            assert getattr(message, name) == getattr(message.header, name)
        assert (message.mid, message.plain(), message.root.other) == ("1/2/3", {"other": "x"}, "x")
        assert message.batch.to_pylist() == [{"other": "x"}]
        with pytest.raises(AttributeError, match="it is called deliveries now"):
            message.aborts  # noqa: B018
    (node, _) = from_a_topic(ddl.parse(GRAPH.format(name="n")).schema, {"n": 1, "other": "x", "below": []})
    assert node.id == node.header.id == MessageId(1, 2, 3)
    assert (node.node_type, node.references) == ("top", {"below": []})
