"""Durable state, in SQL: the log, cursors, publishers and topics; SQLite and PostgreSQL."""
