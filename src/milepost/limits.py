"""Every bound on input, with its unit and its reason.

A length is compared with its limit before memory is allocated for it. `LimitExceeded` names the constant.
"""

from __future__ import annotations

from typing import Final

from milepost.errors import LimitExceeded

# Schemas: text written by people. The limits are some ten times the needs of a large system's generated schema.
SCHEMA_TEXT_CHARS: Final = 1_000_000
SCHEMA_TOKENS: Final = 200_000  # words and signs in a schema's text; a field takes ten at most
SCHEMA_DEPTH: Final = 64  # nested types; deeper trees would exhaust Python's stack in recursive walks
SCHEMA_NODES: Final = 20_000  # types in one schema, definitions included
SCHEMA_NAME_CHARS: Final = 255
SCHEMA_COMPARISONS: Final = 200_000  # types met when two versions are compared; hostile recursion makes millions
REGISTRY_SCHEMAS: Final = 100_000  # in one registry, every version counted; some kilobytes each
VARIANT_CASES: Final = 127  # the case number is one byte, and Arrow's unions stop at 127
DECIMAL_DIGITS: Final = 38  # the most that 16 bytes hold, and the limit that Arrow, PostgreSQL and Spark share

# Batches. Offsets are 32-bit and signed, as Arrow's, so no buffer may reach 2 GiB; half of it leaves room to join.
BATCH_BYTES: Final = 1 << 30
BATCH_ROWS: Final = (1 << 24) - 1  # the row count shares a 32-bit word with the flags
BATCH_GROUPS: Final = 64  # flat-tuple cases in one batch; past it, variants are boxed
CASE_CODES: Final = 1 << 32  # the multi-choice code has four bytes; a schema with more cases is always boxed
CASE_CACHE: Final = 1024  # derived layouts kept per schema; the least recently used goes first
BATCH_EMPTY: Final = 65_536  # elements without bytes, as rows of a schema without fields: no other limit bounds them
DYNAMIC_DEPTH: Final = 32  # dynamic values inside dynamic values, recursion included

# Queries: text from the network that the broker parses.
QUERY_TEXT_CHARS: Final = 100_000
QUERY_TOKENS: Final = 50_000  # words and signs; the parser takes some ten microseconds for each
QUERY_DEPTH: Final = 100  # nested expressions; deeper ones would exhaust Python's stack
QUERY_NODES: Final = 20_000  # one `in` list of 10,000 literals fits
QUERY_VALUE_BYTES: Final = 1 << 26  # text that evaluating one message may make at once: `||` in a tree doubles it
LIKE_PATTERN_CHARS: Final = 1_000  # the matcher carries one bit of state per pattern character
QUERY_BINDINGS: Final = 5_000_000  # combinations of elements looked at in one message: nested quantifiers multiply
# What evaluating one query may cost. A step is one operation on one element, or a pass over one byte of text: some
# three nanoseconds for a whole batch at once, and so 60 ms for the most that a small batch may take.
QUERY_STEPS: Final = 2_000_000  # for each message of a batch,
QUERY_BATCH_STEPS: Final = 20_000_000  # but no more for all of them together;
QUERY_BYTE_STEPS: Final = 8  # and so many for each byte of the batch: a query that reads it once is never refused
QUERY_ROW_STEPS: Final = 32  # cost of a step where messages are evaluated one by one: it takes so much longer
QUERY_MS: Final = 1_000  # database time of a statement with an expression: it may delay the writes of all clients

# The wire: how much an untrusted peer can make a broker or a client hold.
FRAME_BYTES: Final = 64 << 20  # one frame; a batch that is larger is split by the client
HELLO_BYTES: Final = 4_096  # the first frame of a connection, before the peer is authenticated
CONTROL_BYTES: Final = 4 << 20  # a control frame: the text of the largest schema fits
NAME_CHARS: Final = 255  # of a client, a topic or a broker
TOPICS: Final = 100_000  # in one broker
TOPIC_VERSIONS: Final = 100  # of one topic's schema; each has an index of its own
TOPIC_SCHEMA_CHARS: Final = 200_000  # the texts of all its versions: parsed in a second, announced in one frame
WHERE_CHARS: Final = 20_000  # of a subscription's predicate: compiling it takes a quarter second at most
SUBSCRIPTIONS_PER_CONNECTION: Final = 1_000_000  # a gateway may subscribe for many clients
# Predicates that no index answers are evaluated for each message, 5 µs each, or 75 µs and more for a batch.
EVALUATED_PER_TOPIC: Final = 10_000  # distinct ones
EVALUATED_PER_CONNECTION: Final = 2_000  # the same, of one connection to one topic
SUBSCRIPTION_NUMBER: Final = (1 << 32) - 1
WILDCARD_TOPICS: Final = 10_000  # topics that one subscription may cover

REMEMBERED_S: Final = 366 * 86_400  # seconds that keys of puts may be remembered

# Durable topics.
PUT_PARTS: Final = 1_000  # PUT frames that are stored all or none
ACK_RANGES: Final = 100_000  # of one acknowledgement
LOGS: Final = 1_000  # in one position: each broker has its own log
STAGED_BYTES: Final = 1 << 30  # of one sink, not yet published: publishing holds an epoch in memory, once
STAGED_PARTS: Final = 100_000  # of one epoch
HANDED_ROWS: Final = 1_000  # of a subscription, handed on and not acknowledged: all are stored with each cursor
PREFETCH_ROWS: Final = 1_000_000  # handed out to one client and not acknowledged
DELIVERIES: Final = 1_000_000  # of a message before it is a dead letter; a higher setting is a mistake

# Queues.
TRANSACTIONS: Final = 10_000  # of one client, open at once; each is a row and a few objects
TRANSACTION_MESSAGES: Final = 200_000  # enqueued by one: the reply to its commit names them all, in a control frame
DEQUEUE_MESSAGES: Final = 100_000  # of one dequeue: the thread that writes for all clients reads them
BROWSE_MESSAGES: Final = 10_000  # of one browse, which a further browse continues
QUEUE_TYPES: Final = 100  # types that one queue takes: a dequeue of any type queries each
DEQUEUE_WAIT_S: Final = 86_400  # seconds that a dequeue may wait for a message

# Networks of brokers: a file written by people or a program, read whole by every broker.
NETWORK_FILE_BYTES: Final = 4 << 20  # the file of the largest network has less than half of it
NETWORK_CELLS: Final = 1_000  # each cell computes its way to every other cell
NETWORK_BROKERS: Final = 10_000  # physical ones, and also virtual ones: ten in each of the most cells
NETWORK_LINKS: Final = 20_000  # in all bundles; each is a connection
NETWORK_TREES: Final = 16  # a broker holds the interest behind its links once for each tree


def require(limit: str, value: int, what: str) -> None:
    """Raise `LimitExceeded` when `value` is over the constant named `limit`; `what` opens the message."""
    maximum = globals()[limit]
    if value > maximum:
        raise LimitExceeded(limit, value, maximum, what)
