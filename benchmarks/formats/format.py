"""The interface of a format, and how readers are made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from benchmarks.messages import Shape, Values

Reader = Callable[[bytes], Any]


class Format(ABC):
    """One format for one shape. The constructor prepares everything that depends on the shape alone.

    `reader` and `projection` are called before the clock starts; the functions that they return are timed.
    """

    name: ClassVar[str]

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    @abstractmethod
    def write(self, values: Values) -> bytes: ...

    @abstractmethod
    def reader(self, field: int) -> Reader:
        """A function from a message's bytes to one field: an int, a str, or None when absent."""

    @abstractmethod
    def projection(self, fields: Sequence[int]) -> Reader:
        """A function from a message's bytes to a tuple of fields."""


class Parsed(Format):
    """A format whose message is parsed into an object first and walked afterwards.

    The walk is compiled into one expression per field, so that no peer pays for a loop over the steps of a path.
    """

    names: dict[str, Any]  # names in the expressions; `parse` is the parser

    @abstractmethod
    def expression(self, field: int) -> str:
        """Python source that takes the field out of `root`."""

    def reader(self, field: int) -> Reader:
        return self._compiled(self.expression(field))

    def projection(self, fields: Sequence[int]) -> Reader:
        return self._compiled(f"({', '.join(map(self.expression, fields))})")

    def _compiled(self, expression: str) -> Reader:
        scope = dict(self.names)
        exec(f"def read(data):\n root = parse(data)\n return {expression}", scope)  # noqa: S102 -- built from the shapes
        read: Reader = scope["read"]
        return read
