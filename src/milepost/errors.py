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
from typing import ClassVar


class MilepostError(Exception):
    """The root of the tree: catch this to catch everything Milepost raises on purpose."""

    code: ClassVar[str] = "error"
    retriable: ClassVar[bool] = False


class SchemaError(MilepostError):
    """A schema that contradicts itself or the rules of schemas."""

    code = "schema"


class QueryError(MilepostError):
    """A query that cannot be understood or answered."""

    code = "query"


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


class SchemaSyntaxError(SourceError, SchemaError):
    """The text of a schema does not parse."""

    code = "schema_syntax"


class IncompatibleSchema(SchemaError):
    """A new version of a schema would break its readers; `paths` names each place and why."""

    code = "incompatible_schema"

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        self.paths = paths
        super().__init__(message)


class UnknownSchema(SchemaError):
    """A schema name, version or fingerprint that the registry does not hold."""

    code = "unknown_schema"


class QuerySyntaxError(SourceError, QueryError):
    """The text of a query does not parse."""

    code = "query_syntax"


class QueryTypeError(SourceError, QueryError):
    """The query parses, but its names or types do not fit the schema."""

    code = "query_type"


class InvalidValue(MilepostError, ValueError):
    """A value that does not fit its schema; `path` says where, `row` which (counted from 0)."""

    code = "invalid_value"

    def __init__(self, message: str, path: str = "", row: int | None = None) -> None:
        self.path = path
        self.row = row
        where = f"row {row}, " if row is not None else ""
        super().__init__(f"{where}{path}: {message}" if path else f"{where}{message}")


class CheckFailed(MilepostError, ValueError):
    """A message breaks a `check` rule of its schema; `rows` lists the first such messages."""

    code = "check_failed"

    def __init__(self, message: str, rule: str = "", rows: tuple[int, ...] = ()) -> None:
        self.rule = rule
        self.rows = rows
        super().__init__(message)


class MalformedBatch(MilepostError, ValueError):
    """Bytes that are not a batch of the schema they name. None of their rows was used."""

    code = "malformed_batch"


class LimitExceeded(MilepostError, ValueError):
    """Input beyond a named limit; `limit` is the name of a constant in `milepost.limits`, or of a broker's setting."""

    code = "limit_exceeded"
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


class QueryTooCostly(LimitExceeded):
    """The evaluation of a query exceeded its budget, which `limit` names, and was ended."""

    code = "query_too_costly"
    advice = "nest fewer quantifiers, let them range over shorter lists, or ask for less at once"


class BrokerError(MilepostError):
    """A broker refused a request, or could not be reached."""

    code = "broker"


class UnknownTopic(BrokerError, LookupError):
    """A topic that is not declared, or was deleted."""

    code = "unknown_topic"


class UnknownSubscription(BrokerError, LookupError):
    """A subscription that does not exist, or no longer."""

    code = "unknown_subscription"


class SubscriptionExists(BrokerError):
    """A durable subscription of this name exists, with another filter or another start."""

    code = "subscription_exists"


class TopicMismatch(SubscriptionExists):
    """A durable subscription of this name exists, to another topic."""

    code = "topic_mismatch"


class DuplicateMessage(BrokerError):
    """A put with a key that was used before: the message is stored already, and was not stored again."""

    code = "duplicate_message"


class NotExpectingAck(BrokerError):
    """An acknowledgement without a message to acknowledge: get one first. Unacknowledged messages are redelivered."""

    code = "not_expecting_ack"


class AckMismatch(NotExpectingAck):
    """An acknowledgement of a message that was not handed out, or that another consumer has got meanwhile."""

    code = "ack_mismatch"


class NothingThere(BrokerError, LookupError):
    """There is no message to get now; ask again later."""

    code = "nothing_there"
    retriable = True


class RowsGone(BrokerError, LookupError):
    """Rows of the range to read are gone: retention or an operator removed them."""

    code = "rows_gone"


class UnknownRequest(BrokerError):
    """A request of a type that the broker does not know."""

    code = "unknown_request"


class NotDurable(BrokerError):
    """A live topic is not stored: it has no log, no offsets and no named subscriptions. Declare it durable."""

    code = "not_durable"


class StagingLost(BrokerError):
    """Some or all of the rows that a sink staged are gone: nothing was published.

    `unstage` removed them, another client staged under the same numbers, the sink was silent for too long, or an
    earlier piece failed. A retry of the publish does not help: stage the rows again under a new attempt.
    """

    code = "staging_lost"


class UnknownQueue(BrokerError, LookupError):
    """A queue that is not declared, or was deleted: declare it, or list the queues to find its name."""

    code = "unknown_queue"


class QueueExists(BrokerError):
    """A queue of this name exists, with other types or other rules: choose another name, or delete it first."""

    code = "queue_exists"


class QueueInUse(BrokerError):
    """Open transactions have written or taken messages of this queue, or it is the dead-letter queue of another.

    Wait until the transactions end, or change the other queue, and delete it then.
    """

    code = "queue_in_use"
    retriable = True


class UnknownType(BrokerError, LookupError):
    """A message type that is not declared, or was deleted: declare it first."""

    code = "unknown_type"


class TypeExists(BrokerError):
    """A message type of this name exists, with another definition: choose another name, or delete it first."""

    code = "type_exists"


class TypeInUse(BrokerError):
    """A message type that queues take: delete those queues first."""

    code = "type_in_use"


class WrongType(BrokerError):
    """A message of a type that its queue does not take: declare the queue with that type, or use another queue."""

    code = "wrong_type"


class NoTransaction(BrokerError):
    """A queue was used outside a transaction, or after the transaction's end: begin one with transaction()."""

    code = "no_transaction"


class TransactionAborted(BrokerError):
    """The broker rolled a transaction back: messages it took are in their queues again, messages it wrote are gone.

    Its client was away for longer than its lease, its broker restarted, or one of its steps failed. Run the whole
    transaction again.
    """

    code = "transaction_aborted"
    retriable = True


class OutcomeUnknown(BrokerError):
    """The caller of a commit stopped waiting for it: the transaction may or may not be committed.

    Look into its queues before running the transaction again.
    """

    code = "outcome_unknown"


class BlockIncomplete(BrokerError):
    """A reader of a blockwise queue can commit only after taking every message that a writer's transaction wrote.

    The error names the messages that remain: dequeue them too and commit, or abort.
    """

    code = "block_incomplete"


class StateLost(BrokerError):
    """The broker restarted without its stored state: messages that it had acknowledged may be lost.

    The application decides how to go on. A new client starts on the new state.
    """

    code = "state_lost"


class ServedElsewhere(BrokerError):
    """Another broker of the cell serves this subscription now; connect to it, or try again."""

    code = "served_elsewhere"
    retriable = True


class StoreError(BrokerError):
    """The broker's database refused a statement. No acknowledged message is lost."""

    code = "store"


class StoreUnavailable(StoreError):
    """The broker's database cannot be reached or does not answer. Nothing was done: try again later."""

    code = "store_unavailable"
    retriable = True


class InDoubt(StoreUnavailable):
    """The broker's database went away during a commit: the next connection tells whether it was done."""

    code = "in_doubt"


class StoreFull(StoreError):
    """The disk of the broker's database is full: nothing was stored. Free some space, then try again."""

    code = "store_full"
    retriable = True


class CorruptLog(StoreError):
    """The log holds bytes that differ from the written ones. Such bytes are never skipped silently."""

    code = "corrupt_log"


class ProtocolError(BrokerError):
    """Bytes that do not follow the protocol: another program has the port, or one of the two ends has a fault."""

    code = "protocol"


class HandshakeRefused(BrokerError):
    """The broker does not accept this client: another protocol version, or an invalid name."""

    code = "handshake_refused"


class NotAuthenticated(HandshakeRefused):
    """The broker requires credentials, or does not accept the ones it got."""

    code = "not_authenticated"


class Fenced(BrokerError):
    """A newer client of the same name has connected, and this one was closed. Client names are unique."""

    code = "fenced"


class ConnectionLost(BrokerError, ConnectionError):
    """The peer or the network broke the connection. A client reconnects by itself, unless configured not to."""

    code = "connection_lost"
    retriable = True


class SlowConsumer(BrokerError):
    """The broker closed the connection: the client took messages more slowly than the topic's policy allows."""

    code = "slow_consumer"
    retriable = True


class Overloaded(BrokerError):
    """The broker has no memory or no connections left for the request. Try again later."""

    code = "overloaded"
    retriable = True


class TimedOut(BrokerError, TimeoutError):
    """The broker did not answer in time; the request may or may not have been carried out."""

    code = "timed_out"
    retriable = True


class PipelineFailed(MilepostError):
    """A lane or the second tier of a pipeline was started several times, and failed at once each time."""

    code = "pipeline_failed"
    retriable = True


class Closed(MilepostError):
    """You closed it, and then used it."""

    code = "closed"


class ConfigError(MilepostError, ValueError):
    """Settings that are unknown, invalid, or contradict each other."""

    code = "config"


class MissingPackage(ModuleNotFoundError, ConfigError):
    """A package that a part of Milepost needs is not installed. `name` is its module; the message names the extra."""

    code = "missing_package"


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


class PipelineError(_Listed, ConfigError):
    """An invalid pipeline. The message lists every problem; `problems` has them one by one, as (place, text)."""

    code = "pipeline"


class NetworkError(_Listed, ConfigError):
    """An invalid network of brokers. The message lists every problem; `problems` has them as (place, text)."""

    code = "network"


def from_code(code: str, message: str) -> MilepostError:
    """The error of a code, with the message that came over the wire; an unknown code gives a `BrokerError`."""
    found = _BY_CODE.get(code)
    if found is None:
        return BrokerError(message)
    made = found.__new__(found)
    Exception.__init__(made, message)  # the message is complete; a constructor would add to it
    return made


def _tree(root: type[MilepostError]) -> Iterable[type[MilepostError]]:
    yield root
    for below in root.__subclasses__():
        yield from _tree(below)


_BY_CODE = {kind.code: kind for kind in reversed(list(_tree(MilepostError)))}  # of two classes with one code, the base


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: "; did you mean 'price'?", or "" when no known name is near.

    Compares with at most a thousand names of about the same length: `difflib` is slow, and both the
    name and the known names may come from an untrusted peer.
    """
    similar = [item for item in known if abs(len(item) - len(name)) <= max(3, len(name) // 3)][:_NAMES_COMPARED]
    found = [item for item in similar if item.lower() == name.lower()] or get_close_matches(name, similar, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


_NAMES_COMPARED = 1_000
