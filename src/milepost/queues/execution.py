"""Registers how the store carries out operations on queues. Import it before a store is given one."""

from milepost.queues import admin, decisions, inspection, outcomes, transactions, transfers, upkeep

__all__ = ["admin", "decisions", "inspection", "outcomes", "transactions", "transfers", "upkeep"]
