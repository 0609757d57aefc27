"""The output of a benchmark: tables for people, and one JSON object on the last line for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

# Wide enough for the widest table when there is no terminal to ask: a pipe would be given 80 columns.
PIPE_COLUMNS = 180


SHORT_RUN = "a short run would measure how it starts"


class Report:
    """Collects the figures of one run. `figures` is the content of the last line, `bench` first.

    Figures that were not measured are null, and `left_out` has the reasons, by the name of the peer or figure.
    """

    def __init__(self, bench: str, quick: bool) -> None:
        self.figures: dict[str, Any] = {"bench": bench, "quick": quick, "left_out": {}}
        self.console = Console()
        if not self.console.is_terminal:
            self.console = Console(width=PIPE_COLUMNS)

    def say(self, sentence: str) -> None:
        self.console.print(sentence, highlight=False)

    def leave_out(self, name: str, why: str) -> None:
        """Note why a peer or a figure is missing. It is printed once."""
        if name not in self.figures["left_out"]:
            self.figures["left_out"][name] = why
            if why != SHORT_RUN:
                self.say(f"{name}: {why}")

    def leave_out_figures(self, *names: str) -> None:
        """Figures that a short run cannot give."""
        for name in names:
            self.figures[name] = None
            self.leave_out(name, SHORT_RUN)

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], note: str = "") -> None:
        """A table whose first column names the rows; numbers are set to the right."""
        made = Table(title=title, title_justify="left", caption=note or None, caption_justify="left")
        made.min_width = len(title)
        for position, column in enumerate(columns):
            made.add_column(column, justify="right" if position else "left", no_wrap=True)
        for row in rows:
            made.add_row(*(_shown(cell) for cell in row))
        self.console.print(made)

    def bars(self, bars: Sequence[tuple[str, float | None, str, float]]) -> None:
        """Print each bar with its measurement and whether it is met: `(name, measured, "<=" or ">=", bound)`.

        Bars without a measurement are not in the table, and are neither met nor missed.
        """
        rows = []
        for what, measured, relation, bound in bars:
            if measured is None:
                continue
            met = measured <= bound if relation == "<=" else measured >= bound
            rows.append((what, measured, f"{relation} {_shown(bound)}", "met" if met else "[bold red]missed[/]"))
        # With few messages and rounds caches are cold and noise is large: a short run only shows that all works.
        title = "Bars, by the rough figures of a short run" if self.figures["quick"] else "Bars"
        self.table(title, ("what", "measured", "bar", ""), rows)
        self.figures["missed"] = [row[0] for row in rows if row[3] != "met"]

    def finish(self) -> None:
        """Print the last line, straight to standard output: rich would wrap it."""
        print(json.dumps(_rounded(self.figures)))


def ratio(ours: float | None, theirs: float | None) -> float | None:
    """Our figure divided by theirs; None unless both were measured."""
    return ours / theirs if ours and theirs else None


def best_of(peers: Mapping[str, float | None], report: Report, what: str) -> float | None:
    """The best of the peers, if all that could be the best were measured; otherwise None, and the report says why."""
    missing = [name for name, figure in peers.items() if not figure]
    if missing:
        report.leave_out(what, f"{', '.join(missing)} could be the best peer, and was not measured")
        return None
    return max(figure for figure in peers.values() if figure)


def _shown(cell: object) -> str:
    if cell is None:
        return "-"
    if not isinstance(cell, float):
        return f"{cell:,}" if isinstance(cell, int) else str(cell)
    if cell >= 1e6:
        return f"{cell / 1e6:,.1f} M"
    return f"{cell:,.0f}" if cell >= 100 else f"{cell:.2f}" if cell < 10 else f"{cell:.1f}"


def _rounded(figures: Any) -> Any:
    if isinstance(figures, Mapping):
        return {key: _rounded(value) for key, value in figures.items()}
    if isinstance(figures, list | tuple):
        return [_rounded(value) for value in figures]
    if isinstance(figures, float):
        return round(figures, 3) if figures < 1000 else round(figures)
    return figures
