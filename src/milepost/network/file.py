"""The network file: TOML that describes a whole network. Every broker of the network reads the same file."""

from __future__ import annotations

import tomllib
from pathlib import Path

from milepost import extras, limits
from milepost.address import parse_broker
from milepost.errors import ConfigError, NetworkError
from milepost.network.checks import problems
from milepost.network.description import Description, described
from milepost.network.topology import Cell, Link, LinkBundle, Network, PhysicalBroker, SpanningTree, pair
from milepost.network.trees import made_trees


def load_network(path: str | Path) -> Network:
    """The network in a file. Raises `ConfigError`, or `NetworkError` with all problems."""
    file = Path(path)
    try:
        if file.stat().st_size > limits.NETWORK_FILE_BYTES:
            raise ConfigError(
                f"{file} has more than NETWORK_FILE_BYTES = {limits.NETWORK_FILE_BYTES:,} bytes: "
                "it cannot be the file of a network"
            )
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    return parse_network(text, str(file))


def parse_network(text: str, what: str = "the network") -> Network:
    """The network that a text describes. `what` names the text in errors, which are those of `load_network`.

    Values of wrong types are reported first, all of them; then everything that is wrong between the values.
    """
    extras.require("a network of brokers needs", "server", "networkx")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise ConfigError(f"{what} is not the file of a network: its values are nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError, and numbers that Python does not convert
        raise ConfigError(f"{what} is not TOML: {error}") from None
    description, wrong = described(found)
    if description is not None:
        wrong = problems(description)
    if description is None or wrong:
        raise NetworkError(what, wrong)
    return _network(description)


def _network(description: Description) -> Network:
    """A network in the order of names. The description has no problems."""
    cells = tuple(sorted(description.cells))
    bundles = []
    for entry in description.bundles:
        links = (Link(*(link if pair(*entry.cells) == entry.cells else link[::-1])) for link in entry.links)
        bundles.append(LinkBundle(pair(*entry.cells), tuple(sorted(links))))
    if description.trees:
        trees = {tree.name: tuple(sorted(pair(*each) for each in tree.bundles)) for tree in description.trees}
    else:
        made = made_trees(cells, [bundle.cells for bundle in bundles], description.tree_count or 1)
        trees = {f"tree{number}": tree for number, tree in enumerate(made, 1)}
    return Network(
        name=description.name,
        epoch=description.epoch,
        brokers=tuple(
            PhysicalBroker(name, str(parse_broker(address))) for name, address in sorted(description.brokers.items())
        ),
        cells=tuple(
            Cell(name, tuple(sorted(description.cells[name].brokers)), description.cells[name].store) for name in cells
        ),
        bundles=tuple(sorted(bundles, key=lambda bundle: bundle.cells)),
        trees=tuple(SpanningTree(name, cells, edges) for name, edges in sorted(trees.items())),
    )
