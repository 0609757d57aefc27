"""Topics as a client knows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import lru_cache
from typing import Any, Final

from milepost.batch import Batch
from milepost.batch.header import Buffer, fingerprint_of
from milepost.client.logbatch import LogBatch
from milepost.errors import IncompatibleSchema, InvalidValue, LimitExceeded, MilepostError, ProtocolError, did_you_mean
from milepost.query import parse_schema
from milepost.schema import MessageType, Schema, Versions, from_dataclass
from milepost.schema.relax import relaxed
from milepost.wire import Control, Declare, Hand, TopicAnnounced

SCHEMAS_KEPT: Final = 512  # parsed texts; a client that reconnects receives the same ones again

parsed = lru_cache(maxsize=SCHEMAS_KEPT)(parse_schema)


@dataclass(frozen=True, slots=True)
class Retention:
    """The retention of a durable topic. A row may be removed when it exceeds one of the bounds; with `hold`, only after
    all named subscriptions have consumed it as well.
    """

    age_s: float | None = 7 * 86_400.0  # None: no limit; 0: removed as soon as it is consumed
    bytes: int | None = None  # of the whole topic; the oldest rows go first
    hold: bool = True


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic as the broker describes it."""

    name: str
    schema: Schema  # the newest version
    versions: tuple[Schema, ...]  # the oldest first
    slow: str  # the policy for slow subscribers: "throttle", "drop" or "disconnect"
    created: bool = False  # whether this call created the topic
    figures: Mapping[str, Any] = field(default_factory=dict)  # the broker's counters, if they were asked for
    durable: bool = False  # kept in a log; a live topic is not stored


@lru_cache(maxsize=SCHEMAS_KEPT)
def _merged(versions: tuple[Schema, ...]) -> Schema:
    try:
        return Versions.of(versions).merged
    except MilepostError:
        return versions[-1]  # the broker could merge the versions; if this client cannot, it reads the newest


class KnownTopic:
    """A topic that the broker has announced on a connection; its number is valid for that connection only.

    Rows of all versions are read as one schema: the one that this client has declared, or one with the fields of all
    versions. Fields that a row's version lacks are absent.
    """

    __slots__ = ("_schemas", "durable", "name", "number", "reached", "reader", "slow", "stored", "versions")

    def __init__(self, said: TopicAnnounced, before: KnownTopic | None = None) -> None:
        """`before`: the same topic, announced earlier on the connection."""
        if not said.schemas:
            raise ProtocolError(f"the broker announced topic {said.name!r} without a schema")
        self.number: Final = said.number
        self.name: Final = said.name
        self.slow: Final = said.slow
        self.durable: Final = said.durable
        self.stored: Final = said.stored  # the store's number
        # Of a durable topic, by log: the offset before which all rows were delivered to plain subscriptions.
        self.reached: Final[dict[int, int]] = {} if before is None else before.reached
        self.versions: Final = tuple(parsed(text) for text in said.schemas)
        self._schemas = {schema.fingerprint: schema for schema in self.versions}
        self.reader = _merged(self.versions)

    def read_with(self, declared: Schema) -> None:
        """Read rows as the version that this client has declared, unless a topic made anew has another schema."""
        try:
            for schema in self.versions:
                relaxed(declared, schema)
        except IncompatibleSchema:
            return
        self.reader = self._schemas.get(declared.fingerprint, declared)

    def schema(self, fingerprint: int) -> Schema | None:
        """The version with a fingerprint."""
        return self._schemas.get(fingerprint)

    def decode(self, data: Buffer) -> Batch:
        """A delivered batch, checked whole."""
        schema = self._schemas.get(int.from_bytes(data[8:16], "little"))  # `fingerprint_of`, without a call
        if schema is None:
            raise self._unannounced(data)
        batch = Batch.decode(data, schema)
        return batch if schema is self.reader else self._as_read(batch)

    def decode_hand(self, hand: Hand) -> LogBatch:
        """Like `decode`, for rows from the topic's log."""
        schema = self._schemas.get(int.from_bytes(hand.data[8:16], "little"))
        if schema is None:
            raise self._unannounced(hand.data)
        batch = LogBatch.opened(hand.data, schema, hand.log, hand.offsets, hand.tries)
        return batch if schema is self.reader else self._as_read(batch)

    def _as_read(self, batch: Any) -> Any:
        try:
            return batch.read_as(self.reader)
        except LimitExceeded:  # very many short rows, and very many fields that they lack: they keep their version
            return batch

    def _unannounced(self, data: Buffer) -> ProtocolError:
        fingerprint_of(data)  # raises when there are too few bytes
        return ProtocolError(f"a delivery from topic {self.name!r} is of a schema that was not announced")

    def info(self, created: bool = False) -> TopicInfo:
        """The topic, for the application."""
        return TopicInfo(self.name, self.versions[-1], self.versions, self.slow, created, durable=self.durable)


def advance(position: dict[int, int], by: Mapping[int, int]) -> None:
    """Move a position forward, log by log, never back."""
    for log, offset in by.items():
        if offset > position.get(log, 0):
            position[log] = offset


def described(said: Mapping[str, Any]) -> TopicInfo:
    """A topic from the reply to a LIST."""
    versions = tuple(parsed(text) for text in said["schemas"])
    figures = {name: value for name, value in said.items() if name not in ("name", "schemas", "slow", "durable")}
    durable = bool(said.get("durable", False))
    return TopicInfo(said["name"], versions[-1], versions, said["slow"], figures=figures, durable=durable)


def schema_from(schema: Any) -> Schema:
    """The schema that a user wrote, in any notation."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, MessageType):
        return schema.schema
    if isinstance(schema, str):
        return parse_schema(schema)
    if isinstance(schema, type) and is_dataclass(schema):
        return from_dataclass(schema)
    raise InvalidValue(
        f"a schema is a text, a Schema, a MessageType or a dataclass, not a {type(schema).__name__}; "
        'for example "quote: [symbol: string, price: double]"'
    )


def schema_text(schema: Schema) -> str:
    """The text of a schema on the wire."""
    return str(schema.message_type or schema)


def declaration(
    name: str,
    schema: Schema | None,
    slow: str | None = None,
    durable: bool | None = None,
    retain: Retention | Mapping[str, Any] | None = None,
) -> Callable[[int], Control]:
    """The request to declare a topic; without a schema the topic must exist."""
    require_text("the name of a topic", name)
    if slow is not None:
        require_text("a policy for the slow", slow)
    text = None if schema is None else schema_text(schema)
    kept = None if retain is None else retained(retain)
    return lambda request: Declare(request=request, name=name, schema=text, slow=slow, durable=durable, retain=kept)


def retained(retain: Retention | Mapping[str, Any]) -> dict[str, Any]:
    """A topic's retention as on the wire. Raises `InvalidValue` for an invalid one."""
    if isinstance(retain, Mapping):
        names = Retention.__slots__
        for name in retain:
            if name not in names:
                raise InvalidValue(
                    f"a retention has {', '.join(names)}, and no {name!r}{did_you_mean(str(name), names)}"
                )
        retain = Retention(**retain)
    if not isinstance(retain, Retention):
        raise InvalidValue(f"retain takes a Retention or a mapping, not a {type(retain).__name__}")
    for what, value, kinds in (("age_s", retain.age_s, int | float), ("bytes", retain.bytes, int)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds) or not value >= 0):
            raise InvalidValue(f"{what} = {value!r}: takes a number from 0 on, or None for no bound")
    if not isinstance(retain.hold, bool):
        raise InvalidValue(f"hold = {retain.hold!r}: takes True or False")
    return {"age_s": retain.age_s, "bytes": retain.bytes, "hold": retain.hold}


def require_text(what: str, value: Any) -> None:
    """Refuse text that a broker would treat as a protocol error and close the connection over."""
    if not isinstance(value, str):
        raise InvalidValue(f"{what} is a text, not a {type(value).__name__}")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidValue(f"{what} has half of a character in it (a surrogate), which is no text") from None
