"""Queues as clients of this broker use them: open transactions, dequeues that wait, leases, administration."""
