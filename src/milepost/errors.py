"""Every error a user can meet.

::

    MilepostError
    ├── SchemaError               a schema that cannot be
    │   ├── SchemaSyntaxError     its text does not parse: line, caret, expectation
    │   ├── IncompatibleSchema    a new version that would break readers: the paths
    │   └── UnknownSchema         a name or fingerprint nobody registered
    ├── QueryError                a query that cannot be
    │   ├── QuerySyntaxError      its text does not parse: line, caret, expectation
    │   └── QueryTypeError        it parses, but not against this schema
    ├── InvalidValue              a value that does not fit its schema: the path
    ├── CheckFailed               a message that breaks a schema's ``check`` rule
    ├── MalformedBatch            bytes that are not a batch of this schema
    ├── LimitExceeded             input larger or deeper than a named limit allows
    │   └── QueryTooCostly        a query that took more steps, or longer, than its budget
    ├── BrokerError               a broker that says no, or cannot be talked to
    │   ├── UnknownTopic          a topic nobody declared
    │   ├── UnknownSubscription   a subscription that is not there, or no longer
    │   ├── SubscriptionExists    a name that another subscription has
    │   │   └── TopicMismatch     … and that is one to another topic
    │   ├── DuplicateMessage      a put whose key was seen before: it is stored already
    │   ├── NotExpectingAck       an acknowledgement when nothing is waiting for one
    │   │   └── AckMismatch       … of a message that was not handed out, or not to you
    │   ├── NothingThere          no message to get just now
    │   ├── RowsGone              rows that were to be read, and are kept no more
    │   ├── UnknownRequest        a request that nobody knows
    │   ├── NotDurable            a topic that is kept nowhere, asked for what is kept
    │   ├── StagingLost           rows that were staged are not there: stage them again
    │   ├── UnknownQueue          a queue that nobody declared
    │   ├── QueueExists           a queue of this name is there, and is another one
    │   ├── QueueInUse            a queue that cannot go while transactions have its messages
    │   ├── UnknownType           a message type that nobody declared
    │   ├── TypeExists            a type of this name is there, and is another one
    │   ├── TypeInUse             a type that cannot go while queues take it
    │   ├── WrongType             a message of a type that its queue does not take
    │   ├── NoTransaction         queues are used in a transaction, and this is none, or over
    │   ├── TransactionAborted    the broker has undone a transaction: run it again
    │   ├── OutcomeUnknown        a commit that nobody waited for to the end: done, or not
    │   ├── BlockIncomplete       a commit in the middle of what a writer wrote together
    │   ├── StateLost             the broker came back without what it had stored
    │   ├── ServedElsewhere       another broker of the cell serves this subscription
    │   ├── StoreError            the broker's database says no
    │   │   ├── StoreUnavailable  it cannot be reached, or does not answer
    │   │   │   └── InDoubt       … and whether it did what it was asked will be known later
    │   │   ├── StoreFull         its disk is full
    │   │   └── CorruptLog        what it holds is not what was written
    │   ├── ProtocolError         bytes that are not of the protocol
    │   ├── HandshakeRefused      a version or a name that the broker does not take
    │   │   └── NotAuthenticated  credentials that it does not take
    │   ├── Fenced                a newer client of the same name took over
    │   ├── ConnectionLost        the peer or the network broke the connection
    │   ├── SlowConsumer          the broker closed it: messages were not taken fast enough
    │   ├── Overloaded            the broker has no room for it now: memory, or connections
    │   └── TimedOut              the broker did not answer in time
    ├── PipelineFailed            a part of a pipeline that fails again and again
    ├── Closed                    you closed it, and then used it
    └── ConfigError               settings that cannot be
        ├── MissingPackage        a package of an extra that is not installed
        └── PipelineError         a pipeline that cannot run: everything that is wrong with it

Each class carries ``code``, which is stable and travels on the wire, and ``retriable``: whether doing
the same thing again can help. Messages say what happened, to what, and what to do next.
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
    """An error with a place in a text: `str(error)` shows the line, a caret, and what was expected.

    Mixed into the syntax errors and into `QueryTypeError`. `line` and `column` count from 1;
    both are 0 when the place is unknown.
    """

    def __init__(self, message: str, text: str = "", line: int = 0, column: int = 0) -> None:
        self.message = message
        self.text = text
        self.line = line
        self.column = column
        super().__init__(self._drawn())

    def _drawn(self) -> str:
        lines = self.text.split("\n")  # as lark counts; splitlines() knows eight more line ends
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
    """A message breaks a `check` rule of its schema; `rows` lists the first offenders."""

    code = "check_failed"

    def __init__(self, message: str, rule: str = "", rows: tuple[int, ...] = ()) -> None:
        self.rule = rule
        self.rows = rows
        super().__init__(message)


class MalformedBatch(MilepostError, ValueError):
    """Bytes that are not a batch of the schema they claim; nothing of them was used."""

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
        # It crosses processes, as in Spark.
        return type(self), (self.limit, self.value, self.maximum, self.what, self._advice)


class QueryTooCostly(LimitExceeded):
    """Evaluating a query went over its budget, which `limit` names; the evaluation was ended."""

    code = "query_too_costly"
    advice = "nest fewer quantifiers, let them range over shorter lists, or ask for less at once"


class BrokerError(MilepostError):
    """A broker refused something, or could not be talked to."""

    code = "broker"


class UnknownTopic(BrokerError, LookupError):
    """A topic that nobody has declared, or that was deleted."""

    code = "unknown_topic"


class UnknownSubscription(BrokerError, LookupError):
    """A subscription that is not there, or no longer."""

    code = "unknown_subscription"


class SubscriptionExists(BrokerError):
    """Another durable subscription has this name, with another filter or another beginning."""

    code = "subscription_exists"


class TopicMismatch(SubscriptionExists):
    """A durable subscription has this name, and it is one to another topic."""

    code = "topic_mismatch"


class DuplicateMessage(BrokerError):
    """A put with a key that was seen before: the message is stored already, and was not stored again."""

    code = "duplicate_message"


class NotExpectingAck(BrokerError):
    """An acknowledgement when nothing is waiting for one: get first. What was handed out before comes again."""

    code = "not_expecting_ack"


class AckMismatch(NotExpectingAck):
    """An acknowledgement of a message that was not handed out, or that another consumer has by now."""

    code = "ack_mismatch"


class NothingThere(BrokerError, LookupError):
    """There is no message to get just now; ask again later."""

    code = "nothing_there"
    retriable = True


class RowsGone(BrokerError, LookupError):
    """Rows of a range that was to be read are kept no more: retention or an operator removed them."""

    code = "rows_gone"


class UnknownRequest(BrokerError):
    """A request of a type that nobody knows."""

    code = "unknown_request"


class NotDurable(BrokerError):
    """A live topic is kept nowhere: it has no log, no offsets and no named subscriptions. Declare it durable."""

    code = "not_durable"


class StagingLost(BrokerError):
    """Rows that were staged for a sink are not there, or not all of them: nothing was published.

    They were thrown away by `unstage`, by another client that staged under the same numbers, or because the sink was
    silent for long; or a piece before them failed. Doing the same again does not help: stage under a new attempt.
    """

    code = "staging_lost"


class UnknownQueue(BrokerError, LookupError):
    """A queue that nobody has declared, or that was deleted: declare it, or look at the names that there are."""

    code = "unknown_queue"


class QueueExists(BrokerError):
    """A queue of this name is there, with other types or other rules: take another name, or delete it first."""

    code = "queue_exists"


class QueueInUse(BrokerError):
    """A queue has messages that transactions under way have written or taken, or another queue sends its dead there.

    Wait until they are done, and delete it then.
    """

    code = "queue_in_use"
    retriable = True


class UnknownType(BrokerError, LookupError):
    """A message type that nobody has declared, or that was deleted: declare it first."""

    code = "unknown_type"


class TypeExists(BrokerError):
    """A message type of this name is there, and has another definition: take another name, or delete it first."""

    code = "type_exists"


class TypeInUse(BrokerError):
    """A message type that queues take: delete those queues first."""

    code = "type_in_use"


class WrongType(BrokerError):
    """A message of a type that its queue does not take: declare the queue with that type, or take another queue."""

    code = "wrong_type"


class NoTransaction(BrokerError):
    """Queues are written and read in a transaction, and this is none, or it is over: begin one with transaction()."""

    code = "no_transaction"


class TransactionAborted(BrokerError):
    """The broker has undone a transaction: its messages are where they were, and what it wrote is gone.

    Its client was away for longer than its lease, its broker started anew, or one of its steps failed. Run the whole
    transaction again.
    """

    code = "transaction_aborted"
    retriable = True


class OutcomeUnknown(BrokerError):
    """A commit was on its way when its caller stopped waiting for it: it was done, or it was not.

    Look whether its messages are there, or are gone, before the transaction is run again.
    """

    code = "outcome_unknown"


class BlockIncomplete(BrokerError):
    """A reader of a blockwise queue commits only when it has taken all that a writer's transaction wrote.

    The message names what remains: dequeue that too, and commit then; or abort.
    """

    code = "block_incomplete"


class StateLost(BrokerError):
    """The broker came back without what it had stored: messages that it had acknowledged may be gone for good.

    Whoever knows what was lost decides how to go on; a new client starts on the new state.
    """

    code = "state_lost"


class ServedElsewhere(BrokerError):
    """Another broker of the cell serves this subscription at the moment; connect there, or try again."""

    code = "served_elsewhere"
    retriable = True


class StoreError(BrokerError):
    """The broker's database refused something. Nothing that was acknowledged is lost."""

    code = "store"


class StoreUnavailable(StoreError):
    """The broker's database cannot be reached or does not answer. Nothing was done: do it again later."""

    code = "store_unavailable"
    retriable = True


class InDoubt(StoreUnavailable):
    """The broker's database went away in the middle of a commit: the next connection tells what came of it."""

    code = "in_doubt"


class StoreFull(StoreError):
    """The disk of the broker's database is full: nothing was stored. Make room, then do it again."""

    code = "store_full"
    retriable = True


class CorruptLog(StoreError):
    """The log holds bytes that are not what was written. They are never skipped in silence."""

    code = "corrupt_log"


class ProtocolError(BrokerError):
    """Bytes that are not of the protocol: another program on the port, or a fault in one of the two ends."""

    code = "protocol"


class HandshakeRefused(BrokerError):
    """The broker does not take this client: another protocol version, or a name that cannot be."""

    code = "handshake_refused"


class NotAuthenticated(HandshakeRefused):
    """The broker asks for credentials, or does not take the ones it got."""

    code = "not_authenticated"


class Fenced(BrokerError):
    """A newer client of the same name has connected, and this one was closed. Names of clients are unique."""

    code = "fenced"


class ConnectionLost(BrokerError, ConnectionError):
    """The peer or the network broke the connection. A client connects again by itself, unless told not to."""

    code = "connection_lost"
    retriable = True


class SlowConsumer(BrokerError):
    """The broker closed the connection: its messages were not taken as fast as the topic's policy wants."""

    code = "slow_consumer"
    retriable = True


class Overloaded(BrokerError):
    """The broker has no room for what is asked: its memory or its connections are in use. Try again later."""

    code = "overloaded"
    retriable = True


class TimedOut(BrokerError, TimeoutError):
    """The broker did not answer in time; what was asked may or may not have happened."""

    code = "timed_out"
    retriable = True


class PipelineFailed(MilepostError):
    """A lane or the second tier of a pipeline was started several times, and failed each time at once."""

    code = "pipeline_failed"
    retriable = True


class Closed(MilepostError):
    """You closed it, and then used it."""

    code = "closed"


class ConfigError(MilepostError, ValueError):
    """Settings that contradict each other, or that nobody knows."""

    code = "config"


class MissingPackage(ModuleNotFoundError, ConfigError):
    """A package that a part of Milepost needs is not installed: `name` is its module, the message names the extra."""

    code = "missing_package"


class PipelineError(ConfigError):
    """A pipeline that cannot run. The message lists every problem; `problems` has them apart, as (place, text)."""

    code = "pipeline"

    def __init__(self, what: str, problems: Iterable[tuple[str, str]]) -> None:
        self.what = what
        self.problems = tuple(problems)
        count = len(self.problems)
        lines = [f"{place}: {text}" if place else text for place, text in self.problems]
        drawn = "".join("\n  " + line.replace("\n", "\n  ") for line in lines)
        super().__init__(f"{what} has {'a problem' if count == 1 else f'{count} problems'}:{drawn}")

    def __reduce__(self) -> tuple[type[PipelineError], tuple[str, tuple[tuple[str, str], ...]]]:
        return type(self), (self.what, self.problems)


def from_code(code: str, message: str) -> MilepostError:
    """The error with a code, in words that came over the wire or say more; an unknown code gives a `BrokerError`."""
    found = _BY_CODE.get(code)
    if found is None:
        return BrokerError(message)
    made = found.__new__(found)
    Exception.__init__(made, message)  # the words are already drawn; constructors would draw them again
    return made


def _tree(root: type[MilepostError]) -> Iterable[type[MilepostError]]:
    yield root
    for below in root.__subclasses__():
        yield from _tree(below)


_BY_CODE = {kind.code: kind for kind in reversed(list(_tree(MilepostError)))}  # of two with one code, the upper


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown name: "; did you mean 'price'?", or nothing when nothing is near.

    Compares with at most a thousand names of about the same length: `difflib` is slow, and both the
    name and what is known may come from a stranger.
    """
    similar = [item for item in known if abs(len(item) - len(name)) <= max(3, len(name) // 3)][:_NAMES_COMPARED]
    found = [item for item in similar if item.lower() == name.lower()] or get_close_matches(name, similar, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""


_NAMES_COMPARED = 1_000
