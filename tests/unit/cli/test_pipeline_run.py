"""How a pipeline is asked to end."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from milepost.cli import pipeline_run


def test_what_comes_twice_at_once_is_one_and_a_second_ctrl_c_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    with pipeline_run._leaving() as leaving:
        leaving.starting = False
        for number in (signal.SIGINT, signal.SIGINT, signal.SIGTERM):
            signal.raise_signal(number)
        assert leaving.signals == [signal.SIGINT, signal.SIGINT, signal.SIGTERM]
        monkeypatch.setattr(pipeline_run, "TWICE_S", -1.0)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_while_spark_starts_ends_this_process_and_the_one_it_has_started() -> None:
    program = """
import signal, subprocess, sys
from milepost.cli import pipeline_run
with pipeline_run._leaving():
    child = subprocess.Popen([sys.executable, "-c", "import signal; print(flush=True); signal.pause()"],
                             stdout=subprocess.PIPE, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    child.stdout.readline()
    signal.raise_signal(signal.SIGINT)
"""
    # The child has the same standard error, so this ends when both have.
    done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 130
    assert done.stderr == "milepost: interrupted while Spark started; when started again, it continues where it was\n"
