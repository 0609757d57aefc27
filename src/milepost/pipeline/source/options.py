"""The options of `format("milepost")`. An error names the option that is wrong.

Spark passes options as text, with their names in lower case; errors show them as documented.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Self

from milepost.client.async_client import DEFAULT_ADDRESS
from milepost.errors import ConfigError, MilepostError, did_you_mean

ROWS_PER_TRIGGER: Final = 1_000_000  # a first start on a huge backlog runs batches of about a second
ROWS_PER_PARTITION: Final = 250_000  # a task of some hundred milliseconds: far more than its start costs
PATIENCE_S: Final = 120.0  # seconds to wait for a broker: enough for one that restarts or moves

_TOLERATED: Final = ("checkpointlocation", "queryname")  # Spark passes these options of its own on to sinks


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a reader or writer. `read` parses its value from the text, or raises ValueError."""

    name: str
    read: Callable[[str], Any] = str
    default: Any = None
    required: bool = False


class JsonSetting:
    """The base of frozen dataclasses that are options of internal sources and sinks, as JSON."""

    def json(self) -> str:
        """The value of the option."""
        return json.dumps(self.__dict__)

    @classmethod
    def of(cls, text: str) -> Self:
        """Parse the option."""
        return cls(**json.loads(text))


class SourceOptions:
    """Checked options, as in `options.maxRowsPerTrigger`. None: not given, and without a default."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = dict(values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in self._values:
            raise AttributeError(name)
        return self._values[name]

    def __repr__(self) -> str:
        return f"SourceOptions({self._values!r})"


def checked(given: Mapping[str, str], known: Iterable[Option], what: str) -> SourceOptions:
    """The values of the `known` options. `ConfigError` names an unknown, wrong or missing option.

    `what` describes their use for errors, as in "reading a topic".
    """
    table = {option.name.lower(): option for option in known}
    values = {option.name: option.default for option in table.values()}
    for key, text in given.items():
        option = table.get(key.lower())
        if option is None:
            if key.lower() in _TOLERATED:
                continue
            names = [each.name for each in table.values()]
            near = did_you_mean(key, names) or f"; there are {', '.join(names)}"
            raise ConfigError(f"option {_WRITTEN.get(key.lower(), key)!r}: {what} has no such option{near}")
        try:
            values[option.name] = option.read(text)
        except MilepostError as error:
            raise ConfigError(f"option {option.name!r}: {error}") from None
        except ValueError as error:
            raise ConfigError(f"option {option.name!r} = {text[:_SHOWN_CHARS]!r}: {error}") from None
    for option in table.values():
        if option.required and values[option.name] is None:
            raise ConfigError(f"option {option.name!r} is missing; write .option({option.name!r}, ...)")
    return SourceOptions(values)


_SHOWN_CHARS: Final = 200  # of a wrong text in an error message


# Parsers of values


def flag(text: str) -> bool:
    """True or false."""
    if text.lower() not in ("true", "false"):
        raise ValueError("takes true or false")
    return text.lower() == "true"


def count(text: str) -> int:
    """A whole number of at least 1."""
    with suppress(ValueError):
        if (number := int(text)) >= 1:
            return number
    raise ValueError("takes a whole number of at least 1")


def seconds(text: str) -> float:
    """A positive number of seconds."""
    with suppress(ValueError):
        if 0 < (number := float(text)) < float("inf"):
            return number
    raise ValueError("takes a positive number of seconds")


def name(text: str) -> str:
    """A name that is not empty."""
    if not text.strip():
        raise ValueError("is empty")
    return text


def moment(text: str) -> datetime:
    """A point in time with its zone."""
    try:
        made = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError("is not a time such as 2024-01-31T12:00:00Z") from None
    if made.tzinfo is None:
        raise ValueError("has no time zone; write 2024-01-31T12:00:00Z, or +01:00")
    return made


Place = str | datetime | dict[int, int]


def place(text: str) -> Place:
    """A start or an end: "earliest", "latest", a position as JSON, or a time."""
    word = text.strip()
    if word.lower() in ("earliest", "latest"):
        return word.lower()
    if word.startswith("{"):
        return _position(word)
    try:
        return moment(word)
    except ValueError as error:
        if "time zone" in str(error):
            raise
        raise ValueError(
            'takes "earliest", "latest", {"log": offset} as JSON, or a time as 2024-01-31T12:00:00Z'
        ) from None


def _position(text: str) -> dict[int, int]:
    try:
        found = json.loads(text)
        made = {int(log): offset for log, offset in found.items()}
    except ValueError:
        raise ValueError('takes {"log": offset}, as in {"1": 4200}') from None
    for log, offset in made.items():
        if log < 0 or isinstance(offset, bool) or not isinstance(offset, int) or offset < 0:
            raise ValueError(f"takes logs and offsets of at least 0, not {log}: {offset!r}")
    return made


def routes(text: str) -> dict[str, str]:
    """Which struct column goes to which topic."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found or not all(isinstance(each, str) and each for each in found.values()):
        raise ValueError('takes {"column": "topic"} as JSON, one or more of them')
    return found


# Options by use

COMMON: Final = (
    Option("broker", name, DEFAULT_ADDRESS),
    Option("timeout", seconds, PATIENCE_S),
)
READING: Final = (
    *COMMON,
    Option("topic", name, required=True),
    Option("where", name),
    Option("includeMetadata", flag, False),
    Option("partitions", count),
    Option("rowsPerPartition", count, ROWS_PER_PARTITION),
    Option("failOnDataLoss", flag, True),
    Option("startingOffsets", place, "earliest"),
)
BATCH: Final = (*READING, Option("endingOffsets", place, "latest"))
STREAM: Final = (
    *READING,
    Option("maxRowsPerTrigger", count, ROWS_PER_TRIGGER),
    Option("maxBytesPerTrigger", count),
    Option("hold", name),
)
WRITING: Final = (
    *COMMON,
    Option("topic", name),
    Option("routes", routes),
    Option("create", flag, False),
    Option("sink", name),
)
BATCH_WRITING: Final = (*WRITING, Option("writeId", name))

_WRITTEN: Final = {option.name.lower(): option.name for table in (BATCH, STREAM, BATCH_WRITING) for option in table}
