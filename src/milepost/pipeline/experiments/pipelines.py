"""The two pipelines of the experiments. In the first, tier 2 is what takes time; in the second, the lanes are."""

from __future__ import annotations

from typing import Final

from milepost.pipeline.definition import Pipeline
from milepost.pipeline.experiments import events

OUTPUT: Final = "out"
LATE: Final = "late"
JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""An experiment takes minutes. Java would go on compiling what runs for about as long, in threads that take the lanes'
cores, and each part of an experiment would meet another machine than the one before."""
DISCARD: Final = """
[[tier1]]
discard = "kind = 'test'"
"""


def one_lane(
    name: str, broker: str, core: int, patterns: int, queue_bytes: int, *, flow: bool = True, interval: int = 2
) -> Pipeline:
    """A lane on a core of its own, whose results are taken by a tier 2 with `patterns` to look for."""
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
        flow = {_word(flow)}
        queue_bytes = {queue_bytes}
    """)


def two_lanes(name: str, broker: str, cores: tuple[int, int], patterns: int, *, balance: bool) -> Pipeline:
    """Two lanes on two cores, which look for `patterns`, and little to do for tier 2."""
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
        balance = {_word(balance)}
    """)


def input_of(name: str) -> str:
    """The topic that a pipeline of the experiments reads."""
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


def _word(value: bool) -> str:
    return "true" if value else "false"
