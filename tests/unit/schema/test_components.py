"""Strongly connected components against their definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from milepost.schema.components import circular, components

GRAPHS = st.integers(1, 7).flatmap(
    lambda size: st.fixed_dictionaries({name: st.sets(st.sampled_from("abcdefg"[:size])) for name in "abcdefg"[:size]})
)


def reach(edges: dict[str, set[str]], start: str) -> set[str]:
    """Everything that one or more steps lead to."""
    found: set[str] = set()
    todo = list(edges[start])
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += edges[name]
    return found


@given(GRAPHS)
def test_two_names_share_a_component_when_each_reaches_the_other(edges: dict[str, set[str]]) -> None:
    found = list(components(edges))
    assert sorted(name for component in found for name in component) == sorted(edges)
    place = {name: number for number, component in enumerate(found) for name in component}
    for one in edges:
        for other in edges:
            together = one == other or (other in reach(edges, one) and one in reach(edges, other))
            assert (place[one] == place[other]) == together
            if other in edges[one]:
                assert place[other] <= place[one]  # what a component points to comes first
    assert circular(edges) == {name for name in edges if name in reach(edges, name)}


def test_long_chains_do_not_exhaust_the_stack() -> None:
    size = 100_000
    edges = {number: [(number + 1) % size] for number in range(size)}
    assert [len(component) for component in components(edges)] == [size]
