"""Message types: what they compile to, and how members are found."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given

from milepost.errors import LimitExceeded, SchemaError
from milepost.schema import types as t
from milepost.schema.messagetype import Attribute, MessageType, NodeType, Reference
from tests.strategies import message_types


def test_it_compiles_to_one_list_of_tuples_per_node_type() -> None:
    node = NodeType("person", (Attribute("name", t.Optional(t.STRING)), Reference("friends", "person")))
    alone = NodeType("alone", (Attribute("x", t.INT32),))
    message_type = MessageType("circle", (node, alone), "person", ("count(person) > 0",))
    assert str(message_type.schema) == (
        "circle: [person: *([name: string?, friends: *(uint32)*])*, alone: *([x: int])*] check (count(person) > 0)"
    )
    assert message_type.schema.message_type is message_type
    assert message_type.schema is message_type.schema


@given(message_types())
def test_a_message_type_is_not_the_plain_schema_of_its_lists(message_type: MessageType) -> None:
    plain = t.Schema(message_type.name, message_type.schema.type)
    assert plain != message_type.schema
    assert plain.fingerprint != message_type.schema.fingerprint
    assert pickle.loads(pickle.dumps(message_type.schema)) == message_type.schema


def test_members_and_node_types_are_found_by_name() -> None:
    node = NodeType("person", (Attribute("name", t.STRING),))
    message_type = MessageType("circle", (node,), "person")
    assert message_type.node("person").member("name") == Attribute("name", t.STRING)
    with pytest.raises(SchemaError, match="circle has no node type 'persn'; did you mean 'person'"):
        message_type.node("persn")
    with pytest.raises(SchemaError, match="node person has no member 'nme'; did you mean 'name'"):
        node.member("nme")


def test_an_attribute_is_atomic() -> None:
    with pytest.raises(SchemaError, match=r"person.tags: an attribute holds an atomic value, not \*\(string\)\*"):
        NodeType("person", (Attribute("tags", t.List(t.STRING)),))


def test_limits() -> None:
    with pytest.raises(LimitExceeded):
        NodeType("n" * 256, (Attribute("a", t.INT32),))
    many = tuple(NodeType(f"n{number}", (Attribute("a", t.INT32),)) for number in range(10_000))
    with pytest.raises(LimitExceeded) as caught:
        MessageType("m", many, "n0")
    assert caught.value.limit == "SCHEMA_NODES"
