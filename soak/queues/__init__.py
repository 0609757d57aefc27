"""Transactions on queues while everything is killed: brokers, clients in the middle of a transaction, the database.

::

    writer-1 ─┐             ┌─ mover-1 ─┐              ┌─ drain-1
              ├─> "in …" ───┤           ├──> "out …" ──┤
    writer-2 ─┘             └─ mover-2 ─┘              └─ drain-2

There is a queue "in" and a queue "out" of each level. A mover takes messages from one and writes them to the other, in
the same transaction. On PostgreSQL the second client of each kind uses no broker: it is a client of the database
itself. Each client records what it is about to do, and the outcome. At the end `ledger` compares what was committed
with what came out, and the tables of the messages must be empty.
"""
