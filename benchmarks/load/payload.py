"""The message of the throughput and latency runs: five fields, 100 bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

BYTES = 100
DISTINCT = 1_000  # different messages, which a publisher repeats

SCHEMA = "tick: [symbol: string, venue: string, price: double, size: long, note: string]"
# 16 bytes of numbers; the strings make up the rest of the hundred.
SYMBOL_BYTES, VENUE_BYTES, NOTE_BYTES = 8, 12, 64


def rows() -> list[dict[str, Any]]:
    """Python dicts, each with 100 bytes of values."""
    return [
        {
            "symbol": f"SYM{i % 200:05d}",
            "venue": f"VENUE-{i % 16:06d}",
            "price": i * 0.25,
            "size": i + 1,
            "note": f"note {i:05d} ".ljust(NOTE_BYTES, "x"),
        }
        for i in range(DISTINCT)
    ]


def columns(count: int) -> dict[str, Any]:
    """The same messages as NumPy and Arrow columns, from the first again when `count` is more than there are."""
    given = rows()
    some = [given[i % DISTINCT] for i in range(count)]
    return {
        "symbol": pa.array([row["symbol"] for row in some]),
        "venue": pa.array([row["venue"] for row in some]),
        "price": np.array([row["price"] for row in some]),
        "size": np.array([row["size"] for row in some]),
        "note": pa.array([row["note"] for row in some]),
    }


def payloads() -> list[bytes]:
    """The message for brokers that do not read its content: 100 bytes without any encoding."""
    return [bytes([32 + i % 90]) * BYTES for i in range(DISTINCT)]
