"""The state of an engine as bytes, which Spark keeps for a shard between two micro-batches.

::

    0   4  "MPT2"
    4   2  version of this layout: 1
    6   2  0
    8  16  fingerprint of the rules
    24  8  watermark, microseconds, signed
    32  4  number of sections
    36  4  CRC-32 of all that follows
    40     sections, each: 4 bytes length of its name, 4 bytes 0, 8 bytes length of its data, name, data.
           Name and data are padded with zeros to multiples of 8, so that Arrow reads numbers without a copy.

Little-endian. The data of a section is an Arrow IPC stream. Other bytes raise `MalformedBatch`. A state of other rules
raises `ConfigError`, because the pipeline or its checkpoint has to change.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from milepost.errors import ConfigError, MalformedBatch
from milepost.pipeline.tier2.pack import stream, unpack

_MAGIC: Final = b"MPT2"
_VERSION: Final = 1
_HEADER: Final = struct.Struct("<4sHH16sqII")
_SECTION: Final = struct.Struct("<IIQ")


@dataclass(frozen=True)
class StoredState:
    """The content of a state: its watermark, and tables by name."""

    watermark: int
    tables: dict[str, pa.Table]


def write(fingerprint: bytes, watermark: int, tables: dict[str, pa.Table]) -> bytes:
    """The bytes of a state; equal for equal tables."""
    pieces: list[bytes | memoryview] = []
    for name, table in tables.items():
        label, data = name.encode(), stream(table)
        pieces += [_SECTION.pack(len(label), 0, len(data)), label, _filling(len(label)), data, _filling(len(data))]
    check = 0
    for piece in pieces:
        check = zlib.crc32(piece, check)
    return b"".join([_HEADER.pack(_MAGIC, _VERSION, 0, fingerprint, watermark, len(tables), check), *pieces])


def read(state: bytes, fingerprint: bytes) -> StoredState:
    """The tables, read from `state` without a copy."""
    view = memoryview(state)
    if len(view) < _HEADER.size or bytes(view[:4]) != _MAGIC:
        raise MalformedBatch("these bytes are not a state of tier 2; start from a new checkpoint")
    _, version, _, rules, watermark, sections, check = _HEADER.unpack_from(view)
    if version != _VERSION:
        raise MalformedBatch(
            f"this state of tier 2 has version {version}, not {_VERSION}; use the program that wrote it"
        )
    if rules != fingerprint:
        raise ConfigError("this state was made by other rules; use the previous rules, or a new checkpoint")
    if zlib.crc32(view[_HEADER.size :]) != check:
        raise MalformedBatch("this state of tier 2 is damaged: its checksum is wrong; restore its checkpoint")
    tables: dict[str, pa.Table] = {}
    at = _HEADER.size
    for _ in range(sections):
        if at + _SECTION.size > len(view):
            raise MalformedBatch("this state of tier 2 ends in the middle of a section")
        label, _, length = _SECTION.unpack_from(view, at)
        name = at + _SECTION.size
        data = name + label + len(_filling(label))
        at = data + length + len(_filling(length))
        if at > len(view):
            raise MalformedBatch("this state of tier 2 ends in the middle of a section")
        tables[bytes(view[name : name + label]).decode(errors="replace")] = unpack(view[data : data + length])
    if at != len(view):
        raise MalformedBatch("this state of tier 2 has bytes after its last section")
    return StoredState(watermark, tables)


def _filling(length: int) -> bytes:
    return b"\0" * (-length % 8)
