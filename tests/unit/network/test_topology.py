"""What routing asks: trees that span, next cells that lead to their goal, links that move only when they must."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import networkx
from hypothesis import given
from hypothesis import strategies as st

from milepost.network import Link, LinkBundle, Network, SpanningTree, load_network, parse_network
from milepost.network.trees import made_trees
from tests.unit.network.networks import descriptions, toml

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "networks"
BUNDLE = LinkBundle(("a", "b"), tuple(Link(f"a{first}", f"b{second}") for first in range(3) for second in range(2)))
EVERYONE = {name for link in BUNDLE.links for name in link}


def networks() -> st.SearchStrategy[Network]:
    return descriptions().map(lambda description: parse_network(toml(description)))


@given(networks())
def test_trees_span_and_have_no_cycle(network: Network) -> None:
    for tree in network.trees:
        graph = networkx.Graph(tree.bundles)
        graph.add_nodes_from(tree.cells)
        assert networkx.is_tree(graph)
        assert set(graph) == {cell.name for cell in network.cells}
        assert set(tree.bundles) <= {bundle.cells for bundle in network.bundles}
        assert tree.depth == networkx.radius(graph)
        assert networkx.eccentricity(graph, tree.middle) == tree.depth


@given(descriptions(), st.randoms(use_true_random=False))
def test_trees_are_made_alike_whatever_the_order(description: dict[str, Any], order: Any) -> None:
    edges = [tuple(bundle["cells"]) for bundle in description["bundles"]]
    cells = list(description["cells"])
    first = list(made_trees(cells, edges, 4))
    order.shuffle(edges)
    order.shuffle(cells)
    assert list(made_trees(cells, [edge[::-1] for edge in edges], 4)) == first


@given(st.integers(3, 9))
def test_trees_of_a_ring_are_all_different_and_share_the_bundles(size: int) -> None:
    ring = [(f"c{number}", f"c{(number + 1) % size}") for number in range(size)]
    trees = list(made_trees([first for first, _ in ring], ring, size))
    assert len(set(trees)) == size
    assert set(Counter(edge for tree in trees for edge in tree).values()) == {size - 1}


def test_the_first_tree_is_shallow_around_the_backbone() -> None:
    cells = [f"c{number}" for number in range(6)]
    (tree,) = made_trees(cells, [(first, second) for first in cells for second in cells if first < second], 1)
    assert tree == tuple(("c0", cell) for cell in cells[1:])


@given(networks())
def test_next_cells_lead_to_their_goal(network: Network) -> None:
    for tree in network.trees:
        routes = {cell: tree.routes(cell) for cell in tree.cells}
        for start in tree.cells:
            assert routes[start].next_cell.keys() == set(tree.cells) - {start}
            for goal in routes[start].next_cell:
                passed = [start]
                while passed[-1] != goal:
                    passed.append(routes[passed[-1]].next_cell[goal])
                    assert passed[-1] in tree.neighbours[passed[-2]]
                    assert len(passed) == len(set(passed)), "a cycle"


@given(networks())
def test_what_is_behind_a_bundle_is_all_that_its_other_side_does_not_have(network: Network) -> None:
    for tree in network.trees:
        for first, second in tree.bundles:
            there, here = tree.routes(first).behind[second], tree.routes(second).behind[first]
            assert there | here == set(tree.cells)
            assert not there & here
        for cell in tree.cells:
            routes = tree.routes(cell)
            assert routes.behind.keys() == set(tree.neighbours[cell])
            assert all(goal in routes.behind[towards] for goal, towards in routes.next_cell.items())


def test_a_long_row_of_cells_is_no_problem() -> None:
    cells = tuple(f"c{number:03}" for number in range(1_000))
    row = SpanningTree("t", cells, tuple((cells[each], cells[each + 1]) for each in range(999)))
    assert (row.middle, row.depth) == ("c499", 500)
    assert row.routes("c500").next_cell["c999"] == "c501"


@given(st.sets(st.sampled_from(sorted(EVERYONE)), min_size=2), st.integers(0, (1 << 32) - 1))
def test_only_links_with_two_live_brokers_are_used(live: set[str], publisher: int) -> None:
    usable = BUNDLE.usable(live)
    assert set(usable) == {link for link in BUNDLE.links if set(link) <= live}
    chosen = BUNDLE.link_of(publisher, live)
    assert chosen in usable if usable else chosen is None


@given(st.sampled_from(sorted(EVERYONE)), st.lists(st.integers(0, (1 << 32) - 1), min_size=1))
def test_a_dead_broker_moves_only_the_publishers_of_its_links(dead: str, publishers: list[int]) -> None:
    for publisher in publishers:
        before, after = BUNDLE.link_of(publisher, EVERYONE), BUNDLE.link_of(publisher, EVERYONE - {dead})
        assert before is not None
        assert after != before if dead in before else after == before


@given(st.sampled_from(BUNDLE.links), st.integers(0, (1 << 32) - 1))
def test_a_link_that_goes_moves_only_its_publishers(gone: Link, publisher: int) -> None:
    fewer = LinkBundle(BUNDLE.cells, tuple(link for link in BUNDLE.links if link != gone))
    before = BUNDLE.link_of(publisher, EVERYONE)
    assert before == gone or fewer.link_of(publisher, EVERYONE) == before


def test_publishers_are_spread_over_links_and_trees() -> None:
    links = Counter(BUNDLE.link_of(publisher, EVERYONE) for publisher in range(6_000))
    assert len(links) == 6
    assert all(800 < count < 1_200 for count in links.values())
    network = ring()
    trees = Counter(network.tree_of("orders", publisher).name for publisher in range(4_000))
    assert len(trees) == 4
    assert all(800 < count < 1_200 for count in trees.values())


def ring() -> Network:
    names = ["a", "b", "c", "d"]
    return parse_network(toml({
        "name": "ring", "tree_count": 4, "brokers": {name: f"h:{number + 1}" for number, name in enumerate(names)},
        "cells": {name: {"brokers": [name]} for name in names},
        "bundles": [
            {"cells": [first, second], "links": [[first, second]]}
            for first, second in zip(names, [*names[1:], "a"], strict=True)
        ],
    }))  # fmt: skip


def test_choices_stay_what_they_are() -> None:
    """Brokers of different versions and machines must choose alike."""
    network = ring()
    assert [int(network.tree_of("orders", each).name[-1]) for each in range(8)] == [2, 4, 2, 1, 4, 4, 1, 4]
    assert [network.tree_of(topic, 1).name for topic in ("orders", "orders.eu", "quotes")] == [
        "tree4",
        "tree1",
        "tree1",
    ]
    links = [BUNDLE.link_of(publisher, EVERYONE) for publisher in range(8)]
    assert [BUNDLE.links.index(link) for link in links if link] == [5, 1, 1, 4, 5, 1, 0, 0]
    assert [tree.bundles for tree in network.trees] == [
        (("a", "b"), ("a", "d"), ("b", "c")),
        (("a", "b"), ("a", "d"), ("c", "d")),
        (("a", "b"), ("b", "c"), ("c", "d")),
        (("a", "d"), ("b", "c"), ("c", "d")),
    ]


@given(networks(), st.integers(0, (1 << 32) - 1))
def test_the_order_of_trees_does_not_matter(network: Network, publisher: int) -> None:
    turned = Network(network.name, 1, network.brokers, network.cells, network.bundles, network.trees[::-1])
    assert turned.tree_of("a.b", publisher) == network.tree_of("a.b", publisher)


def test_a_broker_in_two_cells_is_two_virtual_brokers() -> None:
    network = parse_network(
        'name = "n"\n[brokers]\nx = "h:1"\n[cells.a]\nbrokers = ["x"]\n[cells.b]\nbrokers = ["x"]\n'
        '[[bundles]]\ncells = ["a", "b"]\nlinks = [["x", "x"]]\n'
    )
    assert [virtual.name for virtual in network.virtual_brokers] == ["a/x", "b/x"]
    assert network.cells_of == {"x": ("a", "b")}
    assert network.bundle("b", "a").link_of(1, {"x"}) == Link("x", "x")


def test_one_cell_is_a_network() -> None:
    network = parse_network('name = "n"\n[brokers]\nx = "h:1"\n[cells.a]\nbrokers = ["x"]\n')
    (tree,) = network.trees
    assert (tree.bundles, tree.depth, tree.middle, tree.routes("a").next_cell) == ((), 0, "a", {})


def test_the_examples_are_networks() -> None:
    assert {path.name for path in EXAMPLES.glob("*.toml")} == {"figure1.toml", "two_cells.toml"}
    for path in EXAMPLES.glob("*.toml"):
        load_network(path)
