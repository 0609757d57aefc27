"""The rules of tier 2, which see events in time order, and the monitors.

::

    [[tier2]] window = …                    WindowRule      aggregates over windows, by keys
    [[tier2]] first = … then = …            SequenceRule    one event, then another, within a time
    [[tier2]] first = … without = …         AbsenceRule     one event without another within a time
    [[tier2]] where = …                     ThresholdRule   each event for which a predicate is true
    [[monitor]]                             MonitorRule     quantiles and rates, usable in other rules
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias, get_args

from milepost.errors import ConfigError
from milepost.pipeline.definition.problem import Problems
from milepost.pipeline.definition.quantity import Duration
from milepost.pipeline.definition.table import DefinitionTable, option, read
from milepost.pipeline.tier2.rules import quantile_name

SLIDES: Final = 1_000  # most windows that one event may be in: each has its own aggregates

MINUTE: Final = Duration.of("60s")
FIVE_SECONDS: Final = Duration.of("5s")


@dataclass(frozen=True)
class ThresholdRule(DefinitionTable):
    """Emits each event for which `where` is true."""

    kind: ClassVar[str] = "threshold"
    name: str
    to: str  # the topic to which it emits
    where: str
    emit: Mapping[str, str] = option(make=dict)  # fields to emit, by expressions; empty: the whole event


@dataclass(frozen=True)
class WindowRule(DefinitionTable):
    """Aggregates over windows of event time. Emits one row for each window and key for which `having` is true."""

    kind: ClassVar[str] = "window"
    name: str
    to: str
    window: Duration
    compute: Mapping[str, str] = option(make=dict)  # name: an aggregate, as in max(load); `count` is always there
    slide: Duration | None = None  # from the start of one window to the next; None: the length of the window
    by: tuple[str, ...] = ()
    where: str | None = None
    having: str | None = None
    emit: Mapping[str, str] = option(make=dict)

    def wrong(self) -> Iterable[tuple[str, str]]:
        if self.window.us == 0:
            yield "window", "has no length"
        if self.slide is not None and not 0 < self.slide.us <= self.window.us:
            yield (
                "slide",
                f"is more than 0 and at most the window, {self.window}: a longer slide would leave out events",
            )
        elif self.slide is not None and self.window.us // self.slide.us > SLIDES:
            yield (
                "slide",
                f"puts each event into {self.window.us // self.slide.us:,} windows; at most {SLIDES:,} are allowed",
            )


class _PairRule(DefinitionTable):
    within: Duration

    def wrong(self) -> Iterable[tuple[str, str]]:
        if self.within.us == 0:
            yield "within", "has no length"


@dataclass(frozen=True)
class SequenceRule(_PairRule):
    """Emits one row for an event `first` that is followed by an event `then` of the same keys within a time."""

    kind: ClassVar[str] = "sequence"
    name: str
    to: str
    first: str
    then: str
    within: Duration
    by: tuple[str, ...] = ()
    where: str | None = None
    emit: Mapping[str, str] = option(make=dict)


@dataclass(frozen=True)
class AbsenceRule(_PairRule):
    """Emits one row for an event `first` that is not followed by an event `without` of the same keys within a time."""

    kind: ClassVar[str] = "absence"
    name: str
    to: str
    first: str
    without: str
    within: Duration
    by: tuple[str, ...] = ()
    where: str | None = None
    emit: Mapping[str, str] = option(make=dict)


Rule: TypeAlias = ThresholdRule | WindowRule | SequenceRule | AbsenceRule


def rules(given: Any) -> tuple[Rule, ...]:
    """Check and return the rules of a pipeline."""
    for rule in given:
        if not isinstance(rule, get_args(Rule)):
            kinds = ", ".join(kind.__name__ for kind in get_args(Rule))
            raise ConfigError(f"{rule!r} is not a rule of tier 2: rules are {kinds}")
    return tuple(given)


def read_rule(found: Mapping[str, Any], place: str, problems: Problems) -> Rule | None:
    """A rule of the file. Its keys decide its kind."""
    known: dict[str, type[Rule]] = {"window": WindowRule, "then": SequenceRule, "without": AbsenceRule}
    kinds = [kind for kind in known if kind in found]
    if len(kinds) > 1:
        problems.add(place, f"has {' and '.join(repr(kind) for kind in kinds)}: a rule has one kind")
        return None
    if not kinds and "first" in found:
        problems.add(place, "has 'first', but neither 'then' (a sequence) nor 'without' (an absence)")
        return None
    return read(known[kinds[0]] if kinds else ThresholdRule, found, place, problems)


@dataclass(frozen=True)
class MonitorRule(DefinitionTable):
    """Statistics over a sliding window of the results of tier 1, updated while the pipeline runs.

    Rules read them as `monitor.<name>.<statistic>`: `count` and `rate` (events a second), and with `of` also `mean`,
    `min`, `max` and the quantiles, 0.99 as `p99`.
    """

    name: str
    of: str | None = None  # a number; None: only events are counted
    where: str | None = None
    window: Duration = MINUTE
    every: Duration = FIVE_SECONDS  # how often the window slides and values are published
    quantiles: tuple[float, ...] | None = None  # None: 0.5 and 0.99 where there is an `of`

    def wrong(self) -> Iterable[tuple[str, str]]:
        if self.of is None and self.quantiles:
            yield "quantiles", "need a value: add 'of', as in of = \"response_time\""
        for quantile in self.quantiles or ():
            if not 0 < quantile < 1:
                yield (
                    "quantiles",
                    f"{quantile:g} is not a quantile: use a number between 0 and 1; min and max are always included",
                )
        if not 0 < self.every.us <= self.window.us:
            yield "every", f"is more than 0 and at most the window, {self.window}"
        elif self.window.us // self.every.us > SLIDES:
            yield (
                "every",
                f"cuts the window into {self.window.us // self.every.us:,} parts; at most {SLIDES:,} are allowed",
            )

    @property
    def wanted(self) -> tuple[float, ...]:
        """The quantiles to compute."""
        if self.of is None:
            return ()
        return QUANTILES if self.quantiles is None else self.quantiles

    @property
    def statistics(self) -> tuple[str, ...]:
        """The names after `monitor.<name>.`, in the order of the published fields."""
        if self.of is None:
            return ("count", "rate")
        return ("count", "rate", "mean", "min", "max", *(quantile_name(quantile) for quantile in self.wanted))


QUANTILES: Final = (0.5, 0.99)
