"""Fuzzing with Atheris, one module per target. `python -m fuzz` runs all targets, for a minute in total.

Parsers of external input may raise only errors of `milepost.errors`. Anything else is a finding, and Atheris writes the
input that caused it into `fuzz/findings`. `python -m fuzz.batch fuzz/findings/crash-…` runs it again.
"""

UNGUIDED = "MILEPOST_FUZZ_UNGUIDED"  # in the environment of a target: `fuzz.target.guided` says what it does
