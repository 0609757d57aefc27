"""Upkeep: what goes, what is joined, what is given back. In small steps, between writes."""

from __future__ import annotations

from milepost.storage.database import Database, Session
from milepost.storage.transaction import Holder, Memory


class Upkeep:
    """The upkeep of one store; it remembers how far it is."""

    def __init__(self, database: Database, memory: Memory, remember_s: float) -> None:
        self._database = database

    def step(self, session: Session, holder: Holder, time_us: int) -> bool:
        """One step; True when there is more to do."""
        return self._database.give_back(session)
