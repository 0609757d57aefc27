"""JPMQ's `DEFINE MESSAGETYPE` statement, read into the model; `str(message_type)` prints it.

::

    DEFINE MESSAGETYPE OrderMessage;
    NODE order;
      id: IDENT; date: DATE; lines: REFERENCE TO order_line;
    END;
    NODE order_line;
      price: DECIMAL(10,2); note: STRING?; item: REFERENCE TO item;
    END;
    NODE item;
      name: STRING; ean: INTEGER;
    END;
    ROOT order;
    INDEX order.date;
    CHECK (count(lines) > 0);
    END;
"""

from __future__ import annotations

import re
from functools import cache
from typing import Final

from lark import Token, Tree

from milepost.errors import SchemaError, did_you_mean
from milepost.schema.messagetype import ATOM_WORDS, Attribute, Member, MessageType, NodeType, Reference
from milepost.schema.source import Notation, fault, predicate, tokens, trees
from milepost.schema.types import Optional, Type, decimal

_START: Final = re.compile(r"(?:\s++|#[^\n]*\n)*+DEFINE\s+MESSAGETYPE\b", re.IGNORECASE)
_KEYWORDS: Final = {"DEFINE", "MESSAGETYPE", "NODE", "ROOT", "CHECK", "INDEX", "END", "REFERENCE", "TO"}


@cache
def _notation() -> Notation:
    return Notation(
        "ddl.lark",
        words={"NAME": "a name", "DIGITS": "a number", "_PLAIN": "a predicate", "_QUOTED": "a quoted text"},
        groups={frozenset({"NAME", *_KEYWORDS}): "a name", frozenset({"NAME", "REFERENCE"}): "a type or REFERENCE TO"},
    )


def recognises(text: str) -> bool:
    """Whether a text begins as a `DEFINE MESSAGETYPE` statement."""
    return _START.match(text) is not None


def parse(text: str) -> MessageType:
    """The message type that a statement defines.

    Raises `SchemaSyntaxError`, which shows the place, or another `SchemaError` for an invalid type.
    """
    name, *parts = trees(_notation().parse(text))
    nodes = [part for part in parts if part.data == "node"]
    (root,) = (part for part in parts if part.data == "name")
    checks = [predicate(part, text) for part in parts if part.data == "check"]
    indexes = [_name(trees(part)[0]) for part in parts if part.data == "index"]
    made = tuple(_node(node, text) for node in nodes)
    return MessageType(_name(name), made, _name(root), tuple(checks), tuple(indexes))


def _node(tree: Tree[Token], text: str) -> NodeType:
    name, *members = trees(tree)
    return NodeType(_name(name), tuple(_member(member, text) for member in members))


def _member(tree: Tree[Token], text: str) -> Member:
    name, kind = trees(tree)
    if kind.data == "reference":
        return Reference(_name(name), _name(trees(kind)[0]))
    return Attribute(_name(name), _attribute_type(kind, text))


def _attribute_type(tree: Tree[Token], text: str) -> Type:
    word, *rest = tokens(tree)
    digits = [int(token) for token in rest if token.type == "DIGITS"]
    kind: Type
    if word.upper() == "DECIMAL":
        try:
            kind = decimal(*digits)
        except SchemaError as error:
            raise fault(str(error), text, word) from None
    elif digits:
        raise fault(f"only DECIMAL takes digits, not {str(word)!r}", text, word)
    elif word.upper() in ATOM_WORDS:
        kind = ATOM_WORDS[word.upper()]
    else:
        near = did_you_mean(word.upper(), ["DECIMAL", *ATOM_WORDS])
        raise fault(f"there is no type {str(word)!r}{near or '; an attribute is of an atomic type'}", text, word)
    return Optional(kind) if rest and rest[-1].type == "OPTIONAL" else kind


def _name(tree: Tree[Token]) -> str:
    return str(tokens(tree)[0])
