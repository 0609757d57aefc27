"""Versions beside each other: in whichever order they come, and as a tree, not only as a line."""

from __future__ import annotations

from itertools import permutations

import pytest

from milepost import limits
from milepost.errors import IncompatibleSchema, LimitExceeded, MilepostError
from milepost.schema.evolution import breaks
from milepost.schema.merge import merged
from milepost.schema.registry import Registry
from milepost.schema.relax import relaxed
from milepost.schema.text import parse
from milepost.schema.versions import Versions

BASE = parse("quote: [symbol: string]")
VENUE = parse("quote: [symbol: string, venue: string]")
SIZE = parse("quote: [size: int, symbol: string]")
BOTH = parse("quote: [symbol: string, venue: string, size: int]")


@pytest.mark.parametrize("order", list(permutations([BASE, VENUE, SIZE, BOTH])))
def test_versions_fit_in_any_order_that_names_what_joins_them(order) -> None:
    first, *others = order
    versions = Versions.of([first])
    for schema in others:
        if {first, schema} == {VENUE, SIZE} and len(versions.schemas) == 1:
            assert [each.path for each in versions.misfits(schema)] == [first.type.fields[first is VENUE].name]
            return  # nothing says that they are extensions of one base, and not that a field was renamed
        assert versions.misfits(schema) == []
        versions = versions.joined(schema)
    assert versions.schemas[0] is BASE
    assert versions.schemas[-1] is BOTH
    assert versions.merged is BOTH


def test_extensions_of_one_base_stand_beside_each_other_and_the_last_is_the_newest() -> None:
    versions = Versions.of([BASE, VENUE, SIZE])
    assert versions.schemas == (BASE, VENUE, SIZE)
    assert str(versions.merged) == "quote: [symbol: string, venue: string, size: int]"
    assert str(relaxed(VENUE, SIZE)) == "quote: [symbol: string, venue: string?]"
    assert str(relaxed(versions.merged, BASE)) == "quote: [symbol: string, venue: string?, size: int?]"


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ("quote: [symbol: bytes]", "symbol"),
        ("quote: [symbol: string, venue: long]", "venue"),
        ("quote: [symbol: string, size: int?]", "size"),
        ("quote: [ticker: string]", "symbol"),
    ],
)
def test_what_disagrees_with_any_version_does_not_fit(schema: str, path: str) -> None:
    assert path in [each.path for each in Versions.of([BASE, VENUE, SIZE]).misfits(parse(schema))]


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        ("m: [a: [x: int]]", "m: [a: [y: int]]", "m: [a: [x: int, y: int]]"),
        ("m: [a: *([x: int])*]", "m: [a: *([y: int])*, b: bool]", "m: [a: *([x: int, y: int])*, b: bool]"),
        ("m: [a: {x: int | y: int}?]", "m: [a: {z: [] | x: int}?]", "m: [a: {x: int | y: int | z: []}?]"),
        ("m: [int, string]", "m: [int, a: bool]", "m: [int, string, a: bool]"),
        ("m: [a: n]\nn: [x: int]", "m: [a: n, b: k]\nn: [y: int]\nk: [z: int]", None),
        ("m: [v: int, a: m?]", "m: [w: int, a: m?]", "m: [v: int, a: m?, w: int]"),
        ("m: [a: n]\nn: [x: int]", "m: [a: k]\nk: [y: int]", None),
        ("m: [a: n]\nn: [x: int]", "m: [a: [y: int]]", None),
        ("m: [a: int, b: int] check (b > a)", "m: [a: int, c: int] index (c)", "m: [a: int, b: int, c: int]"),
    ],
)
def test_two_versions_merged_have_everything_of_both(one: str, other: str, both: str | None) -> None:
    made = merged(parse(one), parse(other))
    assert breaks(parse(one), made) == breaks(parse(other), made) == []
    if both is not None:
        assert str(made) == str(parse(both))


def test_message_types_are_merged_by_their_nodes() -> None:
    text = "DEFINE MESSAGETYPE m; NODE a; x: INT; {} END; {} ROOT a; END;"
    one = parse(text.format("y: INT;", "NODE b; z: INT; END;"))
    other = parse(text.format("w: STRING; bs: REFERENCE TO b;", "NODE b; v: INT; END;"))
    made = merged(one, other)
    assert breaks(one, made) == breaks(other, made) == []
    assert made.message_type is not None
    assert [member.name for member in made.message_type.node("a").members] == ["x", "y", "w", "bs"]
    assert [member.name for member in made.message_type.node("b").members] == ["z", "v"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("m: [a: int, x: int]", "m: [a: bool, y: int]"),
        ("m: [a: int, b: n]\nn: [x: int]", "m: [a: int, c: n]\nn: [x: bool]"),
        ("m: [a: n?, x: int]\nn: [a: n?]", "m: [a: k?, y: int]\nk: [a: k?]"),
        ("m: [a: int, b: m?]", "k: [a: int, c: k?]"),
    ],
)
def test_what_no_schema_can_have_together_is_refused(one: str, other: str) -> None:
    with pytest.raises(IncompatibleSchema):
        merged(parse(one), parse(other))


def test_merging_meets_a_limit_instead_of_taking_hours() -> None:
    def tangle(letter: str, field: str) -> str:
        levels = [f"{letter}{i}: [a: {letter}{i + 1}?, b: *({letter}{i + 1})*]" for i in range(12)]
        return "\n".join([f"m: [a: {letter}0, {field}: int]", *levels, f"{letter}12: [x: int]"])

    def ring(letter: str, size: int) -> str:
        circle = (f"{letter}{i}: [next: {letter}{(i + 1) % size}?]" for i in range(size))
        return "\n".join([f"m: [a: {letter}0, {letter}x: int]", *circle])

    with pytest.raises(MilepostError):
        merged(parse(tangle("d", "one")), parse(tangle("e", "other"))).fingerprint  # noqa: B018
    with pytest.raises(LimitExceeded) as caught:
        merged(parse(ring("d", 100)), parse(ring("e", 100)))
    assert caught.value.limit == "SCHEMA_DEPTH"


def test_all_comparisons_of_a_further_version_share_one_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = Versions.of([parse(f"m: [{', '.join(f'a{i}: int' for i in range(size))}]") for size in range(1, 11)])
    monkeypatch.setattr(limits, "SCHEMA_COMPARISONS", 100)
    assert breaks(versions.merged, parse("m: [b: int]"))  # one is well within it
    with pytest.raises(LimitExceeded) as caught:
        versions.misfits(parse("m: [b: int]"))
    assert caught.value.limit == "SCHEMA_COMPARISONS"


def test_a_registry_takes_an_old_version_after_a_new_one_and_knows_which_is_the_newest() -> None:
    registry = Registry()
    assert [registry.register(schema) for schema in (VENUE, BASE, SIZE)] == [1, 2, 3]
    assert registry.get("quote") is SIZE
    assert registry.get("quote", 2) is BASE
    assert [registry.register(schema) for schema in (BOTH, BASE)] == [4, 2]
    assert registry.get("quote") is BOTH


def test_what_was_read_as_one_version_is_read_as_another() -> None:
    once = relaxed(BOTH, BASE)
    assert relaxed(BOTH, once) == once
    assert relaxed(BASE, once) is BASE
    node = "DEFINE MESSAGETYPE m; NODE n; a: INT;{} END; ROOT n; END;"
    old, new = parse(node.format("")), parse(node.format(" b: INT;"))
    assert relaxed(new, relaxed(new, old)) == relaxed(new, old)
    inner = parse("m: [a: [x: int, y: n]]\nn: [z: int]")
    assert str(relaxed(inner, parse("m: [a: [x: int?, y: n?]?]\nn: [z: int?]"))) == (
        "m: [a: [x: int?, y: n]?]\nn: [z: int?]?"
    )
