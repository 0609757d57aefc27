"""All experiments, with plots, a table, and the figures as one line of JSON: `milepost bench control`."""

from __future__ import annotations

import json
import math
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from milepost.pipeline.control import report
from milepost.pipeline.control.identification import Identified
from milepost.pipeline.control.model import Model
from milepost.pipeline.control.placement import place_pi, spectral_radius
from milepost.pipeline.control.trace import Trace, settled_after
from milepost.pipeline.experiments import balance_run, flow_run, simulation
from milepost.pipeline.experiments.environment import Environment
from milepost.pipeline.experiments.plant import Plant
from milepost.pipeline.experiments.run import Tell
from milepost.pipeline.experiments.simulation import PAPER_POLES
from milepost.pipeline.session import require_java

SETTLED: Final = 10  # intervals in which the free space must be back
BALANCED: Final = 1.3  # times the delay before the hog, at most
ROUND_ROBIN: Final = 3.0  # … which round robin exceeds
PIPE_COLUMNS: Final = 140  # width where the output is not a terminal
KIND: Final = ".png"


def run(out: Path, *, quick: bool = False) -> dict[str, Any]:
    """Run the experiments, draw into the folder `out`, and print the results. Returns the figures.

    With `quick`, the figures come from the simulation, and Spark runs for some intervals only.
    """
    require_java()
    console = Console() if Console().is_terminal else Console(width=PIPE_COLUMNS)
    progress = Console(stderr=True)
    began = time.monotonic()

    def tell(what: str) -> None:
        progress.print(f"[dim]{time.monotonic() - began:5.0f} s[/]  {what}", highlight=False)

    out.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # processes are stopped on the way out
    figures: dict[str, Any] = {"bench": "control", "quick": quick}
    rows = _quick(out, figures, tell) if quick else _whole(out, figures, tell)
    figures["seconds"] = time.monotonic() - began
    _show(console, rows, figures, out)
    print(json.dumps(_rounded(figures)), flush=True)
    return figures


Row = tuple[str, str, str, bool | None]  # what, measured, target, whether it is met


def _whole(out: Path, figures: dict[str, Any], tell: Tell) -> list[Row]:
    with Environment() as environment:
        tell(f"a broker of its own listens on {environment.address}")
        flow = flow_run.flow(environment, flow_run.FlowPlan(), tell)
        dropping = flow_run.drop(environment, flow.capacity, flow.event_bytes, tell)
        balanced = balance_run.balance(environment, balance_run.BalancePlan(), tell)
    return _flow(flow, out, figures) + _drops(dropping, out, figures) + _balance(balanced, out, figures)


def _flow(flow: flow_run.FlowResult, out: Path, figures: dict[str, Any]) -> list[Row]:
    assert flow.account is not None
    report.figure6(flow.flow, out / f"figure6{KIND}", flow.hog)
    figures |= {
        "settle_intervals": flow.settle_intervals,
        "left_band": flow.furthest > flow_run.BAND,
        "furthest": flow.furthest,
        **_outcome(flow),
        "hog_left": flow.slowed,
        "waiting_at_input": flow.waiting,
        "identified": _identified(flow.identified, flow.event_bytes),
    }
    settled = flow.settle_intervals
    rows: list[Row] = [
        ("tier 2's capacity", f"{flow.capacity:,.0f} events/s", "", None),
        ("identified", _model(flow.identified) or flow.unidentified, "", None),
        ("Figure 6: share that the hog leaves", f"{flow.slowed:.2f}", "", None),
        (
            "furthest from the reference",
            f"{100 * flow.furthest:.1f} %",
            f"> {100 * flow_run.BAND:.0f} %",
            flow.furthest > flow_run.BAND,
        ),
        (
            "back within 5 % after",
            "never" if settled is None else f"{settled} intervals",
            f"<= {SETTLED}",
            settled is not None and settled <= SETTLED,
        ),
        ("events lost, of all", f"{flow.account.lost:,} of {flow.account.put:,}", "0", flow.account.lost == 0),
        ("waiting at the input when the hog left", f"{flow.waiting:,} events", "", None),
    ]
    if len(flow.wrong):
        traces = {"no delay in the model": flow.wrong, "redesigned": flow.right}
        report.figure9(traces, out / f"figure9{KIND}")
        wrong, right = flow_run.swing(flow.wrong), flow_run.swing(flow.right)
        model = Model(1.0, -flow.event_bytes, 0.0, 1)
        radius = spectral_radius(model, place_pi(Model(1.0, -flow.event_bytes), PAPER_POLES))
        figures |= {"wrong_swing": wrong, "redesigned_swing": right, "wrong_radius": radius}
        told = f"{100 * wrong:.0f} % of the reference, against {100 * right:.0f} %"
        rows.append(("Figure 9: free space swings by", told, "more", wrong > 2 * right))
    return rows


def _outcome(flow: flow_run.FlowResult) -> dict[str, Any]:
    assert flow.account is not None
    return {
        "events_lost": flow.account.lost,
        "events_doubled": flow.account.doubled,
        "events_put": flow.account.put,
        "capacity_events_per_s": flow.capacity,
    }


def _drops(found: flow_run.Dropping, out: Path, figures: dict[str, Any]) -> list[Row]:
    assert found.account is not None
    report.figure3(found.trace, out / f"figure3{KIND}")
    figures |= {
        "offered_per_s": found.offered,
        "drops": found.total,
        "drops_per_s": found.dropped,
        "uncontrolled_lost": found.account.lost,
    }
    least, most = found.dropped[0], found.dropped[-1]
    return [
        ("Figure 3: dropped, at the least and at the most load", f"{least:,.0f} and {most:,.0f} events/s", "", None),
        ("lost, and counted as dropped", f"{found.account.lost:,} and {found.total:,}", "", None),
    ]


def _balance(found: balance_run.BalanceResult, out: Path, figures: dict[str, Any]) -> list[Row]:
    assert found.account is not None
    robin, balanced = found.parts[balance_run.ROUND_ROBIN], found.parts[balance_run.BALANCED]
    report.figure8({name: part.trace for name, part in found.parts.items()}, out / f"figure8{KIND}", robin.hog)
    figures |= {
        "balanced_ratio": balanced.ratio,
        "round_robin_ratio": robin.ratio,
        "balanced_delay_s": [balanced.before_s, balanced.during_s],
        "round_robin_delay_s": [robin.before_s, robin.during_s],
        "balance_events_per_s": found.rate,
        "lane_speeds": list(found.speeds),
        "balance_lost": found.account.lost,
    }
    shown = [
        (part, f"{part.before_s:.2f} s to {part.during_s:.2f} s, {part.ratio:.2f} times") for part in (robin, balanced)
    ]
    return [
        ("Figure 8: round robin's mean delay", shown[0][1], f"> {ROUND_ROBIN}", robin.ratio > ROUND_ROBIN),
        ("the balancer's", shown[1][1], f"<= {BALANCED}", balanced.ratio <= BALANCED),
        ("lost in both", f"{found.account.lost:,} of {found.account.put:,}", "0", found.account.lost == 0),
    ]


def _quick(out: Path, figures: dict[str, Any], tell: Tell) -> list[Row]:
    """Short enough for a test: all figures by simulation, and a short run on Spark."""
    tell("simulated: Figures 3, 6, 8 and 9")
    rows = simulated(out, figures)
    with Environment() as environment:
        tell(f"a broker of its own listens on {environment.address}")
        flow = flow_run.flow(environment, flow_run.QUICK, tell)
    assert flow.account is not None
    report.figure6(flow.flow, out / f"figure6-spark{KIND}", flow.hog)
    figures |= _outcome(flow)
    rows.append(("on Spark: tier 2's capacity", f"{flow.capacity:,.0f} events/s", "", None))
    lost = flow.account.lost
    rows.append(("on Spark: events lost, of all", f"{lost:,} of {flow.account.put:,}", "0", lost == 0))
    return rows


def simulated(out: Path, figures: dict[str, Any]) -> list[Row]:
    """The figures of the simulation."""
    dropping, flow = simulation.no_control(), simulation.flow_control()
    wrong, right = simulation.wrong_delay(), simulation.flow_control(delay=1)
    balanced, robin = simulation.load_balancing(), simulation.load_balancing(balanced=False)
    report.figure3(dropping.trace, out / f"figure3{KIND}")
    report.figure6(flow.trace, out / f"figure6{KIND}", simulation.HOG)
    report.figure8({"round robin": robin.trace, "balanced": balanced.trace}, out / f"figure8{KIND}", simulation.HOG)
    report.figure9({"no delay in the model": wrong.trace, "redesigned": right.trace}, out / f"figure9{KIND}")
    free = flow.trace.between(*simulation.HOG).column("measurement")
    ratios = {name: _ratio(one.trace) for name, one in (("balanced", balanced), ("round robin", robin))}
    practice = Plant([40_000.0], lambda _: 1e6, combiner=simulation.CAPACITY, bound=round(2 * simulation.REFERENCE))
    found = simulation.identified(practice, 15_000, 25_000)
    figures |= {
        "simulated": True,
        "settle_intervals": settled_after(free, simulation.REFERENCE, flow_run.BAND),
        "left_band": bool((np.abs(free / simulation.REFERENCE - 1) > flow_run.BAND).any()),
        "balanced_ratio": ratios["balanced"],
        "round_robin_ratio": ratios["round robin"],
        "wrong_swing": flow_run.swing(wrong.trace),
        "redesigned_swing": flow_run.swing(right.trace),
        "drops": int(dropping.trace.column("dropped").sum()),
        "identified": _identified(found, simulation.EVENT_BYTES),
    }
    return [
        ("simulated: identified", _model(found), "", None),
        ("simulated: back within 5 % after", f"{figures['settle_intervals']} intervals", f"<= {SETTLED}", None),
        ("simulated: round robin", f"{ratios['round robin']:.1f} times", f"> {ROUND_ROBIN}", None),
        ("simulated: balanced", f"{ratios['balanced']:.2f} times", f"<= {BALANCED}", None),
    ]


def _ratio(trace: Trace) -> float:
    start, stop = simulation.HOG
    before, during = (trace.between(*span).column("delay") for span in ((60.0, start), (start, stop)))
    return float(np.nanmean(during) / np.nanmean(before))


def _identified(found: Identified | None, event_bytes: float) -> dict[str, Any] | None:
    if found is None:
        return None
    return asdict(found.model) | asdict(found.quality) | {"event_bytes": event_bytes}


def _model(found: Identified | None) -> str:
    if found is None:
        return ""
    model, quality = found.model, found.quality
    return (
        f"a = {model.a:.3f}, b = {model.b:.1f} ± {quality.gain_error:.1f}, delay {model.delay}, "
        f"R² of the change {quality.r2:.2f}, {quality.samples} intervals"
    )


def _show(console: Console, rows: list[Row], figures: dict[str, Any], out: Path) -> None:
    table = Table("", "measured", "bar", "", title="Control", title_justify="left")
    for what, measured, bar, met in rows:
        table.add_row(what, measured, bar, "" if met is None else "met" if met else "[bold red]missed[/]")
    console.print(table)
    figures["missed"] = [what for what, _, _, met in rows if met is False]
    drawn = ", ".join(sorted(each.name for each in out.glob(f"*{KIND}")))
    console.print(f"drawn in {out}: {drawn}", highlight=False)


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(each) for each in value]
    if isinstance(value, float):
        return None if math.isnan(value) else round(value, 3)
    return value
