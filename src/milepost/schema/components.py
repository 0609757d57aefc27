"""The strongly connected components of named definitions, to find definitions that contain themselves."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def components(edges: Mapping[T, Collection[T]]) -> Iterator[list[T]]:
    """Each component, after every component that it points to. Every name in `edges` is also a key.

    Tarjan's algorithm with a stack of its own: linear, and not bounded by Python's recursion limit. A closure
    computed by joining sets would be shorter, but takes quadratic memory on a hostile chain of definitions.
    """
    order: dict[T, int] = {}  # when a name was first met
    low: dict[T, int] = {}  # the earliest name of the open component that it reaches
    open_names: dict[T, None] = {}  # met, not yet assigned to a component; in the order they were met
    for start in edges:
        if start in order:
            continue
        path = [(start, iter(edges[start]))]
        order[start] = low[start] = len(order)
        open_names[start] = None
        while path:
            name, rest = path[-1]
            for target in rest:
                if target not in order:
                    order[target] = low[target] = len(order)
                    open_names[target] = None
                    path.append((target, iter(edges[target])))
                    break
                if target in open_names:
                    low[name] = min(low[name], order[target])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[name])
                if low[name] == order[name]:
                    component = [open_names.popitem()[0]]
                    while component[-1] != name:
                        component.append(open_names.popitem()[0])
                    yield component


def circular(edges: Mapping[T, Collection[T]]) -> frozenset[T]:
    """The names that reach themselves."""
    return frozenset(
        name for component in components(edges) for name in component if len(component) > 1 or name in edges[name]
    )
