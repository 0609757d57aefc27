"""Messages that are graphs: nodes that refer to nodes <-> one list of tuples per node type.

A reference is stored as positions in the target's list, so a node that is reached twice is stored once, and a
cycle needs no special form. The root is the first of its list. Both directions use a worklist instead of recursion,
so that a chain may have a hundred thousand nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from milepost.errors import InvalidValue, MalformedBatch, did_you_mean
from milepost.schema.flat import ListShape, TupleShape, field_of
from milepost.schema.messagetype import MessageType, NodeType, Reference
from milepost.schema.node import Node

if TYPE_CHECKING:
    from milepost.batch.batch import Batch


def unlinked_rows(message_type: MessageType, rows: list[Any]) -> list[dict[str, list[Any]]]:
    """Graphs as lists of tuples. A graph of a root without references, as most are, needs no walk."""
    root = message_type.node(message_type.root)
    if any(isinstance(member, Reference) for member in root.members):
        return [unlinked(message_type, row, number) for number, row in enumerate(rows)]
    names = {member.name for member in root.members}
    nothing: dict[str, list[Any]] = {node.name: [] for node in message_type.nodes}
    return [
        {**nothing, root.name: [row]}
        if type(row) is dict and row.keys() == names
        else unlinked(message_type, row, number)
        for number, row in enumerate(rows)
    ]


def unlinked(message_type: MessageType, root: Any, row: int) -> dict[str, list[dict[str, Any]]]:
    """A graph, given as dicts or as nodes, as lists of tuples. The same object reached twice is one node."""
    lists: dict[str, list[dict[str, Any]]] = {node.name: [] for node in message_type.nodes}
    places: dict[int, tuple[str, int, Any]] = {}  # with the node: `id()` is unique only while the object lives
    todo: list[tuple[NodeType, Any, dict[str, Any]]] = []

    def place(kind: NodeType, value: Any, path: str) -> int:
        found = places.get(id(value))
        if found is not None:
            if found[0] != kind.name:
                raise InvalidValue(f"one node is referred to as {found[0]} and as {kind.name}", path, row)
            return found[1]
        if value is None or isinstance(value, str | bytes | int | float | list | tuple):
            raise InvalidValue(f"expected a node {kind.name}, got {value!r:.60}", path, row)
        if isinstance(value, Mapping):
            _known(kind, value, row)
        position = len(lists[kind.name])
        stored: dict[str, Any] = {}
        lists[kind.name].append(stored)
        places[id(value)] = kind.name, position, value
        todo.append((kind, value, stored))
        return position

    place(message_type.node(message_type.root), root, message_type.root)
    while todo:
        kind, value, stored = todo.pop()
        for member in kind.members:
            got = _member(value, member.name)
            if isinstance(member, Reference):
                path = f"{kind.name}.{member.name}"
                target = message_type.node(member.target)
                stored[member.name] = [place(target, item, path) for item in _targets(got, path, row)]
            else:
                stored[member.name] = got
    return lists


def _member(value: Any, name: str) -> Any:
    if isinstance(value, Node):
        return value[name]  # an attribute may be hidden by a method of the same name
    if isinstance(value, Mapping):
        return field_of(value, name)
    return getattr(value, name, None)


def _known(kind: NodeType, value: Mapping[str, Any], row: int) -> None:
    names = [member.name for member in kind.members]
    if unknown := set(value) - set(names):
        name = min(unknown, key=str)
        raise InvalidValue(f"there is no member {name!r}{did_you_mean(str(name), names)}", kind.name, row)


def _targets(value: Any, path: str, row: int) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, str | bytes | int | float):
        raise InvalidValue(f"a reference is a list of nodes, got {value!r:.60}", path, row)
    return [value]  # a reference to one node may be written without the brackets


def linked_rows(message_type: MessageType, rows: list[Any]) -> list[dict[str, Any]]:
    """Lists of tuples as graphs of dicts. Reuses the tuples: the caller must not use them again."""
    if not message_type.refers:
        return [lists[message_type.root][0] for lists in rows]
    return [linked(message_type, lists) for lists in rows]


def linked(message_type: MessageType, lists: Mapping[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Lists of tuples as a graph of dicts; the inverse of `unlinked`."""
    nodes = {name: [dict(stored) for stored in items] for name, items in lists.items()}
    for kind in message_type.nodes:
        for member in kind.members:
            if isinstance(member, Reference):
                targets = nodes[member.target]
                for made in nodes[kind.name]:
                    made[member.name] = [targets[position] for position in made[member.name]]
    return nodes[message_type.root][0]


def check(batch: Batch) -> None:
    """Refuse a message without a root, or with a reference to a node that does not exist."""
    message_type = batch.schema.message_type
    if message_type is None:
        return
    block = batch.groups[0].block
    assert isinstance(block.layout.root, TupleShape)
    lists = {name: shape for name, shape in block.layout.root.fields.items() if isinstance(shape, ListShape)}
    roots = block.list_offsets(lists[message_type.root])
    if int(roots[1]) < 1 if block.n == 1 else bool((roots[1:] == roots[:-1]).any()):  # they ascend
        raise MalformedBatch(f"{message_type.name}: a message without its root {message_type.root}")
    if not message_type.refers:
        return
    counts = {name: np.diff(block.list_offsets(shape)) for name, shape in lists.items()}
    for kind in message_type.nodes:
        owners = np.repeat(np.arange(block.n), counts[kind.name])  # the message of each node
        nodes = block.items[lists[kind.name].slot]
        for member in kind.members:
            if isinstance(member, Reference):
                root = nodes.layout.root
                assert isinstance(root, TupleShape)
                shape = root.fields[member.name]
                assert isinstance(shape, ListShape)
                offsets, targets = nodes.list(shape)
                positions = targets.values(targets.layout.root)  # type: ignore[arg-type]
                bound = np.repeat(counts[member.target][owners], np.diff(offsets))
                if bool((positions >= bound).any()):
                    raise MalformedBatch(
                        f"{kind.name}.{member.name}: a reference to a {member.target} that does not exist"
                    )
