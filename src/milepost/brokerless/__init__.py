"""Queues without a broker: a client that does the work of one, on the database itself.

`milepost.AsyncClient("postgresql://user@host/database")` comes here. Its process is one more member of the cell that
has its store there, beside brokers and other such clients::

    connection     what the client takes for its connection: requests are answered here, and not sent anywhere
    store          the store as this member of the cell has it: who writes it, leases, what has to be done now and then
    transactions   the driver of `queues.machine`: requests have futures, and replies are their results

Messages go from the client's objects to rows of tables and back, with nothing in between: no frame, no socket but that
of the database, and no thread that would have to be woken.
"""

from milepost.extras import extra

with extra("queues without a broker need", "server"):
    from milepost.brokerless.connection import BrokerlessConnection

__all__ = ["BrokerlessConnection"]
