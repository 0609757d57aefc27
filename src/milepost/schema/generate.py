"""Typed classes for the nodes of a message type: made at run time, or printed as a Python module.

Both give one subclass of `Node` per node type, and one of `References` per node type that is referred to. With the
printed module an editor completes `order.lines[0].item.name`, and a type checker knows that it is a `str`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any, Final

from milepost.errors import did_you_mean
from milepost.schema.messagetype import Attribute, Member, MessageType, NodeType, Reference
from milepost.schema.node import Node, References
from milepost.schema.python import PYTHON_TYPES, GlobalNames, class_name, require_attribute
from milepost.schema.types import Atom, Optional

_RESERVED: Final = frozenset(dir(Node))
_NOT_FORWARDED: Final = frozenset(dir(References))


def classes(message_type: MessageType) -> dict[str, type[Node]]:
    """A class for each node type, by the node type's name.

    Constructors take members by keyword. Optional attributes and references may be left out.
    """
    named = _class_names(message_type)
    collections = {
        node: type(
            f"{name}References", (References,), {"__slots__": (), "__doc__": f"The nodes `{node}` of a reference."}
        )
        for node, name in named.items()
    }
    return {kind.name: _class(kind, named[kind.name], collections) for kind in message_type.nodes}


def _class(kind: NodeType, name: str, collections: Mapping[str, type[References[Any]]]) -> type[Node]:
    parameters = []
    annotations: dict[str, Any] = {}
    for member in kind.members:
        default: Any
        if isinstance(member, Reference):
            annotations[member.name], default = collections[member.target], ()
        else:
            python, optional = _python_type(member)
            annotations[member.name], default = (python | None, None) if optional else (python, inspect.Parameter.empty)
        parameters.append(inspect.Parameter(member.name, inspect.Parameter.KEYWORD_ONLY, default=default))
    signature = inspect.Signature(parameters)

    def __init__(self: Node, /, **members: Any) -> None:
        for given in members:
            if given not in annotations:
                raise TypeError(f"{name}() has no argument {given!r}{did_you_mean(given, annotations)}")
        signature.bind(**members)
        Node.__init__(self, kind, members)

    return type(
        name,
        (Node,),
        {
            "__slots__": (),
            "__doc__": f"A node `{kind.name}`.",
            "__annotations__": annotations,
            "__init__": __init__,
            "__signature__": signature,
            "_collections": {
                member.name: collections[member.target] for member in kind.members if isinstance(member, Reference)
            },
        },
    )


def _python_type(attribute: Attribute) -> tuple[type, bool]:
    """The Python type of an attribute, and whether it may be absent."""
    kind = attribute.type
    optional = isinstance(kind, Optional)
    atom = kind.type if isinstance(kind, Optional) else kind
    assert isinstance(atom, Atom)
    return PYTHON_TYPES[atom.kind], optional


def _class_names(message_type: MessageType) -> dict[str, str]:
    """The class name of each node type: camel case, with an underscore where that name is taken."""
    taken = _members(message_type)
    named: dict[str, str] = {}
    for kind in message_type.nodes:
        for member in kind.members:
            require_attribute(member.name, f"{message_type.name}.{kind.name}", _RESERVED)
        name = class_name(kind.name)
        while {name, f"{name}References"} & taken:
            name = f"{name}_"
        taken |= {name, f"{name}References"}
        named[kind.name] = name
    return named


def _members(message_type: MessageType) -> set[str]:
    return {member.name for kind in message_type.nodes for member in kind.members}


def python_source(message_type: MessageType) -> str:
    """A Python module with the classes, the message type itself as `MESSAGE_TYPE`, and `from_plain`."""
    return _Printer(message_type).module()


class _Printer:
    """Prints one module as source."""

    def __init__(self, message_type: MessageType) -> None:
        self.message_type = message_type
        self.named = _class_names(message_type)
        classes = {name for item in self.named.values() for name in (item, f"{item}References")}
        self.scope = GlobalNames(classes | _members(message_type))
        self.node = self.scope.imported("milepost.schema.node", "Node")
        self.origin = self.scope.free("MESSAGE_TYPE")
        self.this = self.scope.free("self")

    def module(self) -> str:
        nodes = self.message_type.nodes
        targets = {member.target for kind in nodes for member in kind.members if isinstance(member, Reference)}
        blocks = [
            self._message_type(),
            *(self._collection(kind) for kind in nodes if kind.name in targets),
            *(self._class(kind) for kind in nodes),
            self._node_classes(),
            self._from_plain(),
        ]
        body = "\n\n\n".join("\n".join(block) for block in blocks)
        head = [
            f'"""The nodes of the message type {self.message_type.name}: generated from it, so change that instead."""',
            "",
            "from __future__ import annotations",
            "",
            *self.scope.imports(),
        ]
        return "\n".join([*head, "", body, ""])

    def _message_type(self) -> Iterator[str]:
        yield f"{self.origin} = {self.scope.imported('milepost.schema.ddl', 'parse')}("
        yield from (f"    {line!r}" for line in str(self.message_type).splitlines(keepends=True))
        yield ")"

    def _collection(self, kind: NodeType) -> Iterator[str]:
        name = self.named[kind.name]
        yield f'class {name}References({self.scope.imported("milepost.schema.node", "References")}["{name}"]):'
        yield f'    """The nodes `{kind.name}` of a reference; when it is one node, its members too."""'
        yield ""
        yield "    __slots__ = ()"
        for member in kind.members:
            if member.name not in _NOT_FORWARDED:
                yield ""
                yield f"    @{self.scope.type(property)}"
                yield f"    def {member.name}({self.this}) -> {self._annotation(member)}:"
                yield f"        return {self.this}.one.{member.name}"

    def _class(self, kind: NodeType) -> Iterator[str]:
        yield f"class {self.named[kind.name]}({self.node}):"
        yield f'    """A node `{kind.name}`."""'
        yield ""
        yield "    __slots__ = ()"
        if references := [member for member in kind.members if isinstance(member, Reference)]:
            yield "    _collections = {"
            yield from (f'        "{item.name}": {self.named[item.target]}References,' for item in references)
            yield "    }"
        yield ""
        yield from (f"    {member.name}: {self._annotation(member)}" for member in kind.members)
        yield ""
        yield "    def __init__("
        yield f"        {self.this},"
        yield "        *,"
        yield from (f"        {self._parameter(member)}," for member in kind.members)
        yield "    ) -> None:"
        given = self.scope.free("members")
        yield f"        {given} = {{"
        yield from (f'            "{member.name}": {member.name},' for member in kind.members)
        yield "        }"
        yield f'        {self.node}.__init__({self.this}, {self.origin}.node("{kind.name}"), {given})'

    def _annotation(self, member: Member) -> str:
        if isinstance(member, Reference):
            return f"{self.named[member.target]}References"
        python, optional = _python_type(member)
        return f"{self.scope.type(python)} | None" if optional else self.scope.type(python)

    def _parameter(self, member: Member) -> str:
        if isinstance(member, Reference):
            target = self.named[member.target]
            return f"{member.name}: {target} | {self.scope.imported('collections.abc', 'Iterable')}[{target}] = ()"
        return f"{member.name}: {self._annotation(member)}" + (" = None" if _python_type(member)[1] else "")

    def _node_classes(self) -> Iterator[str]:
        yield f"NODE_CLASSES: dict[str, type[{self.node}]] = {{"
        yield from (f'    "{node}": {name},' for node, name in self.named.items())
        yield "}"

    def _from_plain(self) -> Iterator[str]:
        root = self.named[self.message_type.root]
        graph = f"{self.scope.imported('collections.abc', 'Mapping')}[str, {self.scope.imported('typing', 'Any')}]"
        yield f"def from_plain(graph: {graph}) -> {root}:"
        yield '    """The root of a message that is given as dicts."""'
        build = self.scope.imported("milepost.schema.node", "build")
        yield f"    root = {build}({self.origin}, graph, NODE_CLASSES)"
        yield f"    assert isinstance(root, {root})"
        yield "    return root"
