"""The four kinds of inter-event rules as the engine takes them: column names, and times in microseconds.

The content of a rule (predicates, keys, payload) has become columns before the engine sees it. An impossible rule is
refused when it is made, with `ConfigError` and the rule's name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from decimal import Decimal
from hashlib import blake2b
from typing import Final, Literal, TypeAlias, get_args

from milepost.errors import ConfigError, did_you_mean

TIME: Final = "_time"  # int64 microseconds since the epoch, never null, ascending
FIRST: Final = "_first"  # boolean: the row is an A of a sequence or an absence; null is false
THEN: Final = "_then"  # boolean: it is a B

LONGEST_US: Final = 100 * 366 * 86_400_000_000  # of a window or a wait: a century; sums of times stay far below 64 bits
OVERLAP: Final = 10_000  # most windows that one row may be in; each window is assembled from that many panes
QUANTILES: Final = 100  # of one monitor: each is a column
KEYS: Final = 64  # of one rule
AGGREGATES: Final = 1_000  # of one window: each is a column, with one to three columns in the state
NAME_CHARS: Final = 255  # of a rule or a column

Function = Literal["count", "sum", "min", "max", "avg", "first", "last", "quantile", "distinct"]
FUNCTIONS: Final[tuple[str, ...]] = get_args(Function)


@dataclass(frozen=True)
class Aggregate:
    """One column of a window: `function` over the values of `column` that are not null.

    `name` is the name of the emitted column. Only ``count`` may have no column: then it counts rows. ``distinct`` is
    the exact number of different values. ``quantile`` needs `quantile`, from 0 to 1.
    """

    name: str
    function: str
    column: str | None = None
    quantile: float | None = None

    def __post_init__(self) -> None:
        what = f"aggregate {self.name!r}"
        _name(self.name, "an aggregate")
        if self.function not in FUNCTIONS:
            raise ConfigError(f"{what}: unknown function {self.function!r}{did_you_mean(self.function, FUNCTIONS)}")
        if self.column is None and self.function != "count":
            raise ConfigError(f"{what}: {self.function} needs a column")
        if self.column is not None:
            _name(self.column, f"{what}: a column")
        if (self.quantile is not None) != (self.function == "quantile"):
            raise ConfigError(f"{what}: quantile= is for the function 'quantile' only, which needs it")
        if self.quantile is not None:
            _quantile(self.quantile, what)


@dataclass(frozen=True)
class TimeWindow:
    """Rows of each key in windows ``[n * slide_us, n * slide_us + size_us)``, counted from the epoch.

    A window is emitted once, when the watermark has reached its last microsecond, for every key with rows in it. It
    emits the keys, ``window_start``, ``window_end``, ``count`` (rows), and the aggregates.
    """

    rule: str
    keys: tuple[str, ...]
    size_us: int
    slide_us: int
    aggregates: tuple[Aggregate, ...] = ()

    def __post_init__(self) -> None:
        what = _rule(self.rule)
        _keys(self.keys, what)
        _duration(self.size_us, what, "size_us")
        _duration(self.slide_us, what, "slide_us")
        _overlap(self.size_us, self.slide_us, what, "size_us", "slide_us")
        if not isinstance(self.aggregates, tuple) or not all(isinstance(each, Aggregate) for each in self.aggregates):
            raise ConfigError(f"{what}: aggregates must be a tuple of Aggregate")
        if len(self.aggregates) > AGGREGATES:
            raise ConfigError(f"{what}: {len(self.aggregates)} aggregates; at most {AGGREGATES} are allowed")
        names = [*self.keys, "window_start", "window_end", "count", *(each.name for each in self.asked)]
        _different(names, f"{what} would emit")

    @property
    def asked(self) -> tuple[Aggregate, ...]:
        """The aggregates, without one that equals the ``count`` that every window has under this name."""
        return tuple(each for each in self.aggregates if each != _COUNT)


@dataclass(frozen=True)
class Sequence:
    """An A, followed by a B of the same key, later and within `within_us`.

    Each A is paired with the first B after it. With ``each="last"`` a B is paired only with the latest A before it, and
    older As of its key are dropped. At the time of the B it emits the keys, ``first_time``, ``then_time``, and the
    other columns of A as ``first_…`` and of B as ``then_…``.
    """

    rule: str
    keys: tuple[str, ...]
    within_us: int
    each: Literal["first", "last"] = "first"

    def __post_init__(self) -> None:
        what = _rule(self.rule)
        _keys(self.keys, what)
        _duration(self.within_us, what, "within_us")
        if self.each not in ("first", "last"):
            raise ConfigError(f"{what}: each must be 'first' or 'last', not {self.each!r}")


@dataclass(frozen=True)
class Absence:
    """An A that is not followed by a B of the same key within `within_us`.

    When the watermark has reached the deadline, it emits the keys, ``first_time``, ``deadline``, and the other columns
    of A as ``first_…``.
    """

    rule: str
    keys: tuple[str, ...]
    within_us: int

    def __post_init__(self) -> None:
        what = _rule(self.rule)
        _keys(self.keys, what)
        _duration(self.within_us, what, "within_us")


@dataclass(frozen=True)
class Monitor:
    """Statistics over the last `window_us`, every `every_us` of event time, counted from the epoch.

    It emits ``window_start``, ``window_end``, ``count`` (rows), ``rate`` (rows a second over the whole window, even
    while the stream is shorter than that), and for the values of `column` ``mean``, ``min``, ``max`` and the quantiles,
    named by `quantile_name`, all as doubles. Without a column it emits count and rate only. Empty windows are emitted
    too, with count 0 and nulls, but at most `windows.EMPTY_IN_A_ROW` in a row.
    """

    rule: str
    window_us: int
    every_us: int
    column: str | None = None
    quantiles: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        what = _rule(self.rule)
        _duration(self.window_us, what, "window_us")
        _duration(self.every_us, what, "every_us")
        _overlap(self.window_us, self.every_us, what, "window_us", "every_us")
        if self.column is not None:
            _name(self.column, f"{what}: a column")
        if not isinstance(self.quantiles, tuple) or len(self.quantiles) > QUANTILES:
            raise ConfigError(f"{what}: quantiles must be a tuple of at most {QUANTILES}")
        if self.quantiles and self.column is None:
            raise ConfigError(f"{what}: quantiles need a column")
        for quantile in self.quantiles:
            _quantile(quantile, what)
        _different([quantile_name(each) for each in self.quantiles], f"{what} would emit")


Rule: TypeAlias = TimeWindow | Sequence | Absence | Monitor


def quantile_name(quantile: float) -> str:
    """The column of a monitor's quantile: 0.5 is ``p50``, 0.999 is ``p99_9``."""
    percent = format((Decimal(repr(float(quantile))) * 100).normalize(), "f")
    return "p" + percent.replace(".", "_")


# A stored state holds the fingerprint of its rules, so these names stay when a class is renamed.
_STORED_NAMES: Final[dict[type[Rule], str]] = {
    TimeWindow: "Window",
    Sequence: "Sequence",
    Absence: "Absence",
    Monitor: "Monitor",
}


def fingerprint(rules: Iterable[Rule]) -> bytes:
    """16 bytes that identify the rules: a state belongs to the rules that made it."""
    told = [[_STORED_NAMES[type(rule)], asdict(rule)] for rule in rules]
    return blake2b(json.dumps(told, sort_keys=True, separators=(",", ":")).encode(), digest_size=16).digest()


def _name(name: object, what: str) -> None:
    if not isinstance(name, str) or not name or len(name) > NAME_CHARS:
        raise ConfigError(f"{what} needs a name of 1 to {NAME_CHARS} characters, not {name!r:.80}")


def _rule(name: object) -> str:
    _name(name, "a rule")
    return f"rule {name!r}"


def _keys(keys: object, what: str) -> None:
    if not isinstance(keys, tuple) or len(keys) > KEYS:
        raise ConfigError(f"{what}: keys must be a tuple of at most {KEYS} columns, not {keys!r:.80}")
    for key in keys:
        _name(key, f"{what}: a key")
        if key in (TIME, FIRST, THEN):
            raise ConfigError(f"{what}: {key} cannot be a key, because the engine uses it")
    _different(list(keys), f"{what} would group by")


def _duration(value: object, what: str, field: str) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= LONGEST_US:
        raise ConfigError(f"{what}: {field} must be microseconds, from 1 to {LONGEST_US}, not {value!r:.80}")


def _overlap(size: int, slide: int, what: str, sized: str, slid: str) -> None:
    if slide > size:  # rows between two windows would silently be in none
        raise ConfigError(f"{what}: {slid} ({slide}) must not be more than {sized} ({size})")
    if size > slide * OVERLAP:
        raise ConfigError(
            f"{what}: {sized} ({size}) is more than {OVERLAP} times {slid} ({slide}); use a longer {slid}"
        )


def _quantile(value: object, what: str) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ConfigError(f"{what}: a quantile is a number from 0 to 1, not {value!r:.80}")


def _different(names: list[str], what: str) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{what} the column {twice[0]!r} twice; give one of them another name")


_COUNT: Final = Aggregate("count", "count")  # at the end of the module, because making it calls the checks
