"""A network as its file describes it. Types are checked here, names and their meaning in `checks.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from milepost.errors import did_you_mean

Pair = tuple[str, str]
Positive = Annotated[int, msgspec.Meta(ge=1, le=(1 << 63) - 1)]


class CellEntry(msgspec.Struct, frozen=True):
    """`[cells.NAME]`"""

    brokers: list[str]
    store: str | None = None


class BundleEntry(msgspec.Struct, frozen=True):
    """`[[bundles]]`"""

    cells: Pair
    links: list[Pair]


class TreeEntry(msgspec.Struct, frozen=True):
    """`[[trees]]`"""

    name: str
    bundles: list[Pair]


class Description(msgspec.Struct, frozen=True):
    """The whole file. Without `trees`, `tree_count` trees are made."""

    name: str
    brokers: dict[str, str]
    cells: dict[str, CellEntry]
    bundles: list[BundleEntry] = []
    trees: list[TreeEntry] = []
    tree_count: Positive | None = None
    epoch: Positive = 1


T = TypeVar("T", bound=msgspec.Struct)


def described(found: Mapping[str, Any]) -> tuple[Description | None, list[tuple[str, str]]]:
    """The description in a file's values, or None and all its problems.

    Each value is read by itself, since msgspec stops at the first problem.
    """
    problems: list[tuple[str, str]] = []
    values = dict(found)
    cells = values.get("cells")
    if isinstance(cells, dict):
        values["cells"] = {name: _read(CellEntry, value, f"[cells.{name}]", problems) for name, value in cells.items()}
    for name, kind in (("bundles", BundleEntry), ("trees", TreeEntry)):
        entries = values.get(name)
        if isinstance(entries, list):
            values[name] = [
                _read(kind, value, f"[[{name}]] {number}", problems) for number, value in enumerate(entries, 1)
            ]
    if problems:  # those of the other values are listed as well
        values["cells"], values["bundles"], values["trees"] = {}, [], []
    read = _read(Description, values, "", problems)
    return (None if problems else read), problems


def _read(kind: type[T], value: Any, place: str, problems: list[tuple[str, str]]) -> T | None:
    """A table of the file; None when it is wrong, and `problems` then has the reasons."""
    if not isinstance(value, dict):
        problems.append((place, "is not a table"))
        return None
    before = len(problems)
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    read = {}
    for name, each in value.items():
        if name not in fields:
            near = did_you_mean(name, fields) or f"; take {', '.join(fields)}"
            problems.append((place, f"{name!r} is not a known key{near}"))
            continue
        try:
            read[name] = msgspec.convert(each, fields[name].type)
        except msgspec.ValidationError as error:
            problems.append((f"{place} {name}".strip(), str(error).replace("`$", f"`{name}")))
    missing = [name for name, field in fields.items() if field.required and name not in value]
    problems += [(place, f"{name!r} is missing") for name in missing]
    return kind(**read) if len(problems) == before else None
