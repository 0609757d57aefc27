"""A table of a pipeline's file as a frozen dataclass: the same fields, the same defaults, the same errors.

A class for a table of the file derives from `DefinitionTable`. Whether an instance is made in Python or read from TOML,
its values are fitted to their annotations (text to a `Duration`, a list to a tuple), and then `wrong()` lists what is
wrong with them. Reading from TOML also refuses unknown and missing keys, as Python does for the arguments of a call.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from milepost.errors import ConfigError, PipelineError, did_you_mean
from milepost.pipeline.definition.problem import Problems
from milepost.pipeline.definition.quantity import Duration

T = TypeVar("T", bound="DefinitionTable")


def option(default: Any = MISSING, *, key: str | None = None, fit: Any = None, make: Any = MISSING) -> Any:
    """A dataclass field with another name in the file (`key`), or with its own conversion (`fit`).

    `key=""` keeps a field out of the file. `make` is a default factory.
    """
    metadata = {name: value for name, value in (("key", key), ("fit", fit)) if value is not None}
    if make is not MISSING:
        return field(default_factory=make, metadata=metadata)
    return field(default=default, metadata=metadata)


def key_of(item: Field[Any]) -> str:
    """The name of a field in the file; empty when it is not in the file."""
    return str(item.metadata.get("key", item.name))


@cache
def hints(cls: Any) -> Mapping[str, Any]:
    """The annotations of a class, resolved."""
    return get_type_hints(cls)


@dataclass(frozen=True)
class DefinitionTable:
    """One table. Making it converts and checks the fields, and raises `PipelineError` with all problems."""

    def __post_init__(self) -> None:
        problems = Problems()
        given = {item.name: getattr(self, item.name) for item in fields(self)}
        for name, value in fitted_all(type(self), given, "", problems).items():
            object.__setattr__(self, name, value)
        if not problems.found:
            for place, text in self.wrong():
                problems.add(place, text)
        problems.require_none(self.called())

    def called(self) -> str:
        """The name of the table in errors."""
        return type(self).__name__

    def wrong(self) -> Iterable[tuple[str, str]]:
        """The problems of values that have the right types: the key (empty for the table as a whole) and a sentence."""
        return ()


def read(cls: type[T], found: Mapping[str, Any], place: str, problems: Problems, *, whole: bool = True) -> T | None:
    """Read a table of the file. Returns None when it is wrong; `problems` then has the reasons.

    With `whole=False` some parts were wrong already and are left out: the rest is checked, and nothing is made.
    """
    by_key = {key_of(item): item for item in fields(cls) if key_of(item)}
    values: dict[str, Any] = {}
    before = len(problems.found)
    for name, value in found.items():
        item = by_key.get(name)
        if item is not None:
            values[item.name] = value
        else:
            problems.add(place, f"{name!r} is not a known key{did_you_mean(name, by_key) or listed(by_key)}")
    missing = [name for name, item in by_key.items() if name not in found and _is_required(item)]
    for name in missing:
        problems.add(place, f"{name!r} is missing")
    if missing or not whole:
        fitted_all(cls, values, place, problems)
        return None
    made = build(cls, values, place, problems)
    return made if len(problems.found) == before else None


def _is_required(item: Field[Any]) -> bool:
    return item.default is MISSING and item.default_factory is MISSING


def fitted_all(cls: Any, given: Mapping[str, Any], place: str, problems: Problems) -> dict[str, Any]:
    """The values by field name, converted to the types of the fields. Values that cannot be converted become
    problems.
    """
    found = {}
    for item in fields(cls):
        if item.name in given:
            try:
                fit = item.metadata.get("fit")
                value = given[item.name]
                found[item.name] = fit(value) if fit is not None else fitted(hints(cls)[item.name], value)
            except ConfigError as error:
                problems.add(joined(place, key_of(item)), error)
    return found


def build(cls: type[T], values: Mapping[str, Any], place: str, problems: Problems) -> T | None:
    """Make a table from fields by their Python names. Its errors go to `problems`, each with its place."""
    try:
        return cls(**values)
    except PipelineError as error:
        for inner, text in error.problems:
            problems.add(joined(place, inner), text)
    return None


def joined(*places: str) -> str:
    """The place of one place inside another."""
    return ", ".join(place for place in places if place)


def listed(names: Iterable[str]) -> str:
    """The end of a message about an unknown name without a similar known one."""
    return f"; there are {', '.join(names)}"


def fitted(hint: Any, given: Any) -> Any:
    """Convert a value to its annotation. Raises `ConfigError`."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        if given is None:
            return None
        return fitted(next(part for part in get_args(hint) if part is not type(None)), given)
    if hint is Any:
        return given
    if origin is Literal:
        if given not in get_args(hint):
            raise ConfigError(f"{given!r} is none of {', '.join(map(repr, get_args(hint)))}")
        return given
    if origin is tuple:
        items = (given,) if isinstance(given, str) else given
        if not isinstance(items, list | tuple):
            raise ConfigError(f"{given!r} is not a list; write it in square brackets")
        return tuple(fitted(get_args(hint)[0], item) for item in items)
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(given, Mapping):
            raise ConfigError(f"{given!r} is not a table; write it as {{ name = … }}")
        return {fitted(str, name): fitted(get_args(hint)[1], value) for name, value in given.items()}
    return _single(hint, given)


def _single(hint: Any, given: Any) -> Any:
    if hint is Duration:
        return Duration.of(given)
    if hint is float and isinstance(given, int) and not isinstance(given, bool):
        return float(given)
    if hint is int and isinstance(given, bool):
        raise ConfigError(f"{given!r} is not a whole number")
    if not isinstance(given, hint):
        words = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}
        raise ConfigError(f"{given!r} is not {words.get(hint, f'of the kind {hint.__name__}')}")
    return given


def plain(table: DefinitionTable) -> dict[str, Any]:
    """The table as TOML holds it: keys of the file, durations as text, without defaults."""
    values = [(item, getattr(table, item.name)) for item in fields(table) if key_of(item)]
    return {key_of(item): _plain(value) for item, value in values if value is not None and not _is_default(item, value)}


def _is_default(item: Field[Any], value: Any) -> bool:
    if item.default is not MISSING:
        return bool(value == item.default)
    return item.default_factory is not MISSING and bool(value == item.default_factory())


def _plain(value: Any) -> Any:
    if isinstance(value, Duration):
        return str(value)
    if isinstance(value, DefinitionTable):
        as_table = getattr(value, "to_table", None)
        return as_table() if as_table is not None else plain(value)
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    return cast(Any, value)
