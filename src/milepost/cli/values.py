"""Messages as people write them: JSON, and `field=value` or the cells of a CSV file -> values of a schema.

JSON has no dates, no UUIDs, no decimals and no bytes. They are written as text there (bytes in base64) and become what
the schema says here; everything else is left as it is, for the encoder to take or to refuse in its own words.
"""

from __future__ import annotations

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from milepost.batch import DynamicValue
from milepost.cli.terminal import escaped_json
from milepost.errors import InvalidValue, did_you_mean
from milepost.query import parse_schema
from milepost.schema.messagetype import Reference
from milepost.schema.types import (
    INTEGER_RANGES,
    STRING,
    Atom,
    Dynamic,
    List,
    Optional,
    Ref,
    Schema,
    Tuple,
    Type,
    Variant,
)

Convert: TypeAlias = Callable[[Any], Any]


def from_json(schema: Schema, *, infinities: bool = True) -> Convert:
    """What makes a message of the schema out of a decoded JSON value; `InvalidValue` names the field.

    Without `infinities`, floats are left as they are, which is quicker: text such as "NaN" is then refused later.
    """
    made = _Converters(schema, infinities).message()
    return made if made is not None else lambda value: value


def from_text(schema: Schema, path: str) -> Convert:
    """What makes a value of one field out of text: as it is typed behind `field=`, or in a cell of a CSV file.

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
    """A message out of `field=value` pairs; `desk.floor=7` reaches into a tuple."""
    message: dict[str, Any] = {}
    for pair in pairs:
        path, sign, text = pair.partition("=")
        if not sign:
            raise InvalidValue(f"{pair!r} is no field=value; write {pair}=..., or the message as JSON")
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
    """One message as a line of JSON, without its end."""
    return escaped_json(_ENCODER.encode(value))


def to_json_lines(values: list[Any]) -> bytes:
    """Messages as lines of JSON."""
    return escaped_json(_ENCODER.encode_lines(values))


def decoded(text: str | bytes) -> Any:
    """A JSON value; `InvalidValue` says what is wrong with it."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidValue(f"this is not JSON: {error}") from None


def decoded_lines(data: bytes | bytearray) -> list[Any]:
    """The JSON values of several lines; raises what msgspec raises, without saying where."""
    return _DECODER.decode_lines(data)


def _plain(value: Any) -> Any:
    if isinstance(value, DynamicValue):
        return {"fingerprint": f"{value.fingerprint:016x}", "data": value.data}
    raise TypeError(f"a {type(value).__name__} has no JSON")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_plain)
_DECODER: Final = msgspec.json.Decoder()


class _Converters:
    """Makes converters of JSON values. None stands for "as it is": most fields need nothing done."""

    def __init__(self, schema: Schema, infinities: bool = True) -> None:
        self.schema = schema
        self._atoms = {name: read for name, read in _ATOMS.items() if infinities or read is not _float}
        self._nodes: dict[str, Convert] = {}

    def message(self) -> Convert | None:
        if self.schema.message_type is not None:
            return self._node(self.schema.message_type.root)
        return self.of(self.schema.type, "")

    def of(self, kind: Type, path: str) -> Convert | None:
        match kind:
            case Atom(name):
                read = self._atoms.get(name)
                return None if read is None else _reading(read, kind, path)
            case Optional(inner):
                return _unless_none(self.of(inner, path))
            case List(item):
                return _each(self.of(item, f"{path}[]"))
            case Tuple(parts) | Variant(parts):
                inside = {part.name: self.of(part.type, f"{path}.{part.name}" if path else part.name) for part in parts}
                return _within({name: convert for name, convert in inside.items() if convert is not None})
            case Ref(name):
                if name not in self.schema.recursive:
                    return self.of(self.schema.resolve(kind), path)
                made: list[Convert | None] = []  # made when the first value comes: before, it would never end

                def deep(value: Any) -> Any:
                    if not made:
                        made.append(self.of(self.schema.resolve(kind), path))
                    return value if made[0] is None else made[0](value)

                return deep
            case Dynamic():
                return _reading(_dynamic, kind, path)

    def _node(self, name: str) -> Convert:
        assert self.schema.message_type is not None
        kind = self.schema.message_type.node(name)
        attributes: dict[str, Convert] = {}
        references: dict[str, str] = {}
        for member in kind.members:
            if isinstance(member, Reference):
                references[member.name] = member.target
            elif (convert := self.of(member.type, f"{name}.{member.name}")) is not None:
                attributes[member.name] = convert
        plain = _within(attributes)

        def node(value: Any) -> Any:
            if not isinstance(value, dict):
                return value
            made = dict(plain(value)) if plain is not None else dict(value)
            for member, target in references.items():
                if target not in self._nodes:
                    self._nodes[target] = self._node(target)
                below = made.get(member)
                if isinstance(below, list):
                    made[member] = [self._nodes[target](item) for item in below]
                elif below is not None:
                    made[member] = self._nodes[target](below)
            return made

        return node


def _reading(read: Callable[[Any, Any], Any], kind: Type, path: str) -> Convert:
    def convert(value: Any) -> Any:
        try:
            return read(kind, value)
        except (ValueError, Base64Error, InvalidOperation) as error:
            if isinstance(error, InvalidValue) and error.path:
                raise
            hint = f": {error}" if isinstance(error, InvalidValue) else _HINTS.get(str(kind), "")
            raise InvalidValue(f"{value!r:.60} is no {kind}{hint}", path) from None

    return convert


def _unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: list(map(convert, value)) if isinstance(value, list) else value


def _within(inside: dict[str, Convert]) -> Convert | None:
    if not inside:
        return None

    def convert(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        changed = {name: read(value[name]) for name, read in inside.items() if value.get(name) is not None}
        return value | changed

    return convert


def _timestamp(kind: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return value
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise InvalidValue(f"say which time zone, as in {moment.isoformat()}Z")
    return moment


def _float(kind: Any, value: Any) -> Any:
    # JSON has no infinities; other text is refused by the encoder, which knows what was written.
    return (
        float(value) if isinstance(value, str) and value.lower().lstrip("+-") in ("nan", "inf", "infinity") else value
    )


def _decimal(kind: Any, value: Any) -> Any:
    if isinstance(value, str):
        return Decimal(value)
    return Decimal(repr(value)) if isinstance(value, float) else value  # repr: the digits that were written


def _dynamic(kind: Any, value: Any) -> Any:
    """Written {"schema": text, "value": ...}, or as it is printed, {"data": base64}."""
    if not isinstance(value, dict):
        raise InvalidValue('write {"schema": "its schema", "value": ...}')
    if isinstance(value.get("data"), str):
        return DynamicValue.read(b64decode(value["data"], validate=True))
    if not isinstance(value.get("schema"), str) or "value" not in value:
        raise InvalidValue('write {"schema": "its schema", "value": ...}')
    schema = parse_schema(value["schema"])
    return DynamicValue(schema, from_json(schema)(value["value"]))


_ATOMS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "date": lambda kind, value: date.fromisoformat(value) if isinstance(value, str) else value,
    "timestamp": _timestamp,
    "uuid": lambda kind, value: UUID(value) if isinstance(value, str) else value,
    "bytes": lambda kind, value: b64decode(value, validate=True) if isinstance(value, str) else value,
    "decimal": _decimal,
    "float": _float,
    "double": _float,
}
_HINTS: Final = {
    "date": ": write 2026-03-02",
    "timestamp": ": write 2026-03-02T14:30:00Z",
    "bytes": ": write it in base64",
    "bool": ": write true or false",
}


def _text_converter(schema: Schema, kind: Type, path: str) -> Convert:
    if kind == STRING:
        return lambda text: text
    if isinstance(kind, Atom):
        read = _TEXTS.get(kind.kind) or _ATOMS[kind.kind]
        return _reading(read, kind, path)
    convert = _Converters(schema).of(kind, path)

    def structure(text: str) -> Any:
        try:
            value = decoded(text)
        except InvalidValue as error:
            raise InvalidValue(f"a {_word(kind)} is written as JSON; {error}", path) from None
        return value if convert is None else convert(value)

    return structure


def _word(kind: Type) -> str:
    return {Tuple: "tuple", List: "list", Variant: "variant"}.get(type(kind), "dynamic value")


_TEXTS: Final[Mapping[str, Callable[[Any, str], Any]]] = {
    "bool": lambda kind, text: (
        {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse()
    ),
    "float": lambda kind, text: float(text),
    "double": lambda kind, text: float(text),
} | dict.fromkeys(INTEGER_RANGES, lambda kind, text: int(text))


def _refuse() -> bool:
    raise ValueError


def _inside(schema: Schema, path: str) -> Type:
    """The type of a field of a field; the last one may be optional."""
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
