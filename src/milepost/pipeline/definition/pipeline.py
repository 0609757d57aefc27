"""A pipeline as its author writes it: a TOML file, or these objects with the same fields.

`docs/pipeline.md` is the reference. This module reports, all at once, the problems of a definition by itself; `checker`
reports the problems that need the schema of the input.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from milepost import limits
from milepost.errors import ConfigError, did_you_mean
from milepost.pipeline.definition import toml
from milepost.pipeline.definition.problem import Problems
from milepost.pipeline.definition.quantity import Duration, size
from milepost.pipeline.definition.rule import MonitorRule, Rule, read_rule, rules
from milepost.pipeline.definition.step import Step, at, read_step, steps
from milepost.pipeline.definition.table import DefinitionTable, build, option, plain, read

LANES: Final = 64  # each is a streaming query with threads of its own; larger clusters run several pipelines
RULES: Final = 1_000  # steps, rules and monitors: all are in Spark's plan of one query
FILE_BYTES: Final = 4_000_000  # of a definition: room for a thousand long rules

TWO_SECONDS: Final = Duration.of("2s")

_WORD: Final = re.compile(r"[A-Za-z0-9_\-]+")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _conf(given: Any) -> dict[str, str]:
    """Spark's settings as one flat table: `spark.sql.x = 2` without quotes is three tables in TOML."""
    if not isinstance(given, Mapping):
        raise ConfigError(f"{given!r} is not a table of Spark's settings")
    flat: dict[str, str] = {}
    for name, value in given.items():
        if isinstance(value, Mapping):
            flat |= {f"{name}.{below}": text for below, text in _conf(value).items()}
        elif isinstance(value, bool):
            flat[str(name)] = "true" if value else "false"
        elif isinstance(value, str | int | float):
            flat[str(name)] = str(value)
        else:
            raise ConfigError(f"{name} = {value!r} is not a setting: write a text, a number, true or false")
    return flat


def _reference(given: Any) -> float | int:
    """The reference for the free space of the result queue: a fraction of the queue, or a number of bytes."""
    if isinstance(given, float) and 0 < given < 1:
        return given
    if isinstance(given, float):
        raise ConfigError(f"{given:g} is not a fraction between 0 and 1; a number of bytes is written as in 400MB")
    return size(given)


class _SparkTable(DefinitionTable):
    conf: Mapping[str, str]

    def wrong(self) -> Iterable[tuple[str, str]]:
        for name in self.conf:
            if not name.startswith("spark."):
                hint = did_you_mean(name, ("master", "cores"))
                yield name, f"is not a setting of Spark: the names of settings begin with 'spark.'{hint}"

    def to_table(self) -> dict[str, Any]:
        """As the file has it."""
        return plain(self) | dict(self.conf)


@dataclass(frozen=True)
class Spark(_SparkTable):
    """Where and how Spark runs. In the file, Spark's own settings stand beside `master`, by their full names."""

    master: str = "local[2]"
    conf: Mapping[str, str] = option(make=dict, key="", fit=_conf)


@dataclass(frozen=True)
class Lane(_SparkTable):
    """Settings of one lane. The first [[lane]] of a file is lane 0. They matter where lanes run as applications of
    their own.
    """

    master: str | None = None
    cores: tuple[int, ...] = ()  # the processors it may run on; empty: any
    conf: Mapping[str, str] = option(make=dict, key="", fit=_conf)

    def wrong(self) -> Iterable[tuple[str, str]]:
        for core in self.cores:
            if core < 0:
                yield "cores", f"{core} is not a processor: processors count from 0"
        yield from super().wrong()


@dataclass(frozen=True)
class Late(DefinitionTable):
    """Where late events go: events behind the watermark of what is merged already."""

    to: str


@dataclass(frozen=True)
class Control(DefinitionTable):
    """The feedback that decides how much each lane admits, and how the load is split."""

    interval: Duration = TWO_SECONDS  # from one decision to the next
    flow: bool = True  # hold the free space of each lane's result queue at the reference
    balance: bool = True  # drive the lanes' response times to their mean
    queue_bytes: int = option(64_000_000, fit=size)  # of one lane's result queue: committed and not combined yet
    reference: float | int = option(0.5, fit=_reference)  # free space to hold: a fraction of the queue, or bytes
    settling: int = 5  # intervals until a disturbance has settled, for which gains are placed

    def wrong(self) -> Iterable[tuple[str, str]]:
        if self.interval.us == 0:
            yield "interval", "has no length"
        if self.queue_bytes < QUEUE_BYTES:
            yield "queue_bytes", f"{self.queue_bytes} is below {QUEUE_BYTES} bytes: hardly an event would fit"
        if isinstance(self.reference, int) and not 0 < self.reference < self.queue_bytes:
            yield "reference", f"{self.reference} bytes are not inside the queue of {self.queue_bytes}"
        if not 1 <= self.settling <= 1_000:
            yield "settling", f"{self.settling} intervals: takes 1 to 1,000"

    @property
    def reference_bytes(self) -> int:
        """The free space to hold, in bytes."""
        return self.reference if isinstance(self.reference, int) else int(self.reference * self.queue_bytes)


QUEUE_BYTES: Final = 65_536  # the smallest result queue


@dataclass(frozen=True)
class Pipeline(DefinitionTable):
    """A pipeline, made in Python or by `load_pipeline`. `str()` returns the equivalent file."""

    name: str  # also the first word of its own topics: <name>.splits, .marks, .control, .monitor, .lane.<n>
    time: str  # the field with the event time, a timestamp
    input: tuple[str, ...] = ()  # durable topics of one schema
    sources: tuple[str, ...] = option((), key="from")  # pipelines whose lanes feed the tier 2 of this one
    broker: str = "milepost://127.0.0.1:7450"
    disorder: Duration = TWO_SECONDS  # an event may come this much after a later one
    lanes: int = 2
    apart: bool = False  # run each lane as a Spark application of its own
    output: str | None = None  # topic for the results of tier 1
    rejects: str | None = None  # None: <name>.rejects, where something can be rejected
    starting: str = "earliest"  # for a pipeline that has not run yet: earliest, latest, or a time
    checkpoint: str | None = None  # the folder for Spark's checkpoints; None: one for each pipeline
    late: Late | None = None  # None: late events are counted and dropped
    spark: Spark = field(default_factory=Spark)
    lane: tuple[Lane, ...] = ()
    control: Control = field(default_factory=Control)
    tier1: tuple[Step, ...] = option((), fit=steps)
    monitor: tuple[MonitorRule, ...] = ()
    tier2: tuple[Rule, ...] = option((), fit=rules)

    @classmethod
    def from_toml(cls, text: str, what: str = "the pipeline") -> Pipeline:
        """The pipeline that a text defines. `what` names the text in errors. Raises `PipelineError` with all
        problems.
        """
        problems = Problems()
        try:
            found = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"{what} is not TOML: {error}") from None
        made = _read(found, problems)
        problems.require_none(what)
        assert made is not None
        return made

    def to_toml(self) -> str:
        """The equivalent file, without the fields that have their defaults."""
        return toml.printed(plain(self))

    def __str__(self) -> str:
        return self.to_toml()

    @property
    def fingerprint(self) -> str:
        """16 hexadecimal digits that identify this definition."""
        return blake2b(self.to_toml().encode(), digest_size=8).hexdigest()

    def at(self, base: Path) -> Pipeline:
        """The same pipeline, with the relative file names of its tables resolved against a folder."""
        folder = base.absolute()
        return replace(self, tier1=tuple(at(step, folder) for step in self.tier1))

    def called(self) -> str:
        return f"pipeline {self.name!r}" if isinstance(self.name, str) else "the pipeline"

    @property
    def rejects_topic(self) -> str:
        """The topic for ill-formed events."""
        return self.rejects or f"{self.name}.rejects"

    def topic(self, part: str) -> str:
        """The name of one of the pipeline's own topics: splits, marks, control, monitor, or lane.<n>."""
        return f"{self.name}.{part}"

    def labels(self) -> tuple[str, ...]:
        """The names of the steps of tier 1 in errors and rejects: the given name, or number and verb."""
        return tuple(step.name or f"{step.verb} {number}" for number, step in enumerate(self.tier1, 1))

    def wrong(self) -> Iterable[tuple[str, str]]:
        yield from self._wrong_input()
        yield from self._wrong_names()
        yield from self._wrong_topics()
        if not 1 <= self.lanes <= LANES:
            yield "lanes", f"{self.lanes}: takes 1 to {LANES}"
        if len(self.lane) > self.lanes:
            yield "lane", f"there are {len(self.lane)} [[lane]] tables and {self.lanes} lanes"
        if self.starting not in ("earliest", "latest") and not _is_time(self.starting):
            yield (
                "starting",
                f"{self.starting!r} is neither earliest nor latest, nor a time such as 2026-03-01T00:00:00Z",
            )
        if len(self.tier1) + len(self.tier2) + len(self.monitor) > RULES:
            yield "", f"there are more than {RULES:,} steps, rules and monitors; split it into several pipelines"

    def _wrong_input(self) -> Iterable[tuple[str, str]]:
        if not self.input and not self.sources:
            yield (
                "input",
                "is missing: name the durable topic with the events, or the pipelines that feed this one in 'from'",
            )
        if self.input and self.sources:
            yield (
                "from",
                "cannot be combined with 'input': a pipeline has its own tier 1, or uses those of other pipelines",
            )
        if self.sources and self.tier1:
            yield "tier1", "cannot be combined with 'from': the pipelines that it names have their own tier 1"
        if self.sources and self.output is not None:
            yield "output", "cannot be combined with 'from': the pipelines that it names have their own tier 1"
        if self.sources and not self.input and not self.tier2 and not self.monitor:
            yield "tier2", "is missing: a pipeline with 'from' has only rules of tier 2"
        if self.name in self.sources:
            yield "from", "names the pipeline itself"

    def _wrong_names(self) -> Iterable[tuple[str, str]]:
        if not _is_topic(self.name):
            yield "name", f"{self.name!r} cannot begin names of topics: use letters, digits, _, - and dots"
        for kind, names in (
            ("tier1", [step.name for step in self.tier1 if step.name is not None]),
            ("tier2", [rule.name for rule in self.tier2]),
            ("monitor", [rule.name for rule in self.monitor]),
        ):
            for name in names:
                if kind == "monitor" and not _NAME.fullmatch(name):
                    yield kind, f"{name!r} cannot be used as monitor.{name}: use letters, digits and _"
                elif not 1 <= len(name) <= limits.NAME_CHARS:
                    yield kind, f"a name has 1 to {limits.NAME_CHARS} characters, not {len(name)}"
            for name in dict.fromkeys(name for name in names if names.count(name) > 1):
                yield kind, f"two have the name {name!r}"

    def _wrong_topics(self) -> Iterable[tuple[str, str]]:
        places = [("output", self.output), ("rejects", self.rejects), ("late", self.late.to if self.late else None)]
        taken: dict[str, str] = {}
        for place, topic in [*(("input", topic) for topic in self.input), *places]:
            if topic is None:
                continue
            if not _is_topic(topic):
                yield (
                    place,
                    f"{topic!r} is not a name of a topic: use words of letters, digits, _ and -, joined by dots",
                )
            elif topic in taken:
                yield place, f"is {topic!r}, which is already the {taken[topic]}"
            taken.setdefault(topic, place)
        for rule in self.tier2:
            if not _is_topic(rule.to):
                yield f"tier2 {rule.name!r}, to", f"{rule.to!r} is not a name of a topic"
            elif rule.to in taken:
                yield f"tier2 {rule.name!r}, to", f"is {rule.to!r}, which is already the {taken[rule.to]}"
        own = re.compile(rf"{re.escape(self.name)}\.(splits|marks|control|monitor|orders|lane\.\d+)")
        for topic in [*taken, *(rule.to for rule in self.tier2)]:
            if own.fullmatch(topic):
                yield "", f"{topic!r} is one of the pipeline's own topics; choose another name"


def load_pipeline(path: str | Path) -> Pipeline:
    """The pipeline in a file. Relative file names in it are resolved against its folder.

    Raises `ConfigError`, or `PipelineError` with all problems.
    """
    file = Path(path)
    try:
        if file.stat().st_size > FILE_BYTES:
            raise ConfigError(f"{file} has more than {FILE_BYTES:,} bytes: it cannot be a pipeline's definition")
        text = file.read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    return Pipeline.from_toml(text, str(file)).at(file.parent)


def _read(found: dict[str, Any], problems: Problems) -> Pipeline | None:
    """Read the inner tables first, so that the pipeline itself is made of objects."""
    values = dict(found)
    parts: dict[str, Callable[..., Any]] = {
        "late": partial(read, Late),
        "control": partial(read, Control),
        "spark": partial(_read_spark, Spark),
    }
    lists: dict[str, Callable[..., Any]] = {
        "lane": partial(_read_spark, Lane),
        "tier1": read_step,
        "tier2": read_rule,
        "monitor": partial(read, MonitorRule),
    }
    before = len(problems.found)
    for name, reader in parts.items():
        if name in values:
            table = values.pop(name)
            if isinstance(table, Mapping):
                values[name] = reader(table, f"[{name}]", problems)
            else:
                problems.add(name, f"{table!r} is not a table; write it under [{name}]")
    for name, reader in lists.items():
        if name in values:
            tables = values.pop(name)
            if isinstance(tables, list) and all(isinstance(table, Mapping) for table in tables):
                values[name] = [
                    reader(table, _place(name, number, table), problems) for number, table in enumerate(tables, 1)
                ]
            else:
                problems.add(name, f"each one is a table; write it under [[{name}]]")
    told = len(problems.found) > before
    if told:
        values = {name: value for name, value in values.items() if name not in parts and name not in lists}
    return read(Pipeline, values, "", problems, whole=not told)


def _read_spark(cls: type[Any], found: Mapping[str, Any], place: str, problems: Problems) -> Any:
    """Keys that are not fields of the class are Spark's own settings."""
    known = {"master", "cores"} if cls is Lane else {"master"}
    conf = {name: value for name, value in found.items() if name not in known}
    made = read(cls, {name: value for name, value in found.items() if name in known}, place, problems)
    if made is None or not conf:
        return made
    return build(cls, vars(made) | {"conf": conf}, place, problems)


def _place(kind: str, number: int, table: Mapping[str, Any]) -> str:
    """The place of one of several tables in errors: [[tier1]] 2 'slow'."""
    name = table.get("name")
    return f"[[{kind}]] {number} {name!r}" if isinstance(name, str) else f"[[{kind}]] {number}"


def _is_topic(text: str) -> bool:
    return len(text) <= limits.NAME_CHARS and all(_WORD.fullmatch(word) for word in text.split("."))


def _is_time(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False
