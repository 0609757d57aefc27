"""`docs/query.md` is executed: its sessions, and each line of its tables of expressions."""

import doctest
import re
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from milepost import query
from milepost.query.functions import AGGREGATES, FUNCTIONS, SPECIAL
from milepost.query.header import ATTRIBUTES

PAGE = (Path(__file__).parents[3] / "docs" / "query.md").read_text()


def sessions() -> dict[str, Any]:
    """The names that the page's sessions define, after running them all."""
    names: dict[str, Any] = {}  # the page imports what it uses: whoever pastes it has nothing else
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    output: list[str] = []
    for number, block in enumerate(re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)):
        test = doctest.DocTestParser().get_doctest(block, names, f"session {number}", "query.md", 0)
        runner.run(test, out=output.append, clear_globs=False)
        names.update(test.globs)
    assert runner.summarize(verbose=False).failed == 0, "".join(output)
    return names


def examples() -> list[tuple[str, str]]:
    """The lines of the tables whose columns are expression and value."""
    found = []
    for table in re.findall(r"^\| expression \| value \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE):
        for line in table.splitlines():
            text, value = re.fullmatch(r"\| `(.*)` \| (.*) \|", line).groups()  # type: ignore[union-attr]
            found.append((text.replace(r"\|", "|"), value))
    return found


def written(value: Any) -> str:
    """A value as the page shows it."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case str():
            return f"'{value}'"
        case date():
            return f"date '{value}'"
        case _:
            return str(value)


@pytest.fixture(scope="module")
def defined() -> dict[str, Any]:
    return sessions()


def test_sessions_run_as_written(defined: dict[str, Any]) -> None:
    assert defined["wanted"].test({"symbol": "IBM", "price": 101.5, "size": 1}) is True


@pytest.mark.parametrize(("text", "value"), examples())
def test_examples_have_the_value_written(defined: dict[str, Any], text: str, value: str) -> None:
    schema, message = defined["example"], defined["message"]
    expression = query.expression(text, schema)
    got = expression.value(message)
    assert written(got) == value
    assert expression.column(query.encode(schema, [message, message])).to_pylist() == [got, got]


def test_every_function_is_documented() -> None:
    section = PAGE[PAGE.index("## Functions") :]
    for name in (*FUNCTIONS, *SPECIAL):
        assert re.search(rf"^\| .*`{name}\(", section, re.MULTILINE), name
    for name in AGGREGATES:
        assert f"`{name}" in PAGE
    for name, kind in ATTRIBUTES.items():
        assert f"| `{name}` | {kind} |" in PAGE
