"""`python -m benchmarks NAME [--quick]`; QUICK=1 in the environment is the same as --quick."""

from __future__ import annotations

import argparse
import importlib
import os

BENCHMARKS = {
    "format": "field access, size, columns and encoding, against other message formats",
    "query": "predicates over batches, against pyarrow.compute and Polars",
}


def main() -> None:
    names = "\n".join(f"  {name:8} {what}" for name, what in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="make bench NAME=...", description=f"Benchmarks:\n{names}", formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("name", choices=BENCHMARKS, help="which benchmark to run")
    parser.add_argument("--quick", action="store_true", default=os.environ.get("QUICK", "") not in ("", "0"))
    arguments = parser.parse_args()
    importlib.import_module(f"benchmarks.{arguments.name}").run(quick=arguments.quick)


if __name__ == "__main__":
    main()
