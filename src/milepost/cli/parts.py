"""The parts of a batch's bytes, in their order, for `type show` and the demo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.markup import escape
from rich.table import Table

from milepost.batch.batch import Batch
from milepost.batch.block import Block
from milepost.batch.format import format_of
from milepost.batch.header import HEADER
from milepost.batch.layout import Layout
from milepost.cli import terminal
from milepost.schema.flat import AtomShape, FlatTuple, width
from milepost.schema.types import Schema

# The colour of each sort of part.
STYLES = {
    "header": "magenta",
    "fixed": "cyan",
    "offsets": "yellow",
    "bits": "green",
    "data": "blue",
    "ids": "red",
    "zeros": "dim",
}


@dataclass(frozen=True)
class BytePart:
    """A range of bytes and its meaning. `path` is empty for parts that belong to no single field."""

    start: int
    size: int
    sort: str  # a key of STYLES
    path: str
    what: str

    @property
    def end(self) -> int:
        return self.start + self.size


def of_header(body: int) -> Iterator[BytePart]:
    """The parts before the first group, which starts at `body`."""
    yield BytePart(0, 4, "header", "", "checksum of all that follows")
    yield BytePart(4, 4, "header", "", "number of rows, and flags")
    yield BytePart(8, 8, "header", "", "fingerprint of the schema")
    if body > HEADER.size:
        yield BytePart(HEADER.size, body - HEADER.size, "header", "", "the cases that occur")


def of_columns(layout: Layout, base: int, n: int) -> Iterator[BytePart]:
    """The parts of one level whose positions depend only on the number of elements, in order."""
    flat = layout.flat
    found: list[BytePart] = []
    for shape in flat.fixed:
        what = str(shape.type) if isinstance(shape, AtomShape) else "case of the variant"
        found.append(BytePart(base + layout.fixed_at(shape, n), n * width(shape), "fixed", shape.path, what))
    for item in flat.lists:
        found.append(
            BytePart(base + layout.list_at(item, n), 4 * (n + 1), "offsets", item.path, "where each list ends")
        )
    if flat.var:
        size = 4 * (len(flat.var) * n + 1)
        found.append(BytePart(base + layout.var_at(n), size, "offsets", "", f"where each {_vars(flat)} ends"))
    for slot, path in enumerate(flat.bits):
        what = "which are present" if path.endswith("?") else "bool"
        found.append(BytePart(base + layout.bit_at(slot, n), (n + 7) >> 3, "bits", path, what))
    return iter(sorted((part for part in found if part.size), key=lambda part: part.start))


def of_block(block: Block) -> Iterator[BytePart]:
    """All parts of a level and of the levels below it."""
    yield from of_columns(block.layout, block.base, block.n)
    for shape in block.layout.flat.var:
        offsets, _ = block.var(shape)
        start, end = int(offsets[0]), int(offsets[-1])
        if end > start:
            yield BytePart(start, end - start, "data", shape.path, str(shape.type))
    for inner in (*block.items, *(inner for cases in block.boxes for inner in cases.values())):
        yield from of_block(inner)


def of_batch(batch: Batch) -> list[BytePart]:
    """All parts of a batch, in order. Together they cover all of its bytes."""
    size = len(batch.data)
    blocks = [group.block for group in batch.groups]
    parts = [*of_header(blocks[0].base if blocks else size)]
    for block in blocks:
        parts += of_block(block)
    if batch.ids is not None:
        runs = size - 12 * len(batch.ids.runs) - 4
        parts.append(BytePart(runs - 8 * len(batch), 8 * len(batch), "ids", "", "stamps: time and counter of each row"))
        parts.append(BytePart(runs, size - runs, "ids", "", "runs of rows by publisher and broker"))
    return [*_with_zeros(parts, size)]


def _with_zeros(parts: list[BytePart], end: int) -> Iterator[BytePart]:
    """The same parts, with the gaps between them filled."""
    at = 0
    for part in [*parts, BytePart(end, 0, "zeros", "", "")]:
        if part.start > at:
            yield BytePart(at, part.start - at, "zeros", "", "zeros, up to a multiple of 8")
        if part.size:
            yield part
        at = part.end


def _vars(flat: FlatTuple) -> str:
    return "string" if flat.strings == len(flat.var) else "string or run of bytes"


def places(schema: Schema, code: int = 0) -> Table:
    """The positions of the columns of a single message, in one flat-tuple case of its schema."""
    form = format_of(schema)
    table = _table()
    layout = form.layout(code)
    for part in (*of_header(form.body), *of_columns(layout, form.body, 1)):
        _row(table, part, str(part.start), str(part.size))
    for shape in layout.flat.var:
        _row(table, BytePart(0, 0, "data", shape.path, str(shape.type)), "then", "its own")
    for item in layout.flat.lists:
        _row(table, BytePart(0, 0, "data", f"{item.path}[]", "elements: columns of their own"), "then", "their own")
    return table


def hexdump(data: bytes, parts: list[BytePart]) -> Table:
    """A dump of the bytes, with at least one line for each part."""
    table = _table()
    for part in parts:
        shown = data[part.start : part.end].hex(" ")
        lines = [shown[at : at + 3 * _LINE_BYTES - 1] for at in range(0, len(shown), 3 * _LINE_BYTES)]
        _row(table, part, f"{part.start:04x}", "\n".join(lines))
    return table


_LINE_BYTES = 16


def _table() -> Table:
    return terminal.table("at", "bytes", "field", "what", right=("at",), wrapped=("bytes", "field", "what"))


def _row(table: Table, part: BytePart, at: str, size: str) -> None:
    style = STYLES[part.sort]
    table.add_row(f"[dim]{at}[/]", f"[{style}]{size}[/]", escape(part.path), f"[dim]{escape(part.what)}[/]")
