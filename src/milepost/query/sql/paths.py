"""Paths through tables: the row of each variable, and the joins to other rows."""

from __future__ import annotations

from dataclasses import dataclass, field

from milepost.errors import QueryError
from milepost.query.kinds import Nodes
from milepost.query.sql.tables import SqlTable
from milepost.query.sql.value import Value, column
from milepost.query.sql.writer import ROOT, SqlWriter
from milepost.query.typed import ElementStep, FieldStep, ReadPath


@dataclass(slots=True)
class From:
    """Tables and their join conditions, in order."""

    tables: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    order: list[str] = field(default_factory=list)  # the positions of the elements

    def mentioned(self, text: str) -> bool:
        """Whether an expression reads one of the tables."""
        return any(f"{table.rpartition(' ')[2]}." in text for table in self.tables)

    def text(self, selected: str, *conditions: str, ordered: bool = False) -> str:
        """A SELECT over the tables, without parentheses."""
        # SQLite keeps the order of tables in a CROSS JOIN; for PostgreSQL it is an ordinary join.
        tables = f" FROM {' CROSS JOIN '.join(self.tables)}" if self.tables else ""
        every = [*self.conditions, *conditions]
        where = f" WHERE {' AND '.join(every)}" if every else ""
        order = f" ORDER BY {', '.join(self.order)} OFFSET 0" if ordered and self.order else ""
        return f"SELECT {selected}{tables}{where}{order}"


@dataclass(slots=True)
class Spot:
    """The row of a variable: the message, an element of a list, or a node."""

    _writer: SqlWriter
    table: SqlTable  # the table of its values
    mid: str
    pos: str  # the `owner` of its elements in the lists below
    _alias: str | None = None
    _source: From | None = None  # the FROM that a node's table is added to when one of its values is read

    @classmethod
    def root(cls, writer: SqlWriter) -> Spot:
        """The message, or its root node."""
        return cls(writer, writer.tables.root, f"{writer.message}.mid", "0")

    @property
    def row(self) -> str:
        """The alias of the row with its values."""
        if self._alias is None:
            if self._source is None:
                return ROOT
            self._alias = self._writer.alias("a")
            # Directly after the reference: SQLite tests a condition as soon as it has the row.
            leading = f" {self.mid.removesuffix('.mid')}"  # the end of the FROM item that has `mid`
            behind = next(place for place, table in enumerate(self._source.tables) if table.endswith(leading))
            self._source.tables.insert(behind + 1, f"{self.table.name} {self._alias}")
            self._source.conditions += [f"{self._alias}.mid = {self.mid}", f"{self._alias}.pos = {self.pos}"]
        return self._alias


class PathReader:
    """Reads the values at the end of paths."""

    def __init__(self, writer: SqlWriter) -> None:
        self._writer = writer
        self._tables = writer.tables.by_path

    def value(self, node: ReadPath, scope: dict[int, Spot]) -> Value:
        """A single value."""
        source = From()
        spot, path = self._walk(node, scope, source)
        found = spot.table.by_path[path]
        assert found.type is not None
        text = f"{spot.row}.{found.name}"
        if not source.tables:
            return column(text, found.type, found.optional, self._writer.dialect)
        made = column(f"({source.text(text)})", found.type, True, self._writer.dialect)
        return Value(made.text, made.kind, made.form, made.bound)

    def present(self, node: ReadPath, scope: dict[int, Spot]) -> str | None:
        """Whether a tuple or list is present; None when it always is."""
        source = From()
        spot, path = self._walk(node, scope, source)
        # If the innermost optional part is present, so are the parts around it: only it is tested.
        marks = [spot.table.presence[path[:cut]] for cut in range(len(path) + 1) if path[:cut] in spot.table.presence]
        mark = f"{spot.row}.{marks[-1].name}" if marks else None
        if not source.tables:
            return mark
        return f"EXISTS ({source.text('1', *(mark,) if mark else ())})"

    def bind(self, node: ReadPath, scope: dict[int, Spot], source: From) -> Spot:
        """The element of a list, or the node of a reference, as one more table of a FROM."""
        spot, path = self._walk(node, scope, source)
        table = self._tables[(*spot.table.path, *path)]
        alias = self._joined(table, spot, source)
        source.order.append(f"{alias}.pos")
        if not isinstance(node.kind, Nodes):
            return Spot(self._writer, table, f"{alias}.mid", f"{alias}.pos", alias, source)
        assert table.target is not None
        target = f"{alias}.{table.columns[0].name}"
        return Spot(self._writer, self._tables[(table.target,)], f"{alias}.mid", target, None, source)

    def _joined(self, table: SqlTable, spot: Spot, source: From) -> str:
        alias = self._writer.alias("a")
        source.tables.append(f"{table.name} {alias}")
        source.conditions.append(f"{alias}.mid = {spot.mid}")
        if table.owned:
            source.conditions.append(f"{alias}.owner = {spot.pos}")
        return alias

    def _walk(self, node: ReadPath, scope: dict[int, Spot], source: From) -> tuple[Spot, tuple[str, ...]]:
        spot = scope[node.variable]
        path: tuple[str, ...] = ()
        for step in node.steps:
            match step:
                case FieldStep(name):
                    path = (*path, name)
                case ElementStep(index):
                    spot = self._element(self._tables[(*spot.table.path, *path)], spot, index, source)
                    path = ()
                case _:
                    raise QueryError(f"a database cannot evaluate {''.join(map(str, node.steps))}")
        return spot, path

    def _element(self, table: SqlTable, spot: Spot, index: int, source: From) -> Spot:
        alias = self._joined(table, spot, source)
        first = str(index)
        if table.owned:  # positions count over all owners, and the elements of one owner are consecutive
            other = self._writer.alias("a")
            of_owner = f"{other}.mid = {spot.mid} AND {other}.owner = {spot.pos}"
            first = f"(SELECT min({other}.pos) + {index} FROM {table.name} {other} WHERE {of_owner})"
        source.conditions.append(f"{alias}.pos = {first}")
        return Spot(self._writer, table, f"{alias}.mid", f"{alias}.pos", alias, source)
