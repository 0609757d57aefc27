"""The columns at the end of paths in Spark."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as s

from milepost.query import kinds
from milepost.query.kinds import Scalar
from milepost.query.spark.arithmetic import number
from milepost.query.spark.route import Route, Stop
from milepost.query.spark.types import carries, case_field, field_type, spark_type
from milepost.query.spark.value import BOOLEAN, DOUBLE, STRING, Value
from milepost.query.typed import ROOT, CaseStep, ElementStep, FieldStep, ReadPath, Step
from milepost.schema.types import UINT64, Atom, Schema, Tuple, Variant


@dataclass(frozen=True, slots=True)
class Spot:
    """A column and the type of its values."""

    column: Column
    stop: Stop  # resolved


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of an expression, and the column of the message."""

    route: Route
    under: str | None  # the struct column that holds the message; None when its fields are columns
    variables: Mapping[int, Spot]

    @property
    def schema(self) -> Schema:
        return self.route.schema

    def bind(self, variable: int, spot: Spot) -> Variables:
        """The variables with one more."""
        return replace(self, variables={**self.variables, variable: spot})

    def read(self, node: ReadPath) -> Value:
        """The value at the end of a path to an atom."""
        spot = self.spot(node)
        assert isinstance(spot.stop, Atom)
        assert isinstance(node.kind, Scalar)
        column, kind = spot.column, spark_type(node.kind)
        if spot.stop == UINT64:
            return Value(column, field_type(UINT64, self.schema), True)
        if field_type(spot.stop, self.schema) != kind:
            column = column.cast(kind.simpleString())  # a narrower integer, or a float
        return Value(number(column) if kind == DOUBLE else column, kind, True)

    def case_name(self, node: ReadPath) -> Value:
        """The name of the case that a variant is in."""
        spot = self.spot(node)
        assert isinstance(spot.stop, Variant)
        return Value(self._field(spot, case_field(spot.stop)), STRING, True)

    def present(self, node: ReadPath) -> Value:
        """Whether there is a value at the end of a path to a structure."""
        last = node.steps[-1] if node.steps else None
        if isinstance(last, CaseStep):
            spot = self._follow(self._start(node.variable), node.steps[:-1])
            assert isinstance(spot.stop, Variant)
            case = next(item for item in spot.stop.cases if item.name == last.name)
            if not carries(case, self.schema):
                name = self._field(spot, case_field(spot.stop))
                return Value(f.coalesce(name == f.lit(last.name), f.lit(False)), BOOLEAN)
        if not node.steps and node.variable == ROOT and self.schema.message_type is None:
            return Value(f.lit(True), BOOLEAN)
        return Value(self.spot(node).column.isNotNull(), BOOLEAN)

    def spot(self, node: ReadPath) -> Spot:
        """The column at the end of a path."""
        return self._follow(self._start(node.variable), node.steps)

    def elements(self, node: ReadPath) -> tuple[Column, Stop]:
        """The array at the end of a path, and the type of its elements; for a reference, the array of its nodes."""
        spot = self.spot(node)
        if isinstance(spot.stop, kinds.Nodes):
            nodes, target = self._top(spot.stop.target), kinds.NodeKind(spot.stop.target)
            places = f.coalesce(spot.column, f.array().cast("array<bigint>"))
            return f.transform(places, lambda place: f.get(nodes, place.cast("int"))), target
        return spot.column, self.route.step(spot.stop, ElementStep(0))

    def _start(self, variable: int) -> Spot | None:
        if variable in self.variables:
            return self.variables[variable]
        assert variable == ROOT
        message_type = self.schema.message_type
        if message_type is None:
            return None  # no column holds the whole message
        return Spot(f.get(self._top(message_type.root), f.lit(0)), kinds.NodeKind(message_type.root))

    def _follow(self, spot: Spot | None, steps: tuple[Step, ...]) -> Spot:
        for step in steps:
            if spot is None:
                assert isinstance(step, FieldStep)
                spot = Spot(self._top(step.name), self.route.step(self.schema.type, step))
                continue
            stop = self.route.step(spot.stop, step)
            if isinstance(step, ElementStep):
                spot = Spot(f.get(spot.column, f.lit(step.index)), stop)
            else:
                assert isinstance(step, FieldStep | CaseStep)
                spot = Spot(self._field(spot, step.name), stop)
        assert spot is not None
        return spot

    def _top(self, name: str) -> Column:
        """A field of the message."""
        if self.under is None:
            return f.col(_quoted(name))
        return self._field(Spot(f.col(_quoted(self.under)), self.schema.type), name)

    def _field(self, spot: Spot, name: str) -> Column:
        """A field of a struct, by position where Spark might confuse two names."""
        kind = self._struct(spot.stop)
        names = [field.name for field in kind.fields]
        if sum(other.lower() == name.lower() for other in names) == 1:
            return spot.column.getField(name)
        numbered = [s.StructField(f"_{place}", field.dataType) for place, field in enumerate(kind.fields)]
        return spot.column.cast(s.StructType(numbered)).getField(f"_{names.index(name)}")

    def _struct(self, stop: Stop) -> s.StructType:
        if isinstance(stop, kinds.NodeKind):
            nodes = self.route.step(self.route.step(self.schema.type, FieldStep(stop.name)), ElementStep(0))
            assert isinstance(nodes, Tuple)
            stop = nodes
        assert isinstance(stop, Tuple | Variant)
        kind = field_type(stop, self.schema)
        assert isinstance(kind, s.StructType)
        return kind


def _quoted(name: str) -> str:
    """A quoted name, which Spark reads as one name, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"
