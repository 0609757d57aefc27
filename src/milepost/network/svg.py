"""A network of brokers as an SVG that needs no other file.

The middle of the marked tree stands in the middle, and the cells around it in rings, one ring for each step along the
tree. Every cell gets a share of the circle that grows with the cells behind it, and every ring is large enough for its
boxes. Coordinates are rounded, so that equal networks give equal files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final
from xml.etree import ElementTree

from milepost.network.topology import Cell, Network, SpanningTree, VirtualBroker

GAP: Final = 70.0  # pixels between two rings of boxes, in which links can be seen
MARGIN: Final = 30.0
TITLE: Final = 26.0  # height of the line with a cell's name
PILL_HEIGHT: Final = 24.0
CHARACTER: Final = 7.6  # width of a character in the font of names
FOOT: Final = 58.0  # height of the legend
LEAST_WIDTH: Final = 460.0  # the legend fits

_STYLE: Final = """
text { font: 13px ui-monospace, 'DejaVu Sans Mono', monospace; fill: #1c2733 }
.title { font-weight: bold; font-size: 16px }
.cell { fill: #f3f6fa; stroke: #7b8ba0; stroke-width: 1.2 }
.cell-name { font-weight: bold; paint-order: stroke; stroke: #f3f6fa; stroke-width: 4px }
.broker { fill: #ffffff; stroke: #3b4d63 }
.bundle { stroke: #d9dee5; stroke-width: 14; stroke-linecap: round }
.tree { stroke: #9fd3b4 }
.link { stroke: #3b4d63; stroke-width: 1.3 }
.small { font-size: 12px; fill: #55657a }
"""


@dataclass
class _Box:
    """A cell with its place; `x` and `y` are its middle."""

    cell: Cell
    columns: int
    pill: float  # width of a broker
    x: float = 0.0
    y: float = 0.0

    @property
    def rows(self) -> int:
        return math.ceil(len(self.cell.brokers) / self.columns)

    @property
    def width(self) -> float:
        return max(self.columns * (self.pill + 10) + 10, len(self.cell.name) * CHARACTER + 24)

    @property
    def height(self) -> float:
        return TITLE + self.rows * (PILL_HEIGHT + 10) + 2

    @property
    def diagonal(self) -> float:
        return math.hypot(self.width, self.height)

    def slots(self) -> list[tuple[float, float]]:
        """The middles of the places for brokers."""
        left = self.x - (self.columns - 1) * (self.pill + 10) / 2
        top = self.y - self.height / 2 + TITLE + PILL_HEIGHT / 2
        return [
            (left + column * (self.pill + 10), top + row * (PILL_HEIGHT + 10))
            for row in range(self.rows)
            for column in range(self.columns)
        ]


def drawn(network: Network, tree: SpanningTree) -> str:
    """The text of the SVG. `tree` is marked, and decides where cells are."""
    boxes = {cell.name: _box(cell) for cell in network.cells}
    _place(boxes, tree)
    left = min(box.x - box.width / 2 for box in boxes.values()) - MARGIN
    top = min(box.y - box.height / 2 for box in boxes.values()) - MARGIN - 24
    width = max(LEAST_WIDTH, max(box.x + box.width / 2 for box in boxes.values()) + MARGIN - left)
    height = max(box.y + box.height / 2 for box in boxes.values()) + MARGIN + FOOT - top
    for box in boxes.values():
        box.x, box.y = box.x - left, box.y - top
    svg = ElementTree.Element(
        "svg", xmlns="http://www.w3.org/2000/svg", width=_n(width), height=_n(height),
        viewBox=f"0 0 {_n(width)} {_n(height)}",
    )  # fmt: skip
    _add(svg, "title", text=f"network {network.name}, tree {tree.name}")
    _add(svg, "style", text=_STYLE)
    _add(svg, "rect", width="100%", height="100%", fill="#ffffff")
    _add(svg, "text", network.name, x=_n(MARGIN), y="30", **{"class": "title"})
    _draw_bundles(svg, network, tree, boxes)
    _draw_cells(svg, network, boxes)
    _draw_legend(svg, network, tree, height)
    ElementTree.indent(svg)
    return ElementTree.tostring(svg, encoding="unicode") + "\n"


def _box(cell: Cell) -> _Box:
    pill = max(34.0, max(len(name) for name in cell.brokers) * CHARACTER + 14)
    return _Box(cell, min(len(cell.brokers), max(2, math.ceil(math.sqrt(len(cell.brokers))))), pill)


def _place(boxes: dict[str, _Box], tree: SpanningTree) -> None:
    """Put every box on the ring of its distance from the middle, in the middle of its share of the circle."""
    order = list(tree.walk(tree.middle))
    leaves = dict.fromkeys(boxes, 0)
    for cell, before in reversed(order):
        leaves[cell] = max(1, leaves[cell])
        if cell != before:
            leaves[before] += leaves[cell]
    total = leaves[tree.middle]
    begin = {tree.middle: -1.5 * math.pi if total == 2 else -math.pi}  # two stand left and right, four in the corners
    ring = {tree.middle: 0}
    angle: dict[str, float] = {}
    used = dict(begin)  # how far the share of a cell is given to the cells behind it
    for cell, before in order[1:]:
        ring[cell] = ring[before] + 1
        used[cell] = used[before]
        share = 2 * math.pi * leaves[cell] / total
        angle[cell] = used[before] + share / 2
        used[before] += share
    radius = 0.0
    largest = boxes[tree.middle].diagonal
    for number in range(1, max(ring.values()) + 1):
        inside = [cell for cell in ring if ring[cell] == number]
        here = max(boxes[cell].diagonal for cell in inside)
        radius += (largest + here) / 2 + GAP
        for cell in inside:
            share = min(math.pi, 2 * math.pi * leaves[cell] / total)
            radius = max(radius, (boxes[cell].diagonal + 12) / (2 * math.sin(share / 2)))
        largest = here
        for cell in inside:
            boxes[cell].x, boxes[cell].y = radius * math.cos(angle[cell]), radius * math.sin(angle[cell])


def _draw_bundles(svg: ElementTree.Element, network: Network, tree: SpanningTree, boxes: dict[str, _Box]) -> None:
    marked = set(tree.bundles)
    for bundle in sorted(network.bundles, key=lambda each: each.cells in marked):  # the tree lies on top
        first, second = (boxes[cell] for cell in bundle.cells)
        kind = "bundle tree" if bundle.cells in marked else "bundle"
        _line(svg, (first.x, first.y + TITLE / 2), (second.x, second.y + TITLE / 2), kind)


def _draw_cells(svg: ElementTree.Element, network: Network, boxes: dict[str, _Box]) -> None:
    addresses = {broker.name: broker.address for broker in network.brokers}
    for box in boxes.values():
        left, top = box.x - box.width / 2, box.y - box.height / 2
        _add(
            svg, "rect", x=_n(left), y=_n(top), width=_n(box.width), height=_n(box.height), rx="8",
            **{"class": "cell"},
        )  # fmt: skip
    places = _slots(network, boxes)
    for bundle in network.bundles:
        cells = bundle.cells
        for link in bundle.links:
            _line(
                svg, places[VirtualBroker(cells[0], link.first)], places[VirtualBroker(cells[1], link.second)], "link"
            )
    for box in boxes.values():  # above the links, which may cross it
        left, top = box.x - box.width / 2, box.y - box.height / 2
        _add(svg, "text", box.cell.name, x=_n(left + 10), y=_n(top + 18), **{"class": "cell-name"})
    for virtual, (x, y) in places.items():
        pill = boxes[virtual.cell].pill
        group = _add(svg, "g")
        _add(group, "title", f"{virtual.name}, {addresses[virtual.broker]}")
        _add(
            group, "rect", x=_n(x - pill / 2), y=_n(y - PILL_HEIGHT / 2), width=_n(pill), height=_n(PILL_HEIGHT),
            rx="12", **{"class": "broker"},
        )  # fmt: skip
        _add(group, "text", virtual.broker, x=_n(x), y=_n(y + 4.5), **{"text-anchor": "middle"})


def _slots(network: Network, boxes: dict[str, _Box]) -> dict[VirtualBroker, tuple[float, float]]:
    """A place for each virtual broker: those with the most links nearest to the cells that these lead to."""
    goals: dict[VirtualBroker, list[_Box]] = {virtual: [] for virtual in network.virtual_brokers}
    for bundle in network.bundles:
        first, second = bundle.cells
        for link in bundle.links:
            goals[VirtualBroker(first, link.first)].append(boxes[second])
            goals[VirtualBroker(second, link.second)].append(boxes[first])
    places: dict[VirtualBroker, tuple[float, float]] = {}
    for cell in network.cells:
        free = boxes[cell.name].slots()
        members = [VirtualBroker(cell.name, broker) for broker in cell.brokers]
        for virtual in sorted(members, key=lambda each: (-len(goals[each]), each.broker)):
            ends = goals[virtual]
            nearest = min(
                free, key=lambda slot: (round(sum(math.dist(slot, (box.x, box.y)) for box in ends)), slot[::-1])
            )
            free.remove(nearest)
            places[virtual] = nearest
    return dict(sorted(places.items()))


def _draw_legend(svg: ElementTree.Element, network: Network, tree: SpanningTree, height: float) -> None:
    y = height - FOOT + 14
    x = MARGIN
    for kind, words in (("bundle tree", f"on tree {tree.name}"), ("bundle", "other bundle"), ("link", "link")):
        _line(svg, (x + 7, y - 4), (x + 31, y - 4), kind)
        _add(svg, "text", words, x=_n(x + 46), y=_n(y), **{"class": "small"})
        x += 46 + len(words) * CHARACTER + 22
    words = f"epoch {network.epoch}, fingerprint {network.fingerprint}"
    _add(svg, "text", words, x=_n(MARGIN), y=_n(y + 24), **{"class": "small"})


def _line(svg: ElementTree.Element, start: tuple[float, float], end: tuple[float, float], kind: str) -> None:
    _add(svg, "line", x1=_n(start[0]), y1=_n(start[1]), x2=_n(end[0]), y2=_n(end[1]), **{"class": kind})


def _add(parent: ElementTree.Element, tag: str, text: str | None = None, **attributes: str) -> ElementTree.Element:
    made = ElementTree.SubElement(parent, tag, attributes)
    made.text = text
    return made


def _n(value: float) -> str:
    """A number of pixels: rounding hides the last digits, in which machines may differ."""
    return f"{value:.1f}"
