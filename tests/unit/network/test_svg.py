"""The SVG of a network has every cell, broker and link, and no box lies on another."""

from __future__ import annotations

from itertools import combinations
from xml.etree import ElementTree

from hypothesis import given

from milepost.network import Network, parse_network
from milepost.network.svg import drawn
from tests.unit.network.networks import descriptions, toml

SVG = "{http://www.w3.org/2000/svg}"


def networks():
    return descriptions().map(lambda description: parse_network(toml(description)))


@given(networks())
def test_everything_is_drawn_once(network: Network) -> None:
    for tree in network.trees:
        text = drawn(network, tree)
        assert text == drawn(network, tree)
        svg = ElementTree.fromstring(text)
        classes = [each.get("class") for each in svg.iter()]
        assert classes.count("cell") == len(network.cells)
        assert classes.count("broker") == len(network.virtual_brokers)
        assert classes.count("link") == sum(len(bundle.links) for bundle in network.bundles) + 1  # the legend
        assert classes.count("bundle tree") == len(tree.bundles) + 1
        assert classes.count("bundle") == len(network.bundles) - len(tree.bundles) + 1
        shown = [each.text for each in svg.iter(f"{SVG}text")]
        assert all(shown.count(cell.name) == 1 for cell in network.cells)


@given(networks())
def test_no_box_lies_on_another_or_outside(network: Network) -> None:
    svg = ElementTree.fromstring(drawn(network, network.trees[0]))
    width, height = float(svg.get("width", 0)), float(svg.get("height", 0))
    boxes = [
        tuple(float(each.get(name, 0)) for name in ("x", "y", "width", "height"))
        for each in svg.iter(f"{SVG}rect")
        if each.get("class") == "cell"
    ]
    for x, y, wide, high in boxes:
        assert x >= 0
        assert y >= 0
        assert x + wide <= width
        assert y + high <= height
    for (x, y, wide, high), (left, top, across, down) in combinations(boxes, 2):
        assert x + wide < left or left + across < x or y + high < top or top + down < y


def test_the_drawing_needs_no_other_file_and_hides_stores() -> None:
    network = parse_network(
        'name = "n"\n[brokers]\nx = "h:1"\n[cells.a]\nbrokers = ["x"]\nstore = "postgresql://u:secret@h/a"\n'
    )
    text = drawn(network, network.trees[0])
    assert "secret" not in text
    assert "href" not in text
    assert text.count("http") == 1, "its namespace"
