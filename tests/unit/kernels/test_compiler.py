"""Loading kernels beside a broker, and what the collector does meanwhile."""

from __future__ import annotations

import subprocess
import sys

import pytest

from milepost.kernels import warm

LOADING = """
import gc, sys
from milepost import kernels
from milepost.kernels.compiler import freeze_what_is_loaded, uncollected

if sys.argv[1] == "broker":
    freeze_what_is_loaded()
collected = []
gc.callbacks.append(lambda phase, info: collected.append(info["generation"]))
gc.collect()
before, young = len(gc.get_objects()), len(collected)
with uncollected():
    kernels.warm()
    assert len(collected) == young, "a collection while kernels were loaded"
assert gc.isenabled()
assert gc.get_freeze_count() > 100_000 if sys.argv[1] == "broker" else gc.get_freeze_count() == 0
assert kernels.loaded()
"""


@pytest.mark.parametrize("process", ["broker", "another"])
def test_no_collection_looks_at_kernels_while_they_are_loaded(process: str) -> None:
    warm()
    subprocess.run([sys.executable, "-c", LOADING, process], check=True, timeout=300)
