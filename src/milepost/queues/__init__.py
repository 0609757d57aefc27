"""Transactional queues: typed messages in the tables of a database, written and taken in transactions.

::

    requests       what clients ask, as operations (`milepost.operations.queues`), and what they are answered
    line           dequeues that wait for messages, in order
    execution      how the store carries each operation out; whoever opens a store imports it
    transactions   how steps are carried out, ended and undone
    deciding       transactions over several stores: prepared, decided, remembered
    messages       headers and content in the tables: written, read, moved, removed
    states         the state diagrams, as data, with the statement of each arc
    picking        who may take what next: levels, priorities, selection, order
    rows           batches <-> rows of the tables of a type; `physical` is the form of each value
    catalogue      the types and queues of a store, and their tables
    numbers        M and T of message IDs
    admin, looking, upkeep     what operators, onlookers and the broker itself do
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
