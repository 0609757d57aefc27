"""The interface of a kind of rule for the engine: state and new rows in, new state and emitted rows out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

import pyarrow as pa

from milepost.errors import ConfigError, did_you_mean

State = dict[str, pa.Table]
MOMENT: Final = pa.timestamp("us", tz="UTC")  # the type of every emitted time


class Operator(ABC):
    """One rule, for rows of one schema."""

    @abstractmethod
    def output(self) -> pa.Schema:
        """The schema of what it emits."""

    @abstractmethod
    def run(self, state: State, rows: pa.Table, before: int | None, watermark: int) -> tuple[State, pa.Table]:
        """Process the rows in (before, watermark]. At the beginning `before` is None and the state is empty."""


def field(rule: str, schema: pa.Schema, name: str) -> pa.DataType:
    """The type of a column's values. Raises `ConfigError` when there is no such column."""
    if schema.names.count(name) != 1:
        raise ConfigError(f"rule {rule!r}: its rows have no column {name!r}{did_you_mean(name, schema.names)}")
    kind = schema.field(name).type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind) or pa.types.is_run_end_encoded(kind):
        raise ConfigError(f"rule {rule!r}: {name!r} is a {kind}, of which Arrow cannot take rows; cast it")
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def moments(values: object) -> pa.Array:
    """Microseconds as the type of emitted times."""
    return pa.array(values, pa.int64()).view(MOMENT)
