"""A scene: a batch, and its bytes."""

from __future__ import annotations

import numpy as np

from milepost.batch import Batch
from milepost.cli import parts
from milepost.cli.demo.market import FEW, TRADE, many
from milepost.cli.demo.narrator import Narrator
from milepost.errors import MalformedBatch

ROWS = 10_000


def play(narrator: Narrator) -> None:
    narrator.scene("A batch is messages as rows of columns")
    batch = Batch.encode(TRADE, FEW)
    data = bytes(batch.data)
    narrator.say(f"Three trades are {len(data)} bytes, and these are all of them:")
    drawn = parts.of_batch(batch)
    narrator.show(parts.hexdump(data, drawn))
    narrator.claim("the parts drawn above cover every byte once", _covers(drawn, len(data)))
    narrator.claim("reading the bytes gives back the trades", Batch.decode(data, TRADE).to_pylist() == FEW)

    narrator.say(
        "\nA batch from outside is checked once, completely, when it arrives. Each byte here was flipped in turn:"
    )
    refused = sum(_refused(data, position) for position in range(len(data)))
    narrator.claim(f"{refused} of {len(data)} damaged batches were refused", refused == len(data))

    large = Batch.encode(TRADE, many(ROWS))
    column = large.column("size")
    narrator.say(f"\nWith {ROWS:,} rows it is a column store: NumPy and Arrow read it where it lies.")
    start = np.frombuffer(large.data, np.uint8).ctypes.data
    inside = start <= column.ctypes.data < start + len(large.data)
    narrator.claim("the NumPy column `size` is a view of the batch's own bytes", inside)
    prices = large.to_arrow().column("price").buffers()[1]
    narrator.claim("so is the Arrow column `price`", start <= prices.address < start + len(large.data))


def _covers(drawn: list[parts.BytePart], size: int) -> bool:
    at = 0
    for part in drawn:
        if part.start != at:
            return False
        at = part.end
    return at == size


def _refused(data: bytes, position: int) -> bool:
    damaged = bytearray(data)
    damaged[position] ^= 0x40
    try:
        Batch.decode(bytes(damaged), TRADE)
    except MalformedBatch:
        return True
    return False
