"""A fast check of several rows of one publisher, where the full validation walks a schema.

Only for flat-tuples of atoms, and for text in ASCII. All other batches, valid or not, are left to the full validation,
which raises the errors.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import numpy as np

from milepost import limits
from milepost.batch import atoms
from milepost.batch.block import DTYPES, OFFSET
from milepost.batch.checksum import crc32
from milepost.batch.header import HEADER, VERSION, WITH_IDS, Buffer
from milepost.batch.layout import Layout

FLAGS: Final = VERSION | WITH_IDS
_RUN: Final = struct.Struct("<IIII")  # one run, the row after its last, publisher, broker


class FlatParts(NamedTuple):
    """The parts of a valid batch: positions in its bytes."""

    rows: int
    end: int  # end of the columns
    ids: int  # start of the stamps


class FlatValidator:
    """Checks batches of one layout, which has only atoms."""

    def __init__(self, layout: Layout, fingerprint: int) -> None:
        flat = layout.flat
        self.layout: Final = layout
        self._fingerprint = fingerprint
        self._var, self._strings, self._bits = len(flat.var), flat.strings, len(flat.bits)
        # The columns in which some numbers are invalid; schemas with decimals are left to the full validation.
        kinds = [(shape, str(shape.type)) for shape in layout.ranged]
        self._ranges = [(shape, DTYPES[kind], *atoms.RANGES[kind]) for shape, kind in kinds if kind in atoms.RANGES]
        self._never = layout.empty or len(self._ranges) < len(kinds)

    def check(self, data: Buffer) -> FlatParts | None:
        """The parts of a batch that is valid; None leaves it to the full validation."""
        size = len(data)
        if self._never or not HEADER.size <= size <= limits.BATCH_BYTES:
            return None
        checksum, word, fingerprint = HEADER.unpack_from(data)
        n = word & limits.BATCH_ROWS
        if word >> 24 != FLAGS or fingerprint != self._fingerprint or n < 2:
            return None
        layout = self.layout
        end = start = HEADER.size + layout.data_at(n)
        if start > size or crc32(memoryview(data)[4:]) != checksum:
            return None
        if self._var:
            offsets = np.frombuffer(data, OFFSET, self._var * n + 1, HEADER.size + layout.var_at(n))
            end = int(offsets[-1])
            if end > size or offsets[0] != start or (offsets[1:] < offsets[:-1]).any():
                return None
            if self._strings and not bytes(data[start : int(offsets[self._strings * n])]).isascii():
                return None
        if self._bits and n & 7:
            for slot in range(self._bits):
                if data[HEADER.size + layout.bit_at(slot, n) + (n >> 3)] >> (n & 7):
                    return None
        for shape, dtype, low, high in self._ranges:
            column = np.frombuffer(data, dtype, n, HEADER.size + layout.fixed_at(shape, n))
            if column.min() < low or column.max() > high:
                return None
        ids = (end + 7) & ~7
        runs = ids + 8 * n
        if runs + _RUN.size != size or any(data[end:ids]) or _RUN.unpack_from(data, runs)[:2] != (1, n):
            return None
        return FlatParts(n, end, ids)
