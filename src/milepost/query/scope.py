"""Scopes: the meaning of a name at one point of a query. Fields of the innermost element come first."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from milepost.query.location import Location, WrongStep, shown, unknown

ELEMENT = "it"


class Scope(ABC):
    """One level of names: of the message, of an element, or of a `from` clause."""

    def __init__(self, outer: Scope | None, variables: int) -> None:
        self.outer = outer
        self.variables = variables  # the number of variables in use, which is the number of the next one

    @abstractmethod
    def local(self, name: str) -> Location | None:
        """The location of a name on this level; None if it is not defined here."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """All names of this level."""

    def find(self, name: str) -> Location:
        """The location of a name. Raises `WrongStep` if it is not defined."""
        level: Scope | None = self
        while level is not None:
            if (location := level.local(name)) is not None:
                return location
            level = level.outer
        message = unknown(name, self._visible(), f"there is no {shown(name)!r}")
        # The most common mistake: symbol = IBM. A similar name is the better guess where there is one.
        hint = "" if "did you mean" in message else f"; if it is a text, write it in single quotes: '{shown(name)}'"
        raise WrongStep(message + hint)

    def _visible(self) -> tuple[str, ...]:
        names: dict[str, None] = {}
        level: Scope | None = self
        while level is not None:
            names.update(dict.fromkeys(level.names()))
            level = level.outer
        return tuple(names)


class ElementScope(Scope):
    """The fields of the message, or of an element, which is also called `it`."""

    def __init__(self, outer: Scope | None, location: Location) -> None:
        super().__init__(outer, location.variable + 1)
        self.location = location

    def local(self, name: str) -> Location | None:
        if name in self.location.members:
            # Inside a quantifier a field is written without its element, so error messages show it that way.
            return replace(self.location, written="").step(name)
        return self.location if name == ELEMENT and self.outer is not None else None

    def names(self) -> tuple[str, ...]:
        return tuple(self.location.members) or ((ELEMENT,) if self.outer is not None else ())


class VariableScope(Scope):
    """The variables of a `from` clause."""

    def __init__(self, outer: Scope | None, variables: int, locations: Mapping[str, Location]) -> None:
        super().__init__(outer, variables)
        self.locations = locations

    def local(self, name: str) -> Location | None:
        return self.locations.get(name)

    def names(self) -> tuple[str, ...]:
        return tuple(self.locations)
