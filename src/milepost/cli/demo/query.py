"""A scene: a predicate over a batch."""

from __future__ import annotations

import time

from rich.markup import escape

from milepost import query
from milepost.batch import Batch
from milepost.cli import terminal
from milepost.cli.demo.market import TRADE, many
from milepost.cli.demo.narrator import Narrator
from milepost.errors import QueryTypeError

ROWS = 10_000
SHOWN = 5
PREDICATE = "symbol = 'IBM' and price > 100 and desk.floor between 3 and 5 and any(tags, it like 'odd%')"
MISSPELT = "symbol = 'IBM' and pirce > 100"


def play(narrator: Narrator) -> None:
    narrator.scene("One query language asks about content")
    rows = many(ROWS)
    batch = Batch.encode(TRADE, rows)
    wanted = query.compile(PREDICATE, TRADE)
    narrator.say(f"Over {ROWS:,} trades:\n")
    narrator.show(f"[cyan]{escape(PREDICATE)}[/]")
    wanted.mask(batch)  # the first call of a predicate may compile it
    start = time.perf_counter()
    found = wanted.mask(batch)
    spent = time.perf_counter() - start
    narrator.say(f"\n{int(found.sum())} of them match; finding them took {spent * 1e3:.1f} ms. The first {SHOWN}:")
    table = terminal.table("symbol", "price", "size", "desk", "tags")
    for row in batch.take(found).slice(0, SHOWN).to_pylist():
        desk = f"{row['desk']['name']} {row['desk']['floor']}"
        table.add_row(row["symbol"], str(row["price"]), str(row["size"]), desk, ", ".join(row["tags"]))
    narrator.show(table)
    one_by_one = [wanted.test(row) is True for row in rows]
    narrator.claim("the vector back end finds what plain Python finds, row by row", found.tolist() == one_by_one)

    narrator.say("\nA query is checked against the schema before it runs. With a misspelt field:")
    try:
        query.compile(MISSPELT, TRADE)
    except QueryTypeError as error:
        narrator.show(f"[red]{escape(str(error))}[/]")
        narrator.claim("the error names the field that was meant", "'price'" in str(error))
    else:
        narrator.claim("a misspelt field is refused", False)
