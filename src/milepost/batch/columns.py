"""The columns of one level, ready to be written. Rows, Arrow arrays, `take`, `concat` and `replace` all make them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch.block import OFFSET
from milepost.batch.layout import Layout
from milepost.schema.flat import width

Bytes = Any  # any object with a buffer: bytes, memoryview, a NumPy array, an Arrow buffer
_ZEROS = bytes(8)


class Columns:
    """`n` elements of one flat-tuple, a buffer per column. Every slot must be filled before `write`."""

    __slots__ = ("bits", "boxes", "fixed", "layout", "lists", "n", "var")

    def __init__(self, layout: Layout, n: int) -> None:
        flat = layout.flat
        self.layout = layout
        self.n = n
        self.fixed: list[Bytes] = [b""] * len(flat.fixed)
        self.bits: list[Bytes] = [b""] * len(flat.bits)
        # Offsets may start anywhere in their data: only the bytes between the first and the last are written.
        self.var: list[tuple[npt.NDArray[np.int32], Bytes]] = [(_NO_OFFSETS, b"")] * len(flat.var)
        self.lists: list[tuple[npt.NDArray[np.int32], Columns]] = [(_NO_OFFSETS, self)] * len(flat.lists)
        self.boxes: list[dict[int, Columns]] = [{} for _ in flat.boxes]

    def write(self, parts: list[Bytes], position: int) -> int:
        """Append this level and all below to `parts`; `position` is where it starts, a multiple of eight."""
        flat = self.layout.flat
        start = len(parts)
        if self.layout.empty:
            limits.require("BATCH_EMPTY", self.n, "elements without any content")
        wide = [column for shape, column in zip(flat.fixed, self.fixed, strict=True) if width(shape) >= 4]
        parts += wide
        parts += [(offsets - offsets[0]).astype(OFFSET, copy=False) for offsets, _ in self.lists]
        if flat.var:
            parts.append(self._shared_offsets(position + self.layout.data_at(self.n)))
        parts += self.fixed[len(wide) :]
        parts.append(b"".join(self.bits))  # one part for all, since each part has a cost of its own
        parts += [memoryview(data)[offsets[0] : offsets[-1]] for offsets, data in self.var]
        position += sum(memoryview(part).nbytes for part in parts[start:])
        for _, item in self.lists:
            position = item._below(parts, position)
        for cases in self.boxes:
            for tag in sorted(cases):
                position = cases[tag]._below(parts, position)
        return position

    def _below(self, parts: list[Bytes], position: int) -> int:
        padding = -position % 8
        parts.append(_ZEROS[:padding])
        return self.write(parts, position + padding)

    def _shared_offsets(self, base: int) -> npt.NDArray[np.int32]:
        """One run of V·n + 1 offsets: each column begins where the one before ends, and the first at `base`."""
        total = sum(int(offsets[-1]) - int(offsets[0]) for offsets, _ in self.var)
        limits.require("BATCH_BYTES", base + total, "the bytes of a batch")
        shared = np.empty(len(self.var) * self.n + 1, OFFSET)
        for slot, (offsets, _) in enumerate(self.var):
            np.add(offsets, base - int(offsets[0]), out=shared[slot * self.n : (slot + 1) * self.n + 1])
            base += int(offsets[-1]) - int(offsets[0])
        return shared


_NO_OFFSETS = np.zeros(1, OFFSET)


def pack_bits(flags: npt.ArrayLike) -> bytes:
    """Booleans as a bit column."""
    return np.packbits(np.asarray(flags, np.bool_), bitorder="little").tobytes()
