"""Checks that every message arrived, once and in order, by a ledger of what was attempted and what was delivered.

::

    ledger = Ledger()
    ledger.subscription("desk", "quotes")
    ledger.put("feed", "quotes", 1)  # before putting
    ledger.stored("feed", "quotes", 1)  # when the put returned
    ledger.got("desk", "feed", 1)
    verdict = ledger.verdict()
    assert verdict, verdict

Programs that may be killed at any moment write the same events with a `Recorder` to files, which the ledger reads at
the end.
"""

from milepost.testing.ledger.ledger import Ledger
from milepost.testing.ledger.records import Recorder
from milepost.testing.ledger.verdict import Finding, Tally, Verdict

__all__ = ["Ledger", "Recorder", "Verdict", "Finding", "Tally"]
