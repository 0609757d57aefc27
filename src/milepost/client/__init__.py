"""A program's end of a connection to a broker.

::

    async_client    AsyncClient: every verb
    client          Client, its synchronous face, bridged at one point
    session         a connection that is made again when it breaks
    session_handler what a client does when its session connects, loses a connection or ends
    publisher       puts: outboxes, and how their rows get into frames
    outbox          rows between the call that puts them and the frame that carries them
    durable_puts    durable puts: kept until they are stored
    unsettled       durable puts between their frame and the broker's answer
    atomic          rows for several topics, stored all or none
    staging         rows that are stored now and become visible later, together
    connection      one connection, from its handshake to its end
    dispatch        which rows of a delivery are for which subscription
    subscriptions   a client's subscriptions, across connections
    subscription    messages one by one as they arrive, or in whole batches
    durable         messages from a topic's log, acknowledged or replayed
    options         the options of a durable subscription
    start           where a durable subscription begins
    acks            the acknowledgements of a durable subscription
    logbatch        rows with their places in a log
    queues          the verbs about queues: types, queues, workers
    transfers       the verbs about queues that forward to another broker, and about transactions across two brokers
    transaction     messages into queues and out of them, all or nothing
    queue_session   what a client knows about queues: types, aborts to report, the broker's time
    taken           messages out of queues, as the application gets them
    worker          functions that are called with messages of queues
    topic           topics as a client knows them
    waiters         futures that tasks wait for
    backoff         how long to wait before connecting again
    statistics      the counters of a client
"""

from milepost.client.async_client import AsyncClient
from milepost.client.atomic import Atomic
from milepost.client.client import Client, SyncSubscription, SyncTransaction
from milepost.client.durable import DurableSubscription
from milepost.client.logbatch import LogBatch
from milepost.client.queues import QueueInfo
from milepost.client.staging import Published
from milepost.client.statistics import ClientStatistics
from milepost.client.subscription import Subscription
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
