"""The functions and modules that docs/architecture.md names exist."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")
WALKS = PAGE[PAGE.index("## Three walks") : PAGE.index("## errors, extras, limits")]
NAMES = sorted(set(re.findall(r"\bmilepost(?:\.\w+)+", WALKS)))
SOURCE = ROOT / "src" / "milepost"


def test_there_are_three_walks_that_pass_both_ways() -> None:
    walks = WALKS.split("### ")[1:]
    assert [walk.splitlines()[0] for walk in walks] == ["A durable put", "A dequeue", "A pipeline's micro-batch"]
    assert "Admission.admit" in walks[0]
    assert all("Delivery.send" in walk for walk in walks[:2])


@pytest.mark.parametrize("name", NAMES)
def test_what_a_walk_names_exists(name: str) -> None:
    parts = name.split(".")
    module = next(
        stop
        for stop in range(len(parts), 0, -1)
        if SOURCE.joinpath(*parts[1:stop]).is_dir() or SOURCE.joinpath(*parts[1:stop]).with_suffix(".py").is_file()
    )
    found = import_module(".".join(parts[:module]))
    for part in parts[module:]:
        assert hasattr(found, part), f"{name}: there is no {part}"
        found = getattr(found, part)


def test_modules_that_the_page_names_exist() -> None:
    """A section speaks of the modules of its package, or of a folder of it."""
    for title, text in re.findall(r"^## (\S+?): .*?\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL):
        package = SOURCE / title
        if not package.is_dir():
            continue
        there = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
        short = {name.rsplit("/", 1)[-1] for name in there}
        for name in re.findall(r"`((?:\w+/)*\w+\.py)`", text):
            assert name in there or name in short, f"{title}: there is no {name}"
