"""Every constant statement about queues, by name; and those about the table of one queue, for `about`.

Generated statements are elsewhere: transitions of messages in `states`, selection of messages in `selection`, rows of
a type's tables in `rows`, headers in `messages`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from milepost.queues.states import NEVER_US
from milepost.storage.statement import Statement

CACHED: Final = 1_000  # statements cached of each kind: an application repeats the same few

# The catalogue

# The version of types and queues: tells whether a process's catalogue is current.
CATALOGUE_VERSION: Final = Statement("SELECT version FROM queue_catalogue")
# Types or queues have changed.
CHANGE_CATALOGUE: Final = Statement("UPDATE queue_catalogue SET version = version + 1")
# Keep other members of the cell from changing the catalogue until the transaction ends.
LOCK_CATALOGUE: Final = Statement("SELECT version FROM queue_catalogue {for_update}")
# Raise (division by zero) when the catalogue does not have the assumed version.
SAME_VERSION: Final = Statement("SELECT 1 / CASE WHEN version = :version THEN 1 ELSE 0 END FROM queue_catalogue")
# All message types.
TYPES: Final = Statement("SELECT number, name, source FROM queue_types ORDER BY number")
# All queues.
QUEUES: Final = Statement("""
    SELECT number, name, level, direction, priority, prioritized, dead, most_aborts, created_us FROM queues
    ORDER BY number""")
# The types that queues accept, and their priority functions.
ACCEPTED_TYPES: Final = Statement("SELECT queue, type, function FROM queue_accepts ORDER BY queue, type")
# Declare a type.
MAKE_TYPE: Final = Statement("""
    INSERT INTO queue_types (name, source, created_us) VALUES (:name, :source, :time_us) RETURNING number""")
# Declare a queue.
MAKE_QUEUE: Final = Statement("""
    INSERT INTO queues (name, level, direction, priority, prioritized, dead, most_aborts, created_us)
    VALUES (:name, :level, :direction, :priority, :prioritized, :dead_letter, :max_deliveries, :time_us)
    RETURNING number""")
# A queue accepts a type.
ACCEPT_TYPE: Final = Statement("INSERT INTO queue_accepts (queue, type, function) VALUES (:queue, :type, :function)")
# Messages of a queue may have priorities of their own from now on.
PRIORITIZE_QUEUE: Final = Statement("UPDATE queues SET prioritized = 1 WHERE number = :number AND prioritized = 0")
# The number of open or prepared transactions that use a queue.
COUNT_TRANSACTIONS_OF: Final = Statement("""
    SELECT count(DISTINCT l.transaction_number) FROM queue_log l JOIN queue_transactions t
    ON t.number = l.transaction_number WHERE l.queue = :number AND t.state IN ('a', 'p')""")
# Delete a type.
DELETE_TYPE: Final = Statement("DELETE FROM queue_types WHERE number = :number")
# Delete a queue,
DELETE_QUEUE: Final = Statement("DELETE FROM queues WHERE number = :number")
# its accepted types
DELETE_ACCEPTED: Final = Statement("DELETE FROM queue_accepts WHERE queue = :queue")
# and its groups.
DELETE_GROUPS: Final = Statement("DELETE FROM queue_groups WHERE queue = :queue")

# Transactions

# The highest transaction number: new numbers are above it.
HIGHEST_TRANSACTION: Final = Statement("SELECT coalesce(max(number), 0) FROM queue_transactions")
# Begin a transaction, unless the client has begun it before; returns the version of the catalogue.
BEGIN: Final = Statement("""
    INSERT INTO queue_transactions (number, s, instance, client, log, state, operations, messages, lease_us)
    VALUES (:number, :s, :instance, :client, :log, :state, 1, :messages, {now} + :lease_us)
    ON CONFLICT (instance, client) DO NOTHING RETURNING (SELECT version FROM queue_catalogue)""")
# Begin a transaction that is assumed to be new: on PostgreSQL this raises when it is not.
BEGIN_NEW: Final = Statement(
    """
    INSERT INTO queue_transactions (number, s, instance, client, log, state, operations, messages, lease_us)
    VALUES (:number, :s, :instance, :client, :log, :state, 1, :messages, {now} + :lease_us)
    ON CONFLICT (instance, client) DO NOTHING RETURNING (SELECT version FROM queue_catalogue)""",
    postgresql="""
    INSERT INTO queue_transactions (number, s, instance, client, log, state, operations, messages, lease_us)
    VALUES (:number, :s, :instance, :client, :log, :state,
        1 / CASE WHEN (SELECT version FROM queue_catalogue) = :version THEN 1 ELSE 0 END, :messages, {now} + :lease_us)
    RETURNING (SELECT version FROM queue_catalogue)""",
)
# A transaction by the client's own number for it.
FIND_TRANSACTION: Final = Statement("""
    SELECT number, state, messages, s FROM queue_transactions
    WHERE instance = :instance AND client = :client {for_update}""")
# Count one more operation of an open transaction.
GO_ON: Final = Statement("""
    UPDATE queue_transactions SET operations = operations + 1
    WHERE number = :number AND state = 'a' AND operations >= :expected
    RETURNING operations, (SELECT version FROM queue_catalogue)""")
# Log how many messages an operation has brought to a log state.
LOG: Final = Statement("""
    INSERT INTO queue_log (transaction_number, operation, kind, queue, messages)
    VALUES (:number, :operation, :kind, :queue, :messages)
    ON CONFLICT (transaction_number, operation, kind, queue) DO UPDATE
    SET messages = queue_log.messages + excluded.messages""")
# The kinds and queues of a transaction's operations so far.
LOGGED: Final = Statement("SELECT DISTINCT kind, queue FROM queue_log WHERE transaction_number = :number")
# Read and remove the log of a transaction that ends.
UNLOG: Final = Statement("DELETE FROM queue_log WHERE transaction_number = :number RETURNING kind, queue, messages")
# Remove the log of a transaction whose state is remembered.
CLEAR_LOG: Final = Statement("DELETE FROM queue_log WHERE transaction_number = :number")
# Commit a transaction whose state is remembered; the row count tells whether that state was right.
COMMIT: Final = Statement("""
    UPDATE queue_transactions SET state = 'c', lease_us = {now} + :lease_us
    WHERE number = :number AND state = 'a' AND operations = :operations""")
# Commit or undo a transaction.
END: Final = Statement("""
    UPDATE queue_transactions SET state = :state, lease_us = {now} + :lease_us WHERE number = :number""")
# The state of a transaction, locked until the database transaction ends.
LOCK_TRANSACTION: Final = Statement("SELECT state FROM queue_transactions WHERE number = :number {for_update}")
# Renew the leases of open transactions.
RENEW: Final = Statement("""
    UPDATE queue_transactions SET lease_us = {now} + :lease_us WHERE number {in numbers} AND state = 'a'
    RETURNING number""")
# Recovery: transactions that were open in this log when its process ended.
LEFT: Final = Statement("""
    SELECT number FROM queue_transactions WHERE log = :log AND state = 'a' ORDER BY number {for_update}""")
# Transactions whose lease has ended. A SELECT of its own evaluates the time once, so that the index can be used; the
# order is that of the index.
LAPSED: Final = Statement("""
    SELECT number FROM queue_transactions WHERE lease_us < (SELECT {now}) AND state = 'a' ORDER BY lease_us LIMIT :most
    {skip_locked}""")
# Whether a transaction has taken messages of a queue that is transferred.
TRANSFERRED: Final = Statement("""
    SELECT 1 FROM queue_log JOIN queue_transfers ON queue_transfers.queue = queue_log.queue
    WHERE queue_log.transaction_number = :number AND queue_log.kind = 'd' LIMIT 1""")
# Forget outcomes of transactions that clients no longer ask for.
FORGET_OUTCOMES: Final = Statement("""
    DELETE FROM queue_transactions WHERE number IN (SELECT number FROM queue_transactions
    WHERE lease_us < (SELECT {now}) AND state IN ('c', 'x') ORDER BY lease_us LIMIT :most)""")

# Transactions over two stores

# Prepare a participant's transaction.
PREPARE: Final = Statement("""
    UPDATE queue_transactions SET state = 'p', gid = :gid, coordinator = :coordinator WHERE number = :number""")
# A prepared transaction, by its name.
FIND_PREPARED: Final = Statement("""
    SELECT number, state FROM queue_transactions WHERE gid = :gid {for_update}""")
# All transactions that wait for a decision.
ALL_PREPARED: Final = Statement("""
    SELECT gid, coordinator FROM queue_transactions WHERE state = 'p' AND gid IS NOT NULL ORDER BY number""")
# S of the messages of a transaction.
WRITER: Final = Statement("SELECT s FROM queue_transactions WHERE number = :number")
# A coordinator stores, with its commit, that the participant must commit.
DECIDE: Final = Statement("""
    INSERT INTO queue_decisions (gid, participant, decided_us) VALUES (:gid, :participant, :time_us)""")
# Whether a coordinator has decided to commit.
DECIDED: Final = Statement("SELECT 1 FROM queue_decisions WHERE gid = :gid")
# All decisions that participants may still ask for.
DECISIONS: Final = Statement("SELECT gid, participant FROM queue_decisions ORDER BY decided_us, gid")
# Forget a decision: the participant has committed.
FORGET_DECISION: Final = Statement("DELETE FROM queue_decisions WHERE gid = :gid")

# Groups: writers whose messages stay in order, or blocks

# Make groups, so that their messages can be reserved. The lock lasts until the commit: a sweep that removes groups
# without messages checks again once it has the lock.
MAKE_GROUPS: Final = Statement("""
    INSERT INTO queue_groups (queue, member, owner) SELECT :queue, value, 0 FROM {each members} g WHERE true
    ON CONFLICT (queue, member) DO UPDATE SET owner = queue_groups.owner""")
# The same in a shared store: make groups that do not exist,
MAKE_MISSING_GROUPS: Final = Statement("""
    INSERT INTO queue_groups (queue, member, owner) SELECT :queue, value, 0 FROM {each members} g
    WHERE NOT EXISTS (SELECT 1 FROM queue_groups o WHERE o.queue = :queue AND o.member = g.value)
    ON CONFLICT (queue, member) DO UPDATE SET owner = queue_groups.owner""")
# and keep existing ones from being removed, while readers can still reserve them. When there are fewer than expected,
# a group was removed between the two statements, and is made again.
KEEP_GROUPS: Final = Statement("""
    SELECT member FROM queue_groups WHERE queue = :queue AND member {in members} ORDER BY member FOR KEY SHARE""")
# A transaction reserves groups that are free.
RESERVE: Final = Statement("""
    UPDATE queue_groups SET owner = :owner WHERE queue = :queue AND member {in members} AND owner IN (0, :owner)""")
# A transaction ends: its groups are free again.
RELEASE_TEXT: Final = "UPDATE queue_groups SET owner = 0 WHERE owner = :owner AND owner <> 0"
RELEASE: Final = Statement(RELEASE_TEXT)
# Remove the blocks of a transaction that has read them completely.
REMOVE_BLOCKS: Final = Statement("DELETE FROM queue_groups WHERE owner = :owner AND owner <> 0 AND queue = :queue")
# Groups of a queue that a transaction has reserved.
HELD_GROUPS: Final = Statement("SELECT member FROM queue_groups WHERE queue = :queue AND owner = :owner AND owner <> 0")
# Lock free groups for a reader. Its own groups need no lock: a writer that commits at another member may hold one
# briefly, and they must not be skipped.
LOCK_GROUPS: Final = Statement("""
    SELECT member FROM queue_groups WHERE queue = :queue AND member {in members} AND owner = :owner
    UNION ALL SELECT member FROM (
        SELECT member FROM queue_groups WHERE queue = :queue AND member {in members} AND owner = 0
        ORDER BY member FOR NO KEY UPDATE SKIP LOCKED) f""")
# The number of a queue's groups, up to a limit.
COUNT_GROUPS: Final = Statement("""
    SELECT count(*) FROM (SELECT 1 FROM queue_groups WHERE queue = :queue LIMIT :most) AS counted""")
# The queues, of those given, that have a group of a writer.
QUEUES_OF_WRITER: Final = Statement("SELECT queue FROM queue_groups WHERE queue {in queues} AND member = :s")

# Transfers

# The target of a queue's transfer.
FIND_TRANSFER: Final = Statement("SELECT address, target FROM queue_transfers WHERE queue = :queue")
# Transfer a queue from now on, unless it is transferred.
SET_TRANSFER: Final = Statement("""
    INSERT INTO queue_transfers (queue, address, target, created_us, runner, lease_us, messages, error)
    VALUES (:queue, :address, :target, :time_us, 0, 0, 0, '') ON CONFLICT (queue) DO NOTHING""")
# End the transfer of a queue; also when the queue is deleted.
DELETE_TRANSFER: Final = Statement("DELETE FROM queue_transfers WHERE queue = :queue")
# All transfers.
TRANSFERS: Final = Statement("""
    SELECT q.name, f.queue, f.address, f.target, f.created_us, f.runner, f.messages, f.error
    FROM queue_transfers f JOIN queues q ON q.number = f.queue ORDER BY q.name""")
# The broker that runs a transfer reports its progress.
REPORT_TRANSFER: Final = Statement("""
    UPDATE queue_transfers SET messages = messages + :messages, error = :error
    WHERE queue = :queue AND created_us = :created_us AND runner = :log""")
# A broker takes or keeps transfers that no other broker has.
TAKE_TRANSFERS: Final = Statement("""
    UPDATE queue_transfers SET runner = :log, lease_us = {now} + :lease_us
    WHERE runner = :log OR lease_us < {now}""")
# A broker stops: others may take its transfers at once.
LEAVE_TRANSFERS: Final = Statement("UPDATE queue_transfers SET lease_us = 0 WHERE runner = :log")
# Queues from which a transaction has taken messages.
QUEUES_TAKEN_FROM: Final = Statement(
    "SELECT DISTINCT queue FROM queue_log WHERE transaction_number = :number AND kind = 'd'"
)

# The outbox: PostgreSQL only

# Set the search path of the caller's transaction to Milepost's tables; returns the previous path.
SET_PATH: Final = Statement("SELECT current_setting('search_path'), set_config('search_path', :path, true)")
# Milepost's number for the caller's transaction, if any, and the number of the server process.
OUTBOX_TRANSACTION: Final = Statement("SELECT current_setting('milepost.transaction', true), pg_backend_pid()")
# Remember that number until the caller's transaction ends.
SET_OUTBOX_TRANSACTION: Final = Statement("SELECT set_config('milepost.transaction', :number, true)")
# The next numbers of messages.
NEXT_NUMBERS: Final = Statement("SELECT nextval('queue_outbox') FROM generate_series(1, CAST(:count AS integer))")
# The time of the database, in microseconds since a given time.
OUTBOX_CLOCK: Final = Statement(
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - CAST(:since AS bigint)"
)
# Two callers that find the numbers behind the clock must not both set them: the second would repeat numbers of the
# first. So each checks after it has the lock, in a separate statement (a row is read before its SELECT list runs), and
# does not change numbers that are near the clock: other callers take numbers between the check and the change.
LOCK_NUMBERS: Final = Statement("SELECT pg_advisory_lock(:lock)")
# Let numbers catch up with the clock, unless they are near.
CATCH_UP: Final = Statement("""
    SELECT setval('queue_outbox', CAST(:tick AS bigint)) FROM queue_outbox
    WHERE last_value < CAST(:tick AS bigint) - CAST(:near AS bigint)""")
# Release that lock.
UNLOCK_NUMBERS: Final = Statement("SELECT pg_advisory_unlock(:lock)")


# Of one queue: `about` fills in its header table, and a column of that


@lru_cache(maxsize=CACHED)
def about(source: str, table: str, column: str = "") -> Statement:
    """One of the statements below, about the header table of a queue."""
    return Statement(source.replace("{table}", table).replace("{column}", column))


# The number of messages of a queue, in any state.
COUNT_MESSAGES: Final = "SELECT count(*) FROM {table}"
# The highest message number: new numbers are above it.
HIGHEST_NUMBER: Final = "SELECT coalesce(max(mid), 0) FROM {table}"
# The highest number of a writer in a queue, in the first column of the order of arrival.
HIGHEST_OF_WRITER: Final = """
    SELECT coalesce(max(number), 0) FROM (SELECT max({column}) AS number FROM {table} WHERE s = :s AND lsf = 'c'
    UNION ALL SELECT max({column}) FROM {table} WHERE s = :s AND owner <> 0) n"""
# When the next delayed message becomes due.
NEXT_DUE: Final = "SELECT min(due_us) FROM {table} WHERE due_us > :now AND due_us > 0 AND lsf = 'c'"
# The headers of messages that a transaction has taken.
TAKEN_HEADERS: Final = """
    SELECT mid, s, t, type, priority, aborts FROM {table} WHERE owner = :owner AND owner <> 0 AND lsf = 'd'"""
# When messages that a transaction has taken expire; only those that do.
TAKEN_ENDS: Final = f"""
    SELECT mid, ends_us FROM {{table}} WHERE owner = :owner AND owner <> 0 AND ends_us < {NEVER_US} ORDER BY mid"""
_REST_OF_BLOCKS: Final = """
    FROM {table} WHERE lsf = 'c' AND ends_us > :now AND t IN
    (SELECT DISTINCT t FROM {table} WHERE owner = :owner AND owner <> 0 AND lsf = 'd')"""
# Messages that remain of blocks from which a transaction has taken some, and their number.
REST_OF_BLOCKS: Final = f"SELECT s, t, mid {_REST_OF_BLOCKS} ORDER BY t, mid LIMIT :most"
COUNT_REST_OF_BLOCKS: Final = f"SELECT count(*) {_REST_OF_BLOCKS}"
# The messages, of those given, that a reader can still take.
STILL_THERE: Final = "SELECT mid FROM {table} WHERE mid {in mids} AND lsf IN ('c', 'e')"
# Remove headers; returns the types, whose tables have the content.
REMOVE_HEADERS: Final = "DELETE FROM {table} WHERE mid {in mids} RETURNING mid, type"
# Remove headers that were copied to another queue; returns their groups and priorities.
REMOVE_COPIED: Final = "DELETE FROM {table} WHERE mid {in mids} RETURNING s, t, priority"
# Groups, by the column of their members, that have no committed messages.
EMPTY_GROUPS: Final = """
    SELECT member FROM queue_groups WHERE queue = :queue AND owner = 0 AND NOT EXISTS
    (SELECT 1 FROM {table} q WHERE q.{column} = member AND q.lsf = 'c') ORDER BY member LIMIT :most {skip_locked}"""
# Remove groups that still have no committed messages.
REMOVE_GROUPS: Final = """
    DELETE FROM queue_groups WHERE queue = :queue AND member {in members} AND owner = 0 AND NOT EXISTS
    (SELECT 1 FROM {table} q WHERE q.{column} = member AND q.lsf = 'c')"""


@lru_cache(maxsize=CACHED)
def copy_headers(source: str, target: str, aborts: str) -> Statement:
    """Copy headers of one queue to another; `aborts` is the expression for the new count of aborts."""
    columns = "mid, s, t, type, priority, lsf, owner"
    return Statement(
        f"INSERT INTO {target} ({columns}, aborts, due_us, ends_us) "
        f"SELECT {columns}, {aborts}, 0, {NEVER_US} FROM {source} WHERE mid {{in mids}}"
    )


@lru_cache(maxsize=CACHED)
def expired(table: str, group: str, shared: bool) -> Statement:
    """Messages that have expired, except in groups that a reader has reserved: those wait for its end.

    Ordered by the time of expiry, as the index is: an order by number would read all waiting messages.
    """
    held = (
        f"AND NOT EXISTS (SELECT 1 FROM queue_groups g WHERE g.queue = :queue AND g.member = q.{group} "
        "AND g.owner <> 0)"
        if group
        else ""
    )
    locking = "FOR UPDATE OF q SKIP LOCKED" if shared else ""
    return Statement(
        f"SELECT q.mid FROM {table} q WHERE q.ends_us <= :now AND q.ends_us < {NEVER_US} AND q.lsf = 'c' {held} "
        f"ORDER BY q.ends_us LIMIT :most {locking}"
    )


@lru_cache(maxsize=CACHED)
def count_states(table: str, most: int | None) -> Statement:
    """The number of messages in each state, and the oldest waiting one; of the `most` oldest messages."""
    found = table if most is None else f"(SELECT * FROM {table} ORDER BY mid LIMIT {most}) q"
    return Statement(f"""
        SELECT count(*), coalesce(sum(CASE WHEN lsf = 'e' THEN 1 ELSE 0 END), 0),
            coalesce(sum(CASE WHEN lsf IN ('d', 'b') THEN 1 ELSE 0 END), 0),
            coalesce(sum(CASE WHEN lsf = 'c' AND due_us > :now THEN 1 ELSE 0 END), 0),
            coalesce(sum(CASE WHEN lsf = 'c' AND ends_us <= :now THEN 1 ELSE 0 END), 0),
            min(CASE WHEN lsf = 'c' AND due_us <= :now AND ends_us > :now THEN mid ELSE {NEVER_US} END)
        FROM {found}""")
