"""Tables as bytes, and the assignment of rows to shards by their keys.

The shard of a key is the same on every machine and in every run, because the stored state of a shard must meet the rows
that belong to it.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from milepost.errors import ConfigError, MalformedBatch
from milepost.pipeline.tier2.columns import Ints, column, numbers, valid
from milepost.pipeline.tier2.keys import check_key, order_by

SHARDS: Final = 65_536  # more than the cores of any cluster; a shard's number has 16 bits here
_NULL: Final = np.uint64(0x9E3779B97F4A7C15)


def pack(table: pa.Table) -> bytes:
    """An Arrow IPC stream; the same bytes for equal tables with equal chunks."""
    return bytes(stream(table))


def stream(table: pa.Table) -> memoryview:
    """The same, without the copy to bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return memoryview(sink.getvalue())


def unpack(data: bytes | memoryview) -> pa.Table:
    """The table of an Arrow IPC stream, without a copy: it keeps `data` alive."""
    try:
        with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError) as error:
        raise MalformedBatch(f"these bytes are not an Arrow stream: {error!s:.200}") from None


def shard(table: pa.Table, keys: Sequence[str], shards: int) -> list[Ints]:
    """The rows of each shard, ascending. Rows with equal keys are in one shard; without keys all rows are in one."""
    if not 1 <= shards <= SHARDS:
        raise ConfigError(f"the number of shards must be from 1 to {SHARDS}, not {shards}")
    mixed = np.zeros(table.num_rows, np.uint64)
    for key in keys:
        if key not in table.schema.names:
            raise ConfigError(f"there is no column {key!r} to assign rows to shards by")
        check_key("shard", key, table.schema.field(key).type)
        mixed = _mix(mixed * np.uint64(31) + _hashed(column(table, key)))
    places = (mixed % np.uint64(shards)).astype(np.int64)
    order = order_by(places, shards).astype(np.int64)
    return np.split(order, np.cumsum(np.bincount(places, minlength=shards))[:-1])


def _hashed(key: pa.Array) -> npt.NDArray[np.uint64]:
    """A 64-bit hash of each value. Equal integers of different widths hash alike, and so do the two zeros."""
    kind = key.type
    if pa.types.is_floating(kind):
        hashes = _mix(numbers(key).astype(np.float64).view(np.uint64))
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind) or (pa.types.is_temporal(kind) and _short(kind)):
        hashes = _mix(numbers(key).astype(np.int64, copy=False).view(np.uint64))
    else:
        encoded = key.dictionary_encode()  # the loop is over distinct values only
        told = [_bytes(value) for value in encoded.dictionary.to_pylist()] or [b""]
        each = np.fromiter((zlib.crc32(text) for text in told), np.uint64, len(told))
        hashes = _mix(each + np.fromiter(map(len, told), np.uint64, len(told)))[numbers(encoded.indices)]
    present = valid(key)
    return hashes if present is None else np.where(present, hashes, _NULL)


def _short(kind: pa.DataType) -> bool:
    return bool(kind.bit_width <= 64)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _mix(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """Spreads differences in few bits over all bits: the finalizer of SplitMix64."""
    value = value + np.uint64(0x9E3779B97F4A7C15)
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return value ^ (value >> np.uint64(31))
