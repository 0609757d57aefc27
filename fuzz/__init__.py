"""Hostile input, made by Atheris: one module per target. `python -m fuzz` runs them all for a minute in all.

Only errors of `milepost.errors` may come out of what reads from outside; anything else is a finding, and Atheris
writes the input that caused it beside the Makefile. `python -m fuzz.batch crash-…` runs that input again.
"""
