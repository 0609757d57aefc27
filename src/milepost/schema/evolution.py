"""Which changes of a schema keep old and new readers working.

Fields, cases, node types and their members may be added, and checks and indexes may change. An old reader ignores what
it does not know; a new reader sees that a value is absent. Everything that is there must keep its name and its type:
there are no defaults and no conversions that could fool a reader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from milepost import limits
from milepost.schema.messagetype import Attribute, Member, MessageType
from milepost.schema.types import POSITIONAL_NAME, List, Optional, Ref, Schema, Tuple, Type, Variant


class Break(NamedTuple):
    """A place where a new version breaks readers of the old one, such as `lines[].price`, and why."""

    path: str
    reason: str


def compatible(old: Schema, new: Schema) -> bool:
    """Whether readers of either version can read messages of the other."""
    return not breaks(old, new)


def breaks(old: Schema, new: Schema) -> list[Break]:
    """Every place where `new` breaks readers of `old`; none when they are compatible."""
    match old.message_type, new.message_type:
        case None, None:
            return list(_Comparison(old, new).breaks())
        case MessageType() as before, MessageType() as after:
            return list(_message_breaks(before, after))
        case None, _:
            return [Break(old.name, _changed("a plain schema", "a message type"))]
        case _:
            return [Break(old.name, _changed("a message type", "a plain schema"))]


# A path while nobody has to see it: the path before its last step, and that step. Long ones share their beginnings.
_Path: TypeAlias = tuple["_Path", str] | None


class _Comparison:
    """Two schemas compared in step, from their roots down.

    References are followed on both sides at once, and a pair that was met before is taken to agree: if it does not,
    that shows where it was met first. So recursion ends, and a definition equals the same type written out,
    as their values do.
    """

    def __init__(self, old: Schema, new: Schema) -> None:
        self.old = old
        self.new = new
        self.met: set[tuple[str | int, str | int]] = set()
        self.work = 0

    def breaks(self) -> Iterator[Break]:
        # A queue instead of recursion, which may lead through thousands of definitions; breadth first, so that a place
        # with many paths is told with a short one.
        todo: deque[tuple[Type, Type, _Path]] = deque([(self.old.type, self.new.type, None)])
        while todo:
            before, after, path = todo.popleft()
            self._count(1)
            if isinstance(before, Ref) or isinstance(after, Ref):
                pair = (_identity(before), _identity(after))
                if pair not in self.met:
                    self.met.add(pair)
                    todo.append((_meant(before, self.old), _meant(after, self.new), path))
                continue
            match before, after:
                case (Tuple(old), Tuple(new)) | (Variant(old), Variant(new)):
                    self._count(len(old) + len(new))
                    later = {item.name: item.type for item in new}
                    for item in old:
                        if item.name not in later:
                            yield Break(_shown((path, item.name)), _gone(item.name, _NOUNS[type(before)]))
                        else:
                            todo.append((item.type, later[item.name], (path, item.name)))
                case List(old_item), List(new_item):
                    todo.append((old_item, new_item, (path, "[]")))
                case Optional(old_item), Optional(new_item):
                    todo.append((old_item, new_item, path))
                case _ if before != after:
                    yield Break(_shown(path), _changed(_described(before), _described(after)))

    def _count(self, types: int) -> None:
        self.work += types
        limits.require("SCHEMA_COMPARISONS", self.work, f"{self.new.name}: comparing two versions")


def _message_breaks(old: MessageType, new: MessageType) -> Iterator[Break]:
    if old.root != new.root:
        yield Break(old.name, f"its root was {old.root} and is {new.root}")
    later = {node.name: {member.name: member for member in node.members} for node in new.nodes}
    for node in old.nodes:
        if node.name not in later:
            yield Break(node.name, _gone(node.name, "node type"))
            continue
        for member in node.members:
            after = later[node.name].get(member.name)
            if after is None:
                yield Break(f"{node.name}.{member.name}", _gone(member.name, "member"))
            elif member != after:
                yield Break(f"{node.name}.{member.name}", _changed(_held(member), _held(after)))


def _identity(kind: Type) -> str | int:
    """A reference is what it names; any other type of the two schemas is the object it is."""
    return kind.name if isinstance(kind, Ref) else id(kind)


def _meant(kind: Type, schema: Schema) -> Type:
    return schema.resolve(kind) if isinstance(kind, Ref) else kind


def _shown(path: _Path) -> str:
    steps = []
    while path is not None:
        path, step = path
        steps.append(step)
    return ".".join(reversed(steps)).replace(".[]", "[]")


_NOUNS: Final = {Tuple: "field", Variant: "case"}


def _gone(name: str, noun: str) -> str:
    if POSITIONAL_NAME.match(name):
        return f"the unnamed {noun} moved or was removed; new ones go behind it"
    return f"the {noun} was removed or renamed"


def _changed(before: str, after: str) -> str:
    return f"it was {before} and is {after}"


def _described(kind: Type) -> str:
    """A type in a word or two: it may be large."""
    match kind:
        case Tuple():
            return "a tuple"
        case List():
            return "a list"
        case Variant():
            return "a variant"
        case Optional(inner):
            return f"optional ({_described(inner)})"
        case _:
            return str(kind)


def _held(member: Member) -> str:
    return _described(member.type) if isinstance(member, Attribute) else f"a reference to {member.target}"
