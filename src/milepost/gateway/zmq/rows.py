"""Messages <-> the payloads of ZeroMQ bodies.

A topic made by a ZeroMQ client holds `post: [payload: bytes]`, and its payloads are bytes. Messages of other topics are
objects with the fields of their schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from milepost.batch import Batch
from milepost.errors import CheckFailed, InvalidValue, MilepostError
from milepost.gateway.values import converter, plain_rows, to_bson, to_json
from milepost.gateway.zmq.bodies import Encoding
from milepost.query import encode, parse_schema
from milepost.schema import Schema

POST_SCHEMA: Final = "post: [payload: bytes]"
DYNAMIC_CHARS: Final = 2_000  # of the schemas in a message: they are parsed in the broker's event loop, in 40 ms
_POST: Final = parse_schema(POST_SCHEMA).type


def encoded(versions: Sequence[Schema], value: Any) -> Batch:
    """An object of a request in the newest version that takes it; what the newest has against it, if none does."""
    refused: MilepostError = InvalidValue("no version of the topic's schema is known")
    for schema in reversed(versions):
        try:
            return encode(schema, [converter(schema, schema_chars=DYNAMIC_CHARS)(value)])
        except RecursionError:
            raise InvalidValue("the object is nested too deep") from None
        except (InvalidValue, CheckFailed) as error:
            refused = error if schema is versions[-1] else refused
    raise refused


def shown(batch: Batch, row: int, encoding: Encoding) -> Any:
    """A message as the payload of an answer."""
    try:
        (message,) = plain_rows(batch.slice(row, row + 1))
        if batch.schema.type == _POST:
            message = message["payload"]
        return to_bson(message) if encoding == "bson" else msgspec.Raw(to_json(message))
    except RecursionError:
        raise InvalidValue("the message is nested too deep for this encoding: get it with a native client") from None
