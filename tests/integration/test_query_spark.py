"""Spark's columns hold what the reference says, for generated expressions and awkward data.

A job costs a third of a second whatever it does, so each test asks hundreds of expressions in one `select`. Everything
random comes from a seed that is in the name of the test.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Context, Decimal
from random import Random
from typing import TYPE_CHECKING, Any
from uuid import UUID

import hypothesis
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from milepost import query
from milepost.errors import QueryTypeError
from milepost.schema import types as t
from milepost.schema.messagetype import MessageType, Reference
from milepost.schema.text import parse
from tests import odd_texts
from tests.strategies import graphs, message_types, schemas, values
from tests.unit.query.strategies import EDGES, FAMILIES, Author, edge_value
from tests.unit.query.test_documentation import examples, sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@contextmanager
def settings(spark: SparkSession, **values: str) -> Iterator[None]:
    """Settings of the session for a while; `__` in a name stands for a dot."""
    names = {name.replace("__", "."): value for name, value in values.items()}
    before = {name: spark.conf.get(name) for name in names}
    for name, value in names.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            assert old is not None
            spark.conf.set(name, old)


def stored(value: Any, kind: t.Type, schema: t.Schema) -> Any:
    """A plain value as a DataFrame holds it."""
    from milepost.query.spark import carries, case_field

    match kind:
        case t.Optional(inner):
            return None if value is None else stored(value, inner, schema)
        case t.Ref(name):
            return str(value) if name in schema.recursive else stored(value, schema.resolve(kind), schema)
        case t.Tuple(fields):
            return {item.name: stored(value.get(item.name), item.type, schema) for item in fields}
        case t.List(item):
            return [stored(each, item, schema) for each in value]
        case t.Variant(cases):
            ((name, inner),) = value.items()
            row: dict[str, Any] = {case_field(kind): name}
            for case in cases:
                if carries(case, schema):
                    row[case.name] = stored(inner, case.type, schema) if case.name == name else None
            return row
        case t.Atom("uuid") | t.Dynamic():
            return str(value)
        case t.Atom("uint64"):
            return Decimal(value)
    return value


def frame(spark: SparkSession, schema: t.Schema, messages: Sequence[Any]) -> DataFrame:
    from pyspark.sql.pandas.types import to_arrow_schema

    from milepost.query.spark import struct_type

    kind = struct_type(schema)
    rows = [stored(message, schema.type, schema) for message in messages]
    table = pa.Table.from_pylist(rows, to_arrow_schema(kind, timezone="UTC"))
    return spark.createDataFrame(table, kind)


def answers(frame: DataFrame, asked: Sequence[query.Expression], under: str | None = None) -> list[list[Any]]:
    """The values of each expression, in the plain form."""
    from milepost.query.spark import column, result_type

    columns = [column(each, under=under).alias(f"c{place}") for place, each in enumerate(asked)]
    made = frame.select(*columns)
    for field, each in zip(made.schema.fields, asked, strict=True):
        assert field.dataType == result_type(each), each
    table = made.toArrow()
    return [_plain(table.column(place), each) for place, each in enumerate(asked)]


def _plain(column: pa.ChunkedArray, of: query.Expression) -> list[Any]:
    if pa.types.is_timestamp(column.type):  # as a number, since a zone may push the ends of time out of Python's reach
        instants = column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        return [None if each is None else _EPOCH + timedelta(microseconds=each) for each in instants]
    values = column.to_pylist()
    if of.type.name == "uuid":
        return [None if each is None else UUID(each) for each in values]
    if of.type.name in ("integer", "ident"):
        return [None if each is None else int(each) for each in values]
    return values


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def compare(
    frame: DataFrame, messages: Sequence[Any], asked: Sequence[query.Expression], under: str | None = None
) -> None:
    wrong = []
    for each, got in zip(asked, answers(frame, asked, under), strict=True):
        expected = [each.value(message) for message in messages]
        assert len(got) == len(expected)
        differing = [(row, a, b) for row, (a, b) in enumerate(zip(got, expected, strict=True)) if not _same(a, b)]
        if differing:
            row, found, right = differing[0]
            wrong.append(f"{each}\n    row {row}: Spark {found!r}, reference {right!r}")
    assert not wrong, f"{len(wrong)} of {len(asked)} differ:\n" + "\n".join(wrong[:20])


def _same(got: Any, expected: Any) -> bool:
    return type(got) is type(expected) and bool(got == expected)


def generated(rng: Random, schema: t.Schema, messages: list[Any], count: int) -> list[query.Expression]:
    """Expressions of all types, most of them small."""
    found: list[query.Expression] = []
    while len(found) < count:
        author = Author(rng, schema, messages, rng.randint(2, 12))
        name = rng.choice(["boolean"] * 4 + ["integer", "decimal", "double", "string"] * 2 + FAMILIES)
        try:
            found.append(query.expression(str(author.compound(author.root(), name)), schema))
        except QueryTypeError:
            continue  # the author does not count digits, nor know which cases there are
    return found


@pytest.mark.parametrize("seed", range(4))
def test_generated_expressions_over_awkward_values(spark: SparkSession, seed: int) -> None:
    rng = Random(seed)
    messages = [edge_value(rng, EDGES.type) for _ in range(60)]
    asked = generated(rng, EDGES, messages, 150)
    mode = ["true", "false"][seed % 2]
    zone = ["Asia/Kathmandu", "America/Los_Angeles"][seed // 2]
    with settings(spark, spark__sql__ansi__enabled=mode, spark__sql__session__timeZone=zone):
        compare(frame(spark, EDGES, messages), messages, asked)


def test_the_examples_of_the_language_have_the_values_written(spark: SparkSession) -> None:
    defined = sessions()
    schema, message = defined["example"], defined["message"]
    asked = [query.expression(text, schema) for text, _ in examples()]
    compare(frame(spark, schema, [message]), [message], asked)


@hypothesis.settings(max_examples=6, derandomize=True, phases=[hypothesis.Phase.generate])
@hypothesis.given(st.data(), st.integers(0, 2**32))
def test_generated_schemas(spark: SparkSession, data: st.DataObject, seed: int) -> None:
    """Names that differ only in the case of letters among them, which only works inside a struct."""
    schema = data.draw(schemas(max_depth=3, min_fields=3, dynamic=False))
    messages = data.draw(st.lists(values(schema), min_size=3, max_size=6))
    asked = [each for each in generated(Random(seed), schema, messages, 25) if not refused(each)]
    compare(inside(spark, schema, messages), messages, asked, under=UNDER)


@hypothesis.settings(max_examples=4, derandomize=True, phases=[hypothesis.Phase.generate])
@hypothesis.given(st.data(), st.integers(0, 2**32))
def test_generated_message_types(spark: SparkSession, data: st.DataObject, seed: int) -> None:
    message_type = data.draw(message_types())
    messages = data.draw(st.lists(graphs(message_type), min_size=3, max_size=6))
    schema, rng = message_type.schema, Random(seed)
    asked = [each for each in generated(rng, schema, messages, 25) if not refused(each)]
    compare(inside(spark, schema, [flat(message_type, each) for each in messages]), messages, asked, under=UNDER)


UNDER = "a.`message`"


def inside(spark: SparkSession, schema: t.Schema, messages: Sequence[Any]) -> DataFrame:
    """A DataFrame with one struct column, whose name is as bad as can be."""
    from pyspark.sql import types as s
    from pyspark.sql.pandas.types import to_arrow_schema

    from milepost.query.spark import struct_type

    kind = s.StructType([s.StructField(UNDER, struct_type(schema))])
    rows = [{UNDER: stored(message, schema.type, schema)} for message in messages]
    return spark.createDataFrame(pa.Table.from_pylist(rows, to_arrow_schema(kind, timezone="UTC")), kind)


def refused(expression: query.Expression) -> bool:
    from milepost.query.spark import check

    try:
        check(expression, under=UNDER)
    except QueryTypeError:
        return True
    return False


def flat(message_type: MessageType, root: dict[str, Any]) -> dict[str, Any]:
    """A graph of nodes as a batch stores it: lists of nodes, and references as places in them."""
    nodes: dict[str, list[dict[str, Any]]] = {node.name: [] for node in message_type.nodes}
    places: dict[int, int] = {}

    def place(kind: str, node: dict[str, Any]) -> int:
        if id(node) not in places:
            places[id(node)] = len(nodes[kind])
            made: dict[str, Any] = {}
            nodes[kind].append(made)
            for member in message_type.node(kind).members:
                value = node[member.name]
                if isinstance(member, Reference):
                    value = [place(member.target, each) for each in value]
                made[member.name] = value
        return places[id(node)]

    place(message_type.root, root)
    return nodes


NUMBERS = parse(
    "n: [w: decimal(38,10), z: decimal(38,0), t: decimal(38,37), x: decimal(38,38), u: uint64, l: long, "
    "d: double, c: decimal(18,4), ws: *(decimal(38,10))*, zs: *(decimal(38,0)?)*]"
)
SIGNS = ["=", "<>", "<", "<=", ">", ">="]


def test_numbers_at_the_ends_of_their_ranges(spark: SparkSession) -> None:
    """Each pair of fields with each sign: sums that fit only as a whole, products that just do, doubles near longs."""
    rng = Random(7)

    def near(bound: int) -> int:
        return rng.choice([-1, 1]) * (
            rng.choice([bound, bound // 2, bound // 10, bound // 3, 10, 1]) - rng.randint(0, 2)
        )

    def exact(digits: int, scale: int) -> Decimal:
        most = 10**digits - 1
        units = max(-most, min(near(10 ** rng.randint(1, digits)), most))
        return Decimal(units).scaleb(-scale, Context(prec=50))

    def message() -> dict[str, Any]:
        return {
            "w": exact(38, 10), "z": exact(38, 0), "t": exact(38, 37), "x": exact(38, 38), "c": exact(18, 4),
            "u": abs(near(2**64)) % 2**64, "l": max(-(2**63), min(near(2**63), 2**63 - 1)),
            "d": rng.choice([float(near(2**63)), float(near(2**64)), float(near(2**53)), near(9) / 4, -0.0, math.inf]),
            "ws": [exact(38, 10) for _ in range(rng.randint(0, 4))],
            "zs": [rng.choice([exact(38, 0), None]) for _ in range(rng.randint(0, 4))],
        }  # fmt: skip

    messages = [message() for _ in range(200)]
    fields = ["w", "z", "t", "x", "u", "l", "d", "c"]
    texts = [f"{a} {sign} {b}" for a in fields for b in fields for sign in [*"+-*/%", *SIGNS]]
    texts += [f"{name}({field})" for name in ("abs", "floor", "ceil", "round", "-") for field in fields]
    texts += [f"{name}({field})" for name in ("sum", "min", "max", "avg") for field in ("ws", "zs")]
    texts += [f"coalesce({a}, {b})" for a in fields for b in fields]
    asked = []
    for text in texts:
        try:
            asked.append(query.expression(text, NUMBERS))
        except QueryTypeError:  # too many places: the language has no such product
            continue
    assert len(asked) > len(texts) * 0.9
    compare(frame(spark, NUMBERS, messages), messages, asked)


TEXTS = odd_texts.SCHEMA


def test_patterns_addresses_and_parts_of_strings(spark: SparkSession) -> None:
    rng = Random(11)
    letters = [*odd_texts.LETTERS, "\0"]
    messages = odd_texts.messages(rng, letters, 1_500)
    texts = odd_texts.pairs()
    texts += [f"substring(s, {rest})" for rest in ("i", "u", "i, n", "i, u", "u, n")]
    texts += ["in_subnet(lower(s || ''), '10.0.0.0/8')", "substring(s || p, -1, 4)", "s < p", "s || p = p || s"]
    for _ in range(150):
        pattern = "".join(rng.choices([*letters, "%", "%", "%", "_", "_"], k=rng.randint(0, 6))).replace("'", "''")
        texts.append(f"s like '{pattern}'")
    texts += ["s like '!%%' escape '!'", "s like '%!_' escape '!'", "p like '!_' escape '!'"]
    compare(frame(spark, TEXTS, messages), messages, [query.expression(text, TEXTS) for text in texts])


def test_no_setting_of_the_session_changes_a_result(spark: SparkSession) -> None:
    rng = Random(3)
    messages = [edge_value(rng, EDGES.type) for _ in range(40)]
    asked = generated(rng, EDGES, messages, 40)
    asked += [
        query.expression(text, EDGES) for text in ("hour(at)", "date(at)", "year(at)", "weekday(at)", "at", "i / i8")
    ]
    rows = frame(spark, EDGES, messages)
    found = []
    for ansi, zone, sensitive in (("true", "UTC", "true"), ("false", "Pacific/Apia", "false")):
        with settings(
            spark,
            spark__sql__ansi__enabled=ansi,
            spark__sql__session__timeZone=zone,
            spark__sql__caseSensitive=sensitive,
            spark__sql__legacy__sizeOfNull=sensitive,
            spark__sql__decimalOperations__allowPrecisionLoss=sensitive,
            spark__sql__codegen__wholeStage=ansi,
        ):
            found.append(answers(rows, asked))
    assert found[0] == found[1]


def test_nesting_does_not_multiply_the_work(spark: SparkSession) -> None:
    """Each of these writes its argument more than once."""
    deep = 20
    texts = [
        "abs(" * deep + "d" + ")" * deep,
        "round(" * deep + "d" + ")" * deep,
        "abs(" * deep + "w" + ")" * deep,
        "(" * deep + "w" + " + 0.00000000001)" * deep,
        "(" * deep + "z" + " % 0.7)" * deep,
        "substring(" * deep + "s" + ", i, 5)" * deep,
        "i in (" + ", ".join(map(str, range(1_000))) + ")",
        "d in (" + ", ".join(f"{each}e0" for each in range(200)) + ")",
        " or ".join(f"(i = {each} and d < {each})" for each in range(200)),
    ]
    rng = Random(5)
    messages = [edge_value(rng, EDGES.type) for _ in range(10)]
    compare(frame(spark, EDGES, messages), messages, [query.expression(text, EDGES) for text in texts])


def test_a_long_text_is_matched_in_linear_time(spark: SparkSession) -> None:
    """Spark's own `like` would take a week for this one."""
    schema = parse("t: [s: string]")
    message = {"s": "ab" * 20_000 + "c"}
    asked = [query.expression(f"s like '{'%a_' * 12}%d'", schema), query.expression(f"s like '{'%a_' * 12}%c'", schema)]
    compare(frame(spark, schema, [message]), [message], asked)


def test_queries_and_texts_filter_rows(spark: SparkSession) -> None:
    from milepost.query.spark import column

    schema = parse("q: [symbol: string, price: double]")
    messages = [{"symbol": "IBM", "price": 2.5}, {"symbol": "T", "price": math.nan}, {"symbol": "X", "price": 0.5}]
    rows = frame(spark, schema, messages)
    assert [row.symbol for row in rows.where(column("price > 1 or symbol = 'T'", schema)).collect()] == ["IBM", "T"]
    assert [row.symbol for row in rows.where(column(query.compile("price is null", schema))).collect()] == ["T"]
    assert rows.select(column("price / 0.5", schema).alias("r")).collect()[0].r == 5.0
