"""Converts between values of a schema and the JSON and BSON forms that other programs write.

There is one form for each type, shared by the gateways and the command line; docs/zeromq.md has the table. JSON has no
dates, UUIDs, decimals and bytes, and no infinite numbers. They are text there (bytes in base64), and the schema says
how to read it; everything else is left to the encoder, which accepts or refuses it. BSON has bytes, NaN and infinities.
Its times have milliseconds and its integers 63 bits, so times and larger integers are text in BSON too.
"""

from __future__ import annotations

import math
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Final, TypeAlias
from uuid import UUID

import msgspec

from milepost.batch import Batch, DynamicValue
from milepost.batch.graph import linked, unlinked
from milepost.batch.header import fingerprint_of
from milepost.errors import InvalidValue, MilepostError
from milepost.query import parse_schema
from milepost.schema.messagetype import MessageType, NodeType, Reference
from milepost.schema.types import Atom, Dynamic, List, Optional, Ref, Schema, Tuple, Type, Variant

Convert: TypeAlias = Callable[[Any], Any]

TREE_DEPTH: Final = 40  # nested nodes of a message type: parsers of JSON and BSON bound their depth as well
CONVERTERS_KEPT: Final = 512
SCHEMAS_KEPT: Final = 512  # of dynamic values
UINT64_DIGITS: Final = 20
SCHEMA_COST: Final = 100  # characters: the least cost of the schema of a dynamic value, for the time to parse it
_LARGEST: Final = (1 << 63) - 1  # of BSON's integers


# From Milepost


def plain_rows(batch: Batch) -> list[Any]:
    """The messages of a batch as plain values, which have a form in JSON and in BSON.

    The graph of a message type becomes a tree of its nodes when each node is referred to once and the tree is not too
    deep. Any other graph becomes the lists of its nodes by type, the root first, with references as positions in these
    lists. As a tree, a shared node would be read back as several, and a few dozen nodes could become millions.
    """
    rows = batch.to_pylist()
    kind = batch.schema.message_type
    return rows if kind is None else [row if _is_tree(kind, row) else unlinked(kind, row, 0) for row in rows]


def _is_tree(message_type: MessageType, root: dict[str, Any]) -> bool:
    seen = {id(root)}
    todo = [(message_type.node(message_type.root), root, 1)]
    while todo:
        kind, node, depth = todo.pop()
        if depth > TREE_DEPTH:
            return False
        for member in _references(kind):
            for below in node[member.name]:
                if id(below) in seen:
                    return False
                seen.add(id(below))
                todo.append((message_type.node(member.target), below, depth + 1))
    return True


def _references(kind: NodeType) -> list[Reference]:
    return [member for member in kind.members if isinstance(member, Reference)]


def to_json(value: Any) -> bytes:
    """A plain value as JSON."""
    made = _ENCODER.encode(value)
    return made if b"null" not in made else _ENCODER.encode(_replaced(value, _json_float))


def to_json_lines(values: list[Any]) -> bytes:
    """Plain values as lines of JSON."""
    made = _ENCODER.encode_lines(values)
    # The encoder writes null for floats that JSON cannot represent. Searching for them costs more than encoding.
    return made if b"null" not in made else _ENCODER.encode_lines([_replaced(value, _json_float) for value in values])


def to_bson(value: Any) -> Any:
    """A plain value in types that BSON has."""
    return _replaced(msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=_dynamic_form), _bson_integer)


def _replaced(value: Any, leaf: Convert) -> Any:
    if type(value) is dict:
        return {name: _replaced(each, leaf) for name, each in value.items()}
    return [_replaced(each, leaf) for each in value] if type(value) is list else leaf(value)


def _json_float(value: Any) -> Any:
    if type(value) is not float or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _bson_integer(value: Any) -> Any:
    return str(value) if type(value) is int and value > _LARGEST else value


def _dynamic_form(value: Any) -> Any:
    if isinstance(value, DynamicValue):
        return {"fingerprint": f"{value.fingerprint:016x}", "data": value.data}
    raise TypeError(f"a {type(value).__name__} has no JSON")


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_dynamic_form)


# To Milepost


@lru_cache(maxsize=CONVERTERS_KEPT)
def converter(schema: Schema, *, quick: bool = False, schema_chars: int | None = None) -> Convert:
    """A function that converts a decoded value of JSON or BSON to a message of the schema. `InvalidValue` names the
    field.

    `quick` leaves numbers as they are: the encoder then refuses text such as "NaN". `schema_chars` bounds the schemas
    of the dynamic values of one message, since parsing takes some twenty microseconds for each character.
    """
    converters = _Converters(schema, quick)
    made = converters.message()
    if made is None:
        return lambda value: value

    def bounded(value: Any) -> Any:
        converters.schema_chars = schema_chars
        return made(value)

    return made if schema_chars is None else bounded


def value_converter(schema: Schema, kind: Type, path: str) -> Convert:
    """Like `converter`, for one value of a type within the schema. `path` names it in errors."""
    made = _Converters(schema).of(kind, path)
    return made if made is not None else lambda value: value


class _Converters:
    """Makes converters of values. None means no conversion, which most fields need."""

    def __init__(self, schema: Schema, quick: bool = False) -> None:
        self.schema = schema
        self.schema_chars: int | None = None  # characters left for the schemas of dynamic values; None: no bound
        self._atoms = {name: read for name, read in ATOMS.items() if not (quick and read in (_float, _uint64))}
        self._nodes: dict[str, Convert] = {}

    def message(self) -> Convert | None:
        message_type = self.schema.message_type
        if message_type is None:
            return self.of(self.schema.type, "")
        tree = self._node(message_type.root)
        return lambda value: self._graph(message_type, value) if _is_lists(message_type, value) else tree(value)

    def of(self, kind: Type, path: str) -> Convert | None:
        match kind:
            case Atom(name):
                read = self._atoms.get(name)
                return None if read is None else reading(read, kind, path)
            case Optional(inner):
                return _unless_none(self.of(inner, path))
            case List(item):
                return _each(self.of(item, f"{path}[]"))
            case Tuple(parts) | Variant(parts):
                outer = f"{path}." if path else ""
                return _within({part.name: self.of(part.type, f"{outer}{part.name}") for part in parts})
            case Ref(name):
                if name not in self.schema.recursive:
                    return self.of(self.schema.resolve(kind), path)
                # Made for the first value: for a recursive type, making it at once would never end.
                made: list[Convert | None] = []

                def deep(value: Any) -> Any:
                    if not made:
                        made.append(self.of(self.schema.resolve(kind), path))
                    return value if made[0] is None else made[0](value)

                return deep
            case Dynamic():
                return reading(self._dynamic, kind, path)

    def _dynamic(self, kind: Any, value: Any) -> Any:
        """Parse {"schema": text, "value": ...}, or the printed form {"data": bytes}."""
        if isinstance(value, dict) and isinstance(data := value.get("data"), str | bytes):
            fingerprint_of(raw := _bytes(kind, data))  # raises when there are too few bytes
            return DynamicValue.read(raw)
        if not isinstance(value, dict) or not isinstance(text := value.get("schema"), str) or "value" not in value:
            raise ValueError
        if self.schema_chars is not None:
            self.schema_chars -= max(len(text), SCHEMA_COST)
            if self.schema_chars < 0:
                raise InvalidValue("the message has too many schemas, or too long ones; put it with a native client")
        schema = _parsed(text)
        if isinstance(schema, MilepostError):
            raise schema
        inner = _Converters(schema)
        inner.schema_chars = self.schema_chars
        convert = inner.message()
        made = DynamicValue(schema, value["value"] if convert is None else convert(value["value"]))
        self.schema_chars = inner.schema_chars
        return made

    def _attributes(self, kind: NodeType) -> Convert | None:
        plain = [member for member in kind.members if not isinstance(member, Reference)]
        return _within({member.name: self.of(member.type, f"{kind.name}.{member.name}") for member in plain})

    def _node(self, name: str) -> Convert:
        assert self.schema.message_type is not None
        kind = self.schema.message_type.node(name)
        references = {member.name: member.target for member in _references(kind)}
        plain = self._attributes(kind)

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

    def _graph(self, message_type: MessageType, lists: dict[str, list[Any]]) -> dict[str, Any]:
        """A graph from the lists of its nodes."""
        made: dict[str, list[dict[str, Any]]] = {}
        for kind in message_type.nodes:
            plain = self._attributes(kind)
            made[kind.name] = []
            for node in lists.get(kind.name, ()):
                if not isinstance(node, dict):
                    raise InvalidValue(f"expected a node {kind.name}, got {node!r:.60}", kind.name)
                made[kind.name].append(dict(plain(node)) if plain is not None else dict(node))
        for kind in message_type.nodes:
            for member in _references(kind):
                last = len(made[member.target]) - 1
                for node in made[kind.name]:
                    positions = [] if node.get(member.name) is None else node[member.name]
                    node[member.name] = positions
                    if not isinstance(positions, list) or not all(
                        type(each) is not bool and isinstance(each, int) and 0 <= each <= last for each in positions
                    ):
                        raise InvalidValue(
                            f"a reference holds positions in the list of {member.target}, from 0 to {last}; "
                            f"got {positions!r:.60}",
                            f"{kind.name}.{member.name}",
                        )
        return linked(message_type, made)


def _is_lists(message_type: MessageType, value: Any) -> bool:
    """Whether a graph is written as the lists of its nodes: its references are numbers, those of a tree are nodes."""
    names = {kind.name for kind in message_type.nodes}
    if not isinstance(value, dict) or not value.get(message_type.root) or not value.keys() <= names:
        return False
    if not all(isinstance(each, list) for each in value.values()):
        return False
    return any(
        isinstance(each, int)
        for kind in message_type.nodes
        for node in value.get(kind.name, ())
        if isinstance(node, dict)
        for member in _references(kind)
        if isinstance(positions := node.get(member.name), list)
        for each in positions
    )


def reading(read: Callable[[Any, Any], Any], kind: Type, path: str) -> Convert:
    """`read` for one field. Its errors name the field and say what to write."""

    def convert(value: Any) -> Any:
        try:
            return read(kind, value)
        except (ValueError, Base64Error, InvalidOperation, MilepostError) as error:
            if isinstance(error, InvalidValue) and error.path:
                raise
            hint = f": {error}" if isinstance(error, MilepostError) else _HINTS.get(str(kind), "")
            raise InvalidValue(f"{value!r:.60} is no {kind}{hint}", path) from None

    return convert


def _unless_none(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: None if value is None else convert(value)


def _each(convert: Convert | None) -> Convert | None:
    return None if convert is None else lambda value: list(map(convert, value)) if isinstance(value, list) else value


def _within(fields: dict[str, Convert | None]) -> Convert | None:
    inside = {name: convert for name, convert in fields.items() if convert is not None}
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
    # The encoder refuses other text, and its message quotes what was written.
    special = isinstance(value, str) and value.lower().lstrip("+-") in ("nan", "inf", "infinity")
    return float(value) if special else value


def _uint64(kind: Any, value: Any) -> Any:
    digits = isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= UINT64_DIGITS
    return int(value) if digits else value


def _decimal(kind: Any, value: Any) -> Any:
    if isinstance(value, str):
        return Decimal(value)
    return Decimal(repr(value)) if isinstance(value, float) else value  # repr: the digits that were written


def _bytes(kind: Any, value: Any) -> Any:
    return b64decode(value, validate=True) if isinstance(value, str) else value


@lru_cache(maxsize=SCHEMAS_KEPT)
def _parsed(text: str) -> Schema | MilepostError:
    """Parse a schema. Errors are cached as well, since each version of a topic's schema is tried with the same
    message.
    """
    try:
        return parse_schema(text)
    except MilepostError as error:
        return error


ATOMS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "date": lambda kind, value: date.fromisoformat(value) if isinstance(value, str) else value,
    "timestamp": _timestamp,
    "uuid": lambda kind, value: UUID(value) if isinstance(value, str) else value,
    "bytes": _bytes,
    "decimal": _decimal,
    "float": _float,
    "double": _float,
    "uint64": _uint64,
}
_HINTS: Final = {
    "date": ": write 2026-03-02",
    "timestamp": ": write 2026-03-02T14:30:00Z",
    "bytes": ": write it in base64",
    "bool": ": write true or false",
    "dynamic": ': write {"schema": "its schema", "value": ...}',
}
