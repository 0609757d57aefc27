"""Gryphon's notation for schemas, read into the model; `str(schema)` prints it.

::

    envelope: [                                     # the first definition is the message
      priority: int,
      properties: *([name: string, value: string])*,
      payload: { absent: [] | reply: int | other: dynamic },
      route: hop?
    ] index (priority) check (priority >= 0)
    hop: [broker: string, next: hop?]               # the others are types it may refer to

A variant with an unnamed empty case is another way to write an optional type: `{ [] | int }` is `int?`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Final, TypeAlias

from lark import Token, Tree

from milepost import limits
from milepost.errors import SchemaError, SchemaSyntaxError, did_you_mean
from milepost.schema import ddl
from milepost.schema.source import Notation, fault, predicate, tokens, trees
from milepost.schema.types import (
    ALIASES,
    ATOMS,
    DYNAMIC,
    Field,
    List,
    Optional,
    Ref,
    Schema,
    Tuple,
    Type,
    Variant,
    decimal,
    positional,
)

if TYPE_CHECKING:
    from milepost.schema.registry import Registry

_Tree: TypeAlias = Tree[Token]

_BUILT_IN: Final[dict[str, Type]] = {**ATOMS, **ALIASES, "decimal": decimal(), "dynamic": DYNAMIC}
_TYPE: Final = frozenset({"NAME", "LSQB", "LBRACE", "_LIST"})  # tokens that begin a type


@cache
def _notation() -> Notation:
    return Notation(
        "schema.lark",
        words={
            "NAME": "a definition (name: type)",
            "DIGITS": "a number",
            "QMARK": "",  # may follow every type: not worth mentioning
            "LPAR": "",  # may follow `decimal` only, which is a NAME to the grammar
            "_CHECK": "a check",
            "_INDEX": "an index",
            "_PLAIN": "a predicate",
            "_QUOTED": "a quoted text",
        },
        groups={_TYPE | {"RSQB"}: "a field or ']'", _TYPE: "a type"},
    )


def parse(text: str, registry: Registry | None = None) -> Schema:
    """The schema that a text defines, in this notation or as a `DEFINE MESSAGETYPE` statement.

    A name that the text does not define is looked up in the registry, and copied with everything it refers to.
    Raises `SchemaSyntaxError`, which shows the place, or another `SchemaError` for an invalid schema.
    """
    limits.require("SCHEMA_TEXT_CHARS", len(text), "the text of a schema")
    if ddl.recognises(text):
        return ddl.parse(text).schema
    return _Reader(text, registry).schema()


class _Reader:
    """Reads one text into the model."""

    def __init__(self, text: str, registry: Registry | None) -> None:
        self.text = text
        self.registry = registry
        self.mentioned: dict[str, Token] = {}  # each name that is no built-in type, with its first use as a type

    def schema(self) -> Schema:
        definitions = trees(_notation().parse(self.text))
        self._require_separate(definitions)
        message, *others = [Field(str(tree.children[0]), self._type(trees(tree)[0])) for tree in definitions]
        local = {item.name: item.type for item in (message, *others)}
        every = (*others, *self._imported(local))
        clauses = list(self._clauses(definitions))
        checks = tuple(predicate(clause, self.text) for clause in clauses if clause.data == "check")
        indexes = tuple(str(tokens(clause)[0]) for clause in clauses if clause.data == "index")
        return Schema(message.name, message.type, every, checks, indexes=indexes)

    def _require_separate(self, definitions: list[_Tree]) -> None:
        for before, after in pairwise(definitions):
            if not re.search(r"[;\n]", self.text[before.meta.end_pos : after.meta.start_pos]):
                raise self._fault("expected ';' or a new line before the next definition", after.meta.start_pos)

    def _clauses(self, definitions: list[_Tree]) -> Iterator[_Tree]:
        """Checks and indexes, in the order of the text."""
        for definition in definitions:
            for clause in trees(definition)[1:]:
                if definition is not definitions[0]:
                    what = "a check" if clause.data == "check" else "an index"
                    where = clause.meta.start_pos
                    raise self._fault(f"{what} belongs after the first definition, which is the message", where)
                yield clause

    def _imported(self, local: dict[str, Type]) -> Iterator[Field]:
        """The definitions of the names that the text uses and does not define, from the registry."""
        known = dict(local)
        for name, token in self.mentioned.items():
            if name in local:
                continue
            if self.registry is None or name not in self.registry:
                near = did_you_mean(name, [*_BUILT_IN, *local, *(self.registry.names() if self.registry else ())])
                raise self._fault(f"there is no type {name!r}{near or '; define it beside the message'}", token)
            schema = self.registry.get(name)
            if schema.message_type is not None:
                raise self._fault(f"{name!r} is a message type, which cannot be a part of another message", token)
            for item in (Field(schema.name, schema.type), *schema.definitions):
                if item.name not in known:
                    known[item.name] = item.type
                    yield item
                elif known[item.name] != item.type:
                    raise self._fault(f"{name!r} brings a {item.name!r} that differs from the one already here", token)

    def _type(self, tree: _Tree) -> Type:
        match tree.data:
            case "named":
                return self._named(*tokens(tree))
            case "decimal":
                return self._decimal(*tokens(tree))
            case "tuple":
                return Tuple(tuple(self._field(position, field) for position, field in enumerate(trees(tree))))
            case "list":
                return List(self._type(trees(tree)[0]))
            case "variant":
                return self._variant(tree)
            case _:
                return Optional(self._type(trees(tree)[0]))

    def _named(self, name: Token) -> Type:
        if name in _BUILT_IN:
            return _BUILT_IN[name]
        self.mentioned.setdefault(str(name), name)
        return Ref(str(name))

    def _decimal(self, name: Token, precision: Token, scale: Token) -> Type:
        if name != "decimal":
            raise self._fault(f"only decimal takes digits, not {str(name)!r}", name)
        try:
            return decimal(int(precision), int(scale))
        except SchemaError as error:
            raise self._fault(str(error), name) from None

    def _field(self, position: int, tree: _Tree) -> Field:
        name, kind = _named_type(tree)
        if name is None and kind.data == "variant":
            # Gryphon writes an optional field as `[ { [] | pieceD: [...] } ]`: the case names the field.
            cases, optional = self._cases(kind)
            if optional and len(cases) == 1 and (inner := _named_type(cases[0]))[0] is not None:
                return Field(self._field_name(inner[0]), Optional(self._type(inner[1])))
        return Field(positional(position) if name is None else self._field_name(name), self._type(kind))

    def _field_name(self, name: Token) -> str:
        if "." in name:
            raise self._fault(f"{str(name)!r} cannot name a field: only the names of schemas have dots", name)
        return str(name)

    def _variant(self, tree: _Tree) -> Type:
        cases, optional = self._cases(tree)
        named = [_named_type(case) for case in cases]
        if optional and len(named) == 1 and named[0][0] is None:
            return Optional(self._type(named[0][1]))
        variant = Variant(
            tuple(
                Field(positional(position) if name is None else self._field_name(name), self._type(kind))
                for position, (name, kind) in enumerate(named)
            )
        )
        return Optional(variant) if optional else variant

    def _cases(self, variant: _Tree) -> tuple[list[_Tree], bool]:
        """A variant's cases without the unnamed empty one, and whether there was one."""
        every = trees(variant)
        cases = [case for case in every if not _empty(case)]
        if not cases or len(every) > len(cases) + 1:
            raise self._fault("a variant may hold [] once, beside other cases", variant.meta.start_pos)
        return cases, len(every) > len(cases)

    def _fault(self, message: str, place: Token | int) -> SchemaSyntaxError:
        return fault(message, self.text, place)


def _named_type(tree: _Tree) -> tuple[Token | None, _Tree]:
    """The name of a field or case, if it was written, and its type."""
    return next(iter(tokens(tree)), None), trees(tree)[0]


def _empty(case: _Tree) -> bool:
    name, kind = _named_type(case)
    return name is None and kind.data == "tuple" and not kind.children
