"""The roles of the soak: topics, publishers, consumers, and what the ledger expects of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from milepost.testing.ledger import Ledger

FIRST, SECOND, THIRD = TOPICS = ("soak.first", "soak.second", "soak.third")
SCHEMA = "entry: [publisher: string, sequence: long, third: int8, bulk: string]"
BULK = "x" * 60  # makes a message of some hundred bytes
FILTER = "third = 0"
FEW = 20
FEW_FILTER = f"sequence % {FEW} = 0"  # as many as a client with two commits for each message can process


class Role(NamedTuple):
    """A worker process. Its name is also the name of its publisher or member, and of its records file."""

    name: str
    kind: str  # a function of `soak.worker`
    topic: str
    subscription: str = ""


PUBLISHERS = (
    Role("single", "put_single", FIRST),
    Role("mixed", "put_mixed", FIRST),
    Role("pair", "put_pair", FIRST),
    Role("keyed", "put_keyed", FIRST),
    Role("zeromq-first", "post", FIRST),
    Role("zeromq-third", "post", THIRD),
)
CONSUMERS = (
    Role("plain", "get", FIRST, "plain"),
    Role("group-1", "acknowledge", FIRST, "group"),
    Role("group-2", "acknowledge", FIRST, "group"),
    Role("filtered", "iterate", FIRST, "filtered"),
    Role("shared-native", "share", FIRST, "shared"),
    Role("shared-zeromq", "request", FIRST, "shared"),
    Role("second", "get", SECOND, "second"),
    Role("zeromq", "fetch", THIRD, "zeromq"),
)
MORTALS = PUBLISHERS + CONSUMERS
REQUESTERS = tuple(
    role for role in MORTALS if role.kind in ("post", "fetch")
)  # clients of the broker's own port for ZeroMQ
# It starts first and is never killed, because only its client knows its position. Brokers and databases are killed.
FOLLOWER = Role("follower", "follow", FIRST, "follower")
ROLES = (FOLLOWER, *MORTALS)


def row(publisher: str, sequence: int) -> dict[str, Any]:
    """A message that names its publisher and its sequence."""
    return {"publisher": publisher, "sequence": sequence, "third": sequence % 3, "bulk": BULK}


def ledger() -> Ledger:
    """A ledger with all expectations."""
    made = Ledger()
    made.subscription("plain", FIRST, "once")
    made.subscription("group", FIRST, "at least once")
    made.subscription("filtered", FIRST, "at least once", wants=lambda _, sequences: sequences % 3 == 0)
    # ZeroMQ does not report redeliveries.
    made.subscription("shared", FIRST, "at least once", wants=lambda _, sequences: sequences % FEW == 0, marked=False)
    made.subscription("second", SECOND, "once")
    made.subscription("zeromq", THIRD, "at least once", marked=False)
    made.subscription("follower", FIRST, "once")
    made.together("pair", (FIRST, SECOND))
    return made
