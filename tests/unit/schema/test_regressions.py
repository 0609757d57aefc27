"""Each of these was wrong once."""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from milepost.errors import LimitExceeded, SchemaError
from milepost.schema.dataclass import from_dataclass
from milepost.schema.node import build
from milepost.schema.text import parse


class Branch(Mapping[str, Any]):
    """A node of a binary tree that makes its children when asked for them."""

    def __init__(self, depth: int) -> None:
        self.depth = depth

    def __getitem__(self, name: str) -> Any:
        return self.depth if name == "n" else [Branch(self.depth - 1) for _ in range(2 if self.depth else 0)]

    def __iter__(self) -> Iterator[str]:
        return iter(("n", "kids"))

    def __len__(self) -> int:
        return 2


def test_nodes_that_are_made_when_asked_for_do_not_merge() -> None:
    schema = parse("DEFINE MESSAGETYPE T; NODE b; n: INT; kids: REFERENCE TO b; END; ROOT b; END;")
    assert schema.message_type is not None
    todo, count = [build(schema.message_type, Branch(4))], 0
    while todo:
        count += 1
        todo += todo.pop()["kids"]
    assert count == 31


def test_a_text_that_is_too_long_is_refused_before_it_is_looked_at() -> None:
    with pytest.raises(LimitExceeded, match="SCHEMA_TEXT_CHARS"):
        parse(" " * 30_000_000)


def test_a_list_of_nothing_said_is_refused() -> None:
    @dataclass
    class Bare:
        x: typing.List  # type: ignore[type-arg]  # noqa: UP006

    with pytest.raises(SchemaError, match="no type of a message fits"):
        from_dataclass(Bare)


@dataclass
class Inner:
    x: int
    instance: ClassVar[Inner | None] = None


@dataclass
class Outer:
    y: Inner


def test_class_variables_are_no_content() -> None:
    assert str(from_dataclass(Outer)) == "Outer: [y: [x: long]]"
