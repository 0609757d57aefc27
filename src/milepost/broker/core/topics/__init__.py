"""Topics: names, schemas, plain subscriptions, and rows that wait for a connection."""
