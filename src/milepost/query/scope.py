"""What a name means at one point of a query: fields of the innermost element first, then whatever it means outside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

from milepost.query.location import Location, WrongStep, shown, unknown

ELEMENT = "it"


class Scope(ABC):
    """One level of names: those of the message, of an element, or of a `from` clause."""

    def __init__(self, outer: Scope | None, variables: int) -> None:
        self.outer = outer
        self.variables = variables  # how many are in use, so that the next one has this number

    @abstractmethod
    def local(self, name: str) -> Location | None:
        """What a name means on this level."""

    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """All names of this level."""

    def find(self, name: str) -> Location:
        """What a name means; raises `WrongStep` when it means nothing."""
        level: Scope | None = self
        while level is not None:
            if (location := level.local(name)) is not None:
                return location
            level = level.outer
        message = unknown(name, self._visible(), f"there is no {shown(name)!r}")
        # The commonest slip: symbol = IBM. A near name is the better guess where there is one.
        hint = "" if "did you mean" in message else f"; if that is a text, write it in single quotes: '{shown(name)}'"
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
            # Inside a quantifier a field is written without its element, and messages should say it that way.
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
