"""Nodes of a message type, with late-bound access: names are looked up when they are used.

Three forms of one message, a graph that starts at its root:

- *plain*: dicts, a reference being a list of dicts. Batches take and give this form; it needs no schema.
- *generic*: `Node`, which knows its node type: a wrong name is an error with a suggestion.
- *typed*: subclasses of `Node`, one per node type, made by `milepost.schema.generate`: an editor completes them.

Every reference is set-valued, but many hold one node. So a `References` with one node also has that node's
members: `order.lines[0].item.name` works although `item` is a list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from milepost.errors import InvalidValue, did_you_mean
from milepost.schema.messagetype import Member, MessageType, NodeType, Reference

N = TypeVar("N", bound="Node")


class References(list[N]):
    """The nodes a reference points to. With exactly one, its members can be read here.

    The list's own names come first: for an attribute called `count` or `index`, write `.one.count`.
    """

    __slots__ = ()

    @property
    def one(self) -> N:
        """The only node; `AttributeError` when there are none or several."""
        return self._one("one")

    def _one(self, name: str) -> N:
        if len(self) != 1:
            raise AttributeError(
                f"{name!r} asks for one node, but the reference holds {len(self)}; choose with [index]"
            )
        return self[0]

    # Hidden from type checkers, so that they find a misspelt name; generated classes declare the members they forward.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return getattr(self._one(name), name)


if TYPE_CHECKING:
    _hidden = property
else:

    class _hidden:
        """A property that is hidden by a member of the same name."""

        def __init__(self, read: Any) -> None:
            self._read = read
            self.__doc__ = read.__doc__

        def __get__(self, node: Any, owner: Any = None) -> Any:
            return self if node is None else self._read(node)


class Node:
    """A node: its members by attribute and by item. A member hides a method of the same name.

    `header` is the exception: no member hides it. It is the `MessageHeader` of the root of a topic's message, and None
    on other nodes. Such a root also has `id`, the message ID of its header, unless it has a member `id`.

    A node is equal only to itself, as two nodes with the same values may stand at different places of a graph.
    """

    # Members live in __dict__, and nothing else does.
    __slots__ = ("__dict__", "__header", "__kind", "__weakref__")

    __kind: NodeType
    __header: Any
    _collections: ClassVar[Mapping[str, type[References[Any]]]] = {}  # generated: the class of each reference

    def __init__(self, kind: NodeType, members: Mapping[str, Any] | None = None) -> None:
        object.__setattr__(self, "_Node__kind", kind)
        object.__setattr__(self, "_Node__header", None)
        given = members or {}
        for member in kind.members:
            self.__dict__[member.name] = self._fitting(member, given.get(member.name))
        if unknown := given.keys() - self.__dict__.keys():
            raise AttributeError(self._unknown(min(unknown)))

    @property
    def header(self) -> Any:
        """Of the root of a message of a topic: its `MessageHeader`."""
        return self.__header

    @_hidden
    def node_type(self) -> str:
        """The name of the node's type."""
        return self.__kind.name

    @_hidden
    def references(self) -> dict[str, References[Any]]:
        """The references of this node by name."""
        return {item.name: self.__dict__[item.name] for item in self.__kind.members if isinstance(item, Reference)}

    def get(self, name: str) -> Any:
        """The value of an attribute, None when it is absent, or the nodes of a reference."""
        return self[name]

    def __getitem__(self, name: str) -> Any:
        try:
            return self.__dict__[name]
        except KeyError:
            raise KeyError(self._unknown(name)) from None

    def __setitem__(self, name: str, value: Any) -> None:
        if name not in self.__dict__:
            raise KeyError(self._unknown(name))
        self.__dict__[name] = self._fitting(self.__kind.member(name), value)

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in ("_Node__kind", "_Node__header"):  # copy and pickle restore them so
            object.__setattr__(self, name, value)
        elif name in self.__dict__:
            self[name] = value
        else:
            raise AttributeError(self._unknown(name))

    # Hidden as in References. Called only for names that are no members, or before __init__ when unpickling.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name == "id" and self.__dict__ and self.__header is not None:
                return self.__header.id
            raise AttributeError(self._unknown(name) if self.__dict__ else name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.__dict__]

    def __repr__(self) -> str:
        # Without the references: they may be cyclic, or reach a hundred thousand nodes.
        shown = (
            f"{name}=[{len(value)}]" if isinstance(value, References) else f"{name}={value!r}"
            for name, value in self.__dict__.items()
        )
        return f"<{' '.join((self.__kind.name, *shown))}>"

    def _fitting(self, member: Member, value: Any) -> Any:
        if not isinstance(member, Reference):
            return value
        path = f"{self.__kind.name}.{member.name}"
        nodes = [] if value is None else [value] if isinstance(value, Node) else value
        if not isinstance(nodes, Iterable) or isinstance(nodes, str | bytes | Mapping):
            raise InvalidValue(f"a reference holds nodes, not {value!r:.60}", path)
        made = self._collections.get(member.name, References)(nodes)
        for node in made:
            if not isinstance(node, Node) or node.__kind.name != member.target:
                raise InvalidValue(f"a reference to nodes {member.target} cannot hold {node!r:.60}", path)
        return made

    def _unknown(self, name: str) -> str:
        return f"node {self.__kind.name} has no member {name!r}{did_you_mean(name, self.__dict__)}"


def type_of(node: Node) -> str:
    """The name of a node's type, even if the node has a member `node_type`."""
    kind: NodeType = node._Node__kind  # type: ignore[attr-defined]
    return kind.name


def build(
    message_type: MessageType,
    graph: Mapping[str, Any],
    classes: Mapping[str, type[Node]] | None = None,
    header: Any = None,
) -> Node:
    """A plain graph as nodes, generic or of the `classes` by node type name. Returns the root, with the `header`.

    The same dict reached twice becomes one node, so sharing and cycles stay as they are.
    """
    made: dict[int, tuple[Node, Any]] = {}  # with the source: `id()` is unique only while the object lives
    todo: list[tuple[Node, Mapping[str, Any]]] = []

    def node(kind: NodeType, source: Any, path: str) -> Node:
        if id(source) in made:
            known = made[id(source)][0]
            if type_of(known) != kind.name:
                raise InvalidValue(f"one node is referred to as {type_of(known)} and as {kind.name}", path)
            return known
        if not isinstance(source, Mapping):
            raise InvalidValue(f"expected a node {kind.name} as a dict, got {source!r:.60}", path)
        cls = (classes or {}).get(kind.name, Node)
        new = cls.__new__(cls)
        try:
            # Not the constructor: a graph is read as it is, even if a required attribute is missing.
            Node.__init__(new, kind, {name: source[name] for name in source if name not in links[kind.name]})
        except AttributeError as error:
            raise InvalidValue(str(error), path) from None
        made[id(source)] = new, source
        todo.append((new, source))
        return new

    links = {
        kind.name: {item.name: message_type.node(item.target) for item in kind.members if isinstance(item, Reference)}
        for kind in message_type.nodes
    }
    root = node(message_type.node(message_type.root), graph, message_type.root)
    object.__setattr__(root, "_Node__header", header)
    while todo:
        new, source = todo.pop()
        for name, target in links[type_of(new)].items():
            path = f"{type_of(new)}.{name}"
            nodes = source.get(name)
            if not isinstance(nodes, list | tuple | None):
                raise InvalidValue(f"a reference is a list of nodes, got {nodes!r:.60}", path)
            new[name].extend(node(target, item, path) for item in nodes or ())
    return root


def plain(root: Node) -> dict[str, Any]:
    """Nodes as a plain graph of dicts; the inverse of `build`. Sharing and cycles stay as they are."""
    made: dict[int, dict[str, Any]] = {id(root): {}}
    todo = [root]
    while todo:
        node = todo.pop()
        target = made[id(node)]
        for name in node:
            value = node[name]
            if isinstance(value, References):
                target[name] = []
                for item in value:
                    if id(item) not in made:
                        made[id(item)] = {}
                        todo.append(item)
                    target[name].append(made[id(item)])
            else:
                target[name] = value
    return made[id(root)]
