"""The broker's core: events in, effects out. No socket, no database, no clock, no thread; tests need none either.

::

    core        the events, each a method that returns effects
    effects     what the shell is to do
    put         rows that a client sends, on their way in
    admission   the one way in: every message passes it
    delivery    the one way out: every message passes it

    sessions/   connections: the handshake, publishers and their names, heartbeats
    topics/     topics: catalogue, schemas, plain subscriptions, backlogs of connections, slow consumers
    log/        durable topics: puts that are stored, durable subscriptions, acknowledgements, dead letters, staging
    queues/     queue transactions of clients, on the state machine of `milepost.queues.machine`
    routing/    which connections get which rows
    rights/     principals

    memory      the account of all bytes that are held for connections
    predicates  what must be compiled before an event can be handled; attempts: such events, run again afterwards
    statistics  all figures, with what `counts` has the store count now and then

Matching and compiling run outside: a put brings its snapshot (`Core.put`), the results come back as events
(`Core.arrived`, and the continuation of `Match` and `Compile`). Other long work is done in parts, with `Later` between.
"""

from milepost.broker.core.core import Core
from milepost.broker.core.effects import Close, Deliver, Effect, Say
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.topics.topic import Topic, Version

__all__ = ["Close", "Connection", "Core", "Deliver", "Effect", "Say", "Topic", "Version"]
