"""One name for one thing: classes, modules and the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "milepost"
GLOSSARY = ROOT / "docs" / "glossary.md"

# Names that stay in several packages, with the reason.
SHARED = {
    "Published": "public: what publish() returns, and the operation's outcome",
    "Retention": "public: what a topic keeps, as programs give it and as the store has it",
}

# Packages of frames and of operations: a frame and the operation that it asks for may share a name.
FRAMES_AND_OPERATIONS = {"wire", "operations"}
# Databases have a class each in the store and in the query language's SQL.
DATABASES = {"Sqlite", "Postgresql"}

# Modules in -ing that are nouns of the field.
NOUNS = {"covering", "ordering", "staging", "routing", "testing", "string"}

# Words that were given up, as regular expressions.
GIVEN_UP = ("breathe", "burial", "glance", "hope", "how-manieth", "keeper", "linked put", "publisher's marks?")


@cache
def trees() -> list[tuple[Path, ast.Module]]:
    return [(path.relative_to(SOURCE), ast.parse(path.read_text("utf-8"))) for path in sorted(SOURCE.rglob("*.py"))]


def classes() -> dict[str, set[str]]:
    """The packages that define a public class, by its name."""
    found: dict[str, set[str]] = defaultdict(set)
    for path, tree in trees():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].add(path.parts[0].removesuffix(".py"))
    return found


def test_no_class_name_is_defined_in_two_packages() -> None:
    shared = {
        name: sorted(packages)
        for name, packages in classes().items()
        if len(packages) > 1
        and not packages <= FRAMES_AND_OPERATIONS
        and not (name in DATABASES and packages == {"storage", "query"})
    }
    assert not {name: where for name, where in shared.items() if name not in SHARED}, "give each its own name"
    assert SHARED.keys() <= shared.keys(), "remove exceptions that are none any more"


def test_modules_are_nouns() -> None:
    gerunds = {str(path) for path, _ in trees() if path.stem.endswith("ing") and path.stem not in NOUNS}
    assert not gerunds, "name a module after what is in it"


def test_every_word_of_the_glossary_is_used() -> None:
    source = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    words = re.findall(r"^- \*\*(.+?)\*\*", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.lower)
    assert len(words) > 60
    unused = [
        word
        for word in words
        if not re.search(rf"(?<![^\W_]){'[ _-]?'.join(word.split())}s?(?![^\W_])", source, re.IGNORECASE)
    ]
    assert unused == []


def test_words_that_were_given_up_are_gone() -> None:
    found = [
        f"{word} in {path.relative_to(SOURCE)}"
        for path in sorted(SOURCE.rglob("*.py"))
        for word in GIVEN_UP
        if re.search(rf"(?<![^\W_]){word}(?![^\W_])", path.read_text("utf-8"), re.IGNORECASE)
    ]
    assert found == []
