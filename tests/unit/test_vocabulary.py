"""One name for one thing: classes, modules and the words of the glossary."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "milepost"
GLOSSARY = ROOT / "docs" / "glossary.md"

# What remains to be renamed: classes, modules, and words in modules. A line may go as soon as its names are gone.
TO_BE_RENAMED = {
    "Ack": "to be renamed: gateway, wire",
    "Answer": "to be renamed: broker, pipeline",
    "Asked": "to be renamed: cli, gateway",
    "Catalogue": "to be renamed: broker, queues",
    "Checked": "to be renamed: broker, pipeline",
    "Clock": "to be renamed: broker, direct",
    "Column": "to be renamed: match, query",
    "Columns": "to be renamed: batch, match",
    "Commit": "to be renamed: pipeline, queues",
    "Count": "to be renamed: pipeline, queues",
    "Cursor": "to be renamed: storage, testing",
    "Cut": "to be renamed: pipeline, query",
    "Done": "to be renamed: queues, testing",
    "Ended": "to be renamed: testing, wire",
    "Engine": "to be renamed: pipeline, queues",
    "Extent": "to be renamed: pipeline, storage",
    "Field": "to be renamed: match, schema",
    "Finding": "to be renamed: queues, testing",
    "Format": "to be renamed: batch, cli",
    "Found": "to be renamed: batch, broker, pipeline",
    "Frame": "to be renamed: query, wire",
    "Get": "to be renamed: gateway, query",
    "Got": "to be renamed: queues, testing",
    "Group": "to be renamed: batch, cli, match, queues",
    "Groups": "to be renamed: match, pipeline",
    "Header": "to be renamed: batch, query",
    "Held": "to be renamed: broker, client, queues",
    "Kind": "to be renamed: pipeline, wire",
    "Later": "to be renamed: broker, pipeline",
    "Node": "to be renamed: query, schema",
    "Order": "to be renamed: pipeline, query",
    "Part": "to be renamed: cli, pipeline, query, queues, storage",
    "Pauses": "to be renamed: broker, pipeline",
    "Place": "to be renamed: broker, query, storage",
    "Plan": "to be renamed: match, pipeline",
    "Process": "to be renamed: cli, pipeline",
    "Program": "to be renamed: pipeline, query",
    "Publisher": "to be renamed: broker, client",
    "Publishers": "to be renamed: broker, gateway",
    "Put": "to be renamed: gateway, testing",
    "Query": "to be renamed: pipeline, query",
    "Reach": "to be renamed: broker, pipeline, testing",
    "Reading": "to be renamed: pipeline, query",
    "Refused": "to be renamed: broker, testing",
    "Row": "to be renamed: batch, broker",
    "Run": "to be renamed: batch, broker, pipeline",
    "Scope": "to be renamed: query, schema",
    "Source": "to be renamed: broker, query",
    "Stage": "to be renamed: cli, pipeline, storage, wire",
    "Staged": "to be renamed: pipeline, storage",
    "Staging": "to be renamed: broker, pipeline",
    "State": "to be renamed: broker, queues",
    "Stored": "to be renamed: pipeline, testing, wire",
    "Table": "to be renamed: match, pipeline, query",
    "Taken": "to be renamed: broker, queues, wire",
    "Waiter": "to be renamed: direct, queues",
    "Waiting": "to be renamed: broker, direct",
    "Workers": "to be renamed: broker, client, pipeline",
    "Writer": "to be renamed: query, storage",
    "cli/running.py": "to be renamed",
    "client/queueing.py": "to be renamed",
    "direct/dealing.py": "to be renamed",
    "direct/waiting.py": "to be renamed",
    "match/building.py": "to be renamed",
    "match/grouping.py": "to be renamed",
    "match/probing.py": "to be renamed",
    "match/reading.py": "to be renamed",
    "match/scanning.py": "to be renamed",
    "pipeline/definition/checking.py": "to be renamed",
    "pipeline/definition/rulechecking.py": "to be renamed",
    "pipeline/experiments/balancing.py": "to be renamed",
    "pipeline/experiments/flowing.py": "to be renamed",
    "pipeline/merging.py": "to be renamed",
    "pipeline/plumbing.py": "to be renamed",
    "pipeline/steering.py": "to be renamed",
    "pipeline/tier1/applying.py": "to be renamed",
    "pipeline/tier1/enriching.py": "to be renamed",
    "pipeline/tier2/applying.py": "to be renamed",
    "query/mask/comparing.py": "to be renamed",
    "query/mask/folding.py": "to be renamed",
    "query/mask/reading.py": "to be renamed",
    "query/python/folding.py": "to be renamed",
    "query/python/reading.py": "to be renamed",
    "query/python/selecting.py": "to be renamed",
    "query/spark/folding.py": "to be renamed",
    "query/spark/reading.py": "to be renamed",
    "query/sql/comparing.py": "to be renamed",
    "query/sql/reading.py": "to be renamed",
    "queues/deciding.py": "to be renamed",
    "queues/ending.py": "to be renamed",
    "queues/looking.py": "to be renamed",
    "queues/picking.py": "to be renamed",
    "queues/taking.py": "to be renamed",
    "burial in broker/core/__init__.py": "to be renamed",
    "burial in broker/core/log/subscriptions.py": "to be renamed",
    "hope in queues/line.py": "to be renamed",
    "keeper in direct/__init__.py": "to be renamed",
    "keeper in direct/connection.py": "to be renamed",
    "keeper in direct/keeper.py": "to be renamed",
}

# Names that stay in several packages, with the reason.
SHARED = {
    "Published": "public: what publish() returns, and the operation's outcome",
    "Retention": "public: what a topic keeps, as programs give it and as the store has it",
    "Subscription": "public: the client's end, and the broker's",
    "Transaction": "public: the client's end, and the steps of queues",
}

# Folders with frames or operations: a frame and the operation that it asks for may share a name.
FRAMES_AND_OPERATIONS = {"wire", "operations", "storage", "queues"}
# Databases have a class each in the store and in the query language's SQL.
DATABASES = {"Sqlite", "Postgresql"}

# Modules in -ing that are nouns of the field.
NOUNS = {"ordering", "staging", "routing", "testing", "string", "forwarding"}

# Words that were given up, as regular expressions.
GIVEN_UP = ("breathe", "burial", "glance", "hope", "how-manieth", "keeper", "linked put", "publisher's marks?")

# Words of the glossary that the code does not use yet, with the reason.
TO_COME = {"principal": "connections are not authenticated yet"}


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        yield path.relative_to(SOURCE), ast.parse(path.read_text("utf-8"))


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
    unknown = {name: where for name, where in shared.items() if name not in TO_BE_RENAMED and name not in SHARED}
    assert not unknown, "give each its own name"
    assert SHARED.keys() <= shared.keys(), "remove exceptions that are none any more"


def test_modules_are_nouns() -> None:
    gerunds = {str(path) for path, _ in trees() if path.stem.endswith("ing") and path.stem not in NOUNS}
    assert gerunds <= TO_BE_RENAMED.keys(), "name a module after what is in it"


def test_every_word_of_the_glossary_is_used() -> None:
    source = "\n".join(path.read_text("utf-8") for path in SOURCE.rglob("*.py"))
    words = re.findall(r"^- \*\*(.+?)\*\*", GLOSSARY.read_text("utf-8"), re.MULTILINE)
    assert words == sorted(words, key=str.lower)
    assert len(words) > 60
    unused = [
        word
        for word in words
        if word not in TO_COME
        and not re.search(rf"(?<![^\W_]){'[ _-]?'.join(word.split())}s?(?![^\W_])", source, re.IGNORECASE)
    ]
    assert unused == []


def test_words_that_were_given_up_are_gone() -> None:
    found = [
        f"{word} in {path.relative_to(SOURCE)}"
        for path in sorted(SOURCE.rglob("*.py"))
        for word in GIVEN_UP
        if re.search(rf"(?<![^\W_]){word}(?![^\W_])", path.read_text("utf-8"), re.IGNORECASE)
    ]
    assert [each for each in found if each not in TO_BE_RENAMED] == []
