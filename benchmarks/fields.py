"""One field, and nine, out of the bytes of one message, in every format."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.formats import Format
from benchmarks.formats.bare import Bare
from benchmarks.formats.flattuple import FlatTuple, FlatTupleVariants
from benchmarks.formats.format import Reader
from benchmarks.messages import FIELDS, Shape
from milepost.batch import Batch

NINE = 9
CHOICES = 64  # different sets of nine fields; each is compiled once, and each message uses one of them

LEFT_OUT: dict[str, str] = {}  # formats whose package is not installed, and why they are not here


def _there(module: str, **names: str) -> tuple[type[Format], ...]:
    """The formats of a module, by name; none when their package is missing."""
    try:
        found = import_module(f"benchmarks.formats.{module}")
    except ImportError as error:
        LEFT_OUT.update(dict.fromkeys(names.values(), f"the Python package {error.name} is not installed: left out"))
        return ()
    return tuple(getattr(found, name) for name in names)


PEERS: tuple[type[Format], ...] = (
    *_there("xml", Xml="lxml"),
    *_there("json", Json="orjson"),
    *_there("messagepack", MessagePack="msgspec"),
    *_there("protobuf", Protobuf="protobuf"),
    *_there("flatbuffers", FlatBuffers="flatbuffers"),
    *_there("arrow", Arrow="arrow"),
)
# The same formats driven in ways that suit one of the six schemas, or that change the bytes. Shown, not hidden.
VARIATIONS: tuple[type[Format], ...] = (
    *_there("messagepack", MessagePackArray="msgspec_array", MessagePackPartial="msgspec_partial"),
    *_there("protobuf", ProtobufReused="protobuf_reused"),
)
FORMATS: tuple[type[Format], ...] = (FlatTuple, FlatTupleVariants, *PEERS, *VARIATIONS, Bare)
ALL_PEERS = (*(kind.name for kind in (*PEERS, *VARIATIONS)), *LEFT_OUT)


@dataclass
class Contest:
    """One shape, ready to be timed: for each format a loop over all messages, and the bytes of a message."""

    one: dict[str, Callable[[], None]]
    nine: dict[str, Callable[[], None]]
    validate: Callable[[], None]  # ours alone
    size: dict[str, float]  # bytes, the mean


def prepare(shape: Shape, count: int, seed: int) -> Contest:
    """Write the messages in every format, choose the fields, and check that all formats read the written values."""
    rng = random.Random(seed)
    messages = shape.messages(count, seed)
    single = [rng.randrange(FIELDS) for _ in messages]
    sets = [sorted(rng.sample(range(FIELDS), NINE)) for _ in range(CHOICES)]
    several = [rng.randrange(CHOICES) for _ in messages]

    contest = Contest({}, {}, lambda: None, {})
    for kind in FORMATS:
        if (kind is Bare and shape.kind != "int") or (kind is FlatTupleVariants and not shape.sparse):
            continue
        made = kind(shape)
        written = _side_by_side([made.write(values) for values in messages])
        readers = [made.reader(field) for field in range(FIELDS)]
        projections = [made.projection(fields) for fields in sets]
        work = [(readers[field], data) for field, data in zip(single, written, strict=True)]
        wide = [(projections[choice], data) for choice, data in zip(several, written, strict=True)]
        if kind is not Bare:
            _agree(kind.name, work, [values[field] for values, field in zip(messages, single, strict=True)])
            wanted = [tuple(values[i] for i in sets[choice]) for values, choice in zip(messages, several, strict=True)]
            _agree(kind.name, wide, wanted)
        contest.one[kind.name] = partial(_read, _in_memory_order(work))
        contest.nine[kind.name] = partial(_read, _in_memory_order(wide))
        contest.size[kind.name] = sum(map(len, written)) / count
        if type(made) is FlatTuple:
            contest.validate = partial(_validate, sorted(written, key=id), made.schema)
    return contest


# The place of a message in memory depends on other allocations of its writer, and for that reason alone the same reader
# takes 106 ns or 191 ns. So that this favours no format, the messages of every format are copied side by side, as if
# they had just arrived one after the other, and read in the order of their addresses.


def _side_by_side(written: list[bytes]) -> list[bytes]:
    return [bytes(bytearray(data)) for data in written]


def _in_memory_order(work: list[tuple[Reader, bytes]]) -> list[tuple[Reader, bytes]]:
    return [(read, data) for read, data in sorted(work, key=lambda pair: id(pair[1]))]


def _read(work: list[tuple[Reader, bytes]]) -> None:
    """The timed loop, the same for every format, so that its cost is the same in all figures."""
    for read, data in work:
        read(data)


def _validate(written: list[bytes], schema: Any) -> None:
    decode = Batch.decode
    for data in written:
        decode(data, schema)


def _agree(name: str, work: list[tuple[Reader, bytes]], wanted: list[Any]) -> None:
    """Refuse to measure a format that does not read the written values."""
    for (read, data), value in zip(work, wanted, strict=True):
        if (found := read(data)) != value:
            raise AssertionError(f"{name} read {found!r} where {value!r} was written")
