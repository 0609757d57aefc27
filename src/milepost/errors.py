"""Every error a user can meet.

::

    MilepostError
    ├── SchemaError               an invalid schema
    │   ├── SchemaSyntaxError     its text does not parse: line, caret, expectation
    │   ├── IncompatibleSchema    a new version that would break readers: the paths
    │   └── UnknownSchema         a name or fingerprint that is not registered
    ├── QueryError                an invalid query
    │   ├── QuerySyntaxError      its text does not parse: line, caret, expectation
    │   └── QueryTypeError        it parses, but not against this schema
    ├── InvalidValue              a value that does not fit its schema: the path
    ├── CheckFailed               a message that breaks a schema's ``check`` rule
    ├── MalformedBatch            bytes that are not a batch of this schema
    ├── LimitExceeded             input larger or deeper than a named limit allows
    │   └── QueryTooCostly        a query that took more steps, or longer, than its budget
    ├── BrokerError               a broker refused a request, or cannot be reached
    │   ├── UnknownTopic          a topic that is not declared
    │   ├── UnknownSubscription   a subscription that does not exist, or no longer
    │   ├── SubscriptionExists    a name that another subscription has
    │   │   └── TopicMismatch     … to another topic
    │   ├── DuplicateMessage      a put whose key was seen before: it is stored already
    │   ├── NotExpectingAck       an acknowledgement without a message to acknowledge
    │   │   └── AckMismatch       … of a message that this consumer was not handed
    │   ├── NothingThere          no message to get now
    │   ├── RowsGone              rows of a read were removed from the log
    │   ├── UnknownRequest        a request of an unknown type
    │   ├── NotDurable            an operation on a log, asked of a live topic
    │   ├── StagingLost           staged rows are gone: stage them again
    │   ├── UnknownQueue          a queue that is not declared
    │   ├── QueueExists           another queue has this name
    │   ├── QueueInUse            a queue cannot be deleted while transactions hold its messages
    │   ├── UnknownType           a message type that is not declared
    │   ├── TypeExists            another type has this name
    │   ├── TypeInUse             a type cannot be deleted while queues take it
    │   ├── WrongType             a message of a type that its queue does not take
    │   ├── NoTransaction         a queue used outside a transaction, or after its end
    │   ├── TransactionAborted    the broker rolled a transaction back: run it again
    │   ├── OutcomeUnknown        a commit whose caller stopped waiting: done, or not
    │   ├── BlockIncomplete       a commit in the middle of a writer's block
    │   ├── StateLost             the broker restarted without its stored state
    │   ├── ServedElsewhere       another broker of the cell serves this subscription
    │   ├── StoreError            the broker's database refused a statement
    │   │   ├── StoreUnavailable  it cannot be reached, or does not answer
    │   │   │   └── InDoubt       … during a commit: the outcome will be known later
    │   │   ├── StoreFull         its disk is full
    │   │   └── CorruptLog        stored bytes differ from the written ones
    │   ├── ProtocolError         bytes that do not follow the protocol
    │   ├── HandshakeRefused      a version or a name that the broker does not accept
    │   │   └── NotAuthenticated  missing or wrong credentials
    │   ├── Fenced                a newer client of the same name took over
    │   ├── ConnectionLost        the peer or the network broke the connection
    │   ├── SlowConsumer          the broker closed the connection of a slow consumer
    │   ├── Overloaded            the broker has no memory or no connections left
    │   └── TimedOut              the broker did not answer in time
    ├── PipelineFailed            a part of a pipeline that fails repeatedly
    ├── Closed                    you closed it, and then used it
    └── ConfigError               invalid settings
        ├── MissingPackage        a package of an extra that is not installed
        ├── PipelineError         an invalid pipeline: all of its problems
        └── NetworkError          an invalid network of brokers: all of its problems

Each class carries ``code``, which is stable and travels on the wire, and ``retriable``: whether a
retry can help. Messages say what happened, to what, and what to do next.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar, Final


class MilepostError(Exception):
    """The root of the tree: catch this to catch everything Milepost raises on purpose."""

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False

    def __init_subclass__(cls, code: str = "", retriable: bool | None = None) -> None:
        """`code` and `retriable` are those of the base unless given."""
        if code:
            cls.code = code
            _BY_CODE.setdefault(code, cls)
        if retriable is not None:
            cls.retriable = retriable


_BY_CODE: Final[dict[str, type[MilepostError]]] = {MilepostError.code: MilepostError}


class SchemaError(MilepostError, code="schema"):
    """A schema that contradicts itself or the rules of schemas."""


class QueryError(MilepostError, code="query"):
    """A query that cannot be understood or answered."""


class SourceError(MilepostError):
    """An error at a position in a text: `str(error)` shows the line, a caret, and what was expected.

    Mixed into the syntax errors and into `QueryTypeError`. `line` and `column` count from 1;
    both are 0 when the position is unknown.
    """

    def __init__(self, message: str, text: str = "", line: int = 0, column: int = 0) -> None:
        self.message = message
        self.text = text
        self.line = line
        self.column = column
        super().__init__(self._drawn())

    def _drawn(self) -> str:
        lines = self.text.split("\n")  # as lark counts; splitlines() splits at eight more characters
        if not 1 <= self.line <= len(lines):
            return self.message
        shown = lines[self.line - 1]
        start = max(0, self.column - 1 - _CARET_CONTEXT)
        shown = shown[start : self.column - 1 + _CARET_CONTEXT].replace("\t", " ")
        caret = " " * (self.column - 1 - start) + "^"
        return f"{self.message}\n  line {self.line}, column {self.column}:\n    {shown}\n    {caret}"


_CARET_CONTEXT = 100  # characters shown on either side of the caret, so that a huge line stays readable


class SchemaSyntaxError(SourceError, SchemaError, code="schema_syntax"):
    """The text of a schema does not parse."""


class IncompatibleSchema(SchemaError, code="incompatible_schema"):
    """A new version of a schema would break its readers; `paths` names each place and why."""

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        self.paths = paths
        super().__init__(message)


class UnknownSchema(SchemaError, code="unknown_schema"):
    """A schema name, version or fingerprint that the registry does not hold."""


class QuerySyntaxError(SourceError, QueryError, code="query_syntax"):
    """The text of a query does not parse."""


class QueryTypeError(SourceError, QueryError, code="query_type"):
    """The query parses, but its names or types do not fit the schema."""


class InvalidValue(MilepostError, ValueError, code="invalid_value"):
    """A value that does not fit its schema; `path` says where, `row` which (counted from 0)."""

    def __init__(self, message: str, path: str = "", row: int | None = None) -> None:
        self.path = path
        self.row = row
        where = f"row {row}, " if row is not None else ""
        super().__init__(f"{where}{path}: {message}" if path else f"{where}{message}")


class CheckFailed(MilepostError, ValueError, code="check_failed"):
    """A message breaks a `check` rule of its schema; `rows` lists the first such messages."""

    def __init__(self, message: str, rule: str = "", rows: tuple[int, ...] = ()) -> None:
        self.rule = rule
        self.rows = rows
        super().__init__(message)


class MalformedBatch(MilepostError, ValueError, code="malformed_batch"):
    """Bytes that are not a batch of the schema they name. None of their rows was used."""


class LimitExceeded(MilepostError, ValueError, code="limit_exceeded"):
    """Input beyond a named limit; `limit` is the name of a constant in `milepost.limits`, or of a broker's setting."""

    advice: ClassVar[str] = "make it smaller or split it"

    def __init__(self, limit: str, value: int, maximum: int, what: str, advice: str = "") -> None:
        self.limit = limit
        self.value = value
        self.maximum = maximum
        self.what = what
        self._advice = advice
        super().__init__(f"{what}: {value} is over {limit} = {maximum}; {advice or self.advice}")

    def __reduce__(self) -> tuple[type[LimitExceeded], tuple[str, int, int, str, str]]:
        # Spark pickles errors to send them between processes.
        return type(self), (self.limit, self.value, self.maximum, self.what, self._advice)


class QueryTooCostly(LimitExceeded, code="query_too_costly"):
    """The evaluation of a query exceeded its budget, which `limit` names, and was ended."""

    advice = "nest fewer quantifiers, let them range over shorter lists, or ask for less at once"


class BrokerError(MilepostError, code="broker"):
    """A broker refused a request, or could not be reached."""


class UnknownTopic(BrokerError, LookupError, code="unknown_topic"):
    """A topic that is not declared, or was deleted."""


class UnknownSubscription(BrokerError, LookupError, code="unknown_subscription"):
    """A subscription that does not exist, or no longer."""


class SubscriptionExists(BrokerError, code="subscription_exists"):
    """A durable subscription of this name exists, with another filter or another start."""


class TopicMismatch(SubscriptionExists, code="topic_mismatch"):
    """A durable subscription of this name exists, to another topic."""


class DuplicateMessage(BrokerError, code="duplicate_message"):
    """A put with a key that was used before: the message is stored already, and was not stored again."""


class NotExpectingAck(BrokerError, code="not_expecting_ack"):
    """An acknowledgement without a message to acknowledge: get one first. Unacknowledged messages are redelivered."""


class AckMismatch(NotExpectingAck, code="ack_mismatch"):
    """An acknowledgement of a message that was not handed out, or that another consumer has got meanwhile."""


class NothingThere(BrokerError, LookupError, code="nothing_there", retriable=True):
    """There is no message to get now; ask again later."""


class RowsGone(BrokerError, LookupError, code="rows_gone"):
    """Rows of the range to read are gone: retention or an operator removed them."""


class UnknownRequest(BrokerError, code="unknown_request"):
    """A request of a type that the broker does not know."""


class NotDurable(BrokerError, code="not_durable"):
    """A live topic is not stored: it has no log, no offsets and no named subscriptions. Declare it durable."""


class StagingLost(BrokerError, code="staging_lost"):
    """Some or all of the rows that a sink staged are gone: nothing was published.

    `unstage` removed them, another client staged under the same numbers, the sink was silent for too long, or an
    earlier piece failed. A retry of the publish does not help: stage the rows again under a new attempt.
    """


class UnknownQueue(BrokerError, LookupError, code="unknown_queue"):
    """A queue that is not declared, or was deleted: declare it, or list the queues to find its name."""


class QueueExists(BrokerError, code="queue_exists"):
    """A queue of this name exists, with other types or other rules: choose another name, or delete it first."""


class QueueInUse(BrokerError, code="queue_in_use", retriable=True):
    """Open transactions have written or taken messages of this queue, or it is the dead-letter queue of another.

    Wait until the transactions end, or change the other queue, and delete it then.
    """


class UnknownType(BrokerError, LookupError, code="unknown_type"):
    """A message type that is not declared, or was deleted: declare it first."""


class TypeExists(BrokerError, code="type_exists"):
    """A message type of this name exists, with another definition: choose another name, or delete it first."""


class TypeInUse(BrokerError, code="type_in_use"):
    """A message type that queues take: delete those queues first."""


class WrongType(BrokerError, code="wrong_type"):
    """A message of a type that its queue does not take: declare the queue with that type, or use another queue."""


class NoTransaction(BrokerError, code="no_transaction"):
    """A queue was used outside a transaction, or after the transaction's end: begin one with transaction()."""


class TransactionAborted(BrokerError, code="transaction_aborted", retriable=True):
    """The broker rolled a transaction back: messages it took are in their queues again, messages it wrote are gone.

    Its client was away for longer than its lease, its broker restarted, or one of its steps failed. Run the whole
    transaction again.
    """


class OutcomeUnknown(BrokerError, code="outcome_unknown"):
    """The caller of a commit stopped waiting for it: the transaction may or may not be committed.

    Look into its queues before running the transaction again.
    """


class BlockIncomplete(BrokerError, code="block_incomplete"):
    """A reader of a blockwise queue can commit only after taking every message that a writer's transaction wrote.

    The error names the messages that remain: dequeue them too and commit, or abort.
    """


class StateLost(BrokerError, code="state_lost"):
    """The broker restarted without its stored state: messages that it had acknowledged may be lost.

    The application decides how to go on. A new client starts on the new state.
    """


class ServedElsewhere(BrokerError, code="served_elsewhere", retriable=True):
    """Another broker of the cell serves this subscription now; connect to it, or try again."""


class StoreError(BrokerError, code="store"):
    """The broker's database refused a statement. No acknowledged message is lost."""


class StoreUnavailable(StoreError, code="store_unavailable", retriable=True):
    """The broker's database cannot be reached or does not answer. Nothing was done: try again later."""


class InDoubt(StoreUnavailable, code="in_doubt"):
    """The broker's database went away during a commit: the next connection tells whether it was done."""


class StoreFull(StoreError, code="store_full", retriable=True):
    """The disk of the broker's database is full: nothing was stored. Free some space, then try again."""


class CorruptLog(StoreError, code="corrupt_log"):
    """The log holds bytes that differ from the written ones. Such bytes are never skipped silently."""


class ProtocolError(BrokerError, code="protocol"):
    """Bytes that do not follow the protocol: another program has the port, or one of the two ends has a fault."""


class HandshakeRefused(BrokerError, code="handshake_refused"):
    """The broker does not accept this client: another protocol version, or an invalid name."""


class NotAuthenticated(HandshakeRefused, code="not_authenticated"):
    """The broker requires credentials, or does not accept the ones it got."""


class Fenced(BrokerError, code="fenced"):
    """A newer client of the same name has connected, and this one was closed. Client names are unique."""


class ConnectionLost(BrokerError, ConnectionError, code="connection_lost", retriable=True):
    """The peer or the network broke the connection. A client reconnects by itself, unless configured not to."""


class SlowConsumer(BrokerError, code="slow_consumer", retriable=True):
    """The broker closed the connection: the client took messages more slowly than the topic's policy allows."""


class Overloaded(BrokerError, code="overloaded", retriable=True):
    """The broker has no memory or no connections left for the request. Try again later."""


class TimedOut(BrokerError, TimeoutError, code="timed_out", retriable=True):
    """The broker did not answer in time; the request may or may not have been carried out."""


class PipelineFailed(MilepostError, code="pipeline_failed", retriable=True):
    """A lane or the second tier of a pipeline was started several times, and failed at once each time."""


class Closed(MilepostError, code="closed"):
    """You closed it, and then used it."""


class ConfigError(MilepostError, ValueError, code="config"):
    """Settings that are unknown, invalid, or contradict each other."""


class MissingPackage(ModuleNotFoundError, ConfigError, code="missing_package"):
    """A package that a part of Milepost needs is not installed. `name` is its module; the message names the extra."""


class _Listed(Exception):
    """Mixed into errors that list every problem of a file; `problems` has them one by one, as (place, text)."""

    def __init__(self, what: str, problems: Iterable[tuple[str, str]]) -> None:
        self.what = what
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = [f"{place}: {text}" if place else text for place, text in self.problems]
        drawn = "".join("\n  " + line.replace("\n", "\n  ") for line in lines)
        super().__init__(f"{what} has {'a problem' if count == 1 else f'{count} problems'}:{drawn}")

    def __reduce__(self) -> tuple[type[_Listed], tuple[str, tuple[tuple[str, str], ...]]]:
        return type(self), (self.what, self.problems)


class PipelineError(_Listed, ConfigError, code="pipeline"):
    """An invalid pipeline. The message lists every problem; `problems` has them one by one, as (place, text)."""


class NetworkError(_Listed, ConfigError, code="network"):
    """An invalid network of brokers. The message lists every problem; `problems` has them as (place, text)."""


def from_code(code: str, message: str) -> MilepostError:
    """The error of a code, with the message that came over the wire; an unknown code gives a `BrokerError`."""
    found = _BY_CODE.get(code)
    if found is None:
        return BrokerError(message)
    made = found.__new__(found)
    Exception.__init__(made, message)  # the message is complete; a constructor would add to it
    return made


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: "; did you mean 'price'?", or "" when no known name is near.

    Compares with at most a thousand names of about the same length: `difflib` is slow, and both the
    name and the known names may come from an untrusted peer.
    """
    similar = [item for item in known if abs(len(item) - len(name)) <= max(3, len(name) // 3)][:_NAMES_COMPARED]
    found = [item for item in similar if item.lower() == name.lower()] or get_close_matches(name, similar, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


_NAMES_COMPARED = 1_000
