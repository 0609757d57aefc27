"""Networks of brokers: what is wanted where. Pure: no socket, no clock, no event loop."""
