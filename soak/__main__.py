"""`python -m soak`: kills under topics and queues, a failing and a full disk, and kills under a pipeline."""

from __future__ import annotations

import argparse
import random
import signal
import sys
from pathlib import Path

from soak.database import Database
from soak.faults import FAULTS, run_fault
from soak.pipeline import soak_pipeline
from soak.queues.scenario import soak_queues
from soak.scenario import Scenario
from soak.verdict import judged, show

# A killed broker is started again at once. The server ends sessions that idle in a transaction for half of the lease,
# which sessions of a broker that starts on busy cores do for a while.
SETTINGS = {"sqlite": "", "postgresql": "lease_s = 1.5\n"}


def main() -> int:
    """Run what the command line asks for. Returns 0 when all is well."""
    parser = argparse.ArgumentParser(prog="python -m soak", description=__doc__)
    parser.add_argument("--store", choices=["sqlite", "postgresql", "both"], default="both")
    parser.add_argument("--cycles", type=int, default=200, help="kills and recoveries on each store")
    parser.add_argument("--seconds", type=float, default=3600.0, help="the longest for each store")
    parser.add_argument("--seed", type=int, default=None, help="of the random choices; another one each time")
    parser.add_argument("--faults", choices=["also", "only", "none"], default="also", help="a failing and a full disk")
    parser.add_argument("--queues", choices=["also", "only", "none"], default="also", help="kills under transactions")
    parser.add_argument("--queues-cycles", type=int, default=60, help="kills under queues on each store")
    parser.add_argument("--pipeline", choices=["also", "only", "none"], default="also", help="kills under Spark")
    parser.add_argument("--pipeline-cycles", type=int, default=24, help="kills under a pipeline")
    parser.add_argument("--keep", action="store_true", help="keep the records also when all is well")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that ending this ends its processes too
    seed = random.SystemRandom().randrange(1 << 31) if arguments.seed is None else arguments.seed
    stores = ["sqlite", "postgresql"] if arguments.store == "both" else [arguments.store]
    parts = {"faults": arguments.faults, "queues": arguments.queues, "pipeline": arguments.pipeline}
    only = {name for name, wanted in parts.items() if wanted == "only"}
    chosen = {name for name, wanted in parts.items() if wanted != "none" and (not only or name in only)}
    codes = []
    if not only:
        codes += [soak(store, seed, arguments.cycles, arguments.seconds, arguments.keep) for store in stores]
    if "faults" in chosen:
        codes += [run_fault(name, seed) for name in FAULTS]
    if "queues" in chosen:
        codes += [soak_queues(store, seed, arguments.queues_cycles, arguments.keep) for store in stores]
    if "pipeline" in chosen:
        codes.append(soak_pipeline(seed, arguments.pipeline_cycles, arguments.keep))
    return max(codes)


def soak(store: str, seed: int, cycles: int, seconds: float, keep: bool = False) -> int:
    """One store; 0 when all is well."""
    print(f"{store}: {cycles} cycles, seed {seed}", flush=True)
    again = (
        f"python -m soak --store {store} --cycles {cycles} --seed {seed} --faults none --queues none --pipeline none"
    )

    def made(folder: Path, base: Database) -> Scenario:
        return Scenario(folder, base.url, seed, settings=SETTINGS[store], show=show, crash=base.crash)

    return judged(store, made, lambda scenario: f"{scenario.cycles(cycles, seconds)} cycles", again, keep)


if __name__ == "__main__":
    sys.exit(main())
