"""A network on the terminal: its lines fit, and every broker, cell and link is there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.cli.network_picture import drawn, summary
from milepost.network import parse_network
from tests.unit.network.networks import descriptions, toml

RING: dict[str, Any] = {
    "name": "ring",
    "brokers": {"a1": "h:1", "a2": "h:2", "b1": "h:3", "c1": "h:4"},
    "cells": {
        "a": {"brokers": ["a1", "a2"], "store": "postgresql://u:secret@h/a"},
        "b": {"brokers": ["b1"]},
        "c": {"brokers": ["c1"]},
    },
    "bundles": [
        {"cells": ["a", "b"], "links": [["a1", "b1"], ["a2", "b1"]]},
        {"cells": ["c", "b"], "links": [["c1", "b1"]]},
        {"cells": ["c", "a"], "links": [["c1", "a1"]]},
    ],
}
DRAWN = """\
ring  tree main  ══ bundle of the tree

┌ b ─┐
│ b1 │
└╥───┘
 ║  2 links: a1─b1  a2─b1
 ║  ┌ a ─────┐
 ╠══╡ a1  a2 │
 ║  └────────┘
 ║  1 link: c1─b1
 ║  ┌ c ─┐
 ╚══╡ c1 │
    └────┘

not on this tree:
  a ┄┄ c  1 link: a1─c1"""


def test_a_tree_and_what_it_leaves_out() -> None:
    network = parse_network(toml(RING | {"trees": [{"name": "main", "bundles": [["a", "b"], ["b", "c"]]}]}))
    assert "\n".join(line.plain.rstrip() for line in drawn(network, network.trees[0], 80)) == DRAWN


def test_a_network_in_words() -> None:
    lines = [line.plain for line in summary(parse_network(toml(RING | {"tree_count": 2})))]
    assert lines[1:] == [
        "3 cells, 4 brokers, 4 virtual brokers, 3 link bundles, 4 links",
        "tree tree1: depth 1, counted from cell a",
        "tree tree2: depth 1, counted from cell b",
    ]


@given(descriptions(), st.sampled_from([40, 80, 200]))
def test_lines_fit_and_nothing_is_missing(description: dict[str, Any], columns: int) -> None:
    network = parse_network(toml(description))
    lines = [line.plain for line in drawn(network, network.trees[0], columns)]
    assert max(len(line) for line in lines[1:]) <= max(columns, 80)
    text = "\n".join(lines)
    assert text.count("┌") == len(network.cells)
    assert text.count("╡") == len(network.trees[0].bundles)
    assert sum(
        text.count(f"{first}─{second}") for first in description["brokers"] for second in description["brokers"]
    ) >= sum(len(bundle.links) for bundle in network.bundles)


@pytest.mark.parametrize("count", [1, 200])
def test_many_brokers_are_wrapped(count: int) -> None:
    names = [f"broker-{number}" for number in range(count)]
    description = {
        "name": "wide",
        "brokers": {name: f"h:{number + 1}" for number, name in enumerate(names)},
        "cells": {"a": {"brokers": names, "store": "postgresql://u@h/a"}},
    }
    network = parse_network(toml(description))
    lines = [line.plain for line in drawn(network, network.trees[0], 80)]
    assert max(map(len, lines)) <= 80
    assert all(name in " ".join(lines) for name in names)
