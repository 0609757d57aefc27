"""Gryphon's notation: what it means, what it prints, and what is said about a text that is wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.errors import LimitExceeded, MilepostError, SchemaError, SchemaSyntaxError
from milepost.schema import types as t
from milepost.schema.registry import Registry
from milepost.schema.text import parse
from tests.strategies import message_types, schemas

ENVELOPE = """
com.ibm.gryphon.envelop: [      # the example of the paper
  priority: int,
  properties: *(
    [
      name: string,
      value: string
    ]
  )*,
  payload: {
    absent: [ ] |
    subscribeRequest: [
      topic: string,
      selector: string
    ] |
    subscribeReply: int |
    other: dynamic
  }
]
"""


def field_type(text: str) -> t.Type:
    """What `text` means as the type of a field."""
    (field,) = parse(f"m: [field: {text}]").type.fields
    return field.type


def test_the_example_of_the_paper() -> None:
    schema = parse(ENVELOPE)
    pair = t.Tuple((t.Field("name", t.STRING), t.Field("value", t.STRING)))
    request = t.Tuple((t.Field("topic", t.STRING), t.Field("selector", t.STRING)))
    payload = t.Variant(
        (
            t.Field("absent", t.Tuple(())),
            t.Field("subscribeRequest", request),
            t.Field("subscribeReply", t.INT32),
            t.Field("other", t.DYNAMIC),
        )
    )
    fields = (t.Field("priority", t.INT32), t.Field("properties", t.List(pair)), t.Field("payload", payload))
    assert schema == t.Schema("com.ibm.gryphon.envelop", t.Tuple(fields))


@given(schemas(checks=True, indexes=True))
def test_every_schema_reads_back_from_its_text(schema: t.Schema) -> None:
    assert parse(str(schema)) == schema
    assert parse(str(schema)).fingerprint == schema.fingerprint


@given(message_types(checks=True, indexes=True))
def test_a_compiled_message_type_reads_back_from_its_canonical_text(message_type: t.MessageType) -> None:
    read = parse(message_type.schema.canonical)
    assert read == message_type.schema
    assert read.message_type == message_type


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("boolean", "bool"),
        ("byte", "int8"),
        ("short", "int16"),
        ("int32", "int"),
        ("int64", "long"),
        ("decimal", "decimal(38,9)"),
        ("[ int , [ string , boolean ] ]", "[_0: int, _1: [_0: string, _1: bool]]"),
        ("[a: int, b: string,]", "[a: int, b: string]"),
        ("{ [] | int }", "int?"),
        ("{ int | [] }", "int?"),
        ("{ [] | int | *(string)* }", "{_0: int | _1: *(string)*}?"),
        ("{ [] | a: int | b: string }", "{a: int | b: string}?"),
        ("{ [] | a: int }", "{a: int}?"),
        ("{ none: [] | a: int }", "{none: [] | a: int}"),
        ("{ _0: [] | a: int }", "{_0: [] | a: int}"),
        ("[ { [] | pieceD: [ field3: int ] } ]", "[pieceD: [field3: int]?]"),
        ("[ { pieceD: int | [] } ]", "[pieceD: int?]"),
        ("[ { [] | int } ]", "[_0: int?]"),
        ("[ { [] | a: int | b: int } ]", "[_0: {a: int | b: int}?]"),
        ("[ { pieceD: [] }? ]", "[_0: {pieceD: []}?]"),
        ("[ int: date, check: string, decimal: decimal ]", "[int: date, check: string, decimal: decimal(38,9)]"),
    ],
)
def test_two_ways_to_write_one_type(text: str, same: str) -> None:
    assert field_type(text) == field_type(same)


def test_an_unnamed_empty_case_that_the_model_holds_is_printed_with_its_name() -> None:
    kind = t.Variant((t.Field("_0", t.Tuple(())), t.Field("_1", t.INT32)))
    schema = t.Schema("m", t.Tuple((t.Field("a", kind),)))
    assert str(schema) == "m: [a: {_0: [] | int}]"
    assert parse(str(schema)) == schema


@pytest.mark.parametrize("separator", ["\n", ";", " ; ", ";\n\n", "# comment\n"])
def test_definitions_stand_on_lines_of_their_own_or_between_semicolons(separator: str) -> None:
    schema = parse(f"m: [a: n, b: k?]{separator}n: [c: m?]{separator}k: *(int)*{separator}")
    assert [item.name for item in schema.definitions] == ["n", "k"]
    assert schema.recursive == {"m", "n"}


def test_checks_are_kept_as_they_are_written() -> None:
    schema = parse("""m: [a: int, s: string]
        check ( a > (1) and s <> ')' )
        check(s like "((%" or s = 'it''s # no comment')
        check (a  =
               1)
        n: int""")
    assert schema.checks == (
        "a > (1) and s <> ')'",
        "s like \"((%\" or s = 'it''s # no comment'",
        "a  =\n               1",
    )
    assert schema.definitions == (t.Field("n", t.INT32),)


def test_a_schema_and_its_fields_may_be_called_check() -> None:
    schema = parse("check: [check: check?, a: *(check)*] check (check)")
    assert schema.name == "check"
    assert schema.checks == ("check",)


def test_indexes_stand_beside_checks_in_any_order_and_are_printed_before_them() -> None:
    schema = parse("job: [kind: string, due: timestamp?] index (kind) check (kind <> '') index(due)")
    assert schema.indexes == ("kind", "due")
    assert schema.checks == ("kind <> ''",)
    assert str(schema) == "job: [kind: string, due: timestamp?] index (kind) index (due) check (kind <> '')"
    assert schema.fingerprint != parse("job: [kind: string, due: timestamp?] check (kind <> '')").fingerprint


def test_an_index_may_be_on_a_value_in_tuples_lists_and_definitions() -> None:
    clauses = "index (a.x) index (tags) index (legs.b.x) index (_3)"
    schema = parse(f"m: [a: n?, tags: *(string)*, legs: *([b: n])*, int] {clauses}\nn: [x: int]")
    assert schema.indexes == ("a.x", "tags", "legs.b.x", "_3")


def test_a_schema_and_its_fields_may_be_called_index() -> None:
    schema = parse("index: [index: int, a: *(index)*] index (index)\ncheck: index")
    assert (schema.name, schema.indexes) == ("index", ("index",))
    assert parse(str(schema)) == schema


# -- the registry --------------------------------------------------------------------------------------------------


def test_names_come_from_the_registry_with_what_they_refer_to() -> None:
    registry = Registry()
    registry.register(parse("tree: [left: tree?, leaf: leaf]\nleaf: [value: int]"))
    schema = parse("m: [a: *(tree)*]", registry)
    assert str(schema) == "m: [a: *(tree)*]\ntree: [left: tree?, leaf: leaf]\nleaf: [value: int]"


def test_the_latest_version_is_taken() -> None:
    registry = Registry()
    registry.register(parse("leaf: [value: int]"))
    registry.register(parse("leaf: [value: int, unit: string]"))
    assert "unit" in str(parse("m: [a: leaf]", registry))


def test_what_the_text_defines_comes_before_the_registry() -> None:
    registry = Registry()
    registry.register(parse("leaf: [value: int]"))
    assert str(parse("m: [a: leaf]\nleaf: [other: string]", registry)) == "m: [a: leaf]\nleaf: [other: string]"


def test_two_meanings_of_a_name_do_not_mix() -> None:
    registry = Registry()
    registry.register(parse("tree: [leaf: leaf]\nleaf: [value: int]"))
    with pytest.raises(SchemaSyntaxError, match="'tree' brings a 'leaf' that differs"):
        parse("m: [a: tree, b: leaf]\nleaf: [value: string]", registry)


def test_a_message_type_is_no_part_of_another_message() -> None:
    registry = Registry()
    registry.register(parse("DEFINE MESSAGETYPE orders; NODE order; id: IDENT; END; ROOT order; END;"))
    with pytest.raises(SchemaSyntaxError, match="'orders' is a message type"):
        parse("m: [a: orders]", registry)


# -- wrong texts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "line", "column"),
    [
        ("", "expected a definition (name: type), found the end of the text", 1, 1),
        ("# nothing\n\n", "expected a definition (name: type), found the end of the text", 1, 10),
        ("m [a: int]", "expected ':', found '['", 1, 3),
        ("m: [a: strng]", "there is no type 'strng'; did you mean 'string'?", 1, 8),
        ("m: [a: Int]", "there is no type 'Int'; did you mean 'int'?", 1, 8),
        ("m: [a: zzz]", "there is no type 'zzz'; define it beside the message", 1, 8),
        ("m: [a: order_lin]\norder_line: int", "there is no type 'order_lin'; did you mean 'order_line'?", 1, 8),
        ("m: [\n  a: int\n  b: int\n]", "expected ',' or ']', found 'b'", 3, 3),
        ("m: [a: int, 3]", "expected a field or ']', found '3'", 1, 13),
        ("m: [a: int", "expected ',' or ']', found the end of the text", 1, 11),
        ("m: [a: int}", "expected ',' or ']', found '}'", 1, 11),
        ("m: [a: ]", "expected a type, found ']'", 1, 8),
        ("m: [a: *(int)]", "expected ')*', found ')'", 1, 13),
        ("m: [a: {}]", "expected a type, found '}'", 1, 9),
        ("m: [a: int??]", "expected ',' or ']', found '?'", 1, 12),
        ("m: [a: {[]}]", "a variant may hold [] once, beside other cases", 1, 8),
        ("m: [a: {[] | int | []}]", "a variant may hold [] once, beside other cases", 1, 8),
        ("m: [a.b: int]", "'a.b' cannot name a field: only the names of schemas have dots", 1, 5),
        ("m: [a: int] n: int", "expected ';' or a new line before the next definition", 1, 13),
        ("m: [a: decimal(39,1)]", "decimal(39,1) is not valid: precision goes from 1 to 38", 1, 8),
        ("m: [a: string(3,1)]", "only decimal takes digits, not 'string'", 1, 8),
        ("m: [a: decimal(3)]", "expected ',', found ')'", 1, 17),
        ("m: [a: int] check (a = 'x)", "this quote is never closed", 1, 24),
        ("m: [a: int] check (a > (1)", "expected ')', a predicate or a quoted text, found the end of the text", 1, 27),
        ("m: [a: int]\nn: int check (a)", "a check belongs after the first definition, which is the message", 2, 8),
        ("m: [a: int]\nn: int index (a)", "an index belongs after the first definition, which is the message", 2, 8),
        ("m: [a: int] index ()", "expected a definition (name: type), found ')'", 1, 20),
        ("m: [a: int] index (a, b)", "expected ')', found ','", 1, 21),
        ("m: [a: int] 'quoted'", "expected ';', a check, a definition (name: type) or an index, found \"'\"", 1, 13),
    ],
)
def test_an_error_says_what_was_expected_and_where(text: str, message: str, line: int, column: int) -> None:
    with pytest.raises(SchemaSyntaxError) as caught:
        parse(text)
    assert caught.value.message.startswith(message)
    assert (caught.value.line, caught.value.column) == (line, column)
    shown = text.split("\n")[line - 1]
    assert str(caught.value).endswith(f"    {shown}\n    {' ' * (column - 1)}^")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m: int", r"a message is a tuple; write m: \[value: int\]"),
        ("int: [a: int]", "'int' is the name of a built-in type"),
        ("m: [a: int, a: int]", "two fields called 'a'"),
        ("m: [a: int, _0: int]", "'_0' is the name of an unnamed field at another position"),
        ("m: [a: m]", "every value would contain itself"),
        ("m: [a: *([])*]", "a list of empty tuples"),
        ("m: [a: {[] | int}?]", "optional twice"),
        ("m: [a: n?]\nn: k\nk: int?", "n is optional already"),
        ("m: [a: *(n)*]\nn: []", "a list of empty tuples"),
        ("m: [a: int]\nm: int", "'m' is defined twice"),
        ("m: [a: int] check ()", "must not be empty"),
        ("m: [price: int] index (prise)", "index on prise: there is no field 'prise'; did you mean 'price'"),
        ("m: [a: [price: int]] index (a.prise)", "there is no field 'prise'; did you mean 'price'"),
        ("m: [a: int] index (a.b)", "there is no field 'b'; before it stands int"),
        ("m: [a: {b: int | c: int}] index (a.b)", "there is no field 'b'; before it stands a variant"),
        ("m: [a: {b: int | c: int}] index (a)", "an index on a, which is a variant; an index is on an atomic value"),
        ("m: [a: *([b: int])*] index (a)", "an index on a, which is a tuple"),
        ("m: [a: dynamic] index (a)", "an index on a, which is dynamic"),
        ("m: [a: m?] index (a.a)", "there is no field 'a'; before it stands a m, which contains itself"),
        ("m: [] index (a)", "there is no field 'a'; before it stands a tuple"),
        ("m: [a: int] index (a) index (a)", "an index on a is there already"),
    ],
)
def test_what_parses_may_still_be_impossible(text: str, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        parse(text)


# -- hostile texts -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opening", ["[", "*(", "{", "[a: {b: ", "{ [] | "])
def test_absurd_nesting_meets_the_limit(opening: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        parse("m: " + opening * 100_000)
    assert caught.value.limit == "SCHEMA_DEPTH"


def test_a_long_text_meets_the_limit_before_it_is_read() -> None:
    with pytest.raises(LimitExceeded) as caught:
        parse("m: [a: int]" + " " * 1_000_000)
    assert caught.value.limit == "SCHEMA_TEXT_CHARS"


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["m: [" + "a, " * 300_000 + "]", "m: [a: int] check " + "(" * 500_000, "m: [];" + ";" * 900_000]
)
def test_a_text_of_very_many_words_meets_the_limit(text: str) -> None:
    with pytest.raises(LimitExceeded) as caught:
        parse(text)
    assert caught.value.limit == "SCHEMA_TOKENS"


def test_parentheses_in_a_check_may_nest_deeply_here() -> None:
    rule = "(" * 5_000 + "a" + ")" * 5_000
    assert parse(f"m: [a: int] check ({rule})").checks == (rule,)


def test_doubling_definitions_meet_the_limit() -> None:
    lines = [f"d{level}: [a: d{level + 1}, b: d{level + 1}]" for level in range(60)]
    with pytest.raises(LimitExceeded) as caught:
        parse("\n".join(["m: [a: d0]", *lines, "d60: int"]))
    assert caught.value.limit == "SCHEMA_NODES"


def test_a_huge_number_is_no_trouble() -> None:
    with pytest.raises(SchemaSyntaxError):
        parse(f"m: [a: decimal({'9' * 10_000},2)]")


ALPHABET = ["m", "a", "b", "int", "string", "decimal", "check", "index", "DEFINE", "MESSAGETYPE", "NODE", "END", "ROOT"]
ALPHABET += ["INDEX", *"[]{}|:;,?()'\"#_.0 \n", "*(", ")*", "[]", ": ", "3", "ü", "\0", "\u2028"]


@given(st.lists(st.sampled_from(ALPHABET), max_size=30).map("".join))
def test_no_text_raises_anything_but_our_errors(text: str) -> None:
    for whole in (text, f"m: [a: {text}]", f"DEFINE MESSAGETYPE {text}"):
        try:
            schema = parse(whole)
        except MilepostError:
            continue
        assert parse(schema.canonical) == schema
