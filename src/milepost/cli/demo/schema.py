"""A scene: a schema, and where it puts each field."""

from __future__ import annotations

from itertools import pairwise

from rich.syntax import Syntax

from milepost.batch.format import format_of
from milepost.cli import parts, tree
from milepost.cli.demo.market import TRADE, TRADE_TEXT
from milepost.cli.demo.narrator import Stage
from milepost.schema.flat import super_variant
from milepost.schema.text import parse

ENVELOPE = """
envelope: [
  priority: int,
  properties: *([name: string, value: string])*,
  payload: { absent: [] | subscribe: [topic: string, selector: string?] | reply: int | other: dynamic }
]"""


def play(stage: Stage) -> None:
    stage.scene("A schema says what a message may contain")
    stage.show(Syntax(TRADE_TEXT, "text", background_color="default"))
    stage.say("The same as a tree, with the fingerprint that identifies it wherever it travels:")
    stage.show(tree.drawn(TRADE))
    stage.claim("a schema prints as text that reads back as the same schema", parse(str(TRADE)) == TRADE)

    stage.say("\nNesting is for people. On the wire there are only columns, the widest first. In a message that")
    stage.say("travels alone, each sits at a place that follows from the schema:")
    stage.show(parts.places(TRADE))
    form = format_of(TRADE)
    columns = [*parts.of_columns(form.layout(), form.body, 1)]
    tight = all(before.end == after.start for before, after in pairwise(columns))
    aligned = all(part.start % part.size == 0 for part in columns if part.sort == "fixed")
    stage.claim("every value is aligned to its width, and no byte is padding", tight and aligned)

    envelope = parse(ENVELOPE)
    count = super_variant(envelope).count
    stage.say("\nA message with a variant has one layout for each case; it is worked out when the case first occurs.")
    stage.claim(f"an envelope with a payload of four kinds has {count} layouts, not one that fits all", count == 4)
