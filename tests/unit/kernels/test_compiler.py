"""Loading kernels beside a broker, and what the collector does meanwhile."""

from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from milepost.kernels import warm
from milepost.kernels.compiler import Compiler, loading, loads

LOADING = """
import gc, sys
from milepost import kernels
from milepost.kernels.compiler import freeze_what_is_loaded, loading

if sys.argv[1] == "broker":
    freeze_what_is_loaded()
collected = []
gc.callbacks.append(lambda phase, info: collected.append(info["generation"]))
gc.collect()
before, young = len(gc.get_objects()), len(collected)
with loading():
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


def test_threads_that_load_at_the_same_time_leave_everything_as_it_was() -> None:
    """One begins while another loads, and goes on when that one has ended."""
    first, second = loading(), loading()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert not gc.isenabled()
    second.__exit__(None, None, None)
    assert loads[-1] > 0
    assert gc.isenabled()


def test_kernels_that_are_there_need_no_process() -> None:
    warm()
    compiler = Compiler()
    compiler.begin()
    assert compiler.state == "loaded"
    assert compiler.took == 0
    compiler.close()
