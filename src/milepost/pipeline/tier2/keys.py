"""Groups of rows with equal keys, as small numbers. Null is a value like any other: rows without a key are a group."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.errors import ConfigError
from milepost.pipeline.tier2.columns import Ints, as_type, comparable, numbers, valid

_ROOM = 1 << 62  # bound of the combined codes of two columns: int64 without the sign


class RowGroups(NamedTuple):
    """The group of each row, numbered from 0 in the order of first occurrence, and the first row of each group."""

    codes: Ints
    firsts: Ints

    def __len__(self) -> int:  # the number of groups
        return len(self.firsts)


def check_key(rule: str, name: str, kind: pa.DataType) -> None:
    """Refuse types with parts, and the few other types that Arrow does not hash."""
    if not comparable(kind):
        raise ConfigError(f"rule {rule!r}: {name!r} is a {kind}, which cannot be a key; use a field of it")


def group(keys: list[pa.Array], rows: int) -> RowGroups:
    """Group the rows by their keys. Without keys all rows are one group."""
    if not keys:
        return RowGroups(np.zeros(rows, np.int64), np.zeros(min(rows, 1), np.int64))
    codes, size = _encoded(keys[0])
    for key in keys[1:]:
        more, other = _encoded(key)
        if size * other > _ROOM:
            codes, size = _encoded(pa.array(codes))
        codes, size = codes * other + more, size * other
    if len(keys) > 1:
        return group_codes(codes)
    return RowGroups(codes, _firsts(codes, size))


def group_codes(codes: Ints) -> RowGroups:
    """Group rows by a number that each row has."""
    found, size = _encoded(pa.array(codes))
    return RowGroups(found, _firsts(found, size))


def canonical(key: pa.Array) -> pa.Array:
    """The key with one zero: -0.0 and 0.0 are one group, whichever came first."""
    if pa.types.is_floating(key.type) and len(key):
        present = valid(key)
        return as_type(numbers(key), key.type, None if present is None else ~present)
    return key


def order_by(codes: Ints, size: int) -> npt.NDArray[np.intp]:
    """Stable order by codes below `size`: 16 bits at a time, which NumPy sorts by counting."""
    order = np.argsort((codes & 0xFFFF).astype(np.uint16), kind="stable")
    shift = 16
    while size > 1 << shift:
        order = order[np.argsort(((codes >> shift) & 0xFFFF).astype(np.uint16)[order], kind="stable")]
        shift += 16
    return order


def _encoded(array: pa.Array) -> tuple[Ints, int]:
    encoded = pc.dictionary_encode(canonical(array), null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), len(encoded.dictionary)


def _firsts(codes: Ints, size: int) -> Ints:
    firsts = np.full(size, len(codes), np.int64)
    np.minimum.at(firsts, codes, np.arange(len(codes), dtype=np.int64))
    return firsts
