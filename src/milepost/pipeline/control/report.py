"""Draws traces: plots in the style of the paper's figures, and lines of text for a terminal.

Plots need Matplotlib, which is imported for the first plot; everything else works without it. No display is needed, and
the file name's extension gives the format (.svg, .png, .pdf).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from milepost.extras import extra
from milepost.pipeline.control.trace import Trace

BLOCKS = "▁▂▃▄▅▆▇█"
GAP = " "  # where nothing was measured
WIDTH = 60
"""Characters of a sparkline: what a terminal of 80 columns leaves beside a name and two numbers."""

_LABELS = {
    "set_point": "set point (MB)",
    "measurement": "free space (MB)",
    "input": "admitted (events/interval)",
    "offered": "input rate (events/interval)",
    "weight": "weight",
    "response_time": "response time (s)",
    "delay": "end-to-end delay (s)",
    "waiting": "waiting (events)",
    "dropped": "dropped (events/interval)",
    "queue_bytes": "result queue (MB)",
}
_MEGABYTES = ("set_point", "measurement", "queue_bytes")

Panel = Sequence[str]  # fields that share one set of axes


def sparkline(values: NDArray[np.float64] | Sequence[float], width: int = WIDTH) -> str:
    """A line of blocks between the least and the greatest value. Longer series are averaged to `width` characters."""
    series = np.asarray(values, dtype=np.float64)
    if len(series) == 0:
        return ""
    parts = np.array_split(series, width) if len(series) > width else [np.array([value]) for value in series]
    means = [float(part[np.isfinite(part)].mean()) if np.isfinite(part).any() else math.nan for part in parts]
    known = [value for value in means if math.isfinite(value)]
    if not known:
        return GAP * len(means)
    low, span = min(known), max(known) - min(known)
    top = len(BLOCKS) - 1

    def block(value: float) -> str:
        if not math.isfinite(value):
            return GAP
        return BLOCKS[round((value - low) / span * top) if span else top // 2]

    return "".join(map(block, means))


def table(trace: Trace, width: int = WIDTH) -> Table:
    """A table for the terminal: the measurements and decisions of each lane, with the last value and the range."""
    drawn = Table("lane", "", "now", "over time", "least", "most", title=_span(trace))
    for column in (2, 4, 5):
        drawn.columns[column].justify = "right"
    for lane in trace.lanes:
        records = trace.lane(lane)
        for name, label in _LABELS.items():
            values = _column(records, name)
            if not np.isfinite(values).any() or (name in ("dropped", "waiting", "offered") and not values.any()):
                continue
            least, most = np.nanmin(values), np.nanmax(values)
            drawn.add_row(str(lane), label, _short(values[-1]), sparkline(values, width), _short(least), _short(most))
        drawn.add_section()
    return drawn


def text(trace: Trace, width: int = WIDTH) -> str:
    """The same as plain lines, for a log or a file."""
    lines = []
    for lane in trace.lanes:
        records = trace.lane(lane)
        for name, label in _LABELS.items():
            values = _column(records, name)
            if np.isfinite(values).any():
                lines.append(f"lane {lane}  {label:<30} {_short(values[-1]):>9}  {sparkline(values, width)}")
    return "\n".join(lines)


def figure3(trace: Trace, path: str | Path) -> Path:
    """No control: input and drops above, free space below."""
    return plot(trace, path, [("offered", "dropped"), ("measurement",)], "Without control")


def figure6(trace: Trace, path: str | Path, hog: tuple[float, float] | None = None) -> Path:
    """Flow control: offered and admitted events above, free space and its set point below."""
    return plot(trace, path, [("offered", "input"), ("set_point", "measurement")], "Flow control", hog)


def figure8(traces: Mapping[str, Trace], path: str | Path, hog: tuple[float, float] | None = None) -> Path:
    """Load balancing: end-to-end delays side by side, one column for each trace, weights below."""
    return _compared(traces, path, [("delay",), ("weight",)], "Load balancing", hog)


def figure9(traces: Mapping[str, Trace], path: str | Path, hog: tuple[float, float] | None = None) -> Path:
    """The mis-designed controller beside the correct one: free space and admitted events."""
    return _compared(traces, path, [("set_point", "measurement"), ("input",)], "A delay in the model, and not", hog)


def overview(trace: Trace, path: str | Path, hog: tuple[float, float] | None = None) -> Path:
    """All fields of a run with both controllers."""
    panels = [("set_point", "measurement"), ("input", "offered"), ("weight",), ("response_time",), ("delay",)]
    return plot(trace, path, panels, "Pipeline control", hog)


def plot(
    trace: Trace, path: str | Path, panels: Sequence[Panel], title: str = "", hog: tuple[float, float] | None = None
) -> Path:
    """Draw the fields of each panel over time, one panel below the other. Returns the path of the file.

    `hog` shades the seconds from its start to its end.
    """
    return _compared({title: trace}, path, panels, "", hog)


def _compared(
    traces: Mapping[str, Trace],
    path: str | Path,
    panels: Sequence[Panel],
    title: str,
    hog: tuple[float, float] | None,
) -> Path:
    figure = _figure_class()(figsize=(6.4 * len(traces), 2.4 * len(panels) + 0.6), layout="constrained")
    # One scale for each row: delays side by side are meant to be compared.
    axes = figure.subplots(len(panels), len(traces), squeeze=False, sharex="col", sharey="row")
    for across, (name, trace) in enumerate(traces.items()):
        axes[0][across].set_title(name)
        for down, panel in enumerate(panels):
            axis = axes[down][across]
            _draw(axis, trace, panel)
            if hog is not None:
                axis.axvspan(*hog, color="0.9", zorder=0)
            if across == 0:
                axis.set_ylabel(_LABELS[panel[0]] if len(panel) == 1 else _shared(panel))
        axes[-1][across].set_xlabel("time (s)")
    if title:
        figure.suptitle(title)
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target)
    return target


def _draw(axis: Any, trace: Trace, panel: Panel) -> None:
    lanes = trace.lanes
    for name in panel:
        for lane in lanes:
            records = trace.lane(lane)
            values = _column(records, name)
            if not np.isfinite(values).any():
                continue
            if name == "set_point" and lane != lanes[0]:
                continue  # all lanes have the same set point
            label = _LABELS[name].split(" (")[0] if len(panel) > 1 else ""
            if len(lanes) > 1 and name != "set_point":
                label = f"{label} lane {lane}".strip()
            style = {"linestyle": "--", "color": "0.4"} if name == "set_point" else {}
            axis.plot(records.column("time"), values, label=label or None, linewidth=1.2, **style)
    if axis.get_legend_handles_labels()[1]:
        axis.legend(fontsize="small", loc="best")


def _column(trace: Trace, name: str) -> NDArray[np.float64]:
    values = trace.column(name)
    return values / 1e6 if name in _MEGABYTES else values


def _shared(panel: Panel) -> str:
    units = {_LABELS[name].partition("(")[2].rstrip(")") for name in panel}
    return ", ".join(sorted(units))


def _span(trace: Trace) -> str:
    times = trace.column("time")
    return f"{times[0]:,.0f} to {times[-1]:,.0f} s" if len(times) else "no records yet"


def _short(value: float) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _figure_class() -> Callable[..., Any]:
    """Matplotlib's Figure, used without pyplot: no display, no global state, nothing to close."""
    with extra("a report that is drawn needs", "spark"):
        found: Callable[..., Any] = import_module("matplotlib.figure").Figure
    return found
