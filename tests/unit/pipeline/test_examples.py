"""The examples are what they say: checked, and expecting what a plain evaluator finds."""

from __future__ import annotations

import pytest

from tests.example_pipelines import FOLDER, Example, evaluated, examples, in_order, xxh64


@pytest.mark.parametrize("example", examples(), ids=lambda each: each.name)
def test_what_an_example_expects_is_what_its_rules_mean(example: Example) -> None:
    outputs, schemas = evaluated(example)
    expected = example.expected(schemas)
    assert expected
    assert any(expected.values())
    assert {topic: in_order(rows) for topic, rows in expected.items()} == {
        topic: in_order(rows) for topic, rows in outputs.items() if rows or topic in expected
    }


def test_the_rules_of_the_paper_and_eight_more() -> None:
    names = {each.name for each in examples()}
    assert {"rule-1", "rule-2"} < names
    assert len(names) >= 10
    assert all(f"`{name}`" in (FOLDER / "README.md").read_text() for name in names)


def test_the_hash_of_samples_is_the_known_one() -> None:
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"a", 0) == 0xD24EC4F1A98C6E5B
    assert xxh64(bytes(range(101)), 0) == xxh64(bytes(range(101)), 0) != xxh64(bytes(range(101)), 1)
