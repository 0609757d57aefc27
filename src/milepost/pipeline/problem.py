"""What is wrong with a pipeline: all of it at once, each with its place in the file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from milepost.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: where in the file (`tier2 'overload', having`), and what, with what to do."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class PipelineError(ConfigError):
    """A pipeline that cannot run. The message lists every problem, one under the other; `problems` has them apart."""

    code = "pipeline"

    def __init__(self, what: str, problems: Iterable[Problem]) -> None:
        self.what = what
        self.problems = tuple(problems)
        count = len(self.problems)
        first = f"{what} has {'a problem' if count == 1 else f'{count} problems'}"
        super().__init__("\n".join([f"{first}:", *(_indented(str(problem)) for problem in self.problems)]))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.problems)


@dataclass
class Problems:
    """Collects problems while a pipeline is read or checked, so that one look finds them all."""

    found: list[Problem] = field(default_factory=list)

    def add(self, place: str, text: object) -> None:
        """Note one; `text` may be the error that told of it, whose own name of a file or value is kept."""
        self.found.append(Problem(place, str(text)))

    def require_none(self, what: str) -> None:
        """Raise `PipelineError` when there are any."""
        if self.found:
            raise PipelineError(what, self.found)


def _indented(text: str) -> str:
    return "  " + text.replace("\n", "\n  ")
