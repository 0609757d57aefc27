"""Strings and bytes: Arrow arrays, and their offsets and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from milepost.query.like import ANY, Pattern
from milepost.query.mask.vector import Array, Bools, Vector

_POSITIONS: Final = (1 << 31) - 1  # greater positions are after the end of any string in a batch


def bools(result: Any) -> Bools:
    """The booleans of an Arrow function as a NumPy array; Arrow packs eight into a byte."""
    packed = np.frombuffer(result.buffers()[1], np.uint8)
    start = result.offset
    found = np.unpackbits(packed, count=start + len(result), bitorder="little").view(np.bool_)
    return found[start:] if start else found


def raw(texts: pa.Array) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """The n + 1 offsets and the bytes of an array."""
    _, offsets, data = texts.buffers()
    span = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return span, np.frombuffer(data, np.uint8) if data is not None else np.zeros(0, np.uint8)


def text_bytes(vector: Vector, n: int) -> int:
    """How many bytes a vector of strings or bytes has, spread over n rows."""
    if vector.constant:
        return n * len(vector.values.as_buffer())
    offsets, _ = raw(vector.values)
    return int(offsets[-1]) - int(offsets[0])


def _recased(first: int, shift: int) -> Callable[[pa.Array], pa.Array]:
    """A change of case: of the 26 ASCII letters from `first` on, by `shift`. Other characters have other bytes."""

    def recased(texts: pa.Array) -> pa.Array:
        offsets, data = raw(texts)
        if not len(texts):
            return texts
        mine = data[offsets[0] : offsets[-1]]
        changed = mine + np.where(mine - np.uint8(first) < 26, np.uint8(shift % 256), np.uint8(0))
        moved = offsets - offsets[0]
        return pa.Array.from_buffers(texts.type, len(texts), [None, pa.py_buffer(moved), pa.py_buffer(changed)])

    return recased


lower: Final = _recased(ord("A"), 32)
upper: Final = _recased(ord("a"), -32)


def length(texts: pa.Array) -> Array:
    """Code points of strings, bytes of bytes."""
    count = pc.binary_length if texts.type == pa.binary() else pc.utf8_length
    return count(texts).to_numpy()  # type: ignore[no-any-return]


def substring(texts: pa.Array, start: int, size: int | None = None) -> pa.Array | None:
    """The code points from position `start`, counted from 1; None for a negative size."""
    first = min(max(start - 1, 0), _POSITIONS)
    if size is None:
        return pc.utf8_slice_codeunits(texts, first)
    if size < 0:
        return None
    end = min(max(start - 1 + size, 0), _POSITIONS)
    return pc.utf8_slice_codeunits(texts, first, max(first, end))


def position(texts: pa.Array, part: str) -> Array:
    """The position where a text first occurs, in code points from 1; 0 when it does not."""
    found = pc.find_substring(texts, part).to_numpy().astype(np.int64)
    if not len(found):
        return found  # type: ignore[no-any-return]
    offsets, data = raw(texts)
    # Arrow returns a position in bytes: subtract the bytes before it that continue a code point.
    before = np.zeros(len(data) + 1, np.int64)
    np.cumsum((data & 0xC0) == 0x80, out=before[1:])
    starts = offsets[:-1].astype(np.int64)
    places = starts + np.maximum(found, 0)
    return found - (before[places] - before[starts]) + 1  # type: ignore[no-any-return]


def matcher(pattern: Pattern) -> Callable[[pa.Array], Bools]:
    """A `like` pattern as a function of an array.

    Patterns of one or two pieces need no automaton. The others use RE2, which is linear like the reference's matcher
    (it builds an automaton and never backtracks) and runs outside Python.
    """
    pieces = pattern.pieces
    match pieces:
        case (whole,):
            scalar = pa.scalar(whole, pa.string())
            return lambda texts: bools(pc.equal(texts, scalar))
        case ("", ""):
            return lambda texts: np.ones(len(texts), np.bool_)
        case (start, ""):
            return lambda texts: bools(pc.starts_with(texts, start))
        case ("", end):
            return lambda texts: bools(pc.ends_with(texts, end))
        case (start, end):
            return _around(start, end)
        case ("", inside, ""):
            return lambda texts: bools(pc.match_substring(texts, inside))
    expression = _expression(pattern)
    return lambda texts: bools(pc.match_substring_regex(texts, expression))


def _around(start: str, end: str) -> Callable[[pa.Array], Bools]:
    least = len(start.encode()) + len(end.encode())  # else the two would overlap

    def matches(texts: pa.Array) -> Bools:
        offsets, _ = raw(texts)
        found = bools(pc.starts_with(texts, start)) & (offsets[1:] - offsets[:-1] >= least)
        return found & bools(pc.ends_with(texts, end)) if found.any() else found

    return matches


_SPECIAL: Final = frozenset(r"\.+*?()|[]{}^$")


def _expression(pattern: Pattern) -> str:
    """The pattern in RE2's notation."""
    parts = []
    for position, character in enumerate(pattern.characters):
        if position in pattern.runs:
            parts.append(".*")
        parts.append("." if character is ANY else f"\\{character}" if character in _SPECIAL else character)
    if len(pattern.characters) in pattern.runs:
        parts.append(".*")
    return rf"(?s)\A{''.join(parts)}\z"
