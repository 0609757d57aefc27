"""A program's end of a connection to a broker.

::

    async_client    AsyncClient: every verb
    client          Client, its synchronous face, bridged at one point
    session         a connection that comes back
    publisher       the putting half: outboxes, and how their rows get into frames
    outbox          rows between the call that put them and the frame that takes them away
    connection      one connection, from its handshake to its end
    dispatch        which rows of a delivery are for which subscription
    subscription    messages as they come, or whole batches of them
    topic           topics as a client knows them
    backoff         how long to wait before connecting again
    statistics      what a client counts
"""

from milepost.client.async_client import AsyncClient
from milepost.client.client import Client, SyncSubscription
from milepost.client.statistics import ClientStatistics
from milepost.client.subscription import Subscription
from milepost.client.topic import TopicInfo

__all__ = ["AsyncClient", "Client", "ClientStatistics", "Subscription", "SyncSubscription", "TopicInfo"]
