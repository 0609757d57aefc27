"""Operations of publishers: enrolment and appended rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from milepost.errors import MilepostError
from milepost.operations.records import Part
from milepost.schema import Schema


class Enrol(NamedTuple):
    """Enrol a publisher. Outcome: `Enrolled`, or None when it is not known and `create` is False.

    From here on appends of another process under the same key are refused: its epoch has ended.
    """

    key: str  # its name; without a name, "~" and its instance in hexadecimal digits
    number: int  # drawn at random; a known publisher keeps its own; a number in use is replaced by a free one
    create: bool = True


class Enrolled(NamedTuple):
    """An enrolled publisher."""

    number: int
    high_water: int  # the highest committed stamp


class Append(NamedTuple):
    """Store all rows of one publisher, or none. Outcome: `Appended`. Stamps increase over all parts.

    Rows with stamps up to the publisher's high water are stored already, and are not stored again. `Fenced` when
    another process has enrolled the publisher; `DuplicateMessage` when `token` is remembered for one of the topics.
    """

    publisher: int  # the number of an enrolled publisher
    parts: tuple[Part, ...]
    token: bytes = b""  # 16 bytes, remembered for each topic, for the configured time; empty: none


class Appended(NamedTuple):
    """The outcome of an `Append`."""

    stored: int  # rows that were stored now
    repeated: int  # rows that were stored already


class AppendRows(NamedTuple):
    """Rows of many publishers for one topic; each is stored or refused by itself. Outcome: `AppendedRows`.

    The same as an `Append` for each row, in this order, at a fraction of the cost. The caller has checked that each of
    the bytes is a batch of one row of the schema, with the given ID. The session is a tuple of the rows' sessions.
    """

    topic: int
    schema: Schema
    publishers: Sequence[int]
    stamps: Sequence[int]
    datas: Sequence[bytes]
    refused: Mapping[int, MilepostError] = MappingProxyType({})  # by index: rows that must not be stored


class AppendedRows(NamedTuple):
    """The outcome of an `AppendRows`: all rows that are not refused are stored."""

    refused: Mapping[int, MilepostError]  # by index
    repeated: int  # rows that were stored already
