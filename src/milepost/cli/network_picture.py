"""A network of brokers in words, and drawn with box characters along one of its spanning trees."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from rich.text import Text

if TYPE_CHECKING:
    from milepost.network import LinkBundle, Network, SpanningTree

LEAST_COLUMNS: Final = 24  # of names in a box, however deep it is in the drawing
TREE: Final = "green"
BRANCH: Final = "╠══╡"
LAST: Final = "╚══╡"


def summary(network: Network) -> Iterator[Text]:
    """What a network consists of, in a few lines."""
    yield Text.assemble((network.name, "bold"), f"  epoch {network.epoch}, fingerprint {network.fingerprint}")
    parts = [
        _count(len(network.cells), "cell"), _count(len(network.brokers), "broker"),
        _count(len(network.virtual_brokers), "virtual broker"), _count(len(network.bundles), "link bundle"),
        _count(sum(len(bundle.links) for bundle in network.bundles), "link"),
    ]  # fmt: skip
    yield Text(", ".join(parts))
    for tree in network.trees:
        yield Text(f"tree {tree.name}: depth {tree.depth}, counted from cell {tree.middle}")


def drawn(network: Network, tree: SpanningTree, columns: int) -> Iterator[Text]:
    """The cells as boxes below each other, connected by the bundles of the tree; then the bundles that it leaves out.

    The lines of a network of usual depth have at most `columns` characters. Names are wrapped, never cut.
    """
    others = "" if len(network.trees) == 1 else f", one of {len(network.trees)} trees"
    yield Text.assemble((network.name, "bold"), f"  tree {tree.name}{others}  ", ("══ bundle of the tree", TREE))
    yield Text()
    yield from _boxes(network, tree, columns)
    marked = set(tree.bundles)
    left = [bundle for bundle in network.bundles if bundle.cells not in marked]
    if left:
        yield Text()
        yield Text("not on this tree:")
    for bundle in left:
        first, second = bundle.cells
        yield from _wrapped(Text("  "), f"{first} ┄┄ {second}  {_links(bundle, first)}", columns)


def _boxes(network: Network, tree: SpanningTree, columns: int) -> Iterator[Text]:
    """Each cell, and below it the cells behind it. A stack instead of recursion: a thousand cells may be in a row."""
    brokers = {cell.name: cell.brokers for cell in network.cells}
    waiting = [(tree.middle, "", Text(), "")]  # a cell, the cell above, what stands left of both, and the arm between
    while waiting:
        cell, parent, left, arm = waiting.pop()
        below = [each for each in tree.neighbours[cell] if each != parent]
        above = left + Text("║  ", TREE) if arm else left
        after = left + Text("║  " if arm == BRANCH else "   ", TREE) if arm else left
        if arm:
            yield from _wrapped(above, _links(network.bundle(cell, parent), cell), columns)
        names = _lines("  ".join(brokers[cell]), columns - len(above) - 4)
        width = max(len(cell) + 1, *(len(line) for line in names))
        yield above + Text.assemble("┌ ", (cell, "bold"), f" {'─' * (width - len(cell))}┐")
        for number, line in enumerate(names):
            side = left + Text(arm, TREE) if arm and not number else after + Text("│")
            yield side + Text(f" {line.ljust(width)} │")
        yield after + (Text.assemble("└", ("╥", TREE), f"{'─' * (width + 1)}┘") if below else f"└{'─' * (width + 2)}┘")
        arms = [BRANCH] * (len(below) - 1) + [LAST]
        waiting += [(child, cell, after + Text(" "), arm) for child, arm in reversed([*zip(below, arms, strict=False)])]


def _lines(text: str, columns: int) -> list[str]:
    return textwrap.wrap(text, max(LEAST_COLUMNS, columns), break_long_words=False, break_on_hyphens=False)


def _wrapped(before: Text, text: str, columns: int) -> Iterator[Text]:
    for number, line in enumerate(_lines(text, columns - len(before) - 2)):
        yield before + Text(f"{'  ' if number else ''}{line}", "dim")


def _links(bundle: LinkBundle, near: str) -> str:
    """The links of a bundle, each with the broker of the cell `near` first."""
    ends = bundle.links if bundle.cells[0] == near else [(second, first) for first, second in bundle.links]
    return f"{_count(len(bundle.links), 'link')}: {'  '.join(f'{first}─{second}' for first, second in ends)}"


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
