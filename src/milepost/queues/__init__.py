"""Transactional queues: typed messages in the tables of a database, written and taken in transactions.

::

    machine        open transactions of clients as one state machine, which a broker and a client without one drive
    waiters        dequeues that wait, in a `waiting_line` for each queue; `leases` of transactions
    requests       what clients ask, as operations (`milepost.operations.queues`), and the store's outcomes as replies
    execution      how the store carries each operation out; a program that opens a store imports it
    transactions   how steps are carried out, ended and undone
    outcomes       how transactions end: what becomes of their messages
    decisions      transactions over several stores: prepared, decided, remembered
    messages       headers and content in the tables: written, read, moved, removed
    statements     SQL, by name
    states         the state diagrams, as data, with the statement of each arc
    selection      which messages a dequeue takes next: levels, priorities, predicates, order
    first_dequeue  a transaction that begins with a dequeue, in one round trip
    rows           batches <-> rows of the tables of a type; `physical` is the form of each value
    catalogue      the types and queues of a store, and their tables
    numbers        M and T of message IDs
    admin, inspection, upkeep  what operators, onlookers and the broker itself do
    engine         what is kept in memory for all of it
    outbox         enqueue in a database transaction of the caller's own
    transfer       messages that go on to a queue of another broker, under two-phase commit; `transfers` in the store

`requests`, `machine` and what they import know no SQL: the broker's core uses them. So this page imports nothing.
"""

from typing import Any


def enqueue(*arguments: Any, **options: Any) -> list[str]:
    """Enqueue in a database transaction of your own; see `milepost.queues.outbox.enqueue`."""
    from milepost.queues import outbox  # here, so that the queues of a broker on SQLite need no psycopg

    return outbox.enqueue(*arguments, **options)


__all__ = ["enqueue"]
