"""Scene one: a schema, and where it puts each field."""

from __future__ import annotations

from rich.syntax import Syntax

from milepost.batch.format import format_of
from milepost.cli import parts, tree
from milepost.cli.demo.market import TRADE, TRADE_TEXT
from milepost.cli.demo.stage import Stage
from milepost.schema import parse
from milepost.schema.flat import super_variant

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
    layout = format_of(TRADE).layout()
    stage.show(parts.places(TRADE))
    aligned = all(part.start % 4 == 0 for part in parts.of_columns(layout, format_of(TRADE).body, 1) if part.size >= 4)
    stage.claim("every column is aligned, and no byte is padding", aligned)

    envelope = parse(ENVELOPE)
    count = super_variant(envelope).count
    stage.say("\nA message with a variant has one layout for each case; it is worked out when the case first occurs.")
    stage.claim(f"an envelope with a payload of four kinds has {count} layouts, not one that fits all", count == 4)
