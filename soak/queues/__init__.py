"""Transactions on queues while everything is killed: brokers, their clients in the middle of one, the database.

::

    writer-1 ─┐             ┌─ mover-1 ─┐              ┌─ drain-1
              ├─> "in …" ───┤           ├──> "out …" ──┤
    writer-2 ─┘             └─ mover-2 ─┘              └─ drain-2

There is a queue "in" and a queue "out" of each level. What a mover takes from one it writes to the other, in the same
transaction. On PostgreSQL the second of each kind goes without a broker: it is a client of the database itself. Each
client notes what it is about to do, and what came of it; in the end `ledger` holds against each other what was
committed and what came out, and the tables of the messages have to be empty.
"""
