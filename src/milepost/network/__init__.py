"""A network of brokers: its topology, and what is wanted where. Pure: no socket, no store, no clock.

::

    file          reads the network file: TOML -> description -> checks -> network
    description   the file as it stands
    checks        all problems of a description, and the warnings about a network
    topology      cells, brokers, link bundles, spanning trees, and what routing asks of them
    trees         makes spanning trees
    svg           a network as a drawing
    interest      the filters that are wanted behind a link
"""

from milepost.network.checks import warnings
from milepost.network.file import load_network, parse_network
from milepost.network.topology import (
    Cell,
    Link,
    LinkBundle,
    Network,
    PhysicalBroker,
    Routes,
    SpanningTree,
    VirtualBroker,
)

__all__ = [
    "load_network", "parse_network", "warnings",
    "Network", "Cell", "PhysicalBroker", "VirtualBroker", "LinkBundle", "Link", "SpanningTree", "Routes",
]  # fmt: skip
