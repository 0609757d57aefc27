"""A lane in a process of its own: `python -m milepost.pipeline.iap FILE LANE CHECKPOINT`. The runner starts it.

It ends on SIGTERM, when its query fails, and when the process that started it is gone.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from pathlib import Path

from milepost.errors import MilepostError


def main() -> int:
    """Run the lane."""
    arguments = argparse.ArgumentParser(prog="milepost.pipeline.iap")
    arguments.add_argument("file", type=Path)
    arguments.add_argument("lane", type=int)
    arguments.add_argument("checkpoint", type=Path)
    arguments.add_argument("--master", default="local[1]")
    arguments.add_argument("--cores", default="", help="processors to run on, as in 0,1")
    arguments.add_argument("--drops", type=int, default=0)
    given = arguments.parse_args()
    if given.cores:
        os.sched_setaffinity(0, {int(each) for each in given.cores.split(",")})  # also of the processes that it starts
    try:
        return _run(given)
    except MilepostError as error:
        print(f"milepost.errors: {error}", file=sys.stderr)
        return 1


def _run(given: argparse.Namespace) -> int:
    from milepost.client import Client
    from milepost.pipeline import queries
    from milepost.pipeline.definition import load_pipeline
    from milepost.pipeline.definition.checker import check
    from milepost.pipeline.session import make_session

    pipeline = load_pipeline(given.file)
    with Client(pipeline.broker) as client:
        schema = next(each.schema for each in client.topics(pipeline.input[0]))
    checked = check(pipeline, schema)
    own = pipeline.lane[given.lane].conf if given.lane < len(pipeline.lane) else {}
    spark = make_session(f"{pipeline.name} lane {given.lane}", given.master, {**pipeline.spark.conf, **own})
    queries.register(spark)
    query = queries.start_lane(spark, checked, given.lane, given.checkpoint, drops=given.drops)
    leaving = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: leaving.set())
    parent = os.getppid()
    while query.isActive and not leaving.wait(0.5) and os.getppid() == parent:
        pass
    error = query.exception()
    query.stop()
    spark.stop()
    if error is not None:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
