"""Dataclasses as a notation: what annotations mean, and the way back as classes and as source."""

from __future__ import annotations

import dataclasses
import datetime
import importlib.util
import itertools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, ClassVar
from uuid import UUID

import pytest
from hypothesis import given

from milepost.errors import SchemaError
from milepost.schema import types as t
from milepost.schema.annotation import (
    Case,
    DecimalOf,
    Float32,
    Ident,
    Int8,
    Int16,
    Int32,
    Int64,
    Named,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
)
from milepost.schema.dataclass import dataclass_source, from_dataclass, to_dataclass
from milepost.schema.text import parse
from tests.strategies import schemas

NUMBERS = itertools.count()


@pytest.fixture
def forget() -> Iterator[None]:
    """Modules that a test imports are gone after it."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]


def load(source: str, folder: Path) -> Any:
    name = f"printed_{next(NUMBERS)}"
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class Point:
    x: float
    y: float


@dataclass
class Circle:
    center: Point
    radius: Float32


@dataclass
class Drawing:
    __checks__: ClassVar[tuple[str, ...]] = ("count(shapes) > 0",)

    title: str
    shapes: list[Point | Circle]
    note: str | None = None


@dataclass
class Everything:
    a: bool
    b: int
    c: float
    d: str
    e: bytes
    f: Decimal
    g: datetime.date
    h: datetime.datetime
    i: UUID
    j: Int8
    k: Int16
    l: Int32  # noqa: E741
    m: Int64
    n: UInt8
    o: UInt16
    p: UInt32
    q: UInt64
    r: Ident
    s: Float32
    u: Annotated[Decimal, DecimalOf(10, 2)]
    v: Any
    w: list[list[int | None]]
    x: Annotated[int, Case("i")] | Annotated[str, Case("s")] | None
    y: Annotated[int, Case("alone")]


@dataclass
class Tree:
    value: int
    left: Tree | None = None
    right: Tree | None = None


@dataclass
class Forest:
    name: str
    trees: list[Tree]
    tags: Annotated[list[str], Named("tags")]


@dataclass
class Line:
    __schema__ = "com.example.line"
    amount: int


@dataclass
class Order:
    __schema__ = "com.example.order"
    __definitions__: ClassVar[dict[str, Any]] = {"unused": list[int]}
    lines: list[Line]


def test_a_dataclass_with_a_variant_and_a_check() -> None:
    assert from_dataclass(Drawing) == parse(
        "Drawing: [title: string, shapes: *({Point: [x: double, y: double]"
        " | Circle: [center: [x: double, y: double], radius: float]})*, note: string?] check (count(shapes) > 0)"
    )


def test_every_annotation() -> None:
    assert from_dataclass(Everything) == parse(
        "Everything: [a: bool, b: long, c: double, d: string, e: bytes, f: decimal, g: date, h: timestamp, i: uuid,"
        " j: int8, k: int16, l: int, m: long, n: uint8, o: uint16, p: uint32, q: uint64, r: ident, s: float,"
        " u: decimal(10,2), v: dynamic, w: *(*(long?)*)*, x: {i: long | s: string}?, y: {alone: long}]"
    )


def test_a_class_that_leads_back_to_itself_is_a_definition() -> None:
    assert from_dataclass(Tree) == parse("Tree: [value: long, left: Tree?, right: Tree?]")
    assert from_dataclass(Forest) == parse(
        "Forest: [name: string, trees: *(Tree)*, tags: tags]\nTree: [value: long, left: Tree?, right: Tree?]\n"
        "tags: *(string)*"
    )


def test_a_class_inside_a_function_may_lead_back_to_itself() -> None:
    @dataclass
    class Local:
        on: Local | None

    assert from_dataclass(Local) == parse("Local: [on: Local?]")


def test_names_and_definitions_can_be_given() -> None:
    assert from_dataclass(Order) == parse(
        "com.example.order: [lines: *(com.example.line)*]\nunused: *(long)*\ncom.example.line: [amount: long]"
    )


@pytest.mark.slow
def test_a_long_circle_of_classes_does_not_exhaust_the_stack() -> None:
    size = 2_000
    links = [f"d{i}: [next: d{(i + 1) % size}?]" for i in range(size)]
    schema = parse("\n".join(["m: [a: d0]", *links]))
    assert from_dataclass(to_dataclass(schema)) == schema


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        (dict[str, int], r"field: no type of a message fits dict\[str, int\]"),
        (list, "no type of a message fits <class 'list'>"),
        (complex, "no type of a message fits"),
        (int | str, r"a case needs a name; write Annotated\[int, Case\('...'\)\]"),
        (Point | int, r"a case needs a name; write Annotated\[int, Case\('...'\)\]"),
        ("Nowhere", "cannot read its annotations: name 'Nowhere' is not defined"),
        (Annotated[int | None, Case("a")] | None, None),
        (Annotated[int | None, Named("a")] | None, "optional already"),
    ],
)
def test_an_annotation_that_fits_no_type(hint: Any, message: str | None) -> None:
    made = dataclasses.make_dataclass("Made", [("field", hint)])
    if message is None:
        assert from_dataclass(made) == parse("Made: [field: {a: long?}?]")
        return
    with pytest.raises(SchemaError, match=message):
        from_dataclass(made)


def test_a_class_may_say_what_type_it_stands_for() -> None:
    class Celsius(float):
        __schema_type__ = t.FLOAT

    made = dataclasses.make_dataclass("Made", [("field", Celsius | None)])
    assert from_dataclass(made) == parse("Made: [field: float?]")


def test_two_classes_of_one_name_are_told_apart_or_refused() -> None:
    def tree(kind: type) -> type:
        made = type("Tree", (), {"__annotations__": {"value": kind}})
        made.__annotations__["next"] = made | None
        return dataclass(made)

    both = dataclasses.make_dataclass("Both", [("a", tree(int)), ("b", tree(str))])
    with pytest.raises(
        SchemaError, match="two classes have the name 'Tree'; give one of them another name in __schema__"
    ):
        from_dataclass(both)


def test_a_dataclass_says_what_wants_an_index() -> None:
    @dataclass
    class Job:
        __indexes__ = ("kind", "at.x")
        kind: str
        at: Point

    assert str(from_dataclass(Job)) == "Job: [kind: string, at: [x: double, y: double]] index (kind) index (at.x)"


def test_only_dataclasses_are_read() -> None:
    with pytest.raises(SchemaError, match="is not a dataclass"):
        from_dataclass(int)


# -- the way back --------------------------------------------------------------------------------------------------


@given(schemas(checks=True, indexes=True))
def test_every_schema_reads_back_from_its_dataclass(schema: t.Schema) -> None:
    assert from_dataclass(to_dataclass(schema)) == schema


def test_every_schema_reads_back_from_its_source(tmp_path_factory: pytest.TempPathFactory, forget: None) -> None:
    folder = tmp_path_factory.mktemp("printed")

    @given(schemas(checks=True, indexes=True))
    def read_back(schema: t.Schema) -> None:
        module = load(dataclass_source(schema), folder)
        made = [item for item in vars(module).values() if getattr(item, "__module__", "") == module.__name__]
        assert from_dataclass(made[-1]) == schema

    read_back()


def test_a_made_class_is_used_as_any_dataclass() -> None:
    cls = to_dataclass(parse("quote: [symbol: string, price: decimal(10,2)?, at: [x: int, y: int]]"))
    at = next(field.type for field in dataclasses.fields(cls) if field.name == "at")
    quote = cls(symbol="IBM", at=at(x=1, y=2))
    assert quote.price is None
    assert quote == cls(symbol="IBM", at=at(x=1, y=2))
    with pytest.raises(TypeError):
        cls(symbol="IBM")


def test_the_source_is_what_one_would_write() -> None:
    clauses = "index (symbol) index (lines.a) check (symbol <> '')"
    schema = parse(f"quote: [symbol: string, int: int?, lines: *([a: decimal(3,1)])*] {clauses}")
    assert (
        dataclass_source(schema)
        == '''"""The schema quote as dataclasses."""

from __future__ import annotations

import decimal
from dataclasses import dataclass
from typing import Annotated

from milepost.schema.annotation import DecimalOf, Int32


@dataclass(kw_only=True)
class QuoteLines:
    a: Annotated[decimal.Decimal, DecimalOf(3, 1)]


@dataclass(kw_only=True)
class Quote:
    __schema__ = "quote"
    __checks__ = ("symbol <> ''",)
    __indexes__ = ('symbol', 'lines.a')
    symbol: str
    int: Int32 | None = None
    lines: list[QuoteLines]
'''
    )


def test_a_field_called_as_a_type_does_not_hide_the_type(tmp_path: Path, forget: None) -> None:
    schema = parse(
        "m: [int: long?, str: string?, list: *(long)*, Any: dynamic?, Case: {a: long | b: bool}, dataclass: long]"
    )
    module = load(dataclass_source(schema), tmp_path)
    assert from_dataclass(module.M) == schema


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m: [class: int]", "M: 'class' is a keyword of Python"),
        ("m: [a: {None: int | b: int}]", "'None' is a keyword of Python"),
        ("m: [__x: int]", "'__x' begins with two underscores"),
        ("DEFINE MESSAGETYPE m; NODE n; a: INT; END; ROOT n; END;", "m is a message type; milepost.schema.generate"),
    ],
)
def test_what_python_cannot_say_is_refused(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        to_dataclass(parse(text))
