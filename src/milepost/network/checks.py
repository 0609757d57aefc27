"""Everything that can be wrong with the description of a network, and what can fail in a network that is right."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar
from urllib.parse import parse_qsl, urlsplit

from milepost import limits
from milepost.address import DATABASE, masked, parse_address, parse_broker
from milepost.errors import ConfigError, did_you_mean
from milepost.network.description import BundleEntry, Description
from milepost.network.topology import LinkBundle, Network, pair

Problem = tuple[str, str]  # its place in the file, and a text that says what to do

LISTED: Final = 100  # problems; looking for a similar name takes some milliseconds for each

_NAME: Final = re.compile(r"[A-Za-z0-9_\-]+(\.[A-Za-z0-9_\-]+)*")  # as topics have them
_EVERYWHERE: Final = ("0.0.0.0", "::")
_PORT: Final = 5432  # of PostgreSQL
_ELSEWHERE: Final = ("host", "port", "dbname", "options")  # parameters of a URL that lead to another database or schema


def problems(described: Description) -> list[Problem]:
    """All problems of a description, `LISTED` at most; none: it is a network."""
    too_many = list(_too_many(described))
    if too_many:  # the checks below are meant for sizes within the limits
        return too_many
    checks = (_names, _brokers, _cells, _stores, _bundles, _connections, _trees)
    found = list(islice((problem for check in checks for problem in check(described)), LISTED + 1))
    if len(found) > LISTED:
        found[LISTED:] = [("", f"there are more than {LISTED} problems; correct these first")]
    return found


def _too_many(described: Description) -> Iterator[Problem]:
    links = sum(len(bundle.links) for bundle in described.bundles)
    for place, limit, count in (
        ("[brokers]", "NETWORK_BROKERS", len(described.brokers)),
        ("[cells]", "NETWORK_CELLS", len(described.cells)),
        ("[cells]", "NETWORK_BROKERS", sum(len(cell.brokers) for cell in described.cells.values())),
        ("[[bundles]]", "NETWORK_LINKS", max(links, len(described.bundles))),
        ("[[trees]]", "NETWORK_TREES", len(described.trees)),
        ("tree_count", "NETWORK_TREES", described.tree_count or 0),
    ):
        if count > getattr(limits, limit):
            yield place, f"{count:,} is over {limit} = {getattr(limits, limit):,}"


def _names(described: Description) -> Iterator[Problem]:
    places = [
        ("name", described.name),
        *(("[brokers]", name) for name in described.brokers),
        *(("[cells]", name) for name in described.cells),
        *((f"[[trees]] {number}", tree.name) for number, tree in enumerate(described.trees, 1)),
    ]
    for place, name in places:
        if len(name) > limits.NAME_CHARS:
            yield place, f"{name[:40]!r}… has {len(name):,} characters; a name has 1 to {limits.NAME_CHARS}"
        elif not _NAME.fullmatch(name):
            yield place, f"{name!r} is not a name: use words of letters, digits, _ and -, joined by dots"


def _brokers(described: Description) -> Iterator[Problem]:
    if not described.brokers:
        yield "[brokers]", 'there are none; write name = "host:port" for each'
    members = {name for cell in described.cells.values() for name in cell.brokers}
    taken: dict[object, str] = {}
    for name, text in described.brokers.items():
        place = f"[brokers] {name}"
        if name not in members:
            yield place, "is in no cell; add it to the brokers of a cell, or remove it"
        try:
            address = parse_broker(text)
        except ConfigError as error:
            yield place, str(error)
            continue
        if not address.host.isprintable() or " " in address.host:
            yield place, f"{text!r} names no host that other brokers can reach"
        elif address.host in _EVERYWHERE or (address.scheme != "inproc" and not address.port):
            yield place, f"{text!r} is not an address that other brokers can reach; write a host and a port"
        elif address in taken:
            yield place, f"has the address of {taken[address]}, {address}; give each broker its own"
        taken.setdefault(address, name)


def _cells(described: Description) -> Iterator[Problem]:
    if not described.cells:
        yield "[cells]", "there are none; write [cells.NAME] for each"
    for name, cell in described.cells.items():
        place = f"[cells.{name}]"
        if not cell.brokers:
            yield place, "has no brokers; a cell has at least one"
        for broker in _repeated(cell.brokers):
            yield place, f"names broker {broker!r} twice"
        for broker in dict.fromkeys(cell.brokers):
            if broker not in described.brokers:
                yield place, f"unknown broker {broker!r}{did_you_mean(broker, described.brokers)}"


def _stores(described: Description) -> Iterator[Problem]:
    taken: dict[object, str] = {}
    for name, cell in described.cells.items():
        place = f"[cells.{name}]"
        if cell.store is None:
            if len(set(cell.brokers)) > 1:
                yield place, 'has several brokers and no store; give it one: store = "postgresql://user@host/database"'
            continue
        try:
            database = _database(cell.store)
        except ValueError as error:
            yield place, f"store {masked(cell.store)[:80]!r} {error}"
            continue
        if database in taken:
            yield place, f"has the store of cell {taken[database]!r}, {masked(cell.store)}; give each cell its own"
        taken.setdefault(database, name)


def _database(store: str) -> object:
    """What identifies a PostgreSQL database, whatever the user. Raises `ValueError` with the end of a sentence.

    The error of a library is never shown: it may quote a password.
    """
    write = "write postgresql://user@host/database"
    try:
        found = parse_address(store)
        parts = urlsplit(store)
        place = (parts.hostname or "", parts.port or _PORT, parts.path)
        options = sorted((key, value) for key, value in parse_qsl(parts.query) if key in _ELSEWHERE)
    except ValueError:  # ConfigError is one
        raise ValueError(f"cannot be read; {write}") from None
    if found.scheme != DATABASE:
        raise ValueError(f"is not in PostgreSQL; {write}, or leave it out where a cell has one broker")
    if parts.path in ("", "/"):
        raise ValueError(f"names no database; {write}")
    if not store.isprintable():
        raise ValueError(f"has characters that cannot be printed; {write}")
    return place, tuple(options)


def _bundles(described: Description) -> Iterator[Problem]:
    taken: dict[tuple[str, str], int] = {}
    for number, bundle in enumerate(described.bundles, 1):
        place = f"[[bundles]] {number}"
        first, second = bundle.cells
        unknown = [cell for cell in dict.fromkeys(bundle.cells) if cell not in described.cells]
        for cell in unknown:
            yield place, f"unknown cell {cell!r}{did_you_mean(cell, described.cells)}"
        if first == second:
            yield place, f"connects cell {first!r} with itself; a bundle connects two cells"
            continue
        if pair(first, second) in taken:
            yield (
                place,
                (
                    f"connects {first!r} and {second!r} as [[bundles]] {taken[pair(first, second)]} does; "
                    "put all their links into one"
                ),
            )
        taken.setdefault(pair(first, second), number)
        if not bundle.links:
            yield place, "has no links; a bundle has at least one"
        for link in _repeated(bundle.links):
            yield place, f"has the link {_shown(link)} twice"
        if not unknown:
            yield from _links(described, bundle, place)


def _links(described: Description, bundle: BundleEntry, place: str) -> Iterator[Problem]:
    inside = [set(described.cells[cell].brokers) for cell in bundle.cells]
    for link in dict.fromkeys(bundle.links):
        wrong = [end for end in (0, 1) if link[end] not in inside[end]]
        if wrong and link[1] in inside[0] and link[0] in inside[1]:
            yield (
                place,
                (
                    f"link {_shown(link)} has its brokers in the wrong order; write {_shown(link[::-1])}, "
                    f"as cells = {_shown(bundle.cells)}"
                ),
            )
            continue
        for end in wrong:
            broker, cell = link[end], bundle.cells[end]
            if broker in described.brokers:
                yield place, f"link {_shown(link)}: broker {broker!r} is not in cell {cell!r}"
            else:
                near = did_you_mean(broker, sorted(inside[end])) or did_you_mean(broker, described.brokers)
                yield place, f"link {_shown(link)}: unknown broker {broker!r}{near}"


def _connections(described: Description) -> Iterator[Problem]:
    """The cells that no bundle connects with the others. A bundle with an unknown cell is a problem already."""
    edges = [bundle.cells for bundle in described.bundles]
    if any(cell not in described.cells for edge in edges for cell in edge):
        return
    parts = _parts(described.cells, edges)
    if len(parts) > 1:
        shown = "; ".join(", ".join(part) for part in parts)
        yield "", f"the cells are not connected: there is no way between {len(parts)} parts: {shown}"


def _trees(described: Description) -> Iterator[Problem]:
    if described.trees and described.tree_count is not None:
        yield "tree_count", "is for trees that are made, and [[trees]] has some; remove one of the two"
    for name in _repeated([tree.name for tree in described.trees]):
        yield "[[trees]]", f"two have the name {name!r}"
    known = {pair(*bundle.cells) for bundle in described.bundles}
    for number, tree in enumerate(described.trees, 1):
        place = f"[[trees]] {number} {tree.name!r}"
        edges = [pair(*each) for each in tree.bundles]
        for edge in _repeated(edges):
            yield place, f"has the bundle {_shown(edge)} twice"
        missing = [edge for edge in dict.fromkeys(edges) if edge not in known]
        for edge in missing:
            unknown = next((cell for cell in edge if cell not in described.cells), None)
            if unknown is None:
                yield place, f"there is no bundle {_shown(edge)}; add it to [[bundles]]"
            else:
                yield place, f"unknown cell {unknown!r}{did_you_mean(unknown, described.cells)}"
        if missing:
            continue
        parts = _parts(described.cells, edges)
        if len(parts) > 1:
            shown = "; ".join(", ".join(part) for part in parts)
            yield place, f"does not connect all cells: there is no way between {len(parts)} parts: {shown}"
        if len(set(edges)) > len(described.cells) - len(parts):
            yield place, f"has a cycle: {', '.join(map(_shown, _cycle(edges)))}; remove one of these bundles"


def _parts(cells: Iterable[str], edges: Iterable[tuple[str, str]]) -> list[list[str]]:
    """The parts of a graph that no edge connects, the largest first."""
    import networkx

    graph = networkx.Graph()
    graph.add_nodes_from(cells)
    graph.add_edges_from(edges)
    parts = [sorted(part) for part in networkx.connected_components(graph)]
    return sorted(parts, key=lambda part: (-len(part), part))


def _cycle(edges: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    import networkx

    return [pair(*edge) for edge in networkx.find_cycle(networkx.Graph(sorted(edges)))]


T = TypeVar("T", bound=Hashable)


def _repeated(items: Iterable[T]) -> list[T]:
    return [item for item, count in Counter(items).items() if count > 1]


def _shown(names: Sequence[str]) -> str:
    return f"[{', '.join(map(repr, names))}]"


def warnings(network: Network) -> list[str]:
    """What stops a part of the network when it fails alone, and trees that add nothing."""
    sizes = {cell.name: len(cell.brokers) for cell in network.cells}
    found = [
        f"cell {cell.name} has one broker, {cell.brokers[0]}: a single point of failure"
        for cell in network.cells
        if len(cell.brokers) == 1
    ]
    for bundle in network.bundles:
        found += _single_points(bundle, sizes)
    same: dict[object, str] = {}
    for tree in network.trees:
        if tree.bundles in same and tree.bundles:
            found.append(f"trees {same[tree.bundles]} and {tree.name} have the same bundles: they share no load")
        same.setdefault(tree.bundles, tree.name)
    return found


def _single_points(bundle: LinkBundle, sizes: dict[str, int]) -> Iterator[str]:
    what = f"bundle {bundle.cells[0]}─{bundle.cells[1]}"
    if len(bundle.links) == 1:
        first, second = bundle.links[0]
        yield f"{what} has one link, {first}─{second}: a single point of failure"
        return
    for end, cell in enumerate(bundle.cells):
        brokers = {link[end] for link in bundle.links}
        if len(brokers) == 1 and sizes[cell] > 1:
            yield f"all links of {what} end at {cell}/{brokers.pop()}: a single point of failure"
