"""Publishers, and the rows that they append."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from milepost.errors import MilepostError
from milepost.operations.records import Part
from milepost.schema import Schema


class Enrol(NamedTuple):
    """A publisher says hello: `Enrolled`, or None when it is not known and `create` is False.

    From here on appends of another process under the same key are refused: its epoch is over.
    """

    key: str  # its name; of one without a name, "~" and its instance in hexadecimal digits
    number: int  # drawn at random; a publisher that is known keeps its own, and one in use is replaced by another
    create: bool = True


class Enrolled(NamedTuple):
    """A publisher as the store knows it."""

    number: int
    high_water: int  # the highest stamp that is committed


class Append(NamedTuple):
    """Rows of one publisher, stored all or none: `Appended`. Their stamps increase over all parts.

    Rows whose stamps are not above the publisher's high water are stored already, and not stored again. `Fenced` when
    another process has enrolled the publisher; `DuplicateMessage` when `token` was seen before in one of the topics.
    """

    publisher: int  # the number of an enrolled publisher
    parts: tuple[Part, ...]
    token: bytes = b""  # 16 bytes, remembered for each topic and the configured time; empty: none


class Appended(NamedTuple):
    """What became of the rows of an `Append`."""

    stored: int  # rows
    repeated: int  # rows that were stored already


class AppendRows(NamedTuple):
    """A row each of many publishers for one topic, every one of them stored or not by itself: `AppendedRows`.

    The same as an `Append` for each, in this order, for a fraction of the steps. The bytes were checked to be batches
    of one row of the schema, with the ID that is given here. Its session is a tuple of those of its rows.
    """

    topic: int
    schema: Schema
    publishers: Sequence[int]
    stamps: Sequence[int]
    datas: Sequence[bytes]
    refused: Mapping[int, MilepostError] = MappingProxyType({})  # rows, by their places, that are not to be stored


class AppendedRows(NamedTuple):
    """What became of the rows of an `AppendRows`: those that are not refused are stored."""

    refused: Mapping[int, MilepostError]  # by their places
    repeated: int  # rows that were stored already
