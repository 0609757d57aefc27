-- Version 2: rows that are staged for a sink, and are seen together.

CREATE TABLE sinks (
    number {identity},
    name TEXT NOT NULL UNIQUE,
    epoch {integer},              -- the last one that was published; NULL: none
    bytes {integer} NOT NULL,     -- that are staged, in all its stages
    seen_us {integer} NOT NULL
);

-- What one attempt at a part of an epoch has staged.
CREATE TABLE stages (
    number {identity},
    sink {integer} NOT NULL,
    epoch {integer} NOT NULL,
    part {integer} NOT NULL,
    attempt {integer} NOT NULL,
    writer {blob} NOT NULL,       -- the client: one that comes later under the same numbers begins anew
    pieces {integer} NOT NULL,    -- how many there are: the sequence of the next one
    bytes {integer} NOT NULL,
    UNIQUE (sink, epoch, part, attempt)
);

-- Stages that nobody will see, and whose pieces upkeep still has to remove.
CREATE TABLE discarded (
    stage {integer} PRIMARY KEY
);

-- Batches of stages. A large one stays here when it is published, and an entry of the log says where it is: what was
-- written once is not written again. `data` stands last, so that all else is read without it.
CREATE TABLE pieces (
    number {identity},
    stage {integer} NOT NULL,
    sequence {integer} NOT NULL,
    topic {integer} NOT NULL,
    rows {integer} NOT NULL,
    bytes {integer} NOT NULL,
    data {blob} NOT NULL
);
CREATE UNIQUE INDEX pieces_stage ON pieces (stage, sequence);  -- publishing: the pieces of a stage, in order

-- NULL: the entry has its data itself; otherwise that is empty, and the piece of this number has it.
ALTER TABLE entries ADD COLUMN piece {integer};
