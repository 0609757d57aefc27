"""The events of the benchmark: ten fields, some 90 bytes, as a monitoring system would send them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import csv

SCHEMA = """
    event: [id: long, at: timestamp, host: string, kind: string, service: string, response_ms: int, load: double,
            memory: double, bytes_in: long, bytes_out: long]
"""
START_US = 1_767_225_600_000_000
HOSTS = 1_000
KINDS = ("performance", "request", "ticket", "audit")
SERVICES = ("dns", "whois", "registry", "billing", "mail")
PIECE = 100_000  # events of one table

_HOSTS = pa.array([f"92.126.{10 + number // 250}.{number % 250 + 1}" for number in range(HOSTS)])


def table(first: int, count: int, start_us: int = START_US, step_us: float = 10.0, seed: int = 1) -> pa.Table:
    """Events from number `first` on; the same for the same arguments."""
    rng = np.random.default_rng((seed, first))
    numbers = np.arange(first, first + count)
    return pa.table(
        {
            "id": numbers,
            "at": pa.array((start_us + numbers * step_us).astype(np.int64), pa.timestamp("us", "UTC")),
            "host": _HOSTS.take(pa.array(rng.integers(0, HOSTS, count))),
            "kind": pa.array(KINDS).take(pa.array(rng.integers(0, len(KINDS), count))),
            "service": pa.array(SERVICES).take(pa.array(rng.integers(0, len(SERVICES), count))),
            "response_ms": pa.array(rng.gamma(2.0, 40.0, count).astype(np.int32)),
            "load": rng.gamma(2.0, 0.5, count),
            "memory": rng.random(count),
            "bytes_in": rng.integers(0, 100_000, count),
            "bytes_out": rng.integers(0, 1_000_000, count),
        }
    )


def tables(count: int) -> Iterator[pa.Table]:
    """So many events, in pieces."""
    for first in range(0, count, PIECE):
        yield table(first, min(PIECE, count - first))


def hosts(path: Path) -> Path:
    """The table that events are enriched from: a name and a type for each host."""
    names = pa.array([f"host-{number:04}.example" for number in range(HOSTS)])
    types = pa.array(["production" if number % 3 else "test" for number in range(HOSTS)])
    csv.write_csv(pa.table({"ip": _HOSTS, "name": names, "type": types}), path)
    return path


RULES = """
[[tier1]]
discard = "kind = 'performance' and in_subnet(host, '92.126.10.0/24')"

[[tier1]]
derive = {{ seconds = "response_ms / 1000.0", total = "bytes_in + bytes_out" }}

[[tier1]]
enrich = {{ table = "{hosts}", by = "host", key = "ip", take = {{ host_name = "name", host_type = "type" }} }}
"""

TIER2 = """
[[monitor]]
name = "slow"
of = "response_ms"
window = "30s"
every = "2s"

[[tier2]]
name = "overload"
to = "bench-overload"
where = "in_subnet(host, '92.126.11.0/24')"
window = "5s"
by = ["host"]
compute = {{ peak = "max(load)" }}
having = "peak > 2"

[[tier2]]
name = "slow"
to = "bench-slow"
where = "response_ms > monitor.slow.p99"

[[tier2]]
name = "retry"
to = "bench-retry"
first = "kind = 'ticket'"
then = "kind = 'audit'"
within = "500ms"
by = ["host"]
"""
