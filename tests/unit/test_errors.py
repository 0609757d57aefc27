"""Errors cross process borders whole, and every one has a code of its own."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator

import pytest

from milepost import errors
from milepost.errors import (
    CheckFailed,
    IncompatibleSchema,
    InvalidValue,
    LimitExceeded,
    MilepostError,
    NetworkError,
    PipelineError,
    QueryTypeError,
)

EXAMPLES = [
    LimitExceeded("BATCH_ROWS", 2, 1, "rows"),
    InvalidValue("no int", "a.b", 3),
    CheckFailed("broken", "price > 0", (1, 2)),
    IncompatibleSchema("no", ("a",)),
    PipelineError("p", (("[[tier1]] 1", "no such field"),)),
    NetworkError("n", (("[cells.d1]", "no brokers"), ("", "two parts"))),
    QueryTypeError("no such field", "a = 1", 1, 1),
]


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_an_error_survives_the_way_to_another_process(error: MilepostError) -> None:
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def tree(kind: type[MilepostError]) -> Iterator[type[MilepostError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from tree(below)


def test_codes_tell_errors_apart() -> None:
    kinds = [kind for kind in set(tree(MilepostError)) if kind is not errors.SourceError]
    codes = {kind.code for kind in kinds}
    assert len(codes) == len(kinds)


def test_the_tree_at_the_top_of_the_module_names_every_error() -> None:
    assert errors.__doc__ is not None
    for kind in set(tree(MilepostError)) - {errors.SourceError}:
        assert kind.__name__ in errors.__doc__


def test_advice_has_the_names_that_calls_and_commands_have():
    old = re.compile(r"\b(drop|define|create|select|selection)\b", re.IGNORECASE)
    assert [kind.__name__ for kind in tree(MilepostError) if old.search(kind.__doc__ or "")] == []
    assert "Nothing was done" in (errors.StoreUnavailable.__doc__ or "")  # as docs/failures.md promises
