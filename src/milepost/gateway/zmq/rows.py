"""Converts between messages and the payloads of ZeroMQ bodies.

A topic made by a ZeroMQ client has the schema `post: [payload: bytes]`, and its payloads are bytes. Messages of other
topics are objects with the fields of their schema.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import bson
import msgspec
from bson.raw_bson import RawBSONDocument

from milepost.batch import Batch
from milepost.errors import CheckFailed, InvalidValue, MilepostError
from milepost.gateway.values import converter, plain_rows, to_bson, to_json
from milepost.gateway.zmq.bodies import Encoding
from milepost.query import encode, parse_schema
from milepost.schema import Schema

POST_SCHEMA: Final = "post: [payload: bytes]"
DYNAMIC_CHARS: Final = 2_000  # of the schemas in a message: the broker's event loop parses them, in 40 ms
_POST: Final = parse_schema(POST_SCHEMA).type


def encoded(versions: Sequence[Schema], value: Any) -> Batch:
    """An object of a request in the newest version that accepts it. Raises the error of the newest one when none
    does.
    """
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
    """A message as the encoded payload of an answer. Raises `InvalidValue` when the encoding cannot represent it."""
    try:
        (message,) = plain_rows(batch.slice(row, row + 1))
        if batch.schema.type == _POST:
            message = message["payload"]
        if encoding == "json":
            return msgspec.Raw(to_json(message))
        return message if isinstance(message, bytes) else RawBSONDocument(bson.encode(to_bson(message)))
    except RecursionError:
        raise InvalidValue("it is nested too deep for this encoding") from None
    except Exception as error:
        raise InvalidValue(f"this encoding does not take it: {error}") from error
