-- Version 5: what was called a forward of a queue is a transfer, in the name of its table and in the names it was given.

ALTER TABLE queue_forwards RENAME TO queue_transfers;

-- A transfer's name is that of its coordinator, the beginning of its transactions' names, and that of its client at the
-- target. What is in doubt while both stores come to this version is found under the new name on both sides.
UPDATE queue_decisions SET gid = 'transfer/' || substr(gid, 9) WHERE substr(gid, 1, 8) = 'forward/';
UPDATE queue_transactions SET gid = 'transfer/' || substr(gid, 9), coordinator = 'transfer/' || substr(coordinator, 9)
    WHERE substr(coordinator, 1, 8) = 'forward/';
UPDATE publishers SET key = 'transfer/' || substr(key, 9) WHERE substr(key, 1, 8) = 'forward/';

-- The highest stamp that is stored for a publisher is called as everywhere else, its high water.

ALTER TABLE publishers RENAME COLUMN mark TO high_water;
