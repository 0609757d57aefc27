"""Converts JSON, `field=value` pairs and cells of a CSV file to values of a schema.

The forms of values are those of `gateway.values`. Printed values have their control characters spelt out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from milepost.cli.terminal import escaped_json
from milepost.errors import InvalidValue, did_you_mean
from milepost.gateway import values as forms
from milepost.gateway.values import Convert
from milepost.schema.types import INTEGER_RANGES, STRING, Atom, List, Optional, Ref, Schema, Tuple, Type, Variant


def from_text(schema: Schema, path: str) -> Convert:
    """A function that converts text to a value of one field: text after `field=`, or a cell of a CSV file.

    An empty text means that an optional field is absent. Lists, tuples and variants are written as JSON.
    """
    kind = _inside(schema, path)
    optional = isinstance(kind, Optional)
    if isinstance(kind, Optional):
        kind = kind.type
    while isinstance(kind, Ref):
        kind = schema.resolve(kind)
    convert = _text_converter(schema, kind, path)
    if optional:
        return lambda text: convert(text) if text else None
    return convert


def from_pairs(schema: Schema, pairs: Iterable[str]) -> dict[str, Any]:
    """A message from `field=value` pairs; `desk.floor=7` sets a field in a tuple."""
    message: dict[str, Any] = {}
    for pair in pairs:
        path, sign, text = pair.partition("=")
        if not sign:
            raise InvalidValue(f"{pair!r} is not a field=value; write {pair}=..., or the message as JSON")
        value = from_text(schema, path)(text)
        *outer, name = path.split(".")
        place = message
        for step in outer:
            place = place.setdefault(step, {})
        if name in place:
            raise InvalidValue("given twice", path)
        place[name] = value
    return message


def to_json(value: Any) -> bytes:
    """One message as a line of JSON, without the line feed."""
    return escaped_json(forms.to_json(value))


def to_json_lines(values: list[Any]) -> bytes:
    """Messages as lines of JSON."""
    return escaped_json(forms.to_json_lines(values))


def decoded(text: str | bytes) -> Any:
    """A JSON value. Raises `InvalidValue` with the reason."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(f"this is not JSON: {error}") from None


def decoded_lines(data: bytes | bytearray) -> list[Any]:
    """The JSON values of several lines. Raises the errors of msgspec, without the line."""
    return _DECODER.decode_lines(data)


_DECODER: Final = msgspec.json.Decoder()


def _text_converter(schema: Schema, kind: Type, path: str) -> Convert:
    if kind == STRING:
        return lambda text: text
    if isinstance(kind, Atom):
        read = _TEXTS.get(kind.kind) or forms.ATOMS[kind.kind]
        return forms.reading(read, kind, path)
    convert = forms.value_converter(schema, kind, path)

    def structure(text: str) -> Any:
        try:
            value = decoded(text)
        except InvalidValue as error:
            raise InvalidValue(f"a {_word(kind)} is written as JSON; {error}", path) from None
        return convert(value)

    return structure


def _word(kind: Type) -> str:
    return {Tuple: "tuple", List: "list", Variant: "variant"}.get(type(kind), "dynamic value")


_TEXTS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "bool": lambda kind, text: ("false", "true").index(text.lower()) == 1,  # ValueError for other text
    "float": lambda kind, text: float(text),
    "double": lambda kind, text: float(text),
} | dict.fromkeys(INTEGER_RANGES, lambda kind, text: int(text))


def _inside(schema: Schema, path: str) -> Type:
    """The type of a nested field; the last one may be optional."""
    if schema.message_type is not None:
        raise InvalidValue(f"{schema.name} is a message type: write its nodes as JSON")
    kind: Type = schema.type
    for step in path.split("."):
        while isinstance(kind, Optional | Ref):
            kind = kind.type if isinstance(kind, Optional) else schema.resolve(kind)
        parts = kind.fields if isinstance(kind, Tuple) else ()
        found = next((part.type for part in parts if part.name == step), None)
        if found is None:
            names = [part.name for part in parts]
            hint = did_you_mean(step, names) or (f"; there are {', '.join(names)}" if names else "")
            raise InvalidValue(f"there is no field {path!r}{hint}")
        kind = found
    return kind
