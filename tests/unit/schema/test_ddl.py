"""JPMQ's notation: its own example, keywords as names, and what is said about a statement that is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given

from milepost.errors import SchemaError, SchemaSyntaxError
from milepost.schema import ddl
from milepost.schema import types as t
from milepost.schema.messagetype import Attribute, MessageType, NodeType, Reference
from milepost.schema.text import parse
from tests.strategies import message_types

ORDER = """DEFINE MESSAGETYPE OrderMessage;
NODE order;
id: IDENT; date: DATE; lines: REFERENCE TO order_line;
END;
NODE order_line;
line_no: INTEGER; amout: INTEGER; price: REAL; item: REFERENCE TO item;
END;
NODE item;
id: IDENT; name: STRING; ean: INTEGER;
END;
ROOT order;
END;
"""


def test_the_example_of_the_paper() -> None:
    order = NodeType("order", (Attribute("id", t.IDENT), Attribute("date", t.DATE), Reference("lines", "order_line")))
    line = NodeType(
        "order_line",
        (
            Attribute("line_no", t.INT64),
            Attribute("amout", t.INT64),
            Attribute("price", t.DOUBLE),
            Reference("item", "item"),
        ),
    )
    item = NodeType("item", (Attribute("id", t.IDENT), Attribute("name", t.STRING), Attribute("ean", t.INT64)))
    expected = MessageType("OrderMessage", (order, line, item), "order")
    assert ddl.parse(ORDER) == expected
    assert parse(ORDER) == expected.schema
    assert parse(ORDER).message_type == expected


def test_it_prints_one_member_on_a_line() -> None:
    assert str(ddl.parse(ORDER)).split("\n")[:5] == [
        "DEFINE MESSAGETYPE OrderMessage;",
        "NODE order;",
        "  id: IDENT;",
        "  date: DATE;",
        "  lines: REFERENCE TO order_line;",
    ]


@given(message_types(checks=True, indexes=True))
def test_every_message_type_reads_back_from_its_text(message_type: MessageType) -> None:
    assert ddl.parse(str(message_type)) == message_type


def test_keywords_in_either_case_comments_and_checks() -> None:
    text = "# ours\n" + ORDER.lower().replace("root order;", "root order; check ( (a) > ')' ); Check (b); # two")
    message_type = parse(text).message_type
    assert message_type is not None
    assert message_type.checks == ("(a) > ')'", "b")
    assert message_type.schema.checks == message_type.checks


KEYWORDS = ["define", "messagetype", "node", "root", "check", "index", "end", "reference", "to"]


@pytest.mark.parametrize("word", [*KEYWORDS, "date"])
def test_a_keyword_may_be_a_name(word: str) -> None:
    text = f"DEFINE MESSAGETYPE m; NODE {word}; {word}: DATE; r: REFERENCE TO {word}; END; ROOT {word}; END;"
    message_type = ddl.parse(text)
    assert message_type.node(word).members == (Attribute(word, t.DATE), Reference("r", word))
    assert ddl.parse(str(message_type)) == message_type


def test_indexes_stand_beside_checks_in_any_order_and_are_printed_before_them() -> None:
    clauses = "INDEX order.date; CHECK (id > 0); index item.name;"
    message_type = ddl.parse(ORDER.replace("ROOT order;", f"ROOT order; {clauses}"))
    assert message_type.indexes == message_type.schema.indexes == ("order.date", "item.name")
    assert str(message_type).endswith("ROOT order;\nINDEX order.date;\nINDEX item.name;\nCHECK (id > 0);\nEND;")
    other = ddl.parse(str(message_type).replace("INDEX item.name;\n", ""))
    assert other.schema.fingerprint != message_type.schema.fingerprint


def test_a_node_and_an_attribute_may_be_called_as_the_clause_is() -> None:
    node = "NODE index; index: DATE; end: INT; END;"
    text = f"DEFINE MESSAGETYPE m; {node} ROOT index; INDEX index.index; INDEX index.end; END;"
    assert ddl.parse(text).indexes == ("index.index", "index.end")


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("INTEGER", t.INT64),
        ("REAL", t.DOUBLE),
        ("STRING", t.STRING),
        ("BOOLEAN", t.BOOL),
        ("IDENT", t.IDENT),
        ("DATE", t.DATE),
        ("TIMESTAMP", t.TIMESTAMP),
        ("BYTES", t.BYTES),
        ("UUID", t.UUID),
        ("DECIMAL(10,2)", t.decimal(10, 2)),
        ("DECIMAL", t.decimal()),
        ("INT", t.INT32),
        ("uint16", t.UINT16),
        ("SHORT", t.INT16),
        ("STRING?", t.Optional(t.STRING)),
        ("DECIMAL(10,2)?", t.Optional(t.decimal(10, 2))),
    ],
)
def test_types_of_attributes(word: str, kind: t.Type) -> None:
    message_type = ddl.parse(f"DEFINE MESSAGETYPE m; NODE n; a: {word}; END; ROOT n; END;")
    assert message_type.node("n").member("a") == Attribute("a", kind)


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("REAL", "RAEL", "there is no type 'RAEL'; did you mean 'REAL'?"),
        ("REAL", "order_line", "there is no type 'order_line'; an attribute is of an atomic type"),
        ("REAL", "INTEGER(3,2)", "only DECIMAL takes digits, not 'INTEGER'"),
        ("REAL", "DECIMAL(3,5)", "decimal(3,5) is not valid"),
        ("REAL", "", "expected a type or REFERENCE TO, found ';'"),
        ("REAL", "REFERENCE item", "expected 'TO', found 'item'"),
        ("price:", "price", "expected ':', found 'REAL'"),
        ("ROOT order;", "", "expected 'NODE' or 'ROOT', found 'END'"),
        ("ROOT order;", "ROOT order", "expected ';', found 'END'"),
        ("ROOT order;\nEND;", "ROOT order;", "expected 'CHECK', 'END' or 'INDEX', found the end of the text"),
        ("ROOT order;", "ROOT order; CHECK (a = 'b);", "this quote is never closed"),
        ("NODE item;", "NODE 3;", "expected a name, found '3'"),
    ],
)
def test_an_error_says_what_was_expected(before: str, after: str, message: str) -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse(ORDER.replace(before, after, 1))
    assert caught.value.message.startswith(message)
    assert caught.value.line > 0


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("TO order_line", "TO orderline", "order.lines refers to 'orderline'.*did you mean 'order_line'"),
        ("ROOT order;", "ROOT oder;", "the root 'oder' is no node type; did you mean 'order'"),
        ("NODE item;", "NODE order;", "two node types called 'order'"),
        ("name: STRING", "id: STRING", "node item has two members called 'id'"),
        ("date: DATE", "_1: DATE", "'_1' cannot name a member of node order"),
        ("date: DATE", "a.b: DATE", "'a.b' cannot name a member of node order"),
        ("ROOT order;", "ROOT order; CHECK ();", "must not be empty"),
        ("ROOT order;", "ROOT order; INDEX oder.date;", "has no node type 'oder'; did you mean 'order'"),
        ("ROOT order;", "ROOT order; INDEX order.dat;", "node order has no member 'dat'; did you mean 'date'"),
        ("ROOT order;", "ROOT order; INDEX order.lines;", "an index on order.lines, which is a reference"),
        ("ROOT order;", "ROOT order; INDEX order;", "an index on 'order'; write which attribute of which node"),
        ("ROOT order;", "ROOT order; INDEX order.id.x;", "node order has no member 'id.x'"),
        ("ROOT order;", "ROOT order; INDEX order.id; INDEX order.id;", "order.id is there already"),
        ("OrderMessage", "date", "'date' is the name of a built-in type"),
        ("id: IDENT; name: STRING; ean: INTEGER;", "", "node item has no members"),
    ],
)
def test_what_parses_may_still_be_impossible(before: str, after: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse(ORDER.replace(before, after, 1))
