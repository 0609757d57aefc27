"""A network of brokers: cells, physical and virtual brokers, link bundles and spanning trees.

Everything is frozen and in the order of names, so that equal networks are equal objects on every broker, whatever the
order in their files. `file.py` makes networks, and checks them: here every name is known and every tree spans.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from milepost.address import masked


class PhysicalBroker(NamedTuple):
    """One process; `address` is where it listens and where other brokers reach it."""

    name: str
    address: str  # complete, as milepost://127.0.0.1:7450


class VirtualBroker(NamedTuple):
    """A physical broker as a member of one cell. A broker in three cells is three virtual brokers."""

    cell: str
    broker: str

    @property
    def name(self) -> str:
        """As people read it: `d1/s1`."""
        return f"{self.cell}/{self.broker}"


@dataclass(frozen=True)
class Cell:
    """Brokers near each other that cover for each other."""

    name: str
    brokers: tuple[str, ...]
    store: str | None  # a PostgreSQL URL, perhaps with a password; None: one broker with a SQLite file of its own


class Link(NamedTuple):
    """A connection of two brokers, by their names: one in each cell of the bundle, in the order of its `cells`.

    Both are the same where a physical broker is in both cells: then nothing travels over a connection.
    """

    first: str
    second: str


@dataclass(frozen=True)
class LinkBundle:
    """All links between two cells."""

    cells: tuple[str, str]  # in the order of names
    links: tuple[Link, ...]

    def usable(self, live: AbstractSet[str]) -> tuple[Link, ...]:
        """The links whose two brokers are live."""
        return tuple(link for link in self.links if link.first in live and link.second in live)

    def link_of(self, publisher: int, live: AbstractSet[str]) -> Link | None:
        """The link that carries a publisher's messages while these brokers live; None when no link is usable.

        Rendezvous hashing: each publisher ranks all links, and takes the first usable one. When a link dies, only its
        own publishers move, evenly to the other links, and they move back when it returns.
        """
        return max(self.usable(live), key=lambda link: _rank(str(publisher), *link), default=None)


class Routes(NamedTuple):
    """A spanning tree as seen from one cell."""

    next_cell: Mapping[str, str]  # by goal: the neighbour towards it
    behind: Mapping[str, frozenset[str]]  # by neighbour: the cells that are reached through it, itself included


@dataclass(frozen=True)
class SpanningTree:
    """Bundles that connect all cells without a cycle. A message travels one tree."""

    name: str
    cells: tuple[str, ...]
    bundles: tuple[tuple[str, str], ...]  # by the pairs of cells that they connect

    @cached_property
    def neighbours(self) -> Mapping[str, tuple[str, ...]]:
        """The neighbours of each cell on this tree."""
        found: dict[str, list[str]] = {cell: [] for cell in self.cells}
        for first, second in self.bundles:
            found[first].append(second)
            found[second].append(first)
        return {cell: tuple(sorted(others)) for cell, others in found.items()}

    def routes(self, cell: str) -> Routes:
        """The ways from a cell to all others. Takes a step for each cell: a broker keeps the routes of its own cells.

        They are not made for all cells at once, which would take a million entries for a tree of a thousand cells.
        """
        next_cell: dict[str, str] = {}
        behind: dict[str, set[str]] = {neighbour: set() for neighbour in self.neighbours[cell]}
        for goal, before in self.walk(cell):
            if goal != cell:
                next_cell[goal] = next_cell.get(before, goal)
                behind[next_cell[goal]].add(goal)
        return Routes(next_cell, {neighbour: frozenset(cells) for neighbour, cells in behind.items()})

    def walk(self, start: str) -> Iterator[tuple[str, str]]:
        """Every cell with the cell before it on the way from `start`, near cells first; `start` is before itself."""
        found = [(start, start)]
        for cell, before in found:
            found += [(neighbour, cell) for neighbour in self.neighbours[cell] if neighbour != before]
        return iter(found)

    @cached_property
    def middle(self) -> str:
        """A cell with the shortest way to the cells that are farthest from it. Drawings begin there."""
        *_, (end, _) = self.walk(self.cells[0])
        before = dict(self.walk(end))
        *_, cell = before  # the other end of a longest path
        path = [cell]
        while path[-1] != end:
            path.append(before[path[-1]])
        return path[(len(path) - 1) // 2]

    @cached_property
    def depth(self) -> int:
        """The bundles between the middle and the cells that are farthest from it."""
        far: dict[str, int] = {}
        for cell, before in self.walk(self.middle):
            far[cell] = far.get(before, -1) + 1
        return max(far.values())


@dataclass(frozen=True)
class Network:
    """A network of brokers. All tuples are in the order of names."""

    name: str
    epoch: int  # which of several networks of this name is the newest
    brokers: tuple[PhysicalBroker, ...]
    cells: tuple[Cell, ...]
    bundles: tuple[LinkBundle, ...]
    trees: tuple[SpanningTree, ...]

    @cached_property
    def virtual_brokers(self) -> tuple[VirtualBroker, ...]:
        """One for each cell that a physical broker is in."""
        return tuple(VirtualBroker(cell.name, broker) for cell in self.cells for broker in cell.brokers)

    @cached_property
    def cells_of(self) -> Mapping[str, tuple[str, ...]]:
        """The cells of each broker."""
        found: dict[str, list[str]] = {broker.name: [] for broker in self.brokers}
        for cell, broker in self.virtual_brokers:
            found[broker].append(cell)
        return {broker: tuple(cells) for broker, cells in found.items()}

    def bundle(self, cell: str, other: str) -> LinkBundle:
        """The bundle of two cells, in any order. Raises `KeyError` when there is none."""
        return self._by_cells[pair(cell, other)]

    @cached_property
    def _by_cells(self) -> Mapping[tuple[str, str], LinkBundle]:
        return {bundle.cells: bundle for bundle in self.bundles}

    def tree_of(self, topic: str, publisher: int) -> SpanningTree:
        """The tree that a publisher's messages to a topic travel: always one, so that they stay in order.

        The same on every broker and in every version, whatever the order of the trees in the file.
        """
        return max(self.trees, key=lambda tree: _rank(topic, str(publisher), tree.name))

    @cached_property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify this network, its trees and its epoch.

        Stores count without their passwords and options: these differ between brokers, and may change.
        """
        content = (
            self.name,
            self.epoch,
            self.brokers,
            [(cell.name, cell.brokers, None if cell.store is None else masked(cell.store)) for cell in self.cells],
            [(bundle.cells, bundle.links) for bundle in self.bundles],
            [(tree.name, tree.bundles) for tree in self.trees],
        )
        return blake2b(msgspec.json.encode(content), digest_size=8).hexdigest()


def pair(first: str, second: str) -> tuple[str, str]:
    """Two cells in the order in which a bundle has them."""
    return (first, second) if first <= second else (second, first)


def _rank(*parts: str) -> tuple[bytes, tuple[str, ...]]:
    """A number for rendezvous hashing: stable, unlike Python's `hash`, and different for different parts.

    No name contains the separator. The parts decide where two digests are equal.
    """
    return blake2b("\0".join(parts).encode(), digest_size=8).digest(), parts
