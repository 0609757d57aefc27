"""`python -m fuzz [--seconds N]`: run every target in turn, each in its own process, and count the inputs.

With `--runs N --seed S` the inputs are the same every time. With `--unguided` the targets start in a second, and inputs
are not chosen by the code that they reach. The tests use both to check the targets.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from fuzz import UNGUIDED

# The share of the time for each target: the decoder is the first to read from the network, and gets most.
TARGETS = {"batch": 0.3, "broker": 0.2, "queues": 0.2, "query": 0.15, "schema": 0.15}
RSS_LIMIT_MB = 2048  # imports and instrumentation take some 300; an input may not make it 2 GiB
INPUT_SECONDS = 10  # one input that takes longer is a finding
INPUT_BYTES = 4096
FINDINGS = Path(__file__).parent / "findings"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for all targets together")
    parser.add_argument("--runs", type=int, default=-1, help="inputs for each target, within the time; -1: no limit")
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--unguided", action="store_true", help="do not look which code an input reaches")
    parser.add_argument("targets", nargs="*", default=list(TARGETS), metavar="target", help=", ".join(TARGETS))
    arguments = parser.parse_args()
    for name in arguments.targets:
        if name not in TARGETS:
            parser.error(f"there is no target {name!r}; there are {', '.join(TARGETS)}")
    if importlib.util.find_spec("atheris") is None:
        print("Atheris is not installed: it ships for Linux and Python 3.11 to 3.13 only, so use one of these.")
        return 1
    whole = sum(TARGETS[name] for name in arguments.targets)
    extra = [f"-runs={arguments.runs}", f"-seed={arguments.seed}"]
    if arguments.unguided:
        os.environ[UNGUIDED] = "1"
    results = []
    for name in arguments.targets:
        seconds = max(1, round(arguments.seconds * TARGETS[name] / whole))
        print(f"fuzzing {name} for {seconds} s", flush=True)
        results.append(run(name, [f"-max_total_time={seconds}", *extra]))
    return max(results)


def run(name: str, bounds: list[str]) -> int:
    """Run one target. Returns 0 when nothing was found."""
    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as corpus:
        command = [
            sys.executable, "-m", f"fuzz.{name}", corpus,
            *bounds, f"-timeout={INPUT_SECONDS}", f"-rss_limit_mb={RSS_LIMIT_MB}", f"-max_len={INPUT_BYTES}",
            f"-artifact_prefix={FINDINGS}/", "-print_final_stats=1",
        ]  # fmt: skip
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    ran = re.search(r"number_of_executed_units:\s*(\d+)", done.stdout)
    if done.returncode or ran is None:
        print(done.stdout[-6000:])
        found = re.findall(r"Test unit written to (\S+)", done.stdout)
        if found:
            print(f"fuzz.{name} found something; run it again with: python -m fuzz.{name} {found[-1]}")
        return 1
    print(f"fuzz.{name}: {int(ran[1]):,} inputs, nothing found", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
