"""Messages that are graphs: sharing, cycles and length survive the bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch
from milepost.errors import InvalidValue
from milepost.schema.generate import classes
from milepost.schema.text import parse
from tests import strategies

ORDER = parse(
    """
    DEFINE MESSAGETYPE OrderMessage;
    NODE order; id: IDENT; date: DATE?; lines: REFERENCE TO order_line; END;
    NODE order_line; line_no: INTEGER; amount: INTEGER; price: REAL; item: REFERENCE TO item; END;
    NODE item; id: IDENT; name: STRING; ean: INTEGER; END;
    ROOT order;
    END;
    """
)
CHAIN = parse("DEFINE MESSAGETYPE Chain; NODE link; n: INT; next: REFERENCE TO link; END; ROOT link; END;")


@given(st.data(), strategies.message_types())
def test_graphs_come_back_from_the_bytes(data: st.DataObject, message_type: Any) -> None:
    schema = message_type.schema
    graphs = data.draw(st.lists(strategies.graphs(message_type), max_size=3))
    batch = Batch.decode(Batch.encode(schema, graphs).data, schema)
    for made, graph in zip(batch.to_pylist(), graphs, strict=True):
        assert strategies.identical_graphs(message_type, made, graph)
    assert Batch.encode(schema, list(batch)) == batch  # nodes encode as dicts do
    assert Batch.encode(schema, batch.to_arrow()) == batch


def test_nodes_read_as_the_paper_writes_them() -> None:
    ink = {"id": 7, "name": "ink", "ean": 4006381333931}
    lines = [{"line_no": number, "amount": 1, "price": 2.5, "item": [ink]} for number in (1, 2)]
    order = Batch.encode(ORDER, [{"id": 1, "lines": lines}])[0]
    assert order.lines[0].item.name == "ink"
    assert order.lines[0].item[0] is order.lines[1].item[0]
    assert order["date"] is None


def test_generated_classes_are_rows_too() -> None:
    assert ORDER.message_type is not None
    made = classes(ORDER.message_type)
    item = made["item"](id=7, name="ink", ean=1)
    line = made["order_line"](line_no=1, amount=2, price=2.5, item=[item])
    order = made["order"](id=1, lines=[line, line])
    read = Batch.encode(ORDER, [order])[0]
    assert read.lines[0] is read.lines[1]
    assert read.lines[1].item.name == "ink"


def test_a_long_chain_and_a_ring_are_graphs_like_any_other() -> None:
    first: dict[str, Any] = {"n": 0, "next": []}
    last = first
    for number in range(1, 20_000):
        last["next"] = [{"n": number, "next": []}]
        last = last["next"][0]
    last["next"] = [first]
    read = Batch.encode(CHAIN, [first]).to_pylist()[0]
    for _ in range(20_000):
        read = read["next"][0]
    assert read["n"] == 0


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"id": 1, "lines": "x"}, "a reference is a list of nodes"),
        ({"id": 1, "lines": [None]}, "expected a node order_line"),
        ({"id": 1, "linse": []}, "did you mean 'lines'"),
        ({"lines": []}, "missing"),
        ({"id": "x", "lines": []}, "is no ident"),
    ],
)
def test_a_wrong_node_is_explained(row: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        Batch.encode(ORDER, [{"id": 1, "lines": []}, row])
