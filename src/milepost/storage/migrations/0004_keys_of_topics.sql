-- Version 4: a put's key is remembered for the topics that it was put into.

ALTER TABLE tokens RENAME TO tokens_before;

-- Keys of requests that must not be carried out twice.
CREATE TABLE tokens (
    token {blob} NOT NULL,
    topic {integer} NOT NULL DEFAULT 0,  -- that it was put into; 0: of version 3, for any topic, or no put's
    seen_us {integer} NOT NULL,
    PRIMARY KEY (token, topic)
) {loose};
INSERT INTO tokens (token, seen_us) SELECT token, seen_us FROM tokens_before;
DROP TABLE tokens_before;
CREATE INDEX tokens_seen ON tokens (seen_us);  -- upkeep: what has been remembered for long enough
