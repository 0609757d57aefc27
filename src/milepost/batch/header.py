"""The header of a batch: its first sixteen bytes.

::

    ┌─────────────┬───────────────────────────┬──────────────────┐
    │ CRC-32  u32 │ rows 24 bits │ flags 8     │ fingerprint  u64 │   then the groups, then the IDs
    └─────────────┴───────────────────────────┴──────────────────┘

    In a schema with variants, the cases that occur follow:
    ┌─────────────┬───────────────────┬──────────────────────────────────────────┐
    │ groups  u32 │ code u32 × groups │ group of each row u8 × rows, if groups>1 │ zeros to the next multiple of 8
    └─────────────┴───────────────────┴──────────────────────────────────────────┘
    One group takes eight bytes here, so its fields stay at constant offsets. Zero groups mean the boxed form, with
    one code, 0.

All numbers are little-endian. The checksum covers all bytes after it. It finds a flipped bit even where any bytes are
valid, and the log needs no checksum of its own.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from milepost import limits
from milepost.batch.checksum import crc32
from milepost.errors import MalformedBatch

HEADER: Final = struct.Struct("<IIQ")
VERSION: Final = 1  # low four bits of the flags
WITH_IDS: Final = 0x10  # stamps and runs follow the groups
_KNOWN_FLAGS: Final = 0x0F | WITH_IDS

Buffer = bytes | bytearray | memoryview


class Header(NamedTuple):
    """The header without its checksum and flags."""

    rows: int
    with_ids: bool
    fingerprint: int


def seal(parts: Sequence[Any], rows: int, with_ids: bool, fingerprint: int, draft: bool = False) -> bytes:
    """Header and body as one batch; `parts` are the buffers of the body, joined here and only once.

    A draft, whose rows will be written again, has no checksum: that takes a third of the time.
    """
    flags = VERSION | (WITH_IDS if with_ids else 0)
    head = HEADER.pack(0, rows | flags << 24, fingerprint)[4:]
    checksum = 0
    if not draft:
        checksum = crc32(head)
        for part in parts:
            checksum = crc32(part, checksum)
    return b"".join((checksum.to_bytes(4, "little"), head, *parts))


def unseal(data: Buffer, fingerprint: int, name: str) -> Header:
    """Check the checksum, and the header against the schema `name` that the reader expects."""
    if len(data) < HEADER.size:
        raise MalformedBatch(f"{len(data)} bytes are too few: a batch has a header of {HEADER.size}")
    limits.require("BATCH_BYTES", len(data), "the bytes of a batch")
    checksum, word, found = HEADER.unpack_from(data)
    flags = word >> 24
    if flags & 0x0F != VERSION or flags & ~_KNOWN_FLAGS:
        raise MalformedBatch(f"flags {flags:#04x} are not of format version {VERSION}")
    if found != fingerprint:
        raise MalformedBatch(
            f"the batch is of schema {found:016x}, not of {name} ({fingerprint:016x}); "
            "decode it with the schema it was written with, then read_as() another version"
        )
    if crc32(memoryview(data)[4:]) != checksum:
        raise MalformedBatch("the checksum does not match: the bytes were changed in transit")
    return Header(word & limits.BATCH_ROWS, bool(flags & WITH_IDS), found)


def fingerprint_of(data: Buffer) -> int:
    """The fingerprint in the header of a batch that is not checked yet."""
    if len(data) < HEADER.size:
        raise MalformedBatch(f"{len(data)} bytes are too few: a batch has a header of {HEADER.size}")
    return int(HEADER.unpack_from(data)[2])


def rows_of(data: Buffer) -> int:
    """The row count in the header of a batch that is not checked yet, but has at least a header's length."""
    return int(HEADER.unpack_from(data)[1]) & limits.BATCH_ROWS
