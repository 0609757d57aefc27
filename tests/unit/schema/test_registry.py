"""The registry: versions, fingerprints, refusals that change nothing, and many threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost import limits
from milepost.errors import IncompatibleSchema, LimitExceeded, SchemaError, UnknownSchema
from milepost.schema.registry import Registry, RegistryStatistics
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests.strategies import message_types, schemas

V1 = parse("quote: [symbol: string]")
V2 = parse("quote: [symbol: string, price: double]")
V3 = parse("quote: [symbol: string, price: double] check (price > 0)")
BROKEN = parse("quote: [symbol: bytes, cost: double]")


def test_versions_count_from_one() -> None:
    registry = Registry()
    assert [registry.register(schema) for schema in (V1, V2, V3)] == [1, 2, 3]
    assert registry.versions("quote") == (V1, V2, V3)
    assert registry.get("quote") is V3
    assert registry.get("quote", 1) is V1
    assert registry.names() == ("quote",)
    assert "quote" in registry
    assert "trade" not in registry


def test_a_schema_that_is_known_keeps_its_version() -> None:
    registry = Registry()
    registry.register(V1)
    registry.register(V2)
    assert registry.register(parse(str(V1))) == 1
    assert registry.register(V2) == 2
    assert registry.statistics() == RegistryStatistics(names=1, schemas=2, maximum=limits.REGISTRY_SCHEMAS)


def test_what_breaks_readers_is_refused_and_changes_nothing() -> None:
    registry = Registry()
    registry.register(V1)
    registry.register(V2)
    with pytest.raises(IncompatibleSchema) as caught:
        registry.register(BROKEN)
    assert caught.value.paths == ("price", "symbol")
    assert str(caught.value) == (
        "quote would break its readers; add instead of changing, or choose a new name:\n"
        "  price: the field was removed or renamed\n"
        "  symbol: it was string and is bytes"
    )
    assert registry.versions("quote") == (V1, V2)
    with pytest.raises(UnknownSchema):
        registry.by_fingerprint(BROKEN.fingerprint)


def test_a_long_list_of_breaks_is_shortened_in_the_message_only() -> None:
    registry = Registry()
    registry.register(parse(f"m: [{', '.join(f'a{i}: int' for i in range(25))}]"))
    with pytest.raises(IncompatibleSchema, match="and 15 more") as caught:
        registry.register(parse("m: [b: int]"))
    assert len(caught.value.paths) == 25


def test_what_is_not_there_is_told_with_what_is_near() -> None:
    registry = Registry()
    registry.register(V1)
    with pytest.raises(UnknownSchema, match="unknown schema 'quotes'; did you mean 'quote'"):
        registry.get("quotes")
    with pytest.raises(UnknownSchema, match="unknown schema 'zebra'; register it first"):
        registry.versions("zebra")
    with pytest.raises(UnknownSchema, match="quote has no version 2, only 1 to 1"):
        registry.get("quote", 2)
    with pytest.raises(UnknownSchema, match="quote has no version 0"):
        registry.get("quote", 0)
    with pytest.raises(UnknownSchema, match="no schema has the fingerprint 0x0000000000000005"):
        registry.by_fingerprint(5)


@given(st.lists(schemas() | message_types().map(lambda item: item.schema), max_size=5))
def test_whatever_was_registered_is_found(made: list[Schema]) -> None:
    registry = Registry()
    for schema in made:
        try:
            version = registry.register(schema)
        except IncompatibleSchema:
            continue
        assert registry.get(schema.name, version) == schema
        assert registry.by_fingerprint(schema.fingerprint) == schema
        assert registry.by_fingerprint(schema.fingerprint).message_type == schema.message_type


def test_two_schemas_of_one_fingerprint_are_not_mixed_up() -> None:
    registry = Registry()
    registry.register(V1)
    twin = parse("trade: [id: long]")
    vars(twin)["fingerprint"] = V1.fingerprint  # as a lucky or hostile author might find
    with pytest.raises(SchemaError, match="trade has the same fingerprint as quote"):
        registry.register(twin)
    assert registry.names() == ("quote",)


def test_the_registry_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REGISTRY_SCHEMAS", 2)
    registry = Registry()
    registry.register(V1)
    registry.register(V2)
    with pytest.raises(LimitExceeded) as caught:
        registry.register(V3)
    assert caught.value.limit == "REGISTRY_SCHEMAS"
    assert registry.register(V1) == 1
    assert registry.statistics() == RegistryStatistics(names=1, schemas=2, maximum=2)


def test_many_threads_register_one_history() -> None:
    # Each version has one field more, so whichever thread is first, only an ascending history is compatible.
    growing = [parse(f"m: [{', '.join(f'a{i}: int' for i in range(size))}]") for size in range(1, 40)]
    registry = Registry()

    def register_all(_: int) -> list[int]:
        return [registry.register(schema) for schema in growing]

    with ThreadPoolExecutor(8) as threads:
        versions = list(threads.map(register_all, range(8)))
    assert versions == [list(range(1, 40))] * 8
    assert registry.versions("m") == tuple(growing)
