"""Transactional queues: messages in the tables of a database, taken by whoever commits first."""
