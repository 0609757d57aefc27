"""The broker's core: events in, effects out. It has no socket, database, clock or thread, and its tests need none.

::

    core        the events, each a method that returns effects
    effects     what the shell is to do
    put         rows that a client sends, until they are stored or delivered
    admission   the only way in: every message passes it
    delivery    the only way out: every message passes it

    sessions/   connections: the handshake, publishers and their names, heartbeats
    topics/     topics: catalogue, schemas, plain subscriptions, backlogs of connections, slow consumers
    log/        durable topics: puts that are stored, durable subscriptions, acknowledgements, dead letters, staging
    queues/     queue transactions of clients, on the state machine of `milepost.queues.machine`
    routing/    which connections get which rows
    rights/     principals

    memory      the account of all bytes that are held for connections
    predicates  compiled predicates and schemas; runs an event again after a compilation that it needs
    statistics  all figures, with those that `counts` has the store count from time to time

Matching and compiling run outside: a put has its snapshot (`Core.put`), and the results come back as events
(`Core.arrived`, and the continuations of `Match` and `Compile`). Other long work is split, with `Later` in between.
"""

from milepost.broker.core.core import Core
from milepost.broker.core.effects import Close, Deliver, Effect, Say
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.topics.topic import Topic, Version

__all__ = ["Close", "Connection", "Core", "Deliver", "Effect", "Say", "Topic", "Version"]
