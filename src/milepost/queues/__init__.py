"""Transactional queues: typed messages in the tables of a database, written and taken in transactions.

::

    operations     what the broker gives to the store's writer: transactions, administration, looks
    steps          what a transaction consists of, and what comes of it
    transactions   how steps are carried out, ended and undone
    states         the state diagrams, as data, with the statement of each arc
    picking        who may take what next: levels, priorities, selection, order
    rows           batches <-> rows of the tables of a type; `physical` is the form of each value
    catalogue      the types and queues of a store, and their tables
    numbers        M and T of message IDs
    admin, looking, upkeep     what operators, onlookers and the broker itself do
    engine         what is kept in memory for all of it
"""

from milepost.queues.catalogue import QueueRecord, TypeRecord
from milepost.queues.states import LEVELS

__all__ = ["LEVELS", "QueueRecord", "TypeRecord"]
