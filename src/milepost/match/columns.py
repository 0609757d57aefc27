"""The columns of an index: the values of messages that its terms test, one code a row.

A column is made when a subscription first needs it, and stays. It reads a path to a single value, or the name of a
variant's case.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from milepost.batch import Batch, CaseGroup
from milepost.batch.layout import Layout
from milepost.match.codes import NULL, Coding
from milepost.match.texts import Texts, TextTable
from milepost.query import typed
from milepost.query.kinds import UUID, Scalar
from milepost.query.location import Location
from milepost.query.typed import ROOT, CaseName, CaseStep, FieldStep, ReadPath
from milepost.schema.flat import AtomShape, ChoiceShape, Shape, TupleShape
from milepost.schema.types import Atom, Schema

Codes: TypeAlias = npt.NDArray[np.int64]

COLUMNS: Final = 256  # of one index; each is decoded for every batch, so their number must be bounded
WIDE_DIGITS: Final = 18  # decimals up to here fit into 64 bits

_SORTS: Final = {
    "int8": 1, "int16": 2, "int": 3, "date": 3, "long": 4, "timestamp": 4, "ident": 4, "uint8": 5, "uint16": 6,
    "uint32": 7, "uint64": 8, "float": 9, "double": 10, "bool": 11, "decimal": 12, "uuid": 15,
}  # fmt: skip
_CODINGS: Final = {
    "uuid": Coding.NUMBER, "string": Coding.START, "bytes": Coding.START, "double": Coding.DOUBLE,
    "boolean": Coding.BIT,
}  # fmt: skip
_ABSENT, _START, _NUMBERED, _ELSEWHERE = 0, 13, 14, 16  # as in `decoder`
_NOWHERE: Final = np.zeros(0, np.int64)


class CodeColumn(NamedTuple):
    """A path, and how its values become codes."""

    node: ReadPath | CaseName
    coding: Coding


class IndexedField:
    """The field at the end of a path, with the columns that exist for it so far."""

    __slots__ = ("coding", "node", "numbers", "plain", "scale")

    def __init__(self, node: ReadPath | CaseName, coding: Coding, scale: int) -> None:
        self.node = node
        self.coding = coding  # START for texts, which may have a column of numbers too
        self.scale = scale
        self.plain = coding is Coding.SIGNED and not scale  # integers that are their own codes
        self.numbers: dict[Coding, int] = {}


class CodeColumns:
    """All columns of an index, by number. It only grows, so snapshots share it."""

    def __init__(self, schema: Schema, texts: Texts) -> None:
        self.schema: Final = schema
        self.texts: Final = texts
        self.all: list[CodeColumn] = []
        self._by_name: dict[str, IndexedField | None] = {}
        self._by_node: dict[ReadPath | CaseName, IndexedField | None] = {}
        self._plans: dict[int, tuple[Layout, int, ReadPlan]] = {}

    def __len__(self) -> int:
        return len(self.all)

    def field(self, node: Any) -> IndexedField | None:
        """The field that a node reads; None when it reads no field, or one without codes."""
        if type(node) is ReadPath:
            if node.variable != ROOT:
                return None
            steps = node.steps
            if len(steps) == 1 and type(steps[0]) is FieldStep:  # hashing a node would take longer than all the rest
                name = steps[0].name
                if name not in self._by_name:
                    self._by_name[name] = self._field(node)
                return self._by_name[name]
        elif type(node) is not CaseName or node.variant.variable != ROOT:
            return None
        if node not in self._by_node:
            if len(self._by_node) > 4 * COLUMNS:  # elements of lists: there may be any number
                return None
            self._by_node[node] = self._field(node)
        return self._by_node[node]

    def number(self, field: IndexedField, coding: Coding) -> int | None:
        """The number of a field's column; None when there are too many columns."""
        found = field.numbers.get(coding)
        if found is None and len(self.all) < COLUMNS:
            found = field.numbers[coding] = len(self.all)
            self.all.append(CodeColumn(field.node, coding))
        return found

    def _field(self, node: ReadPath | CaseName) -> IndexedField | None:
        read = node.variant if isinstance(node, CaseName) else node
        if any(isinstance(step, typed.UnfoldStep) for step in read.steps):
            return None
        if isinstance(node, CaseName):
            return IndexedField(node, Coding.START, 0)
        if not isinstance(node.kind, Scalar):
            return None
        if node.kind.name in _CODINGS:
            return IndexedField(node, _CODINGS[node.kind.name], 0)
        if node.kind.name == "decimal":
            return IndexedField(node, Coding.SIGNED, node.kind.scale) if node.kind.precision <= WIDE_DIGITS else None
        location = Location.root(self.schema)
        for step in node.steps:
            location = location.step(step.index if isinstance(step, typed.ElementStep) else step.name)  # type: ignore[union-attr]
        unsigned = location.type == Atom("uint64")
        return IndexedField(node, Coding.UNSIGNED if unsigned else Coding.SIGNED, 0)

    # Reading

    def codes(self, batch: Batch, count: int, table: TextTable) -> Codes:
        """The codes of the first `count` columns: one row of them for each row of the batch."""
        from milepost.match.decoder import read_codes

        out = np.empty((len(batch), count), np.int64)
        seed = self.texts.seed
        for group in batch.groups:
            block = group.block
            n = block.n
            if not n:
                continue
            plan = self._plan(block.layout, min(count, len(self.all)))  # `count` is 1 for an index without columns
            rows = _NOWHERE if group.rows is None else group.rows
            data = block._bytes
            if data.flags.writeable:
                data.flags.writeable = False
            at, valid = plan.at(n)
            read_codes(data, block.base, n, at, valid, table.slots, table.pool, seed, rows, out)
            for number in plan.elsewhere:
                out[slice(None) if group.rows is None else group.rows, number] = self._elsewhere(number, group, table)
        return out

    def _plan(self, layout: Layout, count: int) -> ReadPlan:
        known = self._plans.get(id(layout))
        if known is None or known[0] is not layout or known[1] != count:
            if len(self._plans) > 1024:
                self._plans = {}
            known = self._plans[id(layout)] = (layout, count, ReadPlan(layout, self.all[:count], self.schema))
        return known[2]

    def _elsewhere(self, number: int, group: CaseGroup, table: TextTable) -> Codes:
        """The codes of a column that is in a box, a list or a node, by the mask back end."""
        from milepost.query.mask import paths as vectors
        from milepost.query.mask.frame import Origin, RowFrame

        column = self.all[number]
        frame = RowFrame.outermost(Origin(self.schema, group.block, {}), None)
        node = column.node
        vector = vectors.case_name(node, frame) if isinstance(node, CaseName) else vectors.read(node, frame)
        n = group.block.n
        if vector is None:
            return np.full(n, NULL, np.int64)
        from milepost.query.mask.vector import spread

        assert isinstance(node.kind, Scalar)
        found = self._coded(spread(vector, n, node.kind), column.coding, node.kind, table)
        return found if vector.known is None else np.where(vector.known, found, NULL)

    def _coded(self, values: Any, coding: Coding, kind: Scalar, table: TextTable) -> Codes:
        from milepost.match.decoder import text_codes
        from milepost.query.mask.text import raw

        if coding in (Coding.START, Coding.NUMBER):
            if kind == UUID:
                data = np.ascontiguousarray(values).view(np.uint8)
                offsets = np.arange(0, 16 * len(values) + 1, 16, dtype=np.int32)
            else:
                offsets, data = raw(values)
                offsets = np.ascontiguousarray(offsets)
            data = data.view()
            data.flags.writeable = False
            out = np.empty(len(values), np.int64)
            # The kernel takes bytes that are read-only, as an Arrow buffer is, and offsets that are not: copy these.
            numbered = coding is Coding.NUMBER
            text_codes(offsets.copy(), data, numbered, table.slots, table.pool, self.texts.seed, out)
            return out
        if coding is Coding.DOUBLE:
            bits = (values.astype(np.float64) + 0.0).view(np.int64)  # -0.0 + 0.0 is 0.0
            return np.where(np.isnan(values), NULL, np.where(bits >= 0, bits, -(bits & 0x7FFFFFFFFFFFFFFF)))
        if coding is Coding.UNSIGNED:
            shifted = np.minimum(values.astype(np.uint64), np.uint64(2**64 - 2)) + np.uint64(1) - np.uint64(1 << 63)
            coded: Codes = shifted.view(np.int64)
            return coded
        coded = np.maximum(values.astype(np.int64), NULL + 1)
        return coded


class ReadPlan:
    """The positions of the columns in one layout, for `read_codes`."""

    def __init__(self, layout: Layout, columns: list[CodeColumn], schema: Schema) -> None:
        self._layout = layout
        self._shapes: list[tuple[int, AtomShape | None, list[int]]] = []
        self.elsewhere: list[int] = []
        for number, column in enumerate(columns):
            sort, shape, bits = (_ELSEWHERE, None, []) if schema.message_type else _found(layout.root, column)
            self._shapes.append((sort, shape, bits))
            if sort == _ELSEWHERE:
                self.elsewhere.append(number)
        self._last: tuple[int, Codes, Codes] = (-1, _NOWHERE, _NOWHERE)

    def at(self, n: int) -> tuple[Codes, Codes]:
        """Where columns and validity bits start when there are n rows; the last answer is cached."""
        last = self._last
        if last[0] == n:
            return last[1], last[2]
        layout = self._layout
        where = np.zeros((len(self._shapes), 4), np.int64)
        valid: list[int] = []
        for number, (sort, shape, bits) in enumerate(self._shapes):
            start = 0
            if shape is not None:
                if sort in (_START, _NUMBERED):
                    start = layout.var_at(n) + 4 * shape.slot * n
                elif sort == _SORTS["bool"]:
                    start = layout.bit_at(shape.slot, n)
                else:
                    start = layout.fixed_at(shape, n)
            where[number] = sort, start, len(valid), len(valid) + len(bits)
            valid += [layout.bit_at(bit, n) for bit in bits]
        self._last = (n, where, np.array(valid, np.int64))
        return self._last[1], self._last[2]


def _found(shape: Shape, column: CodeColumn) -> tuple[int, AtomShape | None, list[int]]:
    """How a column is stored in a layout, its shape, and its validity bit columns."""
    node = column.node
    if isinstance(node, CaseName):
        return _ELSEWHERE, None, []
    bits: list[int] = []
    for step in node.steps:
        if isinstance(shape, TupleShape) and isinstance(step, FieldStep):
            if shape.valid is not None:
                bits.append(shape.valid)
            shape = shape.fields[step.name]
        elif isinstance(shape, ChoiceShape) and isinstance(step, CaseStep):
            if shape.case != step.name or shape.shape is None:
                return _ABSENT, None, []
            shape = shape.shape
        else:
            return _ELSEWHERE, None, []
    if not isinstance(shape, AtomShape) or not isinstance(shape.type, Atom):
        return _ELSEWHERE, None, []
    if shape.valid is not None:
        bits.append(shape.valid)
    if shape.type.kind in ("string", "bytes"):
        return _START if column.coding is Coding.START else _NUMBERED, shape, bits
    return _SORTS[shape.type.kind], shape, bits
