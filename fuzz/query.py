"""Text into the query parser: only `QueryError` and `LimitExceeded` may be raised.

Valid queries are evaluated both ways over a few rows, and the vector back end must agree with plain Python.
"""

from __future__ import annotations

import datetime
import decimal
import sys
import uuid

from fuzz.target import guided, start

with guided(enable_loader_override=False):
    from milepost import query
    from milepost.batch import Batch
    from milepost.errors import LimitExceeded, QueryError
    from milepost.schema.text import parse


SCHEMA = parse(
    "m: [a: int, b: string, c: double?, d: decimal(10,2), e: bool, f: uint64, g: timestamp, h: date, i: uuid, "
    "j: bytes, k: *([x: int, y: string?])*, l: *(string)*?, n: {p: int | q: [r: string]}, ip: string]"
)
EARLY = datetime.datetime(1960, 2, 29, 23, 59, 59, 1, datetime.UTC)
ROWS = [
    {
        "a": a, "b": b, "c": c, "d": decimal.Decimal("-1.25") * a % 1_000, "e": a > 0, "f": f,
        "g": EARLY, "h": EARLY.date(), "i": uuid.UUID(int=f), "j": b.encode(),
        "k": [{"x": x, "y": b if x % 2 else None} for x in range(length)], "l": None if length else ["a", b],
        "n": {"p": a} if a % 2 else {"q": {"r": b}}, "ip": ip,
    }
    for a, b, c, f, length, ip in [
        (0, "", 0.0, 0, 0, "10.0.0.1"),
        (-(1 << 31), "IBM", -0.0, 1, 1, "no address"),
        ((1 << 31) - 1, "𝄞Öl", float("nan"), (1 << 64) - 1, 3, "2001:db8::1"),
        (7, "a%b_c", None, 1 << 63, 2, "256.1.1.1"),
        (3, "Zz", float("inf"), 5, 0, ""),
    ]
]  # fmt: skip
BATCH = Batch.encode(SCHEMA, ROWS)

SEEDS = [
    "a = 7 and c > 1.5 or not e",
    "b like 'a!%%' escape '!' and length(b) between 1 and 5",
    "any(k, x > 1 and y is not null) or all(l, it <> 'z') or count(k) in (1, 2, null)",
    "d * 2 + a % 3 >= sum(k, x) - 1e3 / f",
    "case(n) = 'q' and n.q.r = upper('ibm') or k[0].y is null",
    "in_subnet(ip, '10.0.0.0/8') and year(g) = 1960 and days_between(h, date '1970-01-01') > 0",
    "coalesce(c, 1.0) <> -0.0 and substring(b, 2, 1) || 'x' < 'Öx'",
    "i = uuid '00000000-0000-0000-0000-000000000001' or j = x'DEAD' or g < timestamp '2024-01-31T12:00:00+01:00'",
]


def one_input(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        wanted = query.compile(text, SCHEMA)
    except (QueryError, LimitExceeded):
        return
    try:
        one_by_one = [wanted.test(row) is True for row in ROWS]  # the third value is "unknown"
    except LimitExceeded:
        return
    assert wanted.mask(BATCH).tolist() == one_by_one, text


if __name__ == "__main__":
    start(one_input, (text.encode() for text in SEEDS))
    sys.exit(0)
