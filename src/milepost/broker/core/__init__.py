"""The broker's mind: events in, effects out. No socket, no clock, no thread; tests need none either.

::

    core            the events, each a method that returns effects
    effects         what the shell is to do
    connection      a client as the core sees it: credit, queue, subscriptions
    publishers      the handshake: names, numbers and tags
    catalogue       the topics, and what clients ask about them
    topic           a name with its schemas, and who wants which rows of it
    pattern         names of topics, and patterns of them
    share           one batch and its matches -> the rows of each connection
    backlog          what waits for a connection that is busy: bounded, joined, dropped
    durable          durable topics and puts: what is stored before it is acknowledged
    streams         durable subscriptions: who is attached, what is read, what is acknowledged
    subscription          one of them at work; reach: how far it has got in one log
    terms           what one may be asked for with; start: where it begins; bounds: where a read ends by itself
    holds           cursors that nobody is served from
    burial          rows that were delivered too often
    predicates      what must be compiled before an event can be; the shell keeps what was
    attempts        such events: run, put off and run again
    rebuild         the indexes of a topic for further versions of its schema

The shell matches, on a snapshot of a topic's index: rows of live topics before `Core.arrived`, rows that were stored
by the effect `Match`. Whatever else is long is the effect `Compile`, or is done in parts, with `Later` between them.
No other thread touches the core's state; import contracts and `tests/unit/broker/test_purity.py` hold what it imports.
"""

from milepost.broker.core.core import Core
from milepost.broker.core.effects import Close, Deliver, Effect, Say
from milepost.broker.core.sessions.connection import Connection
from milepost.broker.core.topics.topic import Topic, Version

__all__ = ["Close", "Connection", "Core", "Deliver", "Effect", "Say", "Topic", "Version"]
