"""Nodes: late-bound access, references that answer for their only node, and the way to and from plain graphs."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import InvalidValue
from milepost.schema import ddl
from milepost.schema.generate import classes
from milepost.schema.messagetype import MessageType
from milepost.schema.node import Node, References, build, plain
from tests.strategies import graphs, identical_graphs, message_types

ORDER = ddl.parse("""
DEFINE MESSAGETYPE OrderMessage;
NODE order; id: IDENT; lines: REFERENCE TO order_line; END;
NODE order_line; line_no: INTEGER; count: INTEGER?; item: REFERENCE TO item; next: REFERENCE TO order_line; END;
NODE item; name: STRING; get: STRING?; END;
ROOT order;
END;
""")


def order() -> Node:
    ink = {"name": "ink", "get": "soon"}
    first: dict[str, Any] = {"line_no": 1, "count": 7, "item": [ink]}
    second = {"line_no": 2, "item": [ink], "next": [first]}
    first["next"] = [second]
    return build(ORDER, {"id": 3, "lines": [first, second]})


def test_a_reference_to_one_node_answers_for_it() -> None:
    made = order()
    assert made.lines[0].item.name == "ink"
    assert made.lines[0].next.next.line_no == 1
    assert made.lines[0].item[0] is made.lines[1].item.one


def test_members_by_attribute_by_item_and_by_get() -> None:
    made = order()
    assert made.id == made["id"] == made.get("id") == 3
    assert made.node_type == "order"
    assert list(made) == ["id", "lines"]
    assert made.references == {"lines": made.lines}
    assert made.lines[1].count is None
    assert "lines" in dir(made)
    assert repr(made) == "<order id=3 lines=[2]>"


def test_a_name_that_is_also_a_method_is_read_by_item() -> None:
    line = order().lines[0]
    assert line.item[0]["get"] == "soon"
    assert line.item.one["get"] == "soon"
    assert line.next.count(line) == 0  # the list's own
    assert line.next.one.next.one.count == 7


def test_a_wrong_name_suggests_the_near_one() -> None:
    made = order()
    with pytest.raises(AttributeError, match="node order has no member 'lins'; did you mean 'lines'"):
        made.lins  # noqa: B018
    with pytest.raises(KeyError, match="did you mean 'lines'"):
        made["lins"]
    with pytest.raises(AttributeError, match="did you mean 'lines'"):
        made.lins = []
    with pytest.raises(KeyError, match="did you mean 'lines'"):
        made["lins"] = []
    with pytest.raises(AttributeError, match="node item has no member 'nam'"):
        made.lines[0].item.nam  # noqa: B018
    with pytest.raises(AttributeError, match="did you mean 'id'"):
        Node(ORDER.node("order"), {"idd": 1})


def test_a_reference_to_several_nodes_answers_for_none() -> None:
    made = order()
    with pytest.raises(
        AttributeError, match=r"'line_no' asks for one node, but the reference holds 2; choose with \[index\]"
    ):
        made.lines.line_no  # noqa: B018
    made.lines = []
    with pytest.raises(AttributeError, match="'one' asks for one node, but the reference holds 0"):
        made.lines.one  # noqa: B018
    assert not hasattr(made.lines, "line_no")


def test_members_can_be_set() -> None:
    made = order()
    made.id = 9
    made["lines"] = made.lines[1]  # one node, without brackets
    assert (made.id, made.lines.line_no) == (9, 2)
    made.lines = (line for line in [made.lines[0], made.lines[0].next[0]])
    assert isinstance(made.lines, References)
    assert [line.line_no for line in made.lines] == [2, 1]
    made.lines.append(made.lines[0])
    assert len(made.lines) == 3


@pytest.mark.parametrize("wrong", [3, "abc", {"line_no": 1}, [3], [None]])
def test_a_reference_holds_nodes(wrong: Any) -> None:
    with pytest.raises(InvalidValue, match=r"order\.lines: "):
        order().lines = wrong


def test_a_reference_holds_nodes_of_its_target() -> None:
    made = order()
    with pytest.raises(InvalidValue, match=r"order\.lines: a reference to nodes order_line cannot hold <order id=3"):
        made.lines = [made]


def test_nodes_survive_copy_and_pickle() -> None:
    made = order()
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert identical_graphs(ORDER, plain(twin), plain(made))
    shallow = copy.copy(made)
    shallow.id = 4
    assert made.id == 3
    assert shallow.lines is made.lines


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        ({"idd": 1}, "order: node order has no member 'idd'; did you mean 'id'?"),
        ({"lines": [{"itm": []}]}, "order.lines: node order_line has no member 'itm'"),
        ({"lines": [3]}, "order.lines: expected a node order_line as a dict, got 3"),
        ({"lines": 3}, "order.lines: a reference is a list of nodes, got 3"),
        (3, "order: expected a node order as a dict, got 3"),
    ],
)
def test_a_graph_that_does_not_fit(graph: Any, message: str) -> None:
    with pytest.raises(InvalidValue) as caught:
        build(ORDER, graph)
    assert str(caught.value).startswith(message)


def test_one_dict_is_one_node_of_one_type() -> None:
    shared: dict[str, Any] = {}
    with pytest.raises(InvalidValue, match="one node is referred to as order_line and as item"):
        build(ORDER, {"lines": [shared, {"item": [shared]}, shared]})


@given(st.data(), message_types())
def test_every_graph_comes_back_with_sharing_and_cycles(data: st.DataObject, message_type: MessageType) -> None:
    graph = data.draw(graphs(message_type))
    assert identical_graphs(message_type, plain(build(message_type, graph)), graph)


@given(st.data(), message_types(max_nodes=2))
def test_typed_nodes_are_the_same_graph(data: st.DataObject, message_type: MessageType) -> None:
    graph = data.draw(graphs(message_type))
    made = build(message_type, graph, classes(message_type))
    assert type(made) is not Node
    assert identical_graphs(message_type, plain(made), graph)


@pytest.mark.slow
def test_a_chain_of_a_hundred_thousand_nodes() -> None:
    first: dict[str, Any] = {"line_no": 0}
    last = first
    for number in range(1, 100_000):
        last["next"] = [{"line_no": number}]
        last = last["next"][0]
    last["next"] = [first]
    graph = {"lines": [first]}
    made = build(ORDER, graph)
    assert made.lines.next.next.line_no == 2
    assert identical_graphs(ORDER, plain(made), graph)
