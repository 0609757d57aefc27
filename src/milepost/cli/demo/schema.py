"""A scene: a schema, and where it puts each field."""

from __future__ import annotations

from itertools import pairwise

from rich.syntax import Syntax

from milepost.batch.format import format_of
from milepost.cli import parts, tree
from milepost.cli.demo.market import TRADE, TRADE_TEXT
from milepost.cli.demo.narrator import Narrator
from milepost.schema.flat import super_variant
from milepost.schema.text import parse

ENVELOPE = """
envelope: [
  priority: int,
  properties: *([name: string, value: string])*,
  payload: { absent: [] | subscribe: [topic: string, selector: string?] | reply: int | other: dynamic }
]"""


def play(narrator: Narrator) -> None:
    narrator.scene("A schema says what a message may contain")
    narrator.show(Syntax(TRADE_TEXT, "text", background_color="default"))
    narrator.say("The same as a tree, with the fingerprint that identifies it wherever it travels:")
    narrator.show(tree.drawn(TRADE))
    narrator.claim("a schema prints as text that reads back as the same schema", parse(str(TRADE)) == TRADE)

    narrator.say("\nNesting is for people. On the wire there are only columns, the widest first. In a message that")
    narrator.say("travels alone, each sits at a place that follows from the schema:")
    narrator.show(parts.places(TRADE))
    form = format_of(TRADE)
    columns = [*parts.of_columns(form.layout(), form.body, 1)]
    tight = all(before.end == after.start for before, after in pairwise(columns))
    aligned = all(part.start % part.size == 0 for part in columns if part.sort == "fixed")
    narrator.claim("every value is aligned to its width, and no byte is padding", tight and aligned)

    envelope = parse(ENVELOPE)
    count = super_variant(envelope).count
    narrator.say("\nA message with a variant has one layout for each case, worked out when the case first occurs.")
    narrator.claim(f"an envelope with a payload of four kinds has {count} layouts, not one that fits all", count == 4)
