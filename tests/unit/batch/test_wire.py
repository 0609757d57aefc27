"""The bytes of docs/wire.md, byte for byte: whoever changes them breaks every log there is."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from milepost.batch import Batch, Ids
from milepost.schema.text import parse

DOCUMENT = Path(__file__).parents[3] / "docs" / "wire.md"
EXAMPLE = re.compile(r"```schema\n(.*?)```\n```json\n(.*?)```\n(?:```ids\n(.*?)```\n)?```hex\n(.*?)```", re.DOTALL)
EXAMPLES = EXAMPLE.findall(DOCUMENT.read_text())


def byte_column(lines: str) -> str:
    """The hexadecimal bytes at the start of each line; what follows them is for people."""
    found = [re.match(r"((?:[0-9a-f]{2} {1,2})*(?:[0-9a-f]{2})?)(?:\s|$)", line) for line in lines.splitlines()]
    return "".join(match[1] for match in found if match).replace(" ", "")


def test_the_document_has_its_examples() -> None:
    assert len(EXAMPLES) == 6


@pytest.mark.parametrize(("schema", "rows", "ids", "dump"), EXAMPLES)
def test_the_document_shows_the_bytes(schema: str, rows: str, ids: str, dump: str) -> None:
    kind = parse(schema)
    values = json.loads(rows)
    stamps = [int(stamp, 16) for stamp in re.findall(r"\b[0-9a-f]{16}\b", ids)]
    batch = Batch.encode(kind, values, Ids.single(1, 2, stamps) if ids else None)
    assert bytes(batch.data).hex() == byte_column(dump)
    read = Batch.decode(bytes.fromhex(byte_column(dump)), kind)
    assert read.to_pylist() == values
    assert read.ids == batch.ids
