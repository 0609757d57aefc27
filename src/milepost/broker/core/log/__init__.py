"""Durable topics: their log, the subscriptions that read it, acknowledgements, dead letters and staged rows."""
