"""Spanning trees, made where the file has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

Edges = tuple[tuple[str, str], ...]


def made_trees(cells: Iterable[str], bundles: Iterable[tuple[str, str]], count: int) -> Iterator[Edges]:
    """`count` spanning trees of a connected graph of cells, each as its bundles.

    The first tree is as shallow as it can be around the cell with the most bundles, the backbone. Each further tree
    prefers the bundles that fewer trees before it use, and among them again those near the backbone.

    Every broker must make the same trees. So no two bundles have the same weight: then there is one minimum spanning
    tree, and neither the order of the file nor the version of networkx can choose another.
    """
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(cells)
    graph.add_edges_from(bundles)
    backbone = min(graph, key=lambda cell: (-graph.degree[cell], cell))
    far = networkx.single_source_shortest_path_length(graph, backbone)
    pairs = sorted(
        ((min(edge), max(edge)) for edge in graph.edges), key=lambda each: (far[each[0]] + far[each[1]], each)
    )
    used: Counter[tuple[str, str]] = Counter()
    for _ in range(count):
        for rank, (first, second) in enumerate(pairs):
            graph.edges[first, second]["weight"] = used[first, second] * len(pairs) + rank
        found = networkx.minimum_spanning_edges(graph, data=False)
        tree = tuple(sorted((min(edge), max(edge)) for edge in found))
        used.update(tree)
        yield tree
