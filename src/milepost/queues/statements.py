"""Every constant statement about queues, by name; and those about the table of one queue, as functions of its name.

Generated statements are elsewhere: the transitions of messages in `states`, what a dequeue finds in `selection`, rows
of a type's tables in `rows`, headers in `messages`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from milepost.queues.states import NEVER_US
from milepost.storage.statement import Statement

CACHED: Final = 1_000  # statements kept of each kind: an application asks the same few again and again

# The catalogue

# The version of types and queues: whether what a process remembers is still so.
CATALOGUE_VERSION: Final = Statement("SELECT version FROM queue_catalogue")
# Types or queues have changed.
CHANGE_CATALOGUE: Final = Statement("UPDATE queue_catalogue SET version = version + 1")
# Keep other members of the cell from changing it, until the transaction ends.
LOCK_CATALOGUE: Final = Statement("SELECT version FROM queue_catalogue {for_update}")
# Raise (division by zero) when the catalogue is of another version than is assumed.
SAME_VERSION: Final = Statement("SELECT 1 / CASE WHEN version = :version THEN 1 ELSE 0 END FROM queue_catalogue")
# All message types.
TYPES: Final = Statement("SELECT number, name, source FROM queue_types ORDER BY number")
# All queues.
QUEUES: Final = Statement("""
    SELECT number, name, level, direction, priority, prioritized, dead, most_aborts, created_us FROM queues
    ORDER BY number""")
# Which queue takes which types, and the functions that give their priorities.
ACCEPTED_TYPES: Final = Statement("SELECT queue, type, function FROM queue_accepts ORDER BY queue, type")
# Declare a type.
MAKE_TYPE: Final = Statement("""
    INSERT INTO queue_types (name, source, created_us) VALUES (:name, :source, :time_us) RETURNING number""")
# Declare a queue.
MAKE_QUEUE: Final = Statement("""
    INSERT INTO queues (name, level, direction, priority, prioritized, dead, most_aborts, created_us)
    VALUES (:name, :level, :direction, :priority, :prioritized, :dead_letter, :max_deliveries, :time_us)
    RETURNING number""")
# A queue takes a type.
ACCEPT_TYPE: Final = Statement("INSERT INTO queue_accepts (queue, type, function) VALUES (:queue, :type, :function)")
# Some message of a queue has a priority of its own from now on.
PRIORITIZE_QUEUE: Final = Statement("UPDATE queues SET prioritized = 1 WHERE number = :number AND prioritized = 0")
# How many transactions under way, or prepared, have done something in a queue.
COUNT_TRANSACTIONS_OF: Final = Statement("""
    SELECT count(DISTINCT l.transaction_number) FROM queue_log l JOIN queue_transactions t
    ON t.number = l.transaction_number WHERE l.queue = :number AND t.state IN ('a', 'p')""")
# Delete a type.
DELETE_TYPE: Final = Statement("DELETE FROM queue_types WHERE number = :number")
# Delete a queue,
DELETE_QUEUE: Final = Statement("DELETE FROM queues WHERE number = :number")
# which types it takes,
DELETE_ACCEPTED: Final = Statement("DELETE FROM queue_accepts WHERE queue = :queue")
# its groups,
DELETE_GROUPS: Final = Statement("DELETE FROM queue_groups WHERE queue = :number")
# and its transfer.
DELETE_TRANSFER_OF: Final = Statement("DELETE FROM queue_transfers WHERE queue = :number")

# Transactions

# The highest number of a transaction: new numbers are above it.
HIGHEST_TRANSACTION: Final = Statement("SELECT coalesce(max(number), 0) FROM queue_transactions")
# Begin a transaction, unless the client has begun it before; gives the version of the catalogue.
BEGIN: Final = Statement("""
    INSERT INTO queue_transactions (number, s, instance, client, log, state, operations, messages, lease_us)
    VALUES (:number, :s, :instance, :client, :log, :state, 1, :messages, {now} + :lease_us)
    ON CONFLICT (instance, client) DO NOTHING RETURNING (SELECT version FROM queue_catalogue)""")
# Begin one that is assumed to be new: on PostgreSQL this raises when it is not.
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
# A transaction by the client's own number of it.
FIND_TRANSACTION: Final = Statement("""
    SELECT number, state, messages, s FROM queue_transactions
    WHERE instance = :instance AND client = :client {for_update}""")
# Count one more operation of a transaction under way.
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
# What a transaction has done so far.
LOGGED: Final = Statement("SELECT DISTINCT kind, queue FROM queue_log WHERE transaction_number = :number")
# The same, and remove it: the transaction ends.
UNLOG: Final = Statement("DELETE FROM queue_log WHERE transaction_number = :number RETURNING kind, queue, messages")
# The same of a transaction of which all is known.
CLEAR_LOG: Final = Statement("DELETE FROM queue_log WHERE transaction_number = :number")
# Commit a transaction of which all is known; the count tells whether that was so.
COMMIT: Final = Statement("""
    UPDATE queue_transactions SET state = 'c', lease_us = {now} + :lease_us
    WHERE number = :number AND state = 'a' AND operations = :operations""")
# The end of a transaction, whichever it is.
END: Final = Statement("""
    UPDATE queue_transactions SET state = :state, lease_us = {now} + :lease_us WHERE number = :number""")
# The state of a transaction, which nobody else ends meanwhile.
LOCK_TRANSACTION: Final = Statement("SELECT state FROM queue_transactions WHERE number = :number {for_update}")
# Leases of transactions under way begin anew.
RENEW: Final = Statement("""
    UPDATE queue_transactions SET lease_us = {now} + :lease_us WHERE number {in numbers} AND state = 'a'
    RETURNING number""")
# Recovery: transactions that were under way in this log when its process ended.
LEFT: Final = Statement("""
    SELECT number FROM queue_transactions WHERE log = :log AND state = 'a' ORDER BY number {for_update}""")
# Transactions whose lease has ended. The time is asked for in a SELECT of its own: once, and so that the
# index can be used; and the order is the index's.
LAPSED: Final = Statement("""
    SELECT number FROM queue_transactions WHERE lease_us < (SELECT {now}) AND state = 'a' ORDER BY lease_us LIMIT :most
    {skip_locked}""")
# Whether a transaction has taken messages of a queue that is transferred.
TRANSFERRED: Final = Statement("""
    SELECT 1 FROM queue_log JOIN queue_transfers ON queue_transfers.queue = queue_log.queue
    WHERE queue_log.transaction_number = :number AND queue_log.kind = 'd' LIMIT 1""")
# Forget how transactions ended, once no client asks again.
FORGET_OUTCOMES: Final = Statement("""
    DELETE FROM queue_transactions WHERE number IN (SELECT number FROM queue_transactions
    WHERE lease_us < (SELECT {now}) AND state IN ('c', 'x') ORDER BY lease_us LIMIT :most)""")

# Transactions over two stores

# A participant is ready for either end.
PREPARE: Final = Statement("""
    UPDATE queue_transactions SET state = 'p', gid = :gid, coordinator = :coordinator WHERE number = :number""")
# A prepared transaction, by its name.
FIND_PREPARED: Final = Statement("""
    SELECT number, state FROM queue_transactions WHERE gid = :gid {for_update}""")
# All that wait for a decision.
ALL_PREPARED: Final = Statement("""
    SELECT gid, coordinator FROM queue_transactions WHERE state = 'p' AND gid IS NOT NULL ORDER BY number""")
# S of the messages of a transaction.
WRITER: Final = Statement("SELECT s FROM queue_transactions WHERE number = :number")
# A coordinator remembers, with its commit, that the participant is to commit.
DECIDE: Final = Statement("""
    INSERT INTO queue_decisions (gid, participant, decided_us) VALUES (:gid, :participant, :time_us)""")
# Whether it has decided so.
DECIDED: Final = Statement("SELECT 1 FROM queue_decisions WHERE gid = :gid")
# All decisions that participants may still ask for.
DECISIONS: Final = Statement("SELECT gid, participant FROM queue_decisions ORDER BY decided_us, gid")
# The participant has committed.
FORGET_DECISION: Final = Statement("DELETE FROM queue_decisions WHERE gid = :gid")

# Groups: writers whose messages stay in order, or blocks

# Messages of a group can be reserved from now on. The lock lasts until the commit: a sweep that removes groups
# without messages looks again once it has it.
MAKE_GROUPS: Final = Statement("""
    INSERT INTO queue_groups (queue, member, owner) SELECT :queue, value, 0 FROM {each members} g WHERE true
    ON CONFLICT (queue, member) DO UPDATE SET owner = queue_groups.owner""")
# The same in a shared store, for groups that are not there:
MAKE_MISSING_GROUPS: Final = Statement("""
    INSERT INTO queue_groups (queue, member, owner) SELECT :queue, value, 0 FROM {each members} g
    WHERE NOT EXISTS (SELECT 1 FROM queue_groups o WHERE o.queue = :queue AND o.member = g.value)
    ON CONFLICT (queue, member) DO UPDATE SET owner = queue_groups.owner""")
# keep those that are there from being removed, while readers go on reserving them. When there are fewer than
# expected, one was removed between the two statements, and is made again.
KEEP_GROUPS: Final = Statement("""
    SELECT member FROM queue_groups WHERE queue = :queue AND member {in members} ORDER BY member FOR KEY SHARE""")
# A transaction reserves groups that are free.
RESERVE: Final = Statement("""
    UPDATE queue_groups SET owner = :owner WHERE queue = :queue AND member {in members} AND owner IN (0, :owner)""")
# It ends: its groups are free again.
RELEASE_TEXT: Final = "UPDATE queue_groups SET owner = 0 WHERE owner = :owner AND owner <> 0"
RELEASE: Final = Statement(RELEASE_TEXT)
# A block that was read to its end does not come again.
REMOVE_BLOCKS: Final = Statement("DELETE FROM queue_groups WHERE owner = :owner AND owner <> 0 AND queue = :queue")
# Groups of a queue that a transaction has reserved.
HELD_GROUPS: Final = Statement("SELECT member FROM queue_groups WHERE queue = :queue AND owner = :owner AND owner <> 0")
# Lock groups for a reader; its own come without a lock: a writer that commits at another member holds one for a
# moment.
LOCK_GROUPS: Final = Statement("""
    SELECT member FROM queue_groups WHERE queue = :queue AND member {in members} AND owner = :owner
    UNION ALL SELECT member FROM (
        SELECT member FROM queue_groups WHERE queue = :queue AND member {in members} AND owner = 0
        ORDER BY member FOR NO KEY UPDATE SKIP LOCKED) f""")
# How many groups a queue has, up to a bound.
COUNT_GROUPS: Final = Statement("""
    SELECT count(*) FROM (SELECT 1 FROM queue_groups WHERE queue = :queue LIMIT :most) AS counted""")
# Which of some queues have a group of a writer.
QUEUES_OF_WRITER: Final = Statement("SELECT queue FROM queue_groups WHERE queue {in queues} AND member = :s")

# Transfers

# Where a queue goes.
FIND_TRANSFER: Final = Statement("SELECT address, target FROM queue_transfers WHERE queue = :queue")
# Transfer a queue from now on, unless it is transferred.
SET_TRANSFER: Final = Statement("""
    INSERT INTO queue_transfers (queue, address, target, created_us, runner, lease_us, messages, error)
    VALUES (:queue, :address, :target, :time_us, 0, 0, 0, '') ON CONFLICT (queue) DO NOTHING""")
# Transfer it no more.
DELETE_TRANSFER: Final = Statement("DELETE FROM queue_transfers WHERE queue = :queue")
# All transfers.
TRANSFERS: Final = Statement("""
    SELECT q.name, f.queue, f.address, f.target, f.created_us, f.runner, f.messages, f.error
    FROM queue_transfers f JOIN queues q ON q.number = f.queue ORDER BY q.name""")
# The broker that runs a transfer tells how it goes.
REPORT_TRANSFER: Final = Statement("""
    UPDATE queue_transfers SET messages = messages + :messages, error = :error
    WHERE queue = :queue AND created_us = :created_us AND runner = :log""")
# A broker takes or keeps transfers that no other one has.
TAKE_TRANSFERS: Final = Statement("""
    UPDATE queue_transfers SET runner = :log, lease_us = {now} + :lease_us
    WHERE runner = :log OR lease_us < {now}""")
# A broker stops: others may have its transfers at once.
LEAVE_TRANSFERS: Final = Statement("UPDATE queue_transfers SET lease_us = 0 WHERE runner = :log")
# Queues that a transaction has taken messages of.
QUEUES_TAKEN_FROM: Final = Statement(
    "SELECT DISTINCT queue FROM queue_log WHERE transaction_number = :number AND kind = 'd'"
)

# The outbox: PostgreSQL only

# Find Milepost's tables in the caller's transaction; gives the path of before.
SET_PATH: Final = Statement("SELECT current_setting('search_path'), set_config('search_path', :path, true)")
# The number that this transaction of the caller has for Milepost, if any, and its process.
OUTBOX_TRANSACTION: Final = Statement("SELECT current_setting('milepost.transaction', true), pg_backend_pid()")
# Remember that number until the caller's transaction ends.
SET_OUTBOX_TRANSACTION: Final = Statement("SELECT set_config('milepost.transaction', :number, true)")
# The next numbers of messages.
NEXT_NUMBERS: Final = Statement("SELECT nextval('queue_outbox') FROM generate_series(1, CAST(:count AS integer))")
# The time of the database, in microseconds since a given one.
OUTBOX_CLOCK: Final = Statement(
    "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - CAST(:since AS bigint)"
)
# Two callers that find the numbers behind the clock must not both set them: the second would give the first one's
# again. So each looks once it has the lock, in a statement of its own (a row is read before what is selected from it),
# and leaves numbers alone that are near: others go on taking some between the look and the setting.
LOCK_NUMBERS: Final = Statement("SELECT pg_advisory_lock(:lock)")
# Let numbers catch up with the clock, unless they are near.
CATCH_UP: Final = Statement("""
    SELECT setval('queue_outbox', CAST(:tick AS bigint)) FROM queue_outbox
    WHERE last_value < CAST(:tick AS bigint) - CAST(:near AS bigint)""")
# End that.
UNLOCK_NUMBERS: Final = Statement("SELECT pg_advisory_unlock(:lock)")


# Of one queue: `table` is its header table


@lru_cache(maxsize=CACHED)
def count_messages(table: str) -> Statement:
    """How many messages a queue has, whatever their state."""
    return Statement(f"SELECT count(*) FROM {table}")


@lru_cache(maxsize=CACHED)
def highest_number(table: str) -> Statement:
    """The highest number of a message: new numbers are above it."""
    return Statement(f"SELECT coalesce(max(mid), 0) FROM {table}")


@lru_cache(maxsize=CACHED)
def highest_of_writer(table: str, column: str) -> Statement:
    """The highest number that a writer has in a queue, in the first column of its order of arrival."""
    return Statement(
        f"SELECT coalesce(max(number), 0) FROM (SELECT max({column}) AS number FROM {table} "
        f"WHERE s = :s AND lsf = 'c' UNION ALL SELECT max({column}) FROM {table} WHERE s = :s AND owner <> 0) n"
    )


@lru_cache(maxsize=CACHED)
def next_due(table: str) -> Statement:
    """When the next message becomes due, of those that have to wait."""
    return Statement(f"SELECT min(due_us) FROM {table} WHERE due_us > :now AND due_us > 0 AND lsf = 'c'")


@lru_cache(maxsize=CACHED)
def taken_headers(table: str) -> Statement:
    """The headers of messages that a transaction has taken."""
    return Statement(
        f"SELECT mid, s, t, type, priority, aborts FROM {table} WHERE owner = :owner AND owner <> 0 AND lsf = 'd'"
    )


@lru_cache(maxsize=CACHED)
def taken_ends(table: str) -> Statement:
    """When messages that a transaction has taken expire, of those that do."""
    return Statement(
        f"SELECT mid, ends_us FROM {table} WHERE owner = :owner AND owner <> 0 AND ends_us < {NEVER_US} ORDER BY mid"
    )


@lru_cache(maxsize=CACHED)
def rest_of_blocks(table: str) -> Statement:
    """Messages that remain of blocks from which a transaction has taken some."""
    return Statement(
        f"SELECT s, t, mid FROM {table} WHERE lsf = 'c' AND ends_us > :now AND t IN "
        f"(SELECT DISTINCT t FROM {table} WHERE owner = :owner AND owner <> 0 AND lsf = 'd') "
        "ORDER BY t, mid LIMIT :most"
    )


@lru_cache(maxsize=CACHED)
def count_rest_of_blocks(table: str) -> Statement:
    """How many these are."""
    return Statement(
        f"SELECT count(*) FROM {table} WHERE lsf = 'c' AND ends_us > :now AND t IN "
        f"(SELECT DISTINCT t FROM {table} WHERE owner = :owner AND owner <> 0 AND lsf = 'd')"
    )


@lru_cache(maxsize=CACHED)
def still_there(table: str) -> Statement:
    """Which of some messages a reader can still take."""
    return Statement(f"SELECT mid FROM {table} WHERE mid {{in mids}} AND lsf IN ('c', 'e')")


@lru_cache(maxsize=CACHED)
def remove_headers(table: str) -> Statement:
    """Remove messages; gives their types, whose tables have their content."""
    return Statement(f"DELETE FROM {table} WHERE mid {{in mids}} RETURNING mid, type")


@lru_cache(maxsize=CACHED)
def copy_headers(source: str, target: str, aborts: str) -> Statement:
    """Put messages of one queue into another as well; `aborts` is the expression for their count of aborts there."""
    columns = "mid, s, t, type, priority, lsf, owner"
    return Statement(
        f"INSERT INTO {target} ({columns}, aborts, due_us, ends_us) "
        f"SELECT {columns}, {aborts}, 0, {NEVER_US} FROM {source} WHERE mid {{in mids}}"
    )


@lru_cache(maxsize=CACHED)
def remove_copied(table: str) -> Statement:
    """Remove messages that are in another queue now; gives what their groups and priorities are."""
    return Statement(f"DELETE FROM {table} WHERE mid {{in mids}} RETURNING s, t, priority")


@lru_cache(maxsize=CACHED)
def expired(table: str, group: str, shared: bool) -> Statement:
    """Messages that nobody may take any more, but for groups that a reader has: it waits for their end.

    By the time at which they expired, as the index has them: by number, all that wait would be looked at.
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
def empty_groups(table: str, group: str) -> Statement:
    """Groups that have no committed messages."""
    return Statement(
        f"SELECT member FROM queue_groups WHERE queue = :queue AND owner = 0 AND NOT EXISTS "
        f"(SELECT 1 FROM {table} q WHERE q.{group} = member AND q.lsf = 'c') ORDER BY member LIMIT :most "
        "{skip_locked}"
    )


@lru_cache(maxsize=CACHED)
def remove_groups(table: str, group: str) -> Statement:
    """Remove groups that still have none."""
    return Statement(
        f"DELETE FROM queue_groups WHERE queue = :queue AND member {{in members}} AND owner = 0 AND NOT EXISTS "
        f"(SELECT 1 FROM {table} q WHERE q.{group} = member AND q.lsf = 'c')"
    )


@lru_cache(maxsize=CACHED)
def count_states(table: str, most: int | None) -> Statement:
    """How many messages are in which state, and the oldest that waits; of the `most` oldest ones."""
    found = table if most is None else f"(SELECT * FROM {table} ORDER BY mid LIMIT {most}) q"
    return Statement(f"""
        SELECT count(*), coalesce(sum(CASE WHEN lsf = 'e' THEN 1 ELSE 0 END), 0),
            coalesce(sum(CASE WHEN lsf IN ('d', 'b') THEN 1 ELSE 0 END), 0),
            coalesce(sum(CASE WHEN lsf = 'c' AND due_us > :now THEN 1 ELSE 0 END), 0),
            coalesce(sum(CASE WHEN lsf = 'c' AND ends_us <= :now THEN 1 ELSE 0 END), 0),
            min(CASE WHEN lsf = 'c' AND due_us <= :now AND ends_us > :now THEN mid ELSE {NEVER_US} END)
        FROM {found}""")
