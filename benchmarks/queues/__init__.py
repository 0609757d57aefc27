"""`make bench NAME=queues`: transactional queues against procrastinate and PGQueuer, on one and the same PostgreSQL.

One server from a wheel, with its own folder and the settings it comes with (`fsync` and `synchronous_commit` on), and a
database for each contestant. A client is a process of its own, which fills a queue and empties it again, in turns with
the others. The content of a message is the same for all: five attributes, a hundred bytes of values. What is timed:

- Milepost: the public client, given the database's own URL, so that there is no broker, as the peers have none; and
  the same client with a broker process between it and the database, which has keys of its own. Enqueue:
  `client.transaction()`, one `tx.enqueue` of 100 dicts, from which the typed columns are made, and the commit.
  Dequeue: a transaction, one `tx.dequeue(count=100)`, all five attributes read of each message, and the commit.
  Committed is synced.
- PGQueuer: its `Queries` on an asyncpg connection, as its worker uses it, but without the worker: with it,
  100 to a batch, it is about half as quick. Enqueue: one `enqueue` of 100 payloads, JSON by orjson. Dequeue: one
  `dequeue` of 100, JSON parsed and an attribute read of each, one `log_jobs` of all as successful, which deletes them.
  Each call is one statement, which commits by itself.
- procrastinate: its app on a psycopg pool, orjson as its JSON, no check of connections, statements that commit by
  themselves, statistics up to date. Enqueue: one `batch_defer_async` of 100. It cannot fetch or finish several jobs at
  once: a dequeue fetches 100 one by one, as its worker does, and finishes them beside that on four connections;
  finished jobs are deleted. Its worker would add tasks, logging and heartbeats.

"One per transaction" is the same with one message: `enqueue` and `defer_async` of one, `dequeue` and `fetch_job` of
one. A rate is the best of the rounds, for every contestant.
"""

from benchmarks.queues.run import PARTS, run

__all__ = ["PARTS", "run"]
