"""The bodies of ZeroMQ messages: requests in BSON or JSON, and answers in the encoding of the request.

A body is a document {"msg_type": …, "payload": {…}}. docs/zeromq.md shows all of them.
"""

from __future__ import annotations

from base64 import b64decode
from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import bson
import msgspec
from bson.codec_options import CodecOptions
from bson.errors import BSONError
from msgspec import Meta

from milepost import limits
from milepost.errors import InvalidValue
from milepost.gateway.zmq.refusal import Refusal, not_understood

Encoding: TypeAlias = Literal["bson", "json"]
BODY_BYTES: Final = 4 << 20  # of a request: a message of a megabyte in base64 in JSON, and some reserve
POLL_MS: Final = 60_000  # the longest wait of a get

_Id: TypeAlias = Annotated[str, Meta(min_length=1, max_length=limits.NAME_CHARS)]
_Uuid: TypeAlias = Annotated[str, Meta(min_length=32, max_length=45)]  # as printed, with braces or "urn:uuid:"


class PutRequest(msgspec.Struct, frozen=True):
    """Put a message: bytes, or an object for topics with their own schema."""

    pub_id: _Id
    topic: _Id
    message_uuid: _Uuid
    payload: Any


class GetRequest(msgspec.Struct, frozen=True):
    """Hand out the next message; the same one until it is acknowledged."""

    sub_id: _Id
    topic: _Id
    timeout_ms: Annotated[int, Meta(ge=0, le=POLL_MS)] = 0  # how long to wait for a message


class AckRequest(msgspec.Struct, frozen=True):
    """Acknowledge a message."""

    sub_id: _Id
    message_no: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
    topic: _Id | None = None  # optional; it helps a broker that was just started


class SubRequest(msgspec.Struct, frozen=True):
    """Subscribe, from the next message on."""

    sub_id: _Id
    topic: _Id
    request_uuid: _Uuid | None = None  # the same for a repetition


class UnsubRequest(msgspec.Struct, frozen=True):
    """Remove the subscription."""

    sub_id: _Id
    request_uuid: _Uuid | None = None


Request: TypeAlias = PutRequest | GetRequest | AckRequest | SubRequest | UnsubRequest
_KINDS: Final[dict[str, type[Request]]] = {
    "PUT": PutRequest,
    "GET": GetRequest,
    "ACK": AckRequest,
    "SUB": SubRequest,
    "UNSUB": UnsubRequest,
}
NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_CODEC: Final[CodecOptions[dict[str, Any]]] = CodecOptions(tz_aware=True)
_JSON: Final = msgspec.json.Decoder()
_TO_JSON: Final = msgspec.json.Encoder()


def encoding_of(body: bytes) -> Encoding:
    """The encoding of a body. BSON begins with its length; no JSON text has the length that its first four bytes
    encode.
    """
    return "bson" if int.from_bytes(body[:4], "little") == len(body) and body[-1:] == b"\0" else "json"


def read_request(body: bytes, encoding: Encoding) -> Request:
    """Parse a body. Raises `Refusal` with the reason."""
    whole = _document(body, encoding)
    name = whole.get("msg_type")
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        raise not_understood(f"msg_type is {_quoted(name)}; it must be one of {', '.join(_KINDS)}")
    fields = whole.get("payload")
    if encoding == "bson" and isinstance(fields, bytes):  # a document within a document, serialised separately
        fields = _document(fields, encoding)
    try:
        return msgspec.convert(fields, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise not_understood(f"the payload of {name} is not right: {error}; see docs/zeromq.md") from None


def _document(body: bytes, encoding: Encoding) -> dict[str, Any]:
    try:
        found = bson.decode(body, _CODEC) if encoding == "bson" else _JSON.decode(body)
    # From hostile bytes `bson` also makes dates, regular expressions and texts that Python refuses with a ValueError.
    except (BSONError, msgspec.DecodeError, ValueError, RecursionError, OverflowError, TypeError) as error:
        raise not_understood(f"this is neither BSON nor JSON: {error}") from None
    if not isinstance(found, dict):
        raise not_understood("a body is a document with msg_type and payload")
    return found


def _quoted(value: Any) -> str:
    if value is None:
        return "missing"
    text = repr(value) if isinstance(value, str | int | float) else f"a {type(value).__name__}"
    return text if len(text) <= 80 else f"{text[:77]}..."


def uuid_bytes(text: str) -> bytes:
    """The 16 bytes of a UUID in one of its written forms."""
    try:
        return UUID(text).bytes
    except ValueError:
        raise not_understood(f"{_quoted(text)} is not a UUID such as 2f1e9a0c-…") from None


def payload_bytes(value: Any, encoding: Encoding) -> bytes | None:
    """The payload of a PUT as bytes; None when it is an object.

    BSON has a type for bytes; an array of numbers is accepted too, since some languages write that. JSON has base64.
    """
    if isinstance(value, dict):
        return None
    if encoding == "bson":
        if isinstance(value, bytes) or (
            isinstance(value, list) and all(type(each) is int and 0 <= each <= 255 for each in value)
        ):
            return bytes(value)
        raise InvalidValue("it takes binary data, an array of numbers from 0 to 255, or a document", "payload")
    if not isinstance(value, str):
        raise InvalidValue("it takes base64 text or an object", "payload")
    try:
        return b64decode(value, validate=True)
    except ValueError as error:
        raise InvalidValue(f"this is not base64: {error}", "payload") from None


def write_reply(request: Request, fields: dict[str, Any], encoding: Encoding) -> bytes:
    """An answer. Its msg_type is the type of the request."""
    return _written(NAMES[type(request)], fields, encoding)


def write_error(refused: Refusal, broker_id: str, encoding: Encoding) -> bytes:
    """An answer with an error."""
    told: dict[str, Any] = {
        "error_type": refused.name,
        "broker_id": broker_id,
        "description": refused.description,
        "code": refused.code,
        "retry": refused.retry,
    }
    if refused.message_no is not None:
        told["message_no"] = refused.message_no
    return _written("ERROR", told, encoding)


def _written(name: str, fields: dict[str, Any], encoding: Encoding) -> bytes:
    whole = {"msg_type": name, "payload": fields}
    return _TO_JSON.encode(whole) if encoding == "json" else bson.encode(whole)
