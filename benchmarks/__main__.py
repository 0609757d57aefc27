"""`python -m benchmarks NAME [PART ...] [--quick]`; QUICK=1 in the environment is the same as --quick.

A benchmark of several parts says so with `PARTS`, and takes the parts to run: by name, or by ONLY=part,part.
"""

from __future__ import annotations

import argparse
import importlib
import os
import subprocess
import sys

from milepost import kernels

BENCHMARKS = {
    "format": "field access, size, columns and encoding, against other message formats",
    "query": "predicates over batches, against pyarrow.compute and Polars",
    "match": "the subscription index: events a second against up to a million subscriptions",
    "queues": "transactional queues, against procrastinate and PGQueuer on the same PostgreSQL",
    "input_queues": "input queues: checking and matching in threads",
    "pubsub": "the whole broker, against NATS, Redis, Mosquitto, RabbitMQ and ActiveMQ",
    "durable": "durable topics, against Redis Streams, RabbitMQ and JetStream",
    "pipeline": "the pipeline on Spark: source, tier 1 against Parquet, splitter, combiner, both tiers",
    "control": "flow control and load balancing of a pipeline on Spark, with a CPU hog",
}


def main() -> None:
    names = "\n".join(f"  {name:12} {what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="make bench NAME=...", description=f"Benchmarks:\n{names}", formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", choices=BENCHMARKS, help="which benchmark to run")
    only = [part for part in os.environ.get("ONLY", "").split(",") if part]
    parser.add_argument("parts", nargs="*", default=only, metavar="part", help="run these parts of it alone")
    parser.add_argument("--quick", action="store_true", default=os.environ.get("QUICK", "") not in ("", "0"))
    arguments = parser.parse_args()
    if not kernels.compiled():  # otherwise a broker would compile them during the measurements
        subprocess.run([sys.executable, "-m", "milepost.cli", "warm"], check=True)
    module = importlib.import_module(f"benchmarks.{arguments.name}")
    known = getattr(module, "PARTS", {})
    for part in arguments.parts:
        if part not in known:
            parser.error(f"{arguments.name} has no part {part!r}; it has {', '.join(known) or 'none'}")
    if arguments.parts:
        module.run(quick=arguments.quick, parts=arguments.parts)
    else:
        module.run(quick=arguments.quick)


if __name__ == "__main__":
    main()
