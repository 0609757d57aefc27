"""`like` patterns as regular expressions: the notation is Java's, and Python reads the same but for two signs."""

from __future__ import annotations

import re
from random import Random

import pytest

from milepost.query.like import compiled
from milepost.query.spark.pattern import regular


def test_pieces_are_taken_for_good() -> None:
    assert regular(compiled("a%b_%.", None)) == r"(?s)\Aa(?>.*?b.).*\.\z"


@pytest.mark.parametrize("seed", range(20))
def test_it_matches_what_the_pattern_matches(seed: int) -> None:
    rng = Random(seed)
    for _ in range(200):
        pattern = compiled("".join(rng.choices("ab%_.", k=rng.randint(0, 7))), None)
        # Python has atomic groups, and calls Java's \z \Z.
        expression = re.compile(regular(pattern).replace(r"\z", r"\Z"))
        text = "".join(rng.choices("ab.\n", k=rng.randint(0, 8)))
        assert bool(expression.match(text)) == pattern.matches(text), (pattern, text)
