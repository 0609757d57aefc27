"""Every comparison of every sort of field with every awkward value: the index finds the rows that the mask has.

Generated predicates seldom have a constant that is a value of the row beside it; here all of them do.
"""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import product
from typing import Any

import numpy as np

from milepost import query
from milepost.batch import Batch
from milepost.errors import QueryTypeError
from milepost.match import Index
from milepost.query import Predicate, ast, kinds
from milepost.schema import types as t
from milepost.schema.text import parse
from milepost.schema.types import Schema
from tests.unit.query.strategies import COMPARISONS, NUMBERS, awkward

FIELDS = parse(
    "m: [i8: int8, l: long, u: uint64, ou: uint64?, f: float, d: double, od: double?, n: decimal(6,2), "
    "w: decimal(38,10), s: string, os: string?, y: bytes, b: bool, ob: bool?, day: date, "
    "at: timestamp, k: uuid, id: ident, u8: uint8]"
)
TEXTS = [
    "", "a", "ab", "abcdef", "abcdefg", "abcdefgh", "abcdefgi", "abcdefghi", "abcdefg\0", "abcdef\0", "abcdef\0\0",
    "a\0", "\0", "abcdef\x7f", "abcdefÿ", "abcdé", "𝄞𝄞", "𝄞", "\U0010ffff", "b",
]  # fmt: skip


def agree(schema: Schema, rows: list[Any], wanted: list[Predicate], least_indexed: float) -> None:
    batch = Batch.encode(schema, rows)
    index = Index(schema)
    for key, predicate in enumerate(wanted):
        index.add(key, predicate)
    expected = np.array([predicate.mask(batch) for predicate in wanted])
    assert index.statistics().indexed >= least_indexed * len(wanted)
    for batched in (True, False):
        for _ in range(2):
            snapshot = index.snapshot()
            parts = [batch] if batched else [batch.slice(row, row + 1) for row in range(len(rows))]
            found = np.zeros_like(expected)
            row = 0
            for part in parts:
                matches = snapshot.match(part)
                for start, end in zip(matches.offsets[:-1], matches.offsets[1:], strict=True):
                    found[matches.keys[start:end], row] = True
                    row += 1
            wrong = np.argwhere(found != expected)
            assert not len(wrong), (str(wanted[wrong[0][0]]), rows[wrong[0][1]])
            index.settle()


def test_every_comparison() -> None:
    assert isinstance(FIELDS.type, t.Tuple)
    values = {}
    for field in FIELDS.type.fields:
        optional = isinstance(field.type, t.Optional)
        atom = field.type.type if isinstance(field.type, t.Optional) else field.type
        assert isinstance(atom, t.Atom)
        values[field.name] = atom, [*awkward(atom), *([None] if optional else [])]
    most = max(len(some) for _, some in values.values())
    rows = [{name: some[row % len(some)] for name, (_, some) in values.items()} for row in range(most)]
    wanted = []
    for name, (atom, some) in values.items():
        sort = kinds.of_atom(atom).name
        constants = [(sort, value) for value in some if value is not None]
        if sort in NUMBERS:
            constants += [
                ("double", 2.5),
                ("double", 2.0**63),
                ("decimal", Decimal("1.5")),
                ("integer", 2**53 + 1),
            ]
        for (kind, value), sign in product(constants, COMPARISONS):
            if isinstance(value, float) and not math.isfinite(value):
                continue
            literal = ast.Literal("integer" if kind == "ident" else kind, value)
            path = ast.Path(name)
            for node in (ast.Binary(sign, path, literal), ast.Negation(ast.Binary(sign, literal, path))):
                try:
                    wanted.append(query.compile(str(node), FIELDS))
                except QueryTypeError:
                    continue  # an integer of too many digits is a decimal
        wanted += [query.compile(f"{name} is null", FIELDS), query.compile(f"{name} is not null", FIELDS)]
    agree(FIELDS, rows, wanted, 0.6)


def test_every_text() -> None:
    schema = parse("m: [s: string, o: string?]")
    rows = [{"s": text, "o": None if len(text) == 1 else text} for text in TEXTS]
    wanted = []
    for name, text in product(("s", "o"), TEXTS):
        literal = str(ast.Literal("string", text))
        for sign in COMPARISONS:
            wanted.append(query.compile(f"{name} {sign} {literal}", schema))
        for cut in range(len(text) + 1):
            head = str(ast.Literal("string", text[:cut] + "%"))
            wanted.append(query.compile(f"{name} like {head}", schema))
            wanted.append(query.compile(f"not {name} like {head}", schema))
            wanted.append(query.compile(f"{name} like {ast.Literal('string', text[:cut] + '%h')!s}", schema))
            wanted.append(query.compile(f"starts_with({name}, {ast.Literal('string', text[:cut])!s})", schema))
    agree(schema, rows, wanted, 0.4)
