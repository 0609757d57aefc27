"""Texts that back ends of the query language have stumbled over: addresses that are nearly right, and letters that mean
something to somebody. Each back end is asked about them, beside the reference.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from milepost.schema.text import parse

SCHEMA = parse("t: [s: string, p: string, i: long, n: long, u: uint64]")
LETTERS = ["a", "b", "ab", "é", "😀", "\\", ".", "%", "_", "\n", "*", "[", "Q", "E", "$", "^", "-", " "]
NETWORKS = [
    "10.0.0.0/8", "0.0.0.0/0", "10.10.0.0/15", "255.255.255.255",
    "::/0", "::1", "2001:db8::/32", "2000::/3", "::ffff:0:0/96", "0:0:2::/47",
]  # fmt: skip
_GROUPS = ["0", "1", "ffff", "FFfF", "00a", "12345", "g", "", "db8", "2001"]
_BYTES = ["0", "1", "10", "255", "256", "01", "", "+1", "99"]


def messages(rng: Random, letters: Sequence[str], count: int) -> list[dict[str, Any]]:
    """Messages of `SCHEMA`: texts of these letters and addresses, and numbers at the ends of their ranges."""

    def v4() -> str:
        return ".".join(rng.choices(_BYTES, weights=[9, 9, 9, 9, 1, 1, 1, 1, 9], k=rng.choice([4] * 9 + [3, 5])))

    def v6() -> str:
        some = [rng.choices(_GROUPS, weights=[9, 9, 9, 9, 9, 1, 1, 1, 9, 9], k=rng.randint(0, 8)) for _ in range(2)]
        text = rng.choice(["::", "::", ":", ":::", "::"]).join(":".join(each) for each in some)
        eight = ":".join(rng.choices(_GROUPS[:5], k=8))
        six = ":".join(eight.split(":")[:6])
        odd = [f"{text}%1", f" {text}", eight[:-1], "::", "2001:db8::" + rng.choice(_GROUPS), f"{text}\n", f"{text}/8"]
        return rng.choice([text, eight, f"{text}:{v4()}", f"::{v4()}", f"{six}:{v4()}", *odd])

    def text() -> str:
        return "".join(rng.choices(letters, k=rng.randint(0, 6)))

    def number() -> int:
        return rng.choice([rng.randint(-4, 9), 2**31, -(2**31), 2**63 - 1, -(2**63), 2**32 + 1])

    def message() -> dict[str, Any]:
        some = rng.choice([text, text, v4, v6, v6])()
        return {"s": some, "p": text()[:2], "i": number(), "n": number(), "u": rng.choice([1, 3, 2**64 - 1])}

    return [message() for _ in range(count)]


def pairs() -> list[str]:
    """What both back ends are asked about each of them."""
    texts = [f"in_subnet(s, '{network}')" for network in NETWORKS]
    texts += [f"{name}(s)" for name in ("upper", "lower", "trim", "ltrim", "rtrim", "length")]
    return texts + [f"{name}(s, p)" for name in ("position", "contains", "starts_with", "ends_with")]
