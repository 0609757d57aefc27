"""Transactional queues: typed messages in database tables, enqueued and dequeued in transactions.

::

    machine        open transactions of clients as one state machine, driven by a broker or by a brokerless client
    waiters        waiting dequeues, in a `waiting_line` for each queue; `leases` of transactions
    requests       requests of clients to operations (`milepost.operations.queues`), outcomes of the store to replies
    execution      registers the operations with the store; a program that opens a store imports it
    transactions   the steps of a transaction in the database
    outcomes       commit and rollback: the transitions of a transaction's messages
    decisions      transactions over several stores: prepared, decided, remembered
    messages       headers and content in the tables: written, read, moved, removed
    statements     SQL, by name
    states         the state diagrams, as data, with the statement of each arc
    selection      the next messages of a dequeue: levels, priorities, predicates, order
    first_dequeue  a transaction that begins with a dequeue, in one round trip
    rows           batches <-> rows of the tables of a type; `physical` is the form of each value
    catalogue      the types and queues of a store, and their tables
    numbers        M and T of message IDs
    admin, inspection, upkeep  operations of operators, queries, and the broker's own work
    engine         the state of queues in memory
    outbox         enqueue in a database transaction of the caller's own
    transfer       transfers of messages to a queue of another broker, by two-phase commit; `transfers` in the store

The broker's core uses `requests` and `machine`, so they and their imports have no SQL, and this page imports nothing.
"""

from typing import Any


def enqueue(*arguments: Any, **options: Any) -> list[str]:
    """Enqueue in a database transaction of your own; see `milepost.queues.outbox.enqueue`."""
    from milepost.queues import outbox  # here, so that a broker on SQLite needs no psycopg

    return outbox.enqueue(*arguments, **options)


__all__ = ["enqueue"]
