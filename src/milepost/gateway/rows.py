"""Messages <-> the payloads of ZeroMQ bodies.

A topic made by a ZeroMQ client holds `post: [payload: bytes]`, and its payloads are bytes. Messages of other topics are
objects with the fields of their schema. BSON has types for bytes and times; in JSON they are text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import msgspec

from milepost.batch import Batch
from milepost.errors import CheckFailed, InvalidValue, MilepostError
from milepost.gateway.bodies import Encoding
from milepost.query import encode
from milepost.schema import Schema
from milepost.schema.flat import field_of
from milepost.schema.types import Atom, List, Optional, Tuple, Type

POST_SCHEMA: Final = "post: [payload: bytes]"

# Written as text in JSON, and where BSON has no type for them.
_TEXTS: Final[dict[str, type[Any]]] = {
    "bytes": bytes,
    "timestamp": datetime,
    "date": date,
    "uuid": UUID,
    "decimal": Decimal,
}
_LARGEST: Final = (1 << 63) - 1  # of BSON's integers


def fitted(schema: Schema, value: Any) -> Any:
    """An object of a request as a row: texts become what their fields hold. Fields that do not fit, the put refuses."""
    return _fitted(schema.type, value, "")


def encoded(versions: Sequence[Schema], value: Any) -> Batch:
    """An object of a request in the newest version that takes it; what the newest has against it, if none does."""
    refused: MilepostError = InvalidValue("no version of the topic's schema is known")
    for schema in reversed(versions):
        try:
            return encode(schema, [fitted(schema, value)])
        except (InvalidValue, CheckFailed) as error:
            refused = error if schema is versions[-1] else refused
    raise refused


def _fitted(kind: Type, value: Any, path: str) -> Any:
    match kind:
        case Atom(name) if name in _TEXTS and isinstance(value, str):
            try:
                return msgspec.convert(value, _TEXTS[name])
            except msgspec.ValidationError as error:
                raise InvalidValue(f"this is no {kind}: {error}", path) from None
        case Atom("double" | "float") if type(value) is int:
            return float(value)  # JSON has one kind of number
        case Optional(inner) if value is not None:
            return _fitted(inner, value, path)
        case List(inner) if isinstance(value, list):
            return [_fitted(inner, each, f"{path}[]") for each in value]
        case Tuple(fields) if isinstance(value, dict):
            known = {each.name: each.type for each in fields}
            return {
                name: _fitted(known[name], each, f"{path}.{name}" if path else name) if name in known else each
                for name, each in value.items()
            }
    return value


def shown(message: Mapping[str, Any], encoding: Encoding) -> Any:
    """A message as the payload of an answer."""
    if len(message) == 1 and isinstance(alone := field_of(message, "payload"), bytes):
        return alone
    return _shown(message, encoding)


def _shown(value: Any, encoding: Encoding) -> Any:
    match value:
        case str() | bytes() | bool() | float() | None:
            return value
        case int():
            return value if encoding == "json" or -_LARGEST <= value <= _LARGEST else str(value)
        case datetime():
            return value if encoding == "bson" else value.isoformat()
        case date() | UUID() | Decimal():
            return str(value)
        case Mapping():
            return {str(name): _shown(value[name], encoding) for name in value}  # `items` may be a field of it
        case Sequence():
            return [_shown(each, encoding) for each in value]
    return str(value)
