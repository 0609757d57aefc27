"""The counters of a client."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientStatistics:
    """A client's counters, over its whole life and all its connections."""

    connected: bool
    reconnects: int
    subscriptions: int
    # Puts
    rows_put: int  # sent; rows in an outbox are not counted yet
    batches_put: int
    bytes_put: int  # of whole frames
    batches_refused: int  # by the broker
    rows_waiting: int  # in outboxes
    put_window: int  # bytes that may be in flight; 0 while not connected
    put_outstanding: int  # bytes in flight
    # Deliveries
    rows_delivered: int
    batches_delivered: int
    bytes_delivered: int
    rows_dropped: int  # by the broker, because this client was slow
    bytes_queued: int  # delivered, and not yet taken by the application
