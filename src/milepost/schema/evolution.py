"""Which changes of a schema keep old and new readers working.

Fields, cases, node types and their members may be added, and checks and indexes may change. An old reader ignores
fields it does not know; a new reader sees that a value is absent. An existing field must keep its name and its type:
there are no defaults and no conversions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple, TypeAlias

from milepost import limits
from milepost.schema.messagetype import Attribute, Member, MessageType
from milepost.schema.types import POSITIONAL_NAME, List, Optional, Ref, Schema, Tuple, Type, Variant


class Break(NamedTuple):
    """A path at which a new version breaks readers of the old one, such as `lines[].price`, and the reason."""

    path: str
    reason: str


class Effort:
    """Counts the types visited in comparisons. Comparisons that share an effort share one limit."""

    def __init__(self) -> None:
        self.types = 0

    def count(self, types: int, name: str) -> None:
        """Add to the count. Raises `LimitExceeded` over `SCHEMA_COMPARISONS`."""
        self.types += types
        limits.require("SCHEMA_COMPARISONS", self.types, f"{name}: comparing versions")


def compatible(old: Schema, new: Schema, effort: Effort | None = None) -> bool:
    """Whether `new` only adds to `old`: readers of either version can read messages of the other."""
    return next(_compared(old, new, _ALL, effort), None) is None


def breaks(old: Schema, new: Schema, effort: Effort | None = None) -> list[Break]:
    """Every path at which `new` breaks readers of `old`; empty when they are compatible."""
    return list(_compared(old, new, _ALL, effort))


def conflicts(old: Schema, new: Schema, effort: Effort | None = None) -> list[Break]:
    """Every path that both versions have with different types; empty when they can be merged."""
    return list(_compared(old, new, _Counted(gone=False, optional=True), effort))


def unreadable(writer: Schema, reader: Schema) -> list[Break]:
    """Every path that prevents reading messages of `writer` as `reader`; empty when they can be read.

    Fewer than the conflicts: an optional field can be read where it is required, since `relax` makes it optional.
    """
    return list(_compared(writer, reader, _Counted(gone=False, optional=False), None))


class _Counted(NamedTuple):
    """Which differences count as breaks, in addition to different types."""

    gone: bool  # a field that only the old version has
    optional: bool  # a field that is optional in one version only


_ALL: Final = _Counted(gone=True, optional=True)


def _compared(old: Schema, new: Schema, counted: _Counted, effort: Effort | None) -> Iterator[Break]:
    match old.message_type, new.message_type:
        case None, None:
            yield from _Comparison(old, new, counted, effort or Effort()).breaks()
        case MessageType() as before, MessageType() as after:
            yield from _message_breaks(before, after, counted)
        case None, _:
            yield Break(old.name, _changed("a plain schema", "a message type"))
        case _:
            yield Break(old.name, _changed("a message type", "a plain schema"))


# A path that is not printed yet: the path before its last step, and that step. Long paths share their beginnings.
_Path: TypeAlias = tuple["_Path", str] | None


class _Comparison:
    """Two schemas compared in step, from their roots down.

    References are followed on both sides at once. A pair that was met before is skipped: its differences are reported
    where it was met first. So recursion ends, and a definition equals the same type written out, as their values do.
    """

    def __init__(self, old: Schema, new: Schema, counted: _Counted, effort: Effort) -> None:
        self.old = old
        self.new = new
        self.counted = counted
        self.effort = effort
        self.met: set[tuple[str | int, str | int]] = set()

    def breaks(self) -> Iterator[Break]:
        # A queue instead of recursion, which could go through thousands of definitions; breadth first, so that a
        # difference with many paths is reported with a short one.
        todo: deque[tuple[Type, Type, _Path]] = deque([(self.old.type, self.new.type, None)])
        while todo:
            before, after, path = todo.popleft()
            self.effort.count(1, self.new.name)
            if isinstance(before, Ref) or isinstance(after, Ref):
                pair = (_identity(before), _identity(after))
                if pair not in self.met:
                    self.met.add(pair)
                    todo.append((_meant(before, self.old), _meant(after, self.new), path))
                continue
            match before, after:
                case (Tuple(old), Tuple(new)) | (Variant(old), Variant(new)):
                    self.effort.count(len(old) + len(new), self.new.name)
                    later = {item.name: item.type for item in new}
                    for item in old:
                        if item.name in later:
                            todo.append((item.type, later[item.name], (path, item.name)))
                        elif self.counted.gone:
                            yield Break(_shown((path, item.name)), _gone(item.name, _NOUNS[type(before)]))
                case List(old_item), List(new_item):
                    todo.append((old_item, new_item, (path, "[]")))
                case Optional(old_item), Optional(new_item):
                    todo.append((old_item, new_item, path))
                case Optional(old_item), _ if not self.counted.optional:
                    todo.append((old_item, after, path))
                case _, Optional(new_item) if not self.counted.optional:
                    todo.append((before, new_item, path))
                case _ if before != after:
                    yield Break(_shown(path), _changed(_described(before), _described(after)))


def _message_breaks(old: MessageType, new: MessageType, counted: _Counted) -> Iterator[Break]:
    if old.root != new.root:
        yield Break(old.name, f"its root was {old.root} and is {new.root}")
    later = {node.name: {member.name: member for member in node.members} for node in new.nodes}
    for node in old.nodes:
        if node.name not in later:
            if counted.gone:
                yield Break(node.name, _gone(node.name, "node type"))
            continue
        for member in node.members:
            after = later[node.name].get(member.name)
            if after is None:
                if counted.gone:
                    yield Break(f"{node.name}.{member.name}", _gone(member.name, "member"))
            elif member != after and (counted.optional or _required(member) != _required(after)):
                yield Break(f"{node.name}.{member.name}", _changed(_held(member), _held(after)))


def _required(member: Member) -> Member:
    if isinstance(member, Attribute) and isinstance(member.type, Optional):
        return Attribute(member.name, member.type.type)
    return member


def _identity(kind: Type) -> str | int:
    """The key of a type in the pairs met so far: the name of a reference, the identity of any other type."""
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
    """A type in a word or two, since its full text may be large."""
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
