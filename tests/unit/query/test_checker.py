"""The type checker: what it refuses, and in which words."""

import pytest

from milepost import query
from milepost.errors import QuerySyntaxError, QueryTypeError
from milepost.query import typed
from milepost.schema.text import parse

SCHEMA = parse(
    "message: [symbol: string, price: double, amount: decimal(30,20), size: int, id: ident, day: date, at: timestamp, "
    "key: uuid, urgent: bool, other: dynamic, tags: *(string)*, flags: *(bool)*, "
    "lines: *([name: string, price: double, parts: *(int)*])*, inner: [a: int, b: [c: string]]?, "
    "payload: {absent: [] | reply: int | subscribe: [topic: string]}, next: message?]"
)
ORDERS = parse(
    """
    DEFINE MESSAGETYPE OrderMessage;
    NODE order; id: IDENT; date: DATE; name: STRING; lines: REFERENCE TO order_line; END;
    NODE order_line; price: REAL; item: REFERENCE TO item; of: REFERENCE TO order; END;
    NODE item; name: STRING; END;
    ROOT order;
    END;
    """
)


@pytest.mark.parametrize(
    ("text", "message", "column"),
    [
        ("pirce > 1", "there is no 'pirce'; did you mean 'price'? There are symbol, price, amount, size", 1),
        ("inner.b.d = 'x'", "inner.b has no 'd'; there are c", 9),
        ("payload.replay = 1", "payload has no 'replay'; did you mean 'reply'? There are absent, reply, subscribe", 9),
        ("Price > 1", "there is no 'Price'; did you mean 'price'?", 1),
        ('symbol = "IBM"', "there is no 'IBM'; there are", 10),
        ("size = 'x'", "cannot compare integer with string", 6),
        ("size between 1 and 'x'", "cannot compare integer with string", 20),
        ("size in (1, 'x')", "cannot compare integer with string", 13),
        ("day = '2024-01-31'", "cannot compare date with string; a date is written date '…'", 5),
        ("day < at", "cannot compare date with timestamp; write date(…) of the timestamp", 5),
        ("id = 1.5", "cannot compare ident with decimal(2,1)", 4),
        ("id + 1 = 2", "cannot add ident and integer", 4),
        ("symbol + 'x' = ''", "cannot add string and string; strings are joined with ||", 8),
        ("at - at > 1", "cannot subtract timestamp and timestamp; use seconds_between", 4),
        ("symbol || 1 = ''", "|| joins strings, not string and integer", 8),
        ("-symbol = ''", "only a number has a sign, and symbol is a string", 1),
        ("amount * amount > 1", "multiplying decimal(30,20) by decimal(30,20) would leave 40 digits after", 8),
        ("size", "a predicate takes true or false, and size is an integer", 1),
        ("size and urgent", "'and' takes true or false, and size is an integer", 1),
        ("not size", "'not' takes true or false, and size is an integer", 5),
        ("size is true", "'is true' takes true or false, and size is an integer", 1),
        ("size like 'x'", "like takes a string, and size is an integer", 1),
        ("lines = 1", "lines is a list, and not a single value; write count(lines) or any(lines, …)", 1),
        ("payload = 1", "payload is a variant, and not a single value; write case(payload), or name a case", 1),
        ("inner = 1", "inner is a tuple, and not a single value; name one of its fields", 1),
        ("other = 1", "other is a dynamic value, and not a single value", 1),
        ("other.x = 1", "the type of the dynamic value other is known only when a message arrives", 7),
        ("lines.price > 1", "lines is a list: write any(lines, price …) or lines[0].price", 7),
        ("price.x > 1", "price is a double, which has no parts", 7),
        ("price[0] > 1", "only a list has elements, and price is a double", 7),
        ("any(price, it > 1)", "price is a double, and not a list", 5),
        ("any(lines)", "any needs to know what of each element: any(lines, …)", 1),
        ("any(lines, price)", "any takes a predicate, and this is a double", 1),
        ("any(1, true)", "any takes a list and an expression for its elements: any(list, …)", 1),
        ("sum(lines, name) = 1", "sum takes numbers, and this is a string", 1),
        ("any(tags, it.x = 1)", "it is a string, which has no parts", 14),
        ("it = 1", "there is no 'it'", 1),
        ("size in (tags)", "tags is a list; write size in tags, without parentheses", 10),
        ("size in lines", "'in' compares single values, and not a tuple; write any(lines, …)", 1),
        ("size in tags", "cannot compare string with integer", 1),
        ("lenght(symbol) = 1", "there is no function 'lenght'; did you mean 'length'?", 1),
        ("length(size) = 1", "length(string) or length(bytes) does not take (integer)", 1),
        ("substring(symbol) = ''", "substring(string, integer) or substring(string, integer, integer)", 1),
        ("in_subnet(symbol, symbol)", "the network of in_subnet is a literal, such as '10.0.0.0/8'", 19),
        ("in_subnet(symbol, '10.0.0.1/8')", "'10.0.0.1/8' has bits set behind its prefix; write '10.0.0.0/8'", 19),
        ("in_subnet(symbol, '10')", "'10' is not a network: write one such as '10.0.0.0/8'", 19),
        ("coalesce(size, symbol) = 1", "the arguments of coalesce have no type in common: integer, string", 1),
        ("coalesce() = 1", "coalesce takes at least one argument", 1),
        ("case(symbol) = 'x'", "only a variant has cases, and symbol is a string", 6),
        ("case(payload) = 'replay'", "there is no case 'replay'; did you mean 'reply'? There are absent", 15),
        ("case(payload) in ('reply', 'x')", "there is no case 'x'; there are absent, reply, subscribe", 28),
        ("length(select * from mt_message m) = 1", "only any, all, count, sum, min, max, avg take a query", 1),
        ("select * from mt_message m", "select works on message types", 1),
    ],
)  # fmt: skip
def test_what_the_author_is_told(text: str, message: str, column: int) -> None:
    with pytest.raises(QueryTypeError) as caught:
        query.compile(text, SCHEMA)
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == (1, column)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("symbol like 'a!' escape '!'", "the pattern ends with its escape character !"),
        ("symbol like 'a!b' escape '!'", "!b escapes nothing: ! goes before %, _ and !"),
        ("symbol like 'a' escape 'ab'", "escape takes one character, and 'ab' has 2"),
    ],
)
def test_patterns_that_cannot_be(text: str, message: str) -> None:
    with pytest.raises(QuerySyntaxError, match="line 1") as caught:
        query.compile(text, SCHEMA)
    assert caught.value.message == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("select * from mt_OrderMessage mt, mt.root o, order_line ol where ol in o.lines",
         "'ol' is a free variable: nothing leads to it from mt_OrderMessage; write o.lines ol"),
        ("select * from mt_OrderMessage m, x.lines a", "there is no variable 'x'; there are a, m"),
        ("select * from mt_OrderMessage m, b.of a, a.lines b",
         "free variables that no path from mt_OrderMessage leads to: 'a', 'b'"),
        ("select * from mt_Order m", "a query begins with its message: from mt_OrderMessage m, m.root …"),
        ("select * from mt_OrderMessage m, mt_Order n", "the messages here are of type mt_OrderMessage, not mt_Order"),
        ("select * from mt_OrderMessage m, mt_ordermessage n", "mt_OrderMessage stands in a from clause once"),
        ("select * from mt_OrderMessage m, m.root m", "two variables are called 'm'"),
        ("select * from mt_OrderMessage m, m.priority p", "m has no 'priority'"),
        ("select * from mt_OrderMessage m, m.root o, o.name n",
         "a variable goes through a reference, and o.name is a string"),
        ("select * from mt_OrderMessage m, m.root o where o.lines.price > 1",
         "o.lines is a reference, a set of nodes: write any(o.lines, price …), or in a query: from …, o.lines x"),
        ("lines.price > 1",
         "lines is a reference, a set of nodes: write any(lines, price …), or in a query: from …, lines x"),
        ("lines[0].price > 1", "lines is a reference, whose nodes have no order"),
        ("any(lines, item.name = 'x')", "item is a reference, a set of nodes: write any(item, name …)"),
        ("lines is null", "a reference is never null, but it may be empty: write count(lines) = 0"),
        ("select * from mt_OrderMessage m where m is null", "m is a message, and never null"),
        ("select * from mt_OrderMessage m, m.root o, o.lines l where l in o.lines",
         "o.lines is a reference; let a variable go through it: from …, o.lines x"),
        ("select * from mt_OrderMessage m where m.prio > 1", "m has no 'prio'"),
        ("select * from mt_OrderMessage m where m.mid.x = 1", "m.mid is a string, which has no parts"),
        ("select * from mt_OrderMessage m order by m.mid", "order by has no meaning here"),
        ("sum(select * from mt_OrderMessage m) = 1", "sum takes a query that selects one thing"),
        ("sum(select o.id, o.id from mt_OrderMessage m, m.root o) = 1", "sum takes a query that selects one thing"),
        ("sum(select o.lines from mt_OrderMessage m, m.root o) = 1",
         "sum takes values, and o.lines is a node order_line; select an attribute"),
    ],
)  # fmt: skip
def test_queries_that_do_not_hang_together(text: str, message: str) -> None:
    with pytest.raises(QueryTypeError) as caught:
        query.compile(text, ORDERS)
    assert caught.value.message.startswith(message)


def test_names_mean_what_is_nearest() -> None:
    predicate = query.compile("any(lines, price > size and any(parts, it > price))", SCHEMA)
    assert predicate.fields == ("lines", "lines[].parts", "lines[].parts[]", "lines[].price", "size")


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("symbol = 'x' and price > 1 or price < 0", ("price", "symbol")),
        ("payload.subscribe.topic is null", ("payload.subscribe.topic",)),
        ("case(payload) = 'reply'", ("payload",)),
        ("lines[0].parts[1] = 1", ("lines[0].parts[1]",)),
        ("count(tags) > 1", ("tags",)),
        ("true", ()),
        ("next.next.price > 1", ("next.next.price",)),
    ],
)
def test_fields(text: str, fields: tuple[str, ...]) -> None:
    assert query.compile(text, SCHEMA).fields == fields


def test_fields_of_nodes() -> None:
    text = "select i.name from mt_OrderMessage m, m.root o, o.lines l, l.item i where l.price > 1 order by o.date"
    expected = ("item.name", "order.date", "order.lines", "order_line.item", "order_line.price")
    assert query.parse_query(text, ORDERS).fields == expected


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("size + 1", "integer"),
        ("size / 2", "double"),
        ("size + 1.5", "decimal(22,1)"),
        ("price * 1.5", "double"),
        ("amount + 1", "decimal(38,20)"),
        ("1.5 * 2.25", "decimal(5,3)"),
        ("floor(amount)", "decimal(11,0)"),
        ("sum(lines, 1.5)", "decimal(38,1)"),
        ("avg(lines, 1)", "double"),
        ("max(tags)", "string"),
        ("coalesce(size, 1.25)", "decimal(22,2)"),
        ("coalesce(size, null, 1e0)", "double"),
        ("coalesce(id, 1)", "ident"),
        ("18446744073709551615", "decimal(20,0)"),
        ("case(payload)", "string"),
        ("count(lines)", "integer"),
    ],
)
def test_types_of_expressions(text: str, kind: str) -> None:
    assert str(query.expression(text, SCHEMA).type) == kind


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("price > 100", "price>100.0"),
        ("price > 100", "price > 1e2"),
        ("size > 100", "size > 100.00"),
        ("amount > 1.5", "amount > 1.500"),
        ("symbol = 'a' and (size = 1 and urgent)", "(symbol = 'a' and size = 1) and urgent"),
        ("size <> 1", "size != 1"),
        ("size = 2 + 3", "size = 5"),
        ("size = null", "null = 1"),
    ],
)
def test_equal_predicates_are_equal(one: str, other: str) -> None:
    left, right = query.compile(one, SCHEMA), query.compile(other, SCHEMA)
    assert left == right
    assert hash(left) == hash(right)
    assert left != query.compile("size = 99", SCHEMA)
    assert left != query.compile(one, parse(str(SCHEMA).replace("message", "other_message")))


def test_the_names_of_variables_do_not_matter() -> None:
    one = "select m from mt_OrderMessage m, m.root o, o.lines l where l.price > 1"
    other = "select x from mt_ordermessage x, r.lines line, x.root r where line.price > 1"
    assert query.compile(one, ORDERS) == query.compile(other, ORDERS)
    assert query.compile(one, ORDERS) != query.compile(one.replace("> 1", "> 2"), ORDERS)


def test_integers_that_no_double_holds_stay_integers() -> None:
    root = query.compile("price = 9007199254740993", SCHEMA).root
    assert isinstance(root, typed.Compare)
    assert root.right == typed.Const(9007199254740993, query.expression("size", SCHEMA).type)


def test_expressions_are_not_queries_and_the_other_way_round() -> None:
    with pytest.raises(QueryTypeError, match="a query returns rows"):
        query.expression("select * from mt_OrderMessage m", ORDERS)
    with pytest.raises(QueryTypeError, match="a query begins with 'select'"):
        query.parse_query("name = 'x'", ORDERS)
    with pytest.raises(QueryTypeError, match="null alone has no type"):
        query.expression("null", ORDERS)
