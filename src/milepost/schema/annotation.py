"""Annotations for what Python's own types cannot express in a dataclass: widths, digits, cases and names.

::

    @dataclass
    class Quote:
        symbol: str
        size: Int32                                         # `int` alone is 64 bits wide, `float` a double
        price: Annotated[Decimal, DecimalOf(10, 2)]
        note: Annotated[str, Case("text")] | Annotated[bytes, Case("image")] | None
"""

from __future__ import annotations

import datetime
import decimal
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeAlias, cast

from milepost.schema import types

Int8: TypeAlias = Annotated[int, types.INT8]
Int16: TypeAlias = Annotated[int, types.INT16]
Int32: TypeAlias = Annotated[int, types.INT32]
Int64: TypeAlias = Annotated[int, types.INT64]
UInt8: TypeAlias = Annotated[int, types.UINT8]
UInt16: TypeAlias = Annotated[int, types.UINT16]
UInt32: TypeAlias = Annotated[int, types.UINT32]
UInt64: TypeAlias = Annotated[int, types.UINT64]
Ident: TypeAlias = Annotated[int, types.IDENT]
Float32: TypeAlias = Annotated[float, types.FLOAT]

# What a Python type means when it is not annotated.
UNANNOTATED: Final[Mapping[Any, types.Type]] = {
    bool: types.BOOL,
    int: types.INT64,
    float: types.DOUBLE,
    decimal.Decimal: types.decimal(),
    str: types.STRING,
    bytes: types.BYTES,
    datetime.date: types.DATE,
    datetime.datetime: types.TIMESTAMP,
    uuid.UUID: types.UUID,
    Any: types.DYNAMIC,
}
# The annotation above for each atomic type that has no Python type of its own.
ANNOTATED: Final[Mapping[types.Type, str]] = {
    types.INT8: "Int8",
    types.INT16: "Int16",
    types.INT32: "Int32",
    types.UINT8: "UInt8",
    types.UINT16: "UInt16",
    types.UINT32: "UInt32",
    types.UINT64: "UInt64",
    types.IDENT: "Ident",
    types.FLOAT: "Float32",
}


def DecimalOf(precision: int, scale: int) -> types.Atom:
    """Marks a decimal with its total digits and its digits after the point.

    `Annotated[Decimal, DecimalOf(10, 2)]` goes up to 99,999,999.99.
    """
    return types.decimal(precision, scale)


@dataclass(frozen=True, slots=True)
class Case:
    """Marks `Annotated[int, Case("size")]`: a case of a variant, with its name. A dataclass needs no mark."""

    name: str


@dataclass(frozen=True, slots=True)
class Named:
    """Marks `Annotated[list[str], Named("tags")]`: a definition of that name. The field refers to it."""

    name: str


def annotated(hint: Any, *marks: Any) -> Any:
    """`Annotated[hint, *marks]` for marks known only at run time; the hint itself when there are none."""
    return cast(Any, Annotated)[hint, *marks] if marks else hint
