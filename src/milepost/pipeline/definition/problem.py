"""The problems of a pipeline, collected, each with its place in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from milepost.errors import PipelineError


class Problem(NamedTuple):
    """One problem: its place in the file (`[[tier2]] 1 'overload', having`), and a text that says what to do."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


@dataclass
class Problems:
    """Collects problems while a pipeline is read or checked, so that all are reported at once."""

    found: list[Problem] = field(default_factory=list)

    def add(self, place: str, text: object) -> None:
        """Add a problem. `text` may be the error that describes it."""
        self.found.append(Problem(place, str(text)))

    def require_none(self, what: str) -> None:
        """Raise `PipelineError` when there are problems."""
        if self.found:
            raise PipelineError(what, self.found)
