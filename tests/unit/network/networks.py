"""Descriptions of networks for tests: random ones that are right, and TOML of any description."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st


@st.composite
def descriptions(draw: st.DrawFn) -> dict[str, Any]:
    """A network without problems: some cells, some brokers in several of them, and a connected graph of bundles."""
    count = draw(st.integers(1, 7))
    cells = [f"cell{number}" for number in range(count)]
    members = {
        cell: [f"b{number}.{each}" for each in range(draw(st.integers(1, 3)))] for number, cell in enumerate(cells)
    }
    for cell, other in draw(st.lists(st.tuples(st.sampled_from(cells), st.sampled_from(cells)), max_size=2)):
        if members[other][0] not in members[cell]:
            members[cell].append(members[other][0])
    edges = {(cells[draw(st.integers(0, number - 1))], cells[number]) for number in range(1, count)}
    if count > 1:
        more = st.tuples(st.sampled_from(cells), st.sampled_from(cells))
        edges |= {(min(edge), max(edge)) for edge in draw(st.lists(more, max_size=5)) if edge[0] != edge[1]}
    bundles = []
    for edge in sorted(edges):
        possible = [[first, second] for first in members[edge[0]] for second in members[edge[1]]]
        links = draw(st.lists(st.sampled_from(possible), min_size=1, max_size=5, unique_by=tuple))
        if draw(st.booleans()):
            edge, links = edge[::-1], [link[::-1] for link in links]
        bundles.append({"cells": list(edge), "links": links})
    brokers = sorted({name for names in members.values() for name in names})
    return {
        "name": "net",
        "epoch": draw(st.integers(1, 9)),
        "tree_count": draw(st.integers(1, 4)),
        "brokers": {name: f"127.0.0.1:{7000 + number}" for number, name in enumerate(brokers)},
        "cells": {
            cell: {"brokers": names, **({"store": f"postgresql://u@h/{cell}"} if len(names) > 1 else {})}
            for cell, names in members.items()
        },
        "bundles": bundles,
    }


def toml(description: dict[str, Any]) -> str:
    """The file of a description, in its order."""
    plain = {name: value for name, value in description.items() if name not in ("brokers", "cells", "bundles", "trees")}
    lines = [f"{name} = {json.dumps(value)}" for name, value in plain.items()]
    for name, value in description.items():
        if name == "brokers":
            lines += ["[brokers]", *(f"{json.dumps(key)} = {json.dumps(each)}" for key, each in value.items())]
        elif name == "cells":
            for cell, entry in value.items():
                lines += [
                    f"[cells.{json.dumps(cell)}]",
                    *(f"{key} = {json.dumps(each)}" for key, each in entry.items()),
                ]
        elif name in ("bundles", "trees"):
            for entry in value:
                lines += [f"[[{name}]]", *(f"{key} = {json.dumps(each)}" for key, each in entry.items())]
    return "\n".join(lines) + "\n"
