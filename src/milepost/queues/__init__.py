"""Transactional queues: typed messages in the tables of a database, written and taken in transactions.

::

    operations     what the broker gives to the store's writer: transactions, administration, looks
    steps          what a transaction consists of, and what comes of it
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
"""

from typing import Any

from milepost.queues.catalogue import QueueRecord, TypeRecord
from milepost.queues.states import LEVELS


def enqueue(*arguments: Any, **options: Any) -> list[str]:
    """Enqueue in a database transaction of your own; see `milepost.queues.outbox.enqueue`."""
    from milepost.queues import outbox  # here, so that the queues of a broker on SQLite need no psycopg

    return outbox.enqueue(*arguments, **options)


__all__ = ["LEVELS", "QueueRecord", "TypeRecord", "enqueue"]
