-- Version 1: the log, its publishers, and named subscriptions.
-- {integer}, {real}, {blob}: 64-bit numbers and bytes in the dialect's words. {identity}: numbers that are never given
-- out twice, also when the newest was deleted. {loose}: rows that lie in their primary key's tree, where there is a choice.

-- One row: the version of these tables, and the identity of the database, which changes only when its state is lost.
CREATE TABLE meta (
    version {integer} NOT NULL,
    store TEXT NOT NULL
);

-- One row for each broker that ever wrote here: its own partition of every topic.
CREATE TABLE logs (
    number {identity},
    name TEXT NOT NULL UNIQUE,
    broker_id {integer} NOT NULL,
    address TEXT NOT NULL,
    opening {integer} NOT NULL,   -- + 1 when a process opens the store: what that process enrolled and serves bears it
    epoch {integer} NOT NULL,     -- + 1 also when a process connects again: what an older connection still sends is refused
    commits {integer} NOT NULL,   -- + 1 with each write: tells whether a commit happened whose answer was lost
    last_us {integer} NOT NULL,   -- time of the newest entry: times never go back within a log
    seen_us {integer} NOT NULL    -- by the database's clock where it has one: who is silent for lease_s has lost its rights
);

CREATE TABLE topics (
    number {identity},
    name TEXT NOT NULL UNIQUE,
    slow TEXT NOT NULL,
    age_s {real},                 -- NULL: however old
    bytes {integer},              -- NULL: however many
    hold {integer} NOT NULL       -- 1: rows stay until every named subscription has consumed them
);

-- Topics that were dropped, and whose entries upkeep still has to remove.
CREATE TABLE dropped (
    topic {integer} PRIMARY KEY
);

CREATE TABLE schemas (
    topic {integer} NOT NULL,
    version {integer} NOT NULL,
    text TEXT NOT NULL,
    PRIMARY KEY (topic, version)
) {loose};

-- The log: batches as they travel, with their own checksums. `data` stands last, so that headers are read without it.
CREATE TABLE entries (
    topic {integer} NOT NULL,
    log {integer} NOT NULL,
    first {integer} NOT NULL,     -- offset of the first row
    rows {integer} NOT NULL,
    bytes {integer} NOT NULL,
    first_us {integer} NOT NULL,  -- when the first row was stored, microseconds since 1970
    last_us {integer} NOT NULL,   -- when the last row was
    times {blob},                 -- of entries that were joined: the row (u32) where each began, and its time (u64)
    after_log {integer},          -- rows of a publisher that came from another log: to be read after that log's
    after_offset {integer},       -- rows before this offset
    seal {integer} NOT NULL,      -- CRC-32 of topic, log, first, rows and the checksum of `data`: it is the right entry
    data {blob} NOT NULL,
    PRIMARY KEY (topic, log, first)
);

-- What each topic has in each log, so that nobody counts entries.
CREATE TABLE extents (
    topic {integer} NOT NULL,
    log {integer} NOT NULL,
    start {integer} NOT NULL,     -- offsets before it are gone, though their entry may still be there in part
    next {integer} NOT NULL,      -- the offset of the next row
    bytes {integer} NOT NULL,     -- of entries that are there
    entries {integer} NOT NULL,
    PRIMARY KEY (topic, log)
) {loose};

CREATE TABLE publishers (
    number {integer} PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    mark {integer} NOT NULL,      -- the highest stamp that is stored
    epoch {integer} NOT NULL,     -- + 1 when it is enrolled: an older enrolment can no longer move the mark
    home {integer} NOT NULL,      -- the log in which it was enrolled first
    log {integer} NOT NULL,       -- where it is now,
    opening {integer} NOT NULL,   -- and in which process
    seen_us {integer} NOT NULL
);
CREATE INDEX publishers_seen ON publishers (seen_us);  -- upkeep: who has been silent for long

-- For publishers that have moved between logs: where they wrote last, for each topic that they wrote to since.
CREATE TABLE trails (
    publisher {integer} NOT NULL,
    topic {integer} NOT NULL,
    log {integer} NOT NULL,
    PRIMARY KEY (publisher, topic)
) {loose};

CREATE TABLE subscriptions (
    number {identity},
    name TEXT NOT NULL UNIQUE,
    topic {integer} NOT NULL,
    predicate TEXT,
    options TEXT NOT NULL,        -- JSON
    token {blob} NOT NULL,        -- of the request that made it: repeated, it makes it again
    epoch {integer} NOT NULL,     -- + 1 when another process begins to serve it
    owner {integer},              -- the log of the broker that serves it; NULL: nobody
    opening {integer} NOT NULL,   -- and its process
    created_us {integer} NOT NULL
);
CREATE INDEX subscriptions_topic ON subscriptions (topic);  -- upkeep: whose cursors hold a topic's rows

CREATE TABLE cursors (
    subscription {integer} NOT NULL,
    log {integer} NOT NULL,
    consumed {integer} NOT NULL,  -- every offset before it is consumed
    state {blob} NOT NULL,        -- what else is, in the broker's words
    PRIMARY KEY (subscription, log)
) {loose};

-- The last acknowledgement of each client of a subscription.
CREATE TABLE members (
    subscription {integer} NOT NULL,
    member {blob} NOT NULL,
    sequence {integer} NOT NULL,
    seen_us {integer} NOT NULL,
    PRIMARY KEY (subscription, member)
) {loose};
CREATE INDEX members_seen ON members (seen_us);  -- upkeep: who has been silent for long

-- Keys of requests that must not be carried out twice.
CREATE TABLE tokens (
    token {blob} NOT NULL PRIMARY KEY,
    seen_us {integer} NOT NULL
) {loose};
CREATE INDEX tokens_seen ON tokens (seen_us);  -- upkeep: what has been remembered for long enough
