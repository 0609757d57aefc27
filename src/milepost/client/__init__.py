"""A program's end of a connection to a broker.

::

    async_client    AsyncClient: every verb
    client          Client, its synchronous face, bridged at one point
    session         a connection that comes back
    session_handler what a client does when its session connects, loses a connection or ends
    publisher       the putting half: outboxes, and how their rows get into frames
    outbox          rows between the call that put them and the frame that takes them away
    durable_puts    the durable half of that: puts that are kept until they are stored
    unsettled       … between their frame and the broker's word
    atomic          rows for several topics, stored all or none
    staging         rows that are stored now and seen later, together
    connection      one connection, from its handshake to its end
    dispatch        which rows of a delivery are for which subscription
    subscriptions   what a client is subscribed to, while connections come and go
    subscription    messages as they come, or whole batches of them
    durable         the same out of a topic's log, acknowledged or replayed
    options         what a durable subscription is asked for with
    start           where it begins
    acks            its acknowledgements, on their way
    logbatch        rows with their places in a log
    queues          the verbs about queues: types, queues, workers; sync_queues, their synchronous face
    transfers       the verbs about queues that go on to another broker, and about transactions over two
    transaction     messages into queues and out of them, all or nothing
    queue_session   what a client knows about queues: types, aborts to tell, the broker's time
    taken           messages out of queues, as the application gets them
    worker          functions that are called with them
    topic           topics as a client knows them
    backoff         how long to wait before connecting again
    statistics      what a client counts
"""

from milepost.client.async_client import AsyncClient
from milepost.client.atomic import Atomic
from milepost.client.client import Client, SyncSubscription
from milepost.client.durable import DurableSubscription
from milepost.client.logbatch import LogBatch
from milepost.client.queues import QueueInfo
from milepost.client.staging import Published
from milepost.client.statistics import ClientStatistics
from milepost.client.subscription import Subscription
from milepost.client.sync_queues import SyncTransaction
from milepost.client.taken import QueueMessage
from milepost.client.topic import Retention, TopicInfo
from milepost.client.transaction import Receipt, Transaction
from milepost.client.transfers import TransferInfo

__all__ = [
    "AsyncClient",
    "Atomic",
    "Client",
    "ClientStatistics",
    "DurableSubscription",
    "TransferInfo",
    "LogBatch",
    "Published",
    "QueueInfo",
    "QueueMessage",
    "Receipt",
    "Retention",
    "Subscription",
    "SyncSubscription",
    "SyncTransaction",
    "TopicInfo",
    "Transaction",
]
