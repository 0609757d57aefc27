"""The messages of the scenes: trades, a few by hand and many at random."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from milepost.schema.text import parse

TRADE_TEXT = """\
trade: [
  symbol: string,
  price:  double,
  size:   int,
  at:     timestamp,
  desk:   [name: string, floor: int16]?,
  tags:   *(string)*
]"""
TRADE = parse(TRADE_TEXT)

OPENING = datetime(2026, 3, 2, 14, 30, tzinfo=UTC)

FEW: list[dict[str, Any]] = [
    {"symbol": "IBM", "price": 101.5, "size": 200, "at": OPENING, "desk": {"name": "north", "floor": 7}, "tags": []},
    {"symbol": "ACME", "price": 12.25, "size": 50, "at": OPENING + timedelta(milliseconds=3), "desk": None,
     "tags": ["odd lot", "late"]},
    {"symbol": "IBM", "price": 101.75, "size": 1000, "at": OPENING + timedelta(seconds=1), "desk": None,
     "tags": ["block"]},
]  # fmt: skip


def many(count: int) -> list[dict[str, Any]]:
    """Random trades, always the same."""
    rng = random.Random(7)
    names = ["IBM", "ACME", "GLOBEX", "INITECH", "HOOLI", "UMBRELLA"]
    return [
        {
            "symbol": rng.choice(names),
            "price": round(rng.uniform(5, 150), 2),
            "size": rng.randrange(1, 2_000),
            "at": OPENING + timedelta(milliseconds=row),
            "desk": {"name": rng.choice(["north", "south"]), "floor": rng.randrange(1, 20)}
            if rng.random() < 0.5
            else None,
            "tags": rng.sample(["block", "late", "odd lot"], rng.randrange(3)),
        }
        for row in range(count)
    ]
