"""The soak in its short form: some kills on each store, a disk that fails, one that is full. `make soak` does more."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soak import faults
from soak.__main__ import SETTINGS
from soak.roles import ROLES
from soak.scenario import Scenario
from soak.worker import last_sequence

ROOT = Path(__file__).resolve().parents[2]
CYCLES = 3
# In one worker, one after the other: each has a dozen processes.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("soak")]


def test_sqlite_as_the_command_runs_it():
    again = f"python -m soak --store sqlite --cycles {CYCLES} --seed 11 --faults none --queues none --pipeline none"
    done = subprocess.run(
        [sys.executable, *again.split()[1:]],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "verdict: good" in done.stdout
    assert again in done.stdout
    assert int(re.search(r"([\d,]+) acknowledged", done.stdout)[1].replace(",", "")) > 0


def test_postgresql(postgresql, tmp_path):
    scenario = Scenario(tmp_path, postgresql, 12, settings=SETTINGS["postgresql"])
    try:
        scenario.open()
        assert scenario.cycles(CYCLES, 900.0) == CYCLES
        verdict = scenario.close()
    finally:
        scenario.clear()
    assert verdict, verdict
    assert not scenario.complaints
    assert verdict.acknowledged
    assert sum(scenario.kills.values()) >= CYCLES
    assert set(verdict.subscriptions) == {role.subscription for role in ROLES if role.subscription}


@pytest.mark.parametrize("name", ["sync fails", "disk full"])
def test_a_disk_that_fails(name, capsys):
    if faults.cannot(name):
        pytest.skip(faults.cannot(name))
    assert faults.run_fault(name, 13, 1.0) == 0, capsys.readouterr().out[-4000:]
    said = capsys.readouterr().out
    assert "verdict: good" in said
    if name == "disk full":
        assert not re.search(r" 0 refused", said)
    else:
        assert re.search(r"[1-9]\d* calls failed", said)


def test_a_publisher_goes_on_behind_all_that_it_may_have_put(tmp_path):
    path = tmp_path / "p.records"
    assert last_sequence(path) == -1
    path.write_bytes(
        b'["began",1,"p"]\n["put",2,"p","t",0,50]\n["put",3,"p","t",50,5]\n["stored",4,"p","t",0,50]\n["pu'
    )
    assert last_sequence(path) == 54
    path.write_bytes(b'["began",1,"p"]\n')
    assert last_sequence(path) == -1
