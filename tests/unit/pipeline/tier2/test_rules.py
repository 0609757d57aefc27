from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from milepost.errors import ConfigError
from milepost.pipeline.tier2 import Absence, Aggregate, Monitor, Sequence, TimeWindow, quantile_name
from milepost.pipeline.tier2.rules import fingerprint

SUM = Aggregate("total", "sum", "v")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Aggregate("a", "smu", "v"), "aggregate 'a': unknown function 'smu'; did you mean 'sum'"),
        (lambda: Aggregate("a", "sum"), "aggregate 'a': sum needs a column"),
        (lambda: Aggregate("a", "quantile", "v"), "quantile= is for the function 'quantile'"),
        (lambda: Aggregate("a", "sum", "v", 0.5), "quantile= is for the function 'quantile'"),
        (lambda: Aggregate("a", "quantile", "v", 1.5), "a quantile is a number from 0 to 1, not 1.5"),
        (lambda: Aggregate("a", "quantile", "v", float("nan")), "a quantile is a number from 0 to 1"),
        (lambda: Aggregate("", "count"), "an aggregate needs a name"),
        (lambda: TimeWindow("", (), 1, 1), "a rule needs a name"),
        (lambda: TimeWindow("w", "host", 1, 1), "rule 'w': keys must be a tuple"),  # type: ignore[arg-type]
        (lambda: TimeWindow("w", ("_time",), 1, 1), "rule 'w': _time cannot be a key"),
        (lambda: TimeWindow("w", ("a", "a"), 1, 1), "rule 'w' would group by the column 'a' twice"),
        (lambda: TimeWindow("w", (), 0, 1), "rule 'w': size_us must be microseconds, from 1"),
        (lambda: TimeWindow("w", (), 1.5, 1), "rule 'w': size_us must be microseconds"),  # type: ignore[arg-type]
        (lambda: TimeWindow("w", (), 1 << 62, 1 << 62), "rule 'w': size_us must be microseconds"),
        (lambda: TimeWindow("w", (), 5, 6), r"rule 'w': slide_us \(6\) must not be more than size_us \(5\)"),
        (lambda: TimeWindow("w", (), 10_001, 1), "rule 'w': size_us .* is more than 10000 times slide_us"),
        (lambda: TimeWindow("w", (), 1, 1, [SUM]), "aggregates must be a tuple"),  # type: ignore[arg-type]
        (lambda: TimeWindow("w", (), 1, 1, (SUM, SUM)), "rule 'w' would emit the column 'total' twice"),
        (lambda: TimeWindow("w", (), 1, 1, (Aggregate("count", "count", "v"),)), "would emit the column 'count' twice"),
        (lambda: TimeWindow("w", ("count",), 1, 1), "rule 'w' would emit the column 'count' twice"),
        (lambda: Sequence("s", (), 0), "rule 's': within_us must be microseconds"),
        (lambda: Sequence("s", (), 1, "both"), "rule 's': each must be 'first' or 'last'"),  # type: ignore[arg-type]
        (lambda: Absence("a", (), -1), "rule 'a': within_us must be microseconds"),
        (lambda: Monitor("m", 5, 6), "rule 'm': every_us .* must not be more than window_us"),
        (lambda: Monitor("m", 5, 5, None, (0.5,)), "rule 'm': quantiles need a column"),
        (lambda: Monitor("m", 5, 5, "v", (0.5, 0.50)), "rule 'm' would emit the column 'p50' twice"),
    ],
)
def test_rules_that_cannot_be(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


@pytest.mark.parametrize(
    ("quantile", "name"),
    [
        (0.5, "p50"),
        (0.99, "p99"),
        (0.999, "p99_9"),
        (0, "p0"),
        (1, "p100"),
        (0.07, "p7"),
        (0.29, "p29"),
        (1e-5, "p0_001"),
    ],
)
def test_names_of_quantiles(quantile: float, name: str) -> None:
    assert quantile_name(quantile) == name


def test_rules_that_differ_have_another_fingerprint() -> None:
    rules = [
        (TimeWindow("w", (), 10, 10),),
        (TimeWindow("w", (), 10, 5),),
        (TimeWindow("w", ("k",), 10, 10),),
        (TimeWindow("w", (), 10, 10, (SUM,)),),
        (TimeWindow("w", (), 10, 10, (Aggregate("total", "avg", "v"),)),),
        (Sequence("w", (), 10),),
        (Sequence("w", (), 10, "last"),),
        (Absence("w", (), 10),),
        (Absence("w", (), 10), Absence("v", (), 10)),
        (),
    ]
    assert len({fingerprint(each) for each in rules}) == len(rules)
    assert fingerprint(rules[0]).hex() == fingerprint((TimeWindow("w", (), 10, 10),)).hex()
