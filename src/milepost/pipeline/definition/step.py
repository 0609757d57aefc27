"""The steps of tier 1: one event at a time, in the order of the file.

::

    [[tier1]]                                  in Python
    discard = "kind = 'test'"                  Discard("kind = 'test'")
    keep = "size > 0"                          Keep("size > 0")
    project = ["host", "at"]                   Project(["host", "at"])
    rename = { ip = "host" }                   Rename({"ip": "host"})
    derive = { seconds = "ms / 1000.0" }       Derive({"seconds": "ms / 1000.0"})
    sample = 0.1, by = "host"                  Sample(0.1, by="host")
    cleanse = "size >= 0"                      Cleanse("size >= 0")
    enrich = { table = "hosts.csv", … }        Enrich(table="hosts.csv", …)

`docs/pipeline.md` says what each step does to an event and to the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeAlias, get_args

from milepost.errors import ConfigError, did_you_mean
from milepost.pipeline.definition.problem import Problems
from milepost.pipeline.definition.table import DefinitionTable, build, fitted, joined, listed, option, plain, read


@dataclass(frozen=True)
class _Step(DefinitionTable):
    verb: ClassVar[str] = ""


@dataclass(frozen=True)
class Discard(_Step):
    """Leaves out the events for which `where` is true."""

    verb: ClassVar[str] = "discard"
    where: str = option(key="discard")
    name: str | None = None


@dataclass(frozen=True)
class Keep(_Step):
    """Leaves out all events but those for which `where` is true."""

    verb: ClassVar[str] = "keep"
    where: str = option(key="keep")
    name: str | None = None


@dataclass(frozen=True)
class Project(_Step):
    """Keeps these fields, in this order."""

    verb: ClassVar[str] = "project"
    fields: tuple[str, ...] = option(key="project")
    name: str | None = None

    def wrong(self) -> Iterable[tuple[str, str]]:
        if not self.fields:
            yield "project", "names no field, so events would be empty"
        for field in sorted({field for field in self.fields if self.fields.count(field) > 1}):
            yield "project", f"names {field!r} twice"


@dataclass(frozen=True)
class Rename(_Step):
    """Renames fields, old to new, all at once. Their order stays."""

    verb: ClassVar[str] = "rename"
    names: Mapping[str, str] = option(key="rename")
    name: str | None = None

    def wrong(self) -> Iterable[tuple[str, str]]:
        if not self.names:
            yield "rename", "names no field"
        taken = list(self.names.values())
        for new in sorted({new for new in taken if taken.count(new) > 1}):
            yield "rename", f"gives two fields the name {new!r}"


@dataclass(frozen=True)
class Derive(_Step):
    """Computes fields. New fields go to the end; an existing field is replaced in its place.

    Every expression sees the event as it was before the step.
    """

    verb: ClassVar[str] = "derive"
    fields: Mapping[str, str] = option(key="derive")
    name: str | None = None

    def wrong(self) -> Iterable[tuple[str, str]]:
        if not self.fields:
            yield "derive", "names no field"


@dataclass(frozen=True)
class Sample(_Step):
    """Keeps a share of the events, chosen by a hash of the fields `by`, or of the whole event."""

    verb: ClassVar[str] = "sample"
    share: float = option(key="sample")
    by: tuple[str, ...] = ()
    name: str | None = None

    def wrong(self) -> Iterable[tuple[str, str]]:
        if not 0 < self.share <= 1:
            yield "sample", f"{self.share:g} is not a share: use more than 0 and at most 1"


@dataclass(frozen=True)
class Cleanse(_Step):
    """Sends events for which `where` is false or null to the rejects, with the reason."""

    verb: ClassVar[str] = "cleanse"
    where: str = option(key="cleanse")
    reason: str | None = None  # None: "not true:" and the predicate
    name: str | None = None


FORMATS: Final = ("parquet", "csv", "sql")


def _taken(given: Any) -> dict[str, str]:
    """Columns of a table by the names of the fields they become. A list of columns keeps their names."""
    if isinstance(given, str):
        given = [given]
    if isinstance(given, list | tuple):
        names = fitted(tuple[str, ...], given)
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"names {name!r} twice")
        return {name: name for name in names}
    return dict(fitted(Mapping[str, str], given))


@dataclass(frozen=True)
class Enrich(_Step):
    """Adds the columns `take` of a table's row to each event. The row is found by key or by the smallest subnet."""

    verb: ClassVar[str] = "enrich"
    by: str
    take: Mapping[str, str] = option(fit=_taken)  # field: column; a list of columns keeps their names
    table: str | None = None  # a file or, with `url`, a table of that database
    key: str | None = None  # the column that equals `by`; by default it has the name of `by`
    subnet: str | None = None  # the column with networks, one of which contains the address in `by`
    missing: Literal["null", "reject"] = "null"
    format: Literal["parquet", "csv", "sql"] | None = None  # None: from the extension of the file
    schema: str | None = None  # types of the columns, as in "hosts: [ip: string, floor: int?]"
    url: str | None = None  # sqlite:///hosts.db, postgresql://…
    query: str | None = None  # SQL that returns the rows, instead of a whole table
    name: str | None = option(None, key="")  # stands beside `enrich` in the file, not in it

    def wrong(self) -> Iterable[tuple[str, str]]:
        if not self.take:
            yield "take", "names no column, so nothing would be added"
        if self.key is not None and self.subnet is not None:
            yield "subnet", "cannot be combined with 'key': a row is found by one of them"
        if self.url is None and self.table is None:
            yield "table", "is missing: name a Parquet or CSV file or, with 'url', a table of a database"
        if self.url is None and (self.query is not None or self.format == "sql"):
            yield "url", "is missing: name a database such as sqlite:///hosts.db"
        if self.url is not None and self.query is not None and self.table is not None:
            yield "query", "cannot be combined with 'table': rows come from one of them"
        if self.url is not None and self.query is None and self.table is None:
            yield "query", "is missing: name the table or the query for the rows"
        if self.url is None and self.table is not None and self.source_format not in FORMATS:
            yield "format", f"does not follow from the name {self.table!r}; write format = 'parquet' or 'csv'"

    @property
    def source_format(self) -> str | None:
        """The format in which the table is read."""
        if self.format is not None:
            return self.format
        if self.url is not None:
            return "sql"
        ending = (self.table or "").rpartition(".")[2].lower()
        return {"parquet": "parquet", "pq": "parquet", "csv": "csv"}.get(ending)

    @property
    def column(self) -> str:
        """The column of the table by which rows are found."""
        return self.subnet or self.key or self.by

    def to_table(self) -> dict[str, Any]:
        told = plain(self)
        if all(field == column for field, column in self.take.items()):
            told["take"] = list(self.take)
        return ({"name": self.name} if self.name is not None else {}) | {"enrich": told}


Step: TypeAlias = Discard | Keep | Project | Rename | Derive | Sample | Cleanse | Enrich
VERBS: Final[Mapping[str, type[Step]]] = {
    step.verb: step for step in (Discard, Keep, Project, Rename, Derive, Sample, Cleanse, Enrich)
}


def read_step(found: Mapping[str, Any], place: str, problems: Problems) -> Step | None:
    """A step of the file. The verb among its keys decides its kind."""
    verbs = [key for key in found if key in VERBS]
    if len(verbs) > 1:
        problems.add(place, f"has {' and '.join(verbs)}: write a [[tier1]] for each, in the wanted order")
        return None
    if not verbs:
        near = next((hint for key in found if (hint := did_you_mean(key, VERBS))), "")
        problems.add(place, f"does nothing: it needs one of {', '.join(VERBS)}{near}")
        return None
    if verbs == ["enrich"]:
        return _read_enrich(found, place, problems)
    return read(VERBS[verbs[0]], found, place, problems)


def _read_enrich(found: Mapping[str, Any], place: str, problems: Problems) -> Enrich | None:
    inner = found["enrich"]
    for name in found:
        if name not in ("enrich", "name"):
            hint = did_you_mean(name, ("enrich", "name")) or listed(("enrich", "name"))
            problems.add(place, f"{name!r} is not a known key{hint}")
    if not isinstance(inner, Mapping):
        problems.add(
            joined(place, "enrich"), f"{inner!r} is not a table; write enrich = {{ table = …, by = …, take = … }}"
        )
        return None
    made = read(Enrich, inner, joined(place, "enrich"), problems)
    if made is None or "name" not in found:
        return made
    before = len(problems.found)
    named = build(Enrich, vars(made) | {"name": found["name"]}, place, problems)
    return named if len(problems.found) == before else None


def steps(given: Any) -> tuple[Step, ...]:
    """Check and return the steps of a pipeline."""
    for step in given:
        if not isinstance(step, get_args(Step)):
            raise ConfigError(
                f"{step!r} is not a step: steps are {', '.join(kind.__name__ for kind in VERBS.values())}"
            )
    return tuple(given)


def at(step: Step, base: Path) -> Step:
    """The step with a relative file name resolved against a folder."""
    if not isinstance(step, Enrich):
        return step
    if step.url is None and step.table is not None:
        return replace(step, table=str(base / step.table))
    if step.url is not None and step.url.startswith(SQLITE) and not step.url.startswith(f"{SQLITE}/"):
        return replace(step, url=f"{SQLITE}{base / step.url.removeprefix(SQLITE)}")
    return step


SQLITE: Final = "sqlite:///"  # three slashes and a relative path; four slashes begin an absolute one
