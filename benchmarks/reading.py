"""One field, and nine, out of the bytes of one message, in every format."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from benchmarks.clock import best
from benchmarks.formats import Format
from benchmarks.formats.arrow import Arrow
from benchmarks.formats.bare import Bare
from benchmarks.formats.flatbuffers import FlatBuffers
from benchmarks.formats.flattuple import FlatTuple
from benchmarks.formats.format import Reader
from benchmarks.formats.json import Json
from benchmarks.formats.messagepack import MessagePack, MessagePackArray, MessagePackPartial
from benchmarks.formats.protobuf import Protobuf, ProtobufReused
from benchmarks.formats.xml import Xml
from benchmarks.messages import FIELDS, Shape
from milepost.batch import Batch

NINE = 9
CHOICES = 64  # different sets of nine fields; each is compiled once, and each message is given one of them

PEERS: tuple[type[Format], ...] = (Xml, Json, MessagePack, Protobuf, FlatBuffers, Arrow)
# The same formats driven in ways that suit one of the six schemas, or that change the bytes. Shown, not hidden.
VARIATIONS: tuple[type[Format], ...] = (MessagePackArray, MessagePackPartial, ProtobufReused)
FORMATS: tuple[type[Format], ...] = (FlatTuple, *PEERS, *VARIATIONS, Bare)


def measure(shape: Shape, count: int, repeats: int, seed: int) -> dict[str, dict[str, float]]:
    """For one shape: `one` and `nine` (ns), `bytes`, each by format, and `validate` (ns, ours alone)."""
    rng = random.Random(seed)
    messages = shape.messages(count, seed)
    single = [rng.randrange(FIELDS) for _ in messages]
    sets = [sorted(rng.sample(range(FIELDS), NINE)) for _ in range(CHOICES)]
    several = [rng.randrange(CHOICES) for _ in messages]

    ones: dict[str, Callable[[], None]] = {}
    nines: dict[str, Callable[[], None]] = {}
    size: dict[str, float] = {}
    validate: Callable[[], None] | None = None
    for kind in FORMATS:
        if kind is Bare and shape.kind != "int":
            continue
        made = kind(shape)
        written = [made.write(values) for values in messages]
        readers = [made.reader(field) for field in range(FIELDS)]
        projections = [made.projection(fields) for fields in sets]
        work = [(readers[field], data) for field, data in zip(single, written, strict=True)]
        wide = [(projections[choice], data) for choice, data in zip(several, written, strict=True)]
        if kind is not Bare:
            _agree(kind.name, work, [values[field] for values, field in zip(messages, single, strict=True)])
            wanted = [tuple(values[i] for i in sets[choice]) for values, choice in zip(messages, several, strict=True)]
            _agree(kind.name, wide, wanted)
        ones[kind.name] = partial(_read, work)
        nines[kind.name] = partial(_read, wide)
        size[kind.name] = sum(map(len, written)) / count
        if isinstance(made, FlatTuple):
            validate = partial(_validate, written, made.schema)

    assert validate is not None
    spent = {name: best(loops, repeats) for name, loops in (("one", ones), ("nine", nines))}
    spent["validate"] = best({FlatTuple.name: validate}, repeats)
    return {what: {name: ns / count for name, ns in figures.items()} for what, figures in spent.items()} | {
        "bytes": size
    }


def _read(work: list[tuple[Reader, bytes]]) -> None:
    """What is timed: the same loop for every format, so that its cost is in all figures alike."""
    for read, data in work:
        read(data)


def _validate(written: list[bytes], schema: Any) -> None:
    decode = Batch.decode
    for data in written:
        decode(data, schema)


def _agree(name: str, work: list[tuple[Reader, bytes]], wanted: list[Any]) -> None:
    """A format that reads something else than was written is not measured."""
    for (read, data), value in zip(work, wanted, strict=True):
        if (found := read(data)) != value:
            raise AssertionError(f"{name} read {found!r} where {value!r} was written")
