-- Version 3: transactional queues. Each queue also has a table of its own, q<number>, and each message type one table for
-- each of its node types and references, mt<type>_<n>_<name>; these are made when a queue or a type is.

-- One row, which counts the changes of the three tables that follow: brokers that share a store see by it that what they
-- remember is old.
CREATE TABLE queue_catalogue (
    version {integer} NOT NULL
);
INSERT INTO queue_catalogue (version) VALUES (1);

CREATE TABLE queue_types (
    number {identity},
    name TEXT NOT NULL UNIQUE,
    source TEXT NOT NULL,             -- the schema, in the notation it was given in
    created_us {integer} NOT NULL
);

CREATE TABLE queues (
    number {identity},
    name TEXT NOT NULL UNIQUE,
    level TEXT NOT NULL,              -- none, ordered, blockwise, ordered blockwise
    direction TEXT NOT NULL,          -- of priorities: desc, asc
    priority {real} NOT NULL,         -- of messages that come without one and have no function for it
    prioritized {integer} NOT NULL,   -- 1: some message may have another priority than the others
    dead {integer},                   -- the queue for messages that were undone too often
    most_aborts {integer} NOT NULL,   -- what too often is; 0: never
    created_us {integer} NOT NULL
);

-- Which types a queue takes, and the function that gives their priority.
CREATE TABLE queue_accepts (
    queue {integer} NOT NULL,
    type {integer} NOT NULL,
    function TEXT,
    PRIMARY KEY (queue, type)
);

-- Transactions that are under way or prepared, and those that ended a while ago: a repeated commit finds its outcome here.
CREATE TABLE queue_transactions (
    number {integer} PRIMARY KEY,     -- T of the messages that it wrote
    s {integer} NOT NULL,             -- the client's number
    instance {blob} NOT NULL,         -- the client object,
    client {integer} NOT NULL,        -- and its own number for the transaction
    log {integer} NOT NULL,           -- the broker that serves it
    state TEXT NOT NULL,              -- a: under way, p: prepared, c: committed, x: undone
    operations {integer} NOT NULL,    -- how many were carried out: those that a crash has taken back are found missing
    messages {integer} NOT NULL,      -- written by one that began and committed at once: their numbers follow its own
    lease_us {integer} NOT NULL,      -- until then it is under way, or remembered
    gid TEXT UNIQUE,                  -- of a transaction over several stores, and
    coordinator TEXT,                 -- who decides about it
    UNIQUE (instance, client)
);
CREATE INDEX queue_transactions_log ON queue_transactions (log) WHERE state = 'a';        -- recovery
CREATE INDEX queue_transactions_lease ON queue_transactions (lease_us);                   -- leases that have ended
CREATE INDEX queue_transactions_doubt ON queue_transactions (number) WHERE state = 'p';   -- those in doubt

-- What transactions under way have done. A row is written in the database transaction of its operation.
CREATE TABLE queue_log (
    transaction_number {integer} NOT NULL,
    operation {integer} NOT NULL,
    kind TEXT NOT NULL,               -- the log state that its messages were brought to: e, d, b
    queue {integer} NOT NULL,
    messages {integer} NOT NULL,
    PRIMARY KEY (transaction_number, operation, kind, queue)
);

-- The visibility flag of messages that are reserved together: those of a writer (ordered) or of a block (blockwise).
CREATE TABLE queue_groups (
    queue {integer} NOT NULL,
    member {integer} NOT NULL,        -- S or T
    owner {integer} NOT NULL,         -- the transaction that has reserved them; 0: nobody
    PRIMARY KEY (queue, member)
);
CREATE INDEX queue_groups_owner ON queue_groups (owner) WHERE owner <> 0;                 -- release

-- What this store decided, as coordinator, about transactions over several stores, until all of them have heard.
CREATE TABLE queue_decisions (
    gid TEXT PRIMARY KEY,
    participant TEXT NOT NULL,
    decided_us {integer} NOT NULL
);

-- Queues whose messages go on to another broker.
CREATE TABLE queue_forwards (
    queue {integer} PRIMARY KEY,
    address TEXT NOT NULL,
    target TEXT NOT NULL,
    created_us {integer} NOT NULL,
    runner {integer} NOT NULL,        -- the log of the broker that does it, 0: none yet,
    lease_us {integer} NOT NULL,      -- and until when no other one does
    messages {integer} NOT NULL,      -- so many have gone over, as it told last
    error TEXT NOT NULL               -- what is in the way; empty: nothing
);
