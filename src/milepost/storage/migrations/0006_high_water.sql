-- Version 6: the highest stamp that is stored for a publisher is called as everywhere else, its high water.

ALTER TABLE publishers RENAME COLUMN mark TO high_water;
