"""How `milepost sub` prints batches: lines of JSON, CSV, or aligned columns.

Each printer takes a whole batch and returns the bytes to write, so that there is one write for each batch.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final, Protocol
from uuid import UUID

from milepost.batch import Batch
from milepost.cli import values
from milepost.cli.terminal import cut, escaped
from milepost.gateway.values import plain_rows
from milepost.schema.types import Atom, Optional, Schema, Tuple

CELL_CHARS: Final = 48  # of a table; longer text is cut, and complete in the other formats
GAP: Final = "  "


class Printer(Protocol):
    """Returns the bytes that show a batch of a topic. `ids` are the IDs of its rows, where they are not the batch's
    own.
    """

    def __call__(self, topic: str, batch: Batch, ids: Sequence[Any] | None = None) -> bytes: ...


def printer(form: str, envelope: bool, colours: bool) -> Printer:
    """A printer for one output. With `envelope`, each message has its topic, and in JSON its ID."""
    match form:
        case "json":
            return _Json(envelope)
        case "csv":
            return _Csv(envelope, colours)
        case _:
            return _Columns(envelope, colours)


class _Json:
    def __init__(self, envelope: bool) -> None:
        self._envelope = envelope

    def __call__(self, topic: str, batch: Batch, ids: Sequence[Any] | None = None) -> bytes:
        rows = plain_rows(batch)
        if self._envelope:
            known = batch.ids if ids is None else ids
            rows = [
                {"topic": topic, "id": str(known[row]) if known is not None else None, "message": message}
                for row, message in enumerate(rows)
            ]
        return values.to_json_lines(rows)


class _Csv:
    def __init__(self, envelope: bool, terminal: bool) -> None:
        self._envelope = envelope
        self._terminal = terminal  # a pipe gets the text unchanged: there it is data
        self._names: list[str] | None = None

    def __call__(self, topic: str, batch: Batch, ids: Sequence[Any] | None = None) -> bytes:
        names, columns = _cells(batch, _csv_cell)
        if self._envelope:
            names, columns = ["topic", *names], [[topic] * len(batch), *columns]
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        if names != self._names:  # once, unless a pattern covers topics with different fields
            self._names = names
            writer.writerow(names)
        writer.writerows(zip(*columns, strict=True))
        return (escaped(out.getvalue()) if self._terminal else out.getvalue()).encode()


class _Columns:
    """Columns as wide as the widest cell so far. They only grow, so lines of different batches stay aligned."""

    def __init__(self, envelope: bool, colours: bool) -> None:
        self._envelope = envelope
        self._colours = colours
        self._names: list[str] | None = None
        self._widths: list[int] = []

    def __call__(self, topic: str, batch: Batch, ids: Sequence[Any] | None = None) -> bytes:
        names, columns = _cells(batch, shown)
        right = _numbers(batch.schema)
        if self._envelope:
            names, columns, right = ["topic", *names], [[shown(topic)] * len(batch), *columns], [False, *right]
        head = names != self._names
        if head:  # once, unless a pattern covers topics with different fields
            self._names, self._widths = names, [len(name) for name in names]
        self._widths = [max([width, *map(len, column)]) for width, column in zip(self._widths, columns, strict=True)]
        lines = []
        if head:
            line = self._line(names, right)
            lines.append(f"\x1b[2m{line}\x1b[0m" if self._colours else line)
        lines += [self._line(cells, right) for cells in zip(*columns, strict=True)]
        return "".join(f"{line}\n" for line in lines).encode()

    def _line(self, cells: Any, right: list[bool]) -> str:
        padded = [
            cell.rjust(width) if number else cell.ljust(width)
            for cell, width, number in zip(cells, self._widths, right, strict=True)
        ]
        return GAP.join(padded).rstrip()


def _cells(batch: Batch, cell: Callable[[Any], Any]) -> tuple[list[str], list[list[Any]]]:
    """The names of a batch's fields, and the values of each as cells."""
    if batch.schema.message_type is not None:
        return ["message"], [[cell(row) for row in plain_rows(batch)]]
    assert isinstance(batch.schema.type, Tuple)
    names = [item.name for item in batch.schema.type.fields]
    rows = batch.to_pylist()
    return names, [[cell(row[name]) for row in rows] for name in names]


def _csv_cell(value: Any) -> Any:
    """A value that the csv module writes unchanged, or its JSON; None is an empty cell."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    if isinstance(value, date | Decimal | UUID):
        return _text(value)
    return values.to_json(value).decode().strip('"')


def shown(value: Any) -> str:
    """A value in one cell: short, on one line, and without control characters."""
    text = "" if value is None else value if isinstance(value, str) else _text(value)
    if not text.isprintable():
        text = "".join(
            sign if sign.isprintable() else "\N{MIDDLE DOT}" for sign in text
        )  # a terminal would interpret it
    return cut(text, CELL_CHARS)


def _text(value: Any) -> str:
    match value:
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date():
            return value.isoformat()
        case bool():
            return "true" if value else "false"
        case int() | float() | Decimal() | UUID():
            return str(value)
        case _:
            return values.to_json(value).decode()


def _numbers(schema: Schema) -> list[bool]:
    """Which columns are right-aligned."""
    if schema.message_type is not None:
        return [False]
    assert isinstance(schema.type, Tuple)
    inner = [item.type.type if isinstance(item.type, Optional) else item.type for item in schema.type.fields]
    return [isinstance(kind, Atom) and kind.kind not in _LEFT for kind in inner]


_LEFT: Final = ("string", "bytes", "bool", "date", "timestamp", "uuid")
