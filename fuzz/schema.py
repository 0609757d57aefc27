"""Text into the schema parsers: only `SchemaError` and `LimitExceeded` may be raised, and valid schemas print back."""

from __future__ import annotations

import sys

from fuzz.target import guided, start

with guided():
    from milepost.errors import LimitExceeded, SchemaError
    from milepost.schema.text import parse


SEEDS = [
    "quote: [symbol: string, price: double, size: int?, at: timestamp] check (price > 0 and symbol <> '')",
    "envelope: [priority: int, properties: *([name: string, value: string])*, "
    "payload: { absent: [] | subscribe: [topic: string] | reply: decimal(10,2) | other: dynamic }, route: hop?]\n"
    "hop: [broker: string, next: hop?]",
    "pair: [ { [] | pieceD: [field3: int] }, *(uint8)*, uuid ]",
    "DEFINE MESSAGETYPE OrderMessage; NODE order; id: IDENT; date: DATE; lines: REFERENCE TO line; END; "
    "NODE line; no: INTEGER; price: REAL; back: REFERENCE TO order; END; ROOT order; END;",
]


def one_input(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    try:
        schema = parse(text)
    except (SchemaError, LimitExceeded):
        return
    again = parse(schema.canonical)
    assert again.fingerprint == schema.fingerprint
    assert again == schema


if __name__ == "__main__":
    start(one_input, (text.encode() for text in SEEDS))
    sys.exit(0)
