"""Every statement that runs while a store is open, by name."""

from __future__ import annotations

from typing import Final

from milepost.storage.statement import Statement

# Opening

# The identity of the database and the version of its tables.
META: Final = Statement("SELECT version, store FROM meta")
# A log by its broker's name, and for how long its broker has been silent.
FIND_LOG: Final = Statement("""
    SELECT number, broker_id, opening, epoch, commits, last_us, address, {now} - seen_us AS silent_us
    FROM logs WHERE name = :name {for_update}""")
# The log of a broker that is new to this store.
MAKE_LOG: Final = Statement("""
    INSERT INTO logs (name, broker_id, address, opening, epoch, commits, last_us, seen_us)
    VALUES (:name, :broker_id, :address, 0, 0, 0, 0, 0)""")
# A process takes a log: the process that wrote it before is fenced.
OPEN_LOG: Final = Statement("""
    UPDATE logs SET opening = opening + 1, epoch = epoch + 1, address = :address, seen_us = {now}
    WHERE number = :log""")
# After a reconnect: wait for the old connection's transaction, and fence its later statements.
REOPEN_LOG: Final = Statement("""
    UPDATE logs SET epoch = epoch + 1, seen_us = {now} WHERE number = :log AND opening = :opening
    RETURNING epoch, commits""")
# The state of a log that no other process can have changed.
SEE_LOG: Final = Statement("SELECT epoch, commits FROM logs WHERE number = :log AND opening = :opening")
# The first statement of each write: count it, if this process may still write.
# On PostgreSQL it fails by itself (division by zero) when another process has the log, so COMMIT may be sent with it.
_TOUCHED: Final = """
    UPDATE logs SET commits = commits + 1, last_us = :time_us, seen_us = {now},
        epoch = epoch / CASE WHEN epoch = :epoch THEN 1 ELSE 0 END
    WHERE number = :log"""
TOUCH_LOG: Final = Statement(
    """
    UPDATE logs SET commits = commits + 1, last_us = :time_us, seen_us = {now}
    WHERE number = :log AND epoch = :epoch""",
    postgresql=_TOUCHED,
)
# The same for a transaction that promises nothing: PostgreSQL need not wait for its disk. Takes no extra statement.
TOUCH_LOG_UNSYNCED: Final = Statement(
    "", postgresql=f"{_TOUCHED} RETURNING set_config('synchronous_commit', 'off', true)"
)
# The first statement of each step of upkeep: may this process still write?
HOLD_LOG: Final = Statement("SELECT 1 FROM logs WHERE number = :log AND epoch = :epoch {for_share}")
# A broker ends: others need not wait for its lease.
LEAVE_LOG: Final = Statement("UPDATE logs SET seen_us = 0 WHERE number = :log AND epoch = :epoch")
# A broker ends: other brokers may serve its subscriptions.
LEAVE_SUBSCRIPTIONS: Final = Statement("""
    UPDATE subscriptions SET owner = NULL WHERE owner = :log AND opening = :opening""")

# Publishers

# Enrol a publisher here: the process that had enrolled it can no longer move its high water.
ENROL: Final = Statement("""
    UPDATE publishers SET epoch = epoch + 1, log = :log, opening = :opening, seen_us = :time_us WHERE key = :key
    RETURNING number, high_water, epoch, home""")
# Is a number taken?
NUMBER_TAKEN: Final = Statement("SELECT 1 FROM publishers WHERE number = :number")
# A new publisher.
MAKE_PUBLISHER: Final = Statement("""
    INSERT INTO publishers (number, key, high_water, epoch, home, log, opening, seen_us)
    VALUES (:number, :key, 0, 1, :log, :log, :opening, :time_us)""")
# Publishers that this process enrolled, as they are now.
KNOWN_PUBLISHERS: Final = Statement("""
    SELECT number, high_water, epoch, home FROM publishers
    WHERE number {in numbers} AND log = :log AND opening = :opening""")
# Where a publisher that moved wrote last.
TRAIL: Final = Statement("SELECT topic, log FROM trails WHERE publisher = :publisher")
# A publisher that moved writes a topic here now.
FOLLOW: Final = Statement("""
    INSERT INTO trails (publisher, topic, log) VALUES (:publisher, :topic, :log)
    ON CONFLICT (publisher, topic) DO UPDATE SET log = excluded.log""")
# Move the high waters of publishers that are still enrolled here; the row count tells whether all were.
MOVE_HIGH_WATERS: Final = Statement(
    "UPDATE publishers SET high_water = :high_water WHERE number = :number AND epoch = :epoch",
    postgresql="""
    UPDATE publishers SET high_water = moved.high_water
    FROM unnest(CAST(:number AS bigint[]), CAST(:epoch AS bigint[]), CAST(:high_water AS bigint[]))
        AS moved (number, epoch, high_water)
    WHERE publishers.number = moved.number AND publishers.epoch = moved.epoch""",
)
# The same on SQLite, for many publishers of one epoch: their high waters are a JSON object.
MOVE_HIGH_WATERS_AT_ONCE: Final = Statement("""
    UPDATE publishers SET high_water = given.value FROM json_each(:high_waters) AS given
    WHERE number = CAST(given.key AS INTEGER) AND epoch = :epoch""")
# Which keys are remembered for a topic, or for any topic (0)?
TAKEN: Final = Statement(
    "SELECT token, topic FROM tokens WHERE token = :token AND topic IN (0, :topic)",
    postgresql="""
    SELECT tokens.token, tokens.topic
    FROM unnest(CAST(:token AS bytea[]), CAST(:topic AS bigint[])) AS given (token, topic)
    JOIN tokens ON tokens.token = given.token AND tokens.topic IN (0, given.topic)""",
)
# Remember a key; the row count tells whether it is new.
REMEMBER: Final = Statement(
    "INSERT INTO tokens (token, topic, seen_us) VALUES (:token, :topic, :time_us) ON CONFLICT DO NOTHING",
    postgresql="""
    INSERT INTO tokens (token, topic, seen_us)
    SELECT *, :time_us FROM unnest(CAST(:token AS bytea[]), CAST(:topic AS bigint[]))
    ON CONFLICT DO NOTHING""",
)

# The log

# A topic's end in this broker's log. No row: the topic was dropped. NULL: it has no rows in this log yet.
FIND_NEXT: Final = Statement("""
    SELECT extents.next FROM topics LEFT JOIN extents ON extents.topic = topics.number AND extents.log = :log
    WHERE topics.number = :topic""")
# No process may drop a topic while its first extent is made.
HOLD_TOPIC: Final = Statement("SELECT 1 FROM topics WHERE number = :topic {for_share}")
# The same, exclusively, before the topic's schemas change.
HOLD_TOPIC_ALONE: Final = Statement("SELECT 1 FROM topics WHERE number = :topic {for_update}")
# A topic's first rows in a log.
MAKE_EXTENT: Final = Statement("""
    INSERT INTO extents (topic, log, start, next, bytes, entries) VALUES (:topic, :log, 0, 0, 0, 0)""")
# A topic's end in another log.
OTHER_NEXT: Final = Statement("SELECT next FROM extents WHERE topic = :topic AND log = :log")
# Add an entry to the log.
INSERT_ENTRY: Final = Statement("""
    INSERT INTO entries (topic, log, first, rows, bytes, first_us, last_us, times, after_log, after_offset, seal, data,
                         piece)
    VALUES (:topic, :log, :first, :rows, :bytes, :first_us, :last_us, :times, :after_log, :after_offset, :seal, :data,
            :piece)""")
# Topics have grown; the row count tells whether all of them still exist.
GROW: Final = Statement(
    """
    UPDATE extents SET next = :next, bytes = bytes + :bytes, entries = entries + :entries
    WHERE topic = :topic AND log = :log AND next = :first""",
    postgresql="""
    UPDATE extents SET next = grown.next, bytes = extents.bytes + grown.bytes, entries = extents.entries + grown.entries
    FROM unnest(CAST(:topic AS bigint[]), CAST(:log AS bigint[]), CAST(:first AS bigint[]), CAST(:next AS bigint[]),
                CAST(:bytes AS bigint[]), CAST(:entries AS bigint[])) AS grown (topic, log, first, next, bytes, entries)
    WHERE extents.topic = grown.topic AND extents.log = grown.log AND extents.next = grown.first""",
)
# On SQLite: a whole transaction that appends to one topic, as one row of a view, and the trigger that carries it out.
APPENDING: Final = """
    CREATE TEMP VIEW appending (log, epoch, time_us, high_waters, publishers, publisher_epoch, topic, first, next, rows,
                                bytes, times, after_log, after_offset, seal, data, piece)
    AS SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL"""
APPENDING_DONE: Final = """
    CREATE TEMP TRIGGER appending_done INSTEAD OF INSERT ON appending BEGIN
        UPDATE logs SET commits = commits + 1, last_us = NEW.time_us, seen_us = NEW.time_us
            WHERE number = NEW.log AND epoch = NEW.epoch;
        SELECT RAISE(ROLLBACK, 'log') WHERE changes() <> 1;
        UPDATE publishers SET high_water = given.value FROM json_each(NEW.high_waters) AS given
            WHERE number = CAST(given.key AS INTEGER) AND epoch = NEW.publisher_epoch;
        SELECT RAISE(ROLLBACK, 'publishers') WHERE changes() <> NEW.publishers;
        UPDATE extents SET next = NEW.next, bytes = bytes + NEW.bytes, entries = entries + 1
            WHERE topic = NEW.topic AND log = NEW.log AND next = NEW.first;
        SELECT RAISE(ROLLBACK, 'extents') WHERE changes() <> 1;
        INSERT INTO entries (topic, log, first, rows, bytes, first_us, last_us, times, after_log, after_offset, seal,
                             data, piece)
            VALUES (NEW.topic, NEW.log, NEW.first, NEW.rows, NEW.bytes, NEW.time_us, NEW.time_us, NEW.times,
                    NEW.after_log, NEW.after_offset, NEW.seal, NEW.data, NEW.piece);
    END"""
APPEND_AT_ONCE: Final = Statement("""
    INSERT INTO appending (log, epoch, time_us, high_waters, publishers, publisher_epoch, topic, first, next, rows,
                           bytes, times, after_log, after_offset, seal, data, piece)
    VALUES (:log, :epoch, :first_us, :high_waters, :publishers, :publisher_epoch, :topic, :first, :next, :rows, :bytes,
            :times, :after_log, :after_offset, :seal, :data, :piece)""")
# Entries from the one that contains an offset, each with the topic's extent; without entries, one row with the extent.
READ: Final = Statement(
    """
    SELECT extents.start, extents.next, entries.first, entries.rows, entries.bytes, entries.first_us, entries.times,
           entries.after_log, entries.after_offset, entries.seal, entries.data, pieces.data
    FROM extents LEFT JOIN entries ON entries.topic = :topic AND entries.log = :log AND entries.first >= coalesce((
        SELECT found.first FROM entries AS found WHERE found.topic = :topic AND found.log = :log
        AND found.first <= max(:offset, extents.start) ORDER BY found.first DESC LIMIT 1), 0)
    LEFT JOIN pieces ON pieces.number = entries.piece
    WHERE extents.topic = :topic AND extents.log = :log
    ORDER BY entries.first LIMIT :most""",
    # PostgreSQL sends whole results, so the server limits the bytes; it reads the data only of the remaining entries.
    postgresql="""
    SELECT extents.start, extents.next, part.first, part.rows, part.bytes, part.first_us, part.times,
           part.after_log, part.after_offset, part.seal, part.data, pieces.data
    FROM extents LEFT JOIN LATERAL (
        SELECT counted.*, sum(counted.bytes) OVER (ORDER BY counted.first) - counted.bytes AS before FROM (
            SELECT entries.* FROM entries WHERE entries.topic = :topic AND entries.log = :log
            AND entries.first >= coalesce((
                SELECT found.first FROM entries AS found WHERE found.topic = :topic AND found.log = :log
                AND found.first <= greatest(CAST(:offset AS bigint), extents.start)
                ORDER BY found.first DESC LIMIT 1), 0)
            ORDER BY entries.first LIMIT :most) AS counted) AS part ON part.before < :max_bytes
    LEFT JOIN pieces ON pieces.number = part.piece
    WHERE extents.topic = :topic AND extents.log = :log
    ORDER BY part.first""",
)
# Entries of one row each, up to a size, between two offsets: their count, the first and the last offset, and their
# sizes, seals and data, concatenated. A result with a row for each entry would take twice as long.
READ_SINGLE: Final = Statement(
    """
    SELECT count(*), min(first), max(first), group_concat(bytes), group_concat(seal),
           CAST(group_concat(CAST(data AS TEXT), '') AS BLOB)
    FROM (SELECT entries.first, entries.bytes, entries.seal, entries.data FROM extents
          JOIN entries ON entries.topic = extents.topic AND entries.log = extents.log
              AND entries.first >= max(:offset, extents.start) AND entries.first < :stop
          WHERE extents.topic = :topic AND extents.log = :log AND entries.rows = 1 AND entries.bytes <= :small
              AND entries.piece IS NULL AND entries.after_log IS NULL
          ORDER BY entries.first) AS single""",
    postgresql="""
    SELECT count(*), min(first), max(first), string_agg(CAST(bytes AS text), ',' ORDER BY first),
           string_agg(CAST(seal AS text), ',' ORDER BY first), string_agg(data, CAST('' AS bytea) ORDER BY first)
    FROM (SELECT entries.first, entries.bytes, entries.seal, entries.data FROM extents
          JOIN entries ON entries.topic = extents.topic AND entries.log = extents.log
              AND entries.first >= greatest(CAST(:offset AS bigint), extents.start)
              AND entries.first < CAST(:stop AS bigint)
          WHERE extents.topic = :topic AND extents.log = :log AND entries.rows = 1 AND entries.bytes <= :small
              AND entries.piece IS NULL AND entries.after_log IS NULL) AS single""",
)
# The entry that contains an offset, or the last one before it: for the binary search for a time.
PROBE: Final = Statement("""
    SELECT first, rows, first_us, last_us, times FROM entries
    WHERE topic = :topic AND log = :log AND first <= :offset ORDER BY first DESC LIMIT 1""")
# How often each broker has committed: polled by brokers that share a store.
PULSE: Final = Statement("SELECT number, commits FROM logs")
# The extents of all topics, or of one.
EXTENTS: Final = Statement("SELECT topic, log, start, next, bytes, entries FROM extents ORDER BY topic, log")
EXTENTS_OF: Final = Statement("""
    SELECT topic, log, start, next, bytes, entries FROM extents WHERE topic = :topic ORDER BY log""")

# Topics

TOPICS: Final = Statement("SELECT number, name, slow, age_s, bytes, hold FROM topics ORDER BY number")
TOPIC: Final = Statement("SELECT number, name, slow, age_s, bytes, hold FROM topics WHERE number = :topic")
TOPIC_NAMED: Final = Statement("SELECT number, name, slow, age_s, bytes, hold FROM topics WHERE name = :name")
SCHEMAS: Final = Statement("SELECT topic, text FROM schemas ORDER BY topic, version")
SCHEMAS_OF: Final = Statement("SELECT topic, text FROM schemas WHERE topic = :topic ORDER BY version")
MAKE_TOPIC: Final = Statement("""
    INSERT INTO topics (name, slow, age_s, bytes, hold) VALUES (:name, :slow, :age_s, :bytes, :hold)
    RETURNING number""")
ADD_SCHEMA: Final = Statement("""
    INSERT INTO schemas (topic, version, text)
    VALUES (:topic, (SELECT count(*) FROM schemas WHERE topic = :topic), :text)""")
SET_SLOW: Final = Statement("UPDATE topics SET slow = :slow WHERE number = :topic")
SET_RETENTION: Final = Statement("UPDATE topics SET age_s = :age_s, bytes = :bytes, hold = :hold WHERE number = :topic")
# Drop a topic: its name at once, its entries later, in steps.
DROP: Final = (
    Statement("DELETE FROM cursors WHERE subscription IN (SELECT number FROM subscriptions WHERE topic = :topic)"),
    Statement("DELETE FROM members WHERE subscription IN (SELECT number FROM subscriptions WHERE topic = :topic)"),
    Statement("DELETE FROM subscriptions WHERE topic = :topic"),
    Statement("DELETE FROM extents WHERE topic = :topic"),
    Statement("DELETE FROM schemas WHERE topic = :topic"),
    Statement("DELETE FROM trails WHERE topic = :topic"),
    Statement("INSERT INTO dropped (topic) VALUES (:topic)"),
)
DROP_TOPIC: Final = Statement("DELETE FROM topics WHERE number = :topic")
# Trim offsets before a position; their entries are removed in steps.
TRIM: Final = Statement("UPDATE extents SET start = :start WHERE topic = :topic AND log = :log")
EXTENT: Final = Statement("SELECT start, next FROM extents WHERE topic = :topic AND log = :log {for_update}")

# Named subscriptions

# A subscription by its name, locked until the transaction ends.
FIND_SUBSCRIPTION: Final = Statement("""
    SELECT number, topic, predicate, options, token, epoch, owner, opening FROM subscriptions
    WHERE name = :name {for_update}""")
MAKE_SUBSCRIPTION: Final = Statement("""
    INSERT INTO subscriptions (name, topic, predicate, options, token, epoch, owner, opening, created_us)
    VALUES (:name, :topic, :predicate, :options, :token, 1, :log, :opening, :time_us) RETURNING number""")
# The broker that serves a subscription, and for how long it has been silent.
OWNER: Final = Statement("SELECT name, address, {now} - seen_us AS silent_us FROM logs WHERE number = :log")
SERVE: Final = Statement("""
    UPDATE subscriptions SET epoch = epoch + 1, owner = :log, opening = :opening WHERE number = :subscription
    RETURNING epoch""")
RELEASE: Final = Statement("UPDATE subscriptions SET owner = NULL WHERE number = :subscription AND epoch = :epoch")
CURSORS: Final = Statement("SELECT log, consumed, state FROM cursors WHERE subscription = :subscription")
SEQUENCE: Final = Statement("""
    SELECT sequence FROM members WHERE subscription = :subscription AND member = :member""")
# The epochs of those subscriptions that exist, locked until the transaction ends.
EPOCHS: Final = Statement("""
    SELECT number, epoch FROM subscriptions WHERE number {in numbers} ORDER BY number {for_update}""")
MOVE_CURSOR: Final = Statement(
    """
    INSERT INTO cursors (subscription, log, consumed, state) VALUES (:subscription, :log, :consumed, :state)
    ON CONFLICT (subscription, log) DO UPDATE SET consumed = excluded.consumed, state = excluded.state""",
    postgresql="""
    INSERT INTO cursors (subscription, log, consumed, state)
    SELECT * FROM unnest(CAST(:subscription AS bigint[]), CAST(:log AS bigint[]), CAST(:consumed AS bigint[]),
                         CAST(:state AS bytea[]))
    ON CONFLICT (subscription, log) DO UPDATE SET consumed = excluded.consumed, state = excluded.state""",
)
ACKNOWLEDGE: Final = Statement(
    """
    INSERT INTO members (subscription, member, sequence, seen_us) VALUES (:subscription, :member, :sequence, :time_us)
    ON CONFLICT (subscription, member) DO UPDATE SET sequence = excluded.sequence, seen_us = excluded.seen_us""",
    postgresql="""
    INSERT INTO members (subscription, member, sequence, seen_us)
    SELECT *, :time_us
    FROM unnest(CAST(:subscription AS bigint[]), CAST(:member AS bytea[]), CAST(:sequence AS bigint[]))
    ON CONFLICT (subscription, member) DO UPDATE SET sequence = excluded.sequence, seen_us = excluded.seen_us""",
)
REMOVE: Final = (
    Statement("DELETE FROM cursors WHERE subscription = :subscription"),
    Statement("DELETE FROM members WHERE subscription = :subscription"),
    Statement("DELETE FROM subscriptions WHERE number = :subscription"),
)
REMEMBERED: Final = Statement("SELECT 1 FROM tokens WHERE token IN (:token, :older) AND topic = 0")
SUBSCRIPTIONS_OF: Final = Statement("""
    SELECT number, name, topic, predicate, options, created_us FROM subscriptions WHERE topic = :topic ORDER BY name""")
CURSORS_OF: Final = Statement("""
    SELECT cursors.subscription, cursors.log, cursors.consumed, cursors.state FROM cursors
    JOIN subscriptions ON subscriptions.number = cursors.subscription WHERE subscriptions.topic = :topic""")

# The options of a hold, which is a row of `subscriptions`.
HOLD_OPTIONS: Final = '{"hold": true}'
# The named subscriptions with the largest lags, with the number of all subscriptions and the sum of their lags.
LAGS: Final = Statement("""
    SELECT topic, name, lag, count(*) OVER () AS subscriptions, sum(lag) OVER () AS behind FROM (
        SELECT topics.name AS topic, subscriptions.name AS name, coalesce(sum(
            CASE WHEN coalesce(consumed, 0) < start THEN next - start
                WHEN coalesce(consumed, 0) < next THEN next - coalesce(consumed, 0) ELSE 0 END), 0) AS lag
        FROM subscriptions JOIN topics ON topics.number = subscriptions.topic
            LEFT JOIN extents ON extents.topic = subscriptions.topic
            LEFT JOIN cursors ON cursors.subscription = subscriptions.number AND cursors.log = extents.log
        WHERE subscriptions.options <> :hold
        GROUP BY topics.name, subscriptions.name) l
    ORDER BY lag DESC, name LIMIT :most""")

# Upkeep

# Some topics, in the order of their numbers.
SOME_TOPICS: Final = Statement("""
    SELECT number, name, slow, age_s, bytes, hold FROM topics WHERE number > :after ORDER BY number LIMIT :most""")
# Logs whose brokers are silent: the broker that finds them maintains them.
SILENT_LOGS: Final = Statement("SELECT number FROM logs WHERE {now} - seen_us > :lease_us")
# No process may make a subscription to a topic while its rows are removed.
CLAIM_TOPIC: Final = Statement("SELECT 1 FROM topics WHERE number = :topic {for_update}")
# The oldest entries of a topic in a log.
OLDEST: Final = Statement("""
    SELECT first, rows, bytes, last_us FROM entries WHERE topic = :topic AND log = :log ORDER BY first LIMIT :most""")
# The cursor of the slowest named subscription of a topic in a log; NULL: there is none.
SLOWEST: Final = Statement("""
    SELECT min(coalesce(cursors.consumed, 0)) FROM subscriptions
    LEFT JOIN cursors ON cursors.subscription = subscriptions.number AND cursors.log = :log
    WHERE subscriptions.topic = :topic""")
# Remove the pieces of entries that are about to be removed.
DELETE_PIECES: Final = Statement("""
    DELETE FROM pieces WHERE number IN (
        SELECT piece FROM entries WHERE topic = :topic AND log = :log AND first >= :first AND first <= :last
        AND piece IS NOT NULL)""")
# Remove the oldest entries.
DELETE_OLDEST: Final = Statement("DELETE FROM entries WHERE topic = :topic AND log = :log AND first <= :last")
SHRINK: Final = Statement("""
    UPDATE extents SET start = CASE WHEN start < :start THEN :start ELSE start END, bytes = bytes - :bytes,
        entries = entries - :entries WHERE topic = :topic AND log = :log""")
# Entries that may be joined, from an offset on.
HEADERS: Final = Statement("""
    SELECT first, rows, bytes, after_log IS NOT NULL FROM entries
    WHERE topic = :topic AND log = :log AND first >= :first ORDER BY first LIMIT :most""")
# The entries of a run, whole.
WHOLE: Final = Statement("""
    SELECT entries.first, entries.rows, entries.first_us, entries.last_us, entries.times, entries.after_log,
           entries.after_offset, entries.seal, coalesce(pieces.data, entries.data)
    FROM entries LEFT JOIN pieces ON pieces.number = entries.piece
    WHERE entries.topic = :topic AND entries.log = :log AND entries.first >= :first AND entries.first <= :last
    ORDER BY entries.first""")
# Remove the entries of a run, before the joined entry is added.
DELETE_RUN: Final = Statement("""
    DELETE FROM entries WHERE topic = :topic AND log = :log AND first >= :first AND first <= :last""")
JOIN: Final = Statement("""
    UPDATE extents SET bytes = bytes + :bytes, entries = entries - :entries WHERE topic = :topic AND log = :log""")
# Topics that were dropped, and their entries.
DROPPED: Final = Statement("SELECT topic FROM dropped ORDER BY topic LIMIT 1")
DROPPED_ENTRIES: Final = Statement("""
    SELECT log, first, bytes FROM entries WHERE topic = :topic ORDER BY log, first LIMIT :most""")
DROPPED_DONE: Final = Statement("DELETE FROM dropped WHERE topic = :topic")
# Remove keys that have been remembered for long enough.
FORGET_TOKENS: Final = Statement("""
    DELETE FROM tokens WHERE (token, topic) IN (
        SELECT token, topic FROM tokens WHERE seen_us < :before ORDER BY seen_us LIMIT :most)""")
# Remove members of subscriptions that have been silent for long.
FORGET_MEMBERS: Final = Statement("""
    DELETE FROM members WHERE (subscription, member) IN (
        SELECT subscription, member FROM members WHERE seen_us < :before ORDER BY seen_us LIMIT :most)""")
# Publishers that were enrolled long ago: candidates for removal.
OLD_PUBLISHERS: Final = Statement("""
    SELECT number, key, high_water, seen_us FROM publishers
    WHERE seen_us < :before AND seen_us > :after ORDER BY seen_us LIMIT :most""")
# Remove a publisher, unless it has returned.
FORGET_PUBLISHER: Final = Statement("""
    DELETE FROM publishers WHERE number = :number AND high_water = :high_water AND seen_us = :seen_us""")
FORGET_TRAIL: Final = Statement("DELETE FROM trails WHERE publisher = :number")

# Staging

# Make a sink, at its first operation.
MAKE_SINK: Final = Statement("""
    INSERT INTO sinks (name, epoch, bytes, seen_us) VALUES (:name, NULL, 0, :time_us) ON CONFLICT (name) DO NOTHING""")
# A sink by its name, locked until the transaction ends: two brokers never publish the same epoch.
FIND_SINK: Final = Statement("SELECT number, epoch, bytes FROM sinks WHERE name = :name {for_update}")
# Rows were staged, published or discarded.
TOUCH_SINK: Final = Statement("""
    UPDATE sinks SET bytes = :bytes, epoch = :epoch, seen_us = :time_us WHERE number = :sink""")
FIND_STAGE: Final = Statement("""
    SELECT number, writer, pieces, bytes FROM stages
    WHERE sink = :sink AND epoch = :epoch AND part = :part AND attempt = :attempt""")
MAKE_STAGE: Final = Statement("""
    INSERT INTO stages (sink, epoch, part, attempt, writer, pieces, bytes)
    VALUES (:sink, :epoch, :part, :attempt, :writer, 0, 0) RETURNING number""")
GROW_STAGE: Final = Statement("UPDATE stages SET pieces = pieces + 1, bytes = bytes + :bytes WHERE number = :stage")
INSERT_PIECE: Final = Statement("""
    INSERT INTO pieces (stage, sequence, topic, rows, bytes, data)
    VALUES (:stage, :sequence, :topic, :rows, :bytes, :data)""")
# The stages of one epoch, and of all epochs up to one.
STAGES_OF: Final = Statement("""
    SELECT part, attempt, number, pieces, bytes FROM stages WHERE sink = :sink AND epoch = :epoch""")
STAGES_UP_TO: Final = Statement("SELECT number, epoch, bytes FROM stages WHERE sink = :sink AND epoch <= :epoch")
# The pieces of a stage: the sizes of all, and the data of some.
PIECE_SIZES: Final = Statement("SELECT bytes FROM pieces WHERE stage = :stage ORDER BY sequence")
PIECES: Final = Statement("""
    SELECT number, topic, rows, data FROM pieces
    WHERE stage = :stage AND sequence >= :first AND sequence < :stop ORDER BY sequence""")
# Remove a stage that was published; or one that is discarded, whose pieces upkeep removes.
DELETE_STAGE: Final = Statement("DELETE FROM stages WHERE number = :stage")
DISCARD: Final = Statement("INSERT INTO discarded (stage) VALUES (:stage)")
# Remove a piece whose rows were copied into an entry.
DELETE_PIECE: Final = Statement("DELETE FROM pieces WHERE number = :piece")
# Discarded stages, and some of their pieces.
DISCARDED: Final = Statement("SELECT stage FROM discarded ORDER BY stage LIMIT 1")
DISCARDED_PIECES: Final = Statement("""
    SELECT sequence, bytes FROM pieces WHERE stage = :stage ORDER BY sequence LIMIT :most""")
DELETE_FIRST_PIECES: Final = Statement("DELETE FROM pieces WHERE stage = :stage AND sequence <= :last")
DISCARDED_DONE: Final = Statement("DELETE FROM discarded WHERE stage = :stage")
# A sink that has been silent for long, and has stages.
SILENT_STAGES: Final = Statement("""
    SELECT number FROM sinks WHERE seen_us < :before AND EXISTS (SELECT 1 FROM stages WHERE sink = sinks.number)
    ORDER BY number LIMIT 1""")
# The same sink if it is still silent, locked until the transaction ends.
SILENT_SINK: Final = Statement("""
    SELECT epoch, seen_us FROM sinks WHERE number = :sink AND seen_us < :before {for_update}""")
# Remove sinks that have been silent for very long and have nothing staged.
FORGET_SINKS: Final = Statement("""
    DELETE FROM sinks WHERE number IN (
        SELECT number FROM sinks WHERE seen_us < :before AND bytes = 0 ORDER BY number LIMIT :most)""")
