"""Queues without a broker: a client that does the broker's work itself, on the database.

`milepost.AsyncClient("postgresql://user@host/database")` uses this package. Its process is a member of the cell that
has its store there, beside brokers and other such clients::

    connection     takes the place of a connection to a broker: answers requests in the client's process
    store          this member's store: its writer, queries, leases and periodic work
    transactions   the driver of `queues.machine`: requests have futures, and replies are their results

Messages are converted directly between the client's objects and rows of tables: no frame, no socket but that of the
database, and no thread to wake.
"""

from milepost.extras import extra

with extra("queues without a broker need", "server"):
    from milepost.brokerless.connection import BrokerlessConnection

__all__ = ["BrokerlessConnection"]
