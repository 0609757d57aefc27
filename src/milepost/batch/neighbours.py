"""Small neighbouring batches become one: `runs` says which of them, `join` makes the batch.

The broker and the store join wherever batches wait anyway, because most costs are per batch and not per row. Each place
has its own reasons not to join two neighbours (another topic, a gap between offsets), and passes them as a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from milepost import limits
from milepost.batch.batch import Batch
from milepost.errors import MilepostError
from milepost.schema import Schema

T = TypeVar("T")


class Bounds(NamedTuple):
    """How much one run may hold. A first item that exceeds them is a run by itself."""

    bytes: int
    rows: int = limits.BATCH_ROWS
    small: int = limits.FRAME_BYTES  # bytes: a larger item is joined to nothing
    items: int = 1 << 31


# Bounds of a log's entries. A larger entry reads no faster and costs readers memory. The number of rows is bounded for
# the kernels, which go over all rows of an entry.
ENTRY: Final = Bounds(1 << 20, rows=65_536)

# Bounds of rows that are read from the log. A frame for a batch above 32 KiB costs less than a copy of its columns.
READ: Final = Bounds(1 << 18, small=1 << 15)

# Bounds of rows that wait in a client: a larger batch would have to be split again.
FRAME: Final = Bounds(limits.FRAME_BYTES)


def runs(
    items: Iterable[T],
    sizes: Iterable[int],
    rows: Iterable[int],
    bounds: Bounds,
    fits: Callable[[list[T], T], bool] | None = None,
) -> Iterator[list[T]]:
    """Cut items into runs that may be joined, in their order.

    `sizes` are the items' bytes. `fits` says whether an item may follow a run that is not empty; None: always.
    """
    most_bytes, most_rows, small, most_items = bounds
    run: list[T] = []
    run_bytes = run_rows = 0
    for item, size, count in zip(items, sizes, rows, strict=True):
        if run and (
            (run_bytes and (size > small or run_bytes + size > most_bytes))
            or run_rows + count > most_rows
            or len(run) == most_items
            or (fits is not None and not fits(run, item))
        ):
            yield run
            run, run_bytes, run_rows = [], 0, 0
        run.append(item)
        run_bytes += size if size <= small else most_bytes  # so that only items without bytes follow it
        run_rows += count
    if run:
        yield run


def join(batches: Sequence[Batch]) -> Batch | None:
    """The rows of batches of one schema as one batch; None when together they exceed a limit of batches."""
    if len(batches) == 1:
        return batches[0]
    try:
        return Batch.concat(batches)
    except MilepostError:
        return None


def join_encoded(datas: Sequence[bytes], schema: Schema) -> Batch | None:
    """The same for batches as bytes, which this process has checked before. Single rows join several times as fast."""
    if len(datas) == 1:
        return Batch.trusted(datas[0], schema)
    try:
        return Batch.joined(datas, schema)
    except MilepostError:
        return None
