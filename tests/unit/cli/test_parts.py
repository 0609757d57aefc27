"""What is drawn of a batch is all of it."""

import io
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from milepost.batch import Batch, Ids
from milepost.cli import parts, tree
from milepost.schema.text import parse
from tests.strategies import schemas, values


@given(st.data())
def test_parts_cover_every_byte_once(data):
    schema = data.draw(schemas())
    rows = data.draw(st.lists(values(schema), max_size=4))
    ids = Ids.single(1, 2, range(1, len(rows) + 1)) if data.draw(st.booleans()) else None
    batch = Batch.encode(schema, rows, ids)
    drawn = parts.of_batch(batch)
    assert drawn[0].start == 0
    assert drawn[-1].end == len(batch.data)
    assert all(before.end == after.start for before, after in pairwise(drawn))
    for part in drawn:
        if part.sort == "zeros":
            assert part.size < 8
            assert not any(bytes(batch.data)[part.start : part.end])


@given(schemas(checks=True, indexes=True))
def test_any_schema_can_be_drawn(schema):
    console = Console(file=io.StringIO(), width=200)
    console.print(tree.drawn(schema))
    console.print(parts.places(schema))


def test_the_places_of_a_small_schema():
    schema = parse("quote: [symbol: string, price: double, size: int, buy: bool]")
    console = Console(file=io.StringIO(), width=100)
    console.print(parts.places(schema))
    drawn = [line.split()[:3] for line in console.file.getvalue().splitlines()]
    assert ["16", "8", "price"] in drawn
    assert ["24", "4", "size"] in drawn
    assert ["36", "1", "buy"] in drawn
