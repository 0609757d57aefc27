"""Hostile input, made by Atheris: one module per target. `python -m fuzz` runs them all for a minute in all.

Only errors of `milepost.errors` may come out of what reads from outside; anything else is a finding, and Atheris
writes the input that caused it into `fuzz/findings`. `python -m fuzz.batch fuzz/findings/crash-…` runs it again.
"""
