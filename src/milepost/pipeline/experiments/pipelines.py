"""The two pipelines of the experiments: one limited by tier 2, one by its lanes."""

from __future__ import annotations

from typing import Final

from milepost.pipeline.definition import Pipeline
from milepost.pipeline.experiments import events

OUTPUT: Final = "out"
LATE: Final = "late"
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""An experiment takes minutes. Java would spend about as long compiling, in threads on the lanes' cores, so that each
part of an experiment would run at another speed.
"""
DISCARD: Final = """
[[tier1]]
discard = "kind = 'test'"
"""


def one_lane(
    name: str, broker: str, core: int, patterns: int, queue_bytes: int, *, flow: bool = True, interval: int = 2
) -> Pipeline:
    """One lane on its own core, and a tier 2 that searches its results for `patterns`."""
    return Pipeline.from_toml(f"""
        {_head(name, broker, 1)}
        {DISCARD}
        [[tier2]]
        name = "attacks"
        to = "{name}.attacks"
        where = "{events.signatures(patterns)}"
        [[lane]]
        master = "local[1]"
        cores = [{core}]
        [control]
        interval = "{interval}s"
        balance = false
        flow = {str(flow).lower()}
        queue_bytes = {queue_bytes}
    """)


def two_lanes(name: str, broker: str, cores: tuple[int, int], patterns: int, *, balance: bool) -> Pipeline:
    """Two lanes on two cores that search for `patterns`, and little work for tier 2."""
    return Pipeline.from_toml(f"""
        {_head(name, broker, 2)}
        {DISCARD}
        [[tier1]]
        discard = "{events.signatures(patterns)}"
        [[tier2]]
        name = "slow"
        to = "{name}.slow"
        where = "ms > 998"
        [[lane]]
        master = "local[1]"
        cores = [{cores[0]}]
        [[lane]]
        master = "local[1]"
        cores = [{cores[1]}]
        [control]
        balance = {str(balance).lower()}
    """)


def input_of(name: str) -> str:
    """The input topic of a pipeline of the experiments."""
    return f"{name}.events"


def _head(name: str, broker: str, lanes: int) -> str:
    return f"""
        name = "{name}"
        broker = "{broker}"
        input = "{input_of(name)}"
        time = "at"
        disorder = "200ms"
        lanes = {lanes}
        apart = true
        output = "{name}.{OUTPUT}"
        [late]
        to = "{name}.{LATE}"
        [spark]
        master = "local[1]"
        "spark.driver.memory" = "1g"
        "spark.sql.shuffle.partitions" = 1
        "spark.driver.extraJavaOptions" = "{JAVA}"
    """
