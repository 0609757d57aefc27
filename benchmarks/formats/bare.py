"""The floor: sixteen ints in a row, read by `struct` with an offset that never changes. No format, no strings."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from benchmarks.formats.format import Format, Reader
from benchmarks.messages import FIELDS, Values

_ALL = struct.Struct(f"<{FIELDS}i")
_ONE = struct.Struct("<i").unpack_from


class Bare(Format):
    """A function around `unpack_from`, called like every other reader. Absent ints are zeros here."""

    name = "struct"

    def write(self, values: Values) -> bytes:
        return _ALL.pack(*(value or 0 for value in values))

    def reader(self, field: int) -> Reader:
        offset = 4 * field

        def read(data: bytes) -> int:
            value: int = _ONE(data, offset)[0]
            return value

        return read

    def projection(self, fields: Sequence[int]) -> Reader:
        """One call: the ints that are not wanted become padding."""
        if list(fields) != sorted(fields):
            raise ValueError("struct reads forwards: sort the fields")
        return struct.Struct("<" + "".join("i" if i in fields else "4x" for i in range(FIELDS))).unpack_from
