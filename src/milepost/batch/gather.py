"""Columns made of other columns: some rows of a block, or several blocks one after the other.

Nothing is decoded. A `slice` of rows copies nothing before the columns are written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.batch.block import OFFSET, Block
from milepost.batch.columns import Bytes, Columns, pack_bits
from milepost.batch.layout import Layout
from milepost.schema.flat import width

Rows = npt.NDArray[Any] | slice


def gather(block: Block, rows: Rows) -> Columns:
    """The columns of some elements of a block, in the order given."""
    flat, layout = block.layout.flat, block.layout
    count = len(range(*rows.indices(block.n))) if isinstance(rows, slice) else len(rows)
    columns = Columns(layout, count)
    for shape in flat.fixed:
        start = block.base + layout.fixed_at(shape, block.n)
        column = np.frombuffer(block.data, f"V{width(shape)}", block.n, start)
        columns.fixed[shape.slot] = column[rows]
    for slot in range(len(flat.bits)):
        columns.bits[slot] = pack_bits(block.bits(slot)[rows])
    for leaf in flat.var:
        columns.var[leaf.slot] = _gather_var(*block.var(leaf), rows)
    for item in flat.lists:
        offsets, elements = block.list(item)
        inner_offsets, inner = _gather_ranges(offsets, rows)
        columns.lists[item.slot] = inner_offsets, gather(elements, inner)
    for box in flat.boxes:
        tags, ranks, cases = block.box(box)
        tags, ranks = tags[rows], ranks[rows]
        for tag in np.unique(tags[tags > 0]):
            columns.boxes[box.index][int(tag)] = gather(cases[int(tag)], ranks[tags == tag])
    return columns


def _gather_var(
    offsets: npt.NDArray[np.int32], data: npt.NDArray[np.uint8], rows: Rows
) -> tuple[npt.NDArray[np.int32], Bytes]:
    if isinstance(rows, slice):
        start, stop, step = rows.indices(len(offsets) - 1)
        if step == 1:
            return offsets[start : max(start, stop) + 1], data
        rows = np.arange(start, stop, step)
    # Arrow copies string by string in C++. An index of every byte in NumPy takes 2.5 times as long for strings of
    # 8 bytes, and 45 times for 40.
    column = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)])
    taken = column.take(pa.array(rows))
    ends = np.frombuffer(taken.buffers()[1], OFFSET, len(taken) + 1)
    return ends, taken.buffers()[2] or b""


def _gather_ranges(offsets: npt.NDArray[np.int32], rows: Rows) -> tuple[npt.NDArray[np.int32], Rows]:
    """The new offsets of some lists, and the elements they hold."""
    if isinstance(rows, slice):
        start, stop, step = rows.indices(len(offsets) - 1)
        if step == 1:
            stop = max(start, stop)
            return offsets[start : stop + 1], slice(int(offsets[start]), int(offsets[stop]))
        rows = np.arange(start, stop, step)
    sizes = np.diff(offsets)[rows]
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    within = np.arange(ends[-1]) - np.repeat(ends[:-1], sizes)
    return ends.astype(OFFSET), np.repeat(offsets[:-1][rows], sizes) + within


def concat(blocks: Sequence[Block]) -> Columns:
    """The elements of blocks of one layout, one block after the other."""
    layout = blocks[0].layout
    flat = layout.flat
    columns = Columns(layout, sum(block.n for block in blocks))
    if columns.n == len(blocks) and not flat.lists and not flat.boxes and all(block.n == 1 for block in blocks):
        base = blocks[0].base
        if all(block.base == base for block in blocks):
            return concat_rows(layout, [block.data for block in blocks], base)
    for shape in flat.fixed:
        size = width(shape)
        starts = [block.base + layout.fixed_at(shape, block.n) for block in blocks]
        pieces = [memoryview(block.data)[at : at + block.n * size] for block, at in zip(blocks, starts, strict=True)]
        columns.fixed[shape.slot] = b"".join(pieces)
    for slot in range(len(flat.bits)):
        columns.bits[slot] = pack_bits(np.concatenate([block.bits(slot) for block in blocks]))
    for leaf in flat.var:
        pairs = [block.var(leaf) for block in blocks]
        pieces = [data[offsets[0] : offsets[-1]].data for offsets, data in pairs]
        columns.var[leaf.slot] = _joined([offsets for offsets, _ in pairs]), b"".join(pieces)
    for item in flat.lists:
        offsets = [block.list_offsets(item) for block in blocks]
        columns.lists[item.slot] = _joined(offsets), concat([block.items[item.slot] for block in blocks])
    for box in flat.boxes:
        found: dict[int, list[Block]] = {}
        for block in blocks:
            for tag, elements in block.boxes[box.index].items():
                found.setdefault(tag, []).append(elements)
        columns.boxes[box.index] = {tag: concat(elements) for tag, elements in found.items()}
    return columns


def concat_rows(layout: Layout, datas: Sequence[Any], base: int) -> Columns:
    """`concat` for single rows of atoms. All have their fields at the same places, so they are read as one table.

    A broker joins the messages of many publishers this way: a row costs a tenth of the general way. Each row is in the
    bytes of a batch of its own, and begins there at `base`.
    """
    columns, flat = Columns(layout, len(datas)), layout.flat
    size = layout.data_at(1)
    rows = b"".join([data[base : base + size] for data in datas])
    table = np.frombuffer(rows, np.uint8).reshape(columns.n, size)
    for shape in flat.fixed:
        at = layout.fixed_at(shape, 1)
        columns.fixed[shape.slot] = table[:, at : at + width(shape)].tobytes()
    for slot in range(len(flat.bits)):
        columns.bits[slot] = pack_bits(table[:, layout.bit_at(slot, 1)])
    if flat.var:
        at = layout.var_at(1)
        ends = np.ascontiguousarray(table[:, at : at + 4 * (len(flat.var) + 1)]).view(OFFSET)
        offsets = np.zeros((len(flat.var), columns.n + 1), np.int64)
        np.cumsum(np.diff(ends, axis=1).T, axis=1, out=offsets[:, 1:])
        cuts = ends.T.tolist()
        for slot in range(len(flat.var)):
            pieces = [data[start:end] for data, start, end in zip(datas, cuts[slot], cuts[slot + 1], strict=True)]
            columns.var[slot] = offsets[slot].astype(OFFSET), b"".join(pieces)
    return columns


def _joined(parts: Sequence[npt.NDArray[np.int32]]) -> npt.NDArray[np.int32]:
    moved = []
    end = 0
    for part in parts:
        moved.append(part[1:] + (end - int(part[0])))
        end += int(part[-1]) - int(part[0])
    return np.concatenate([np.zeros(1, OFFSET), *moved], dtype=OFFSET)
