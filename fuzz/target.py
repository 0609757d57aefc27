"""What the targets share: write seeds into the corpus, then start Atheris."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import atheris

from fuzz import UNGUIDED


def guided(**options: Any) -> AbstractContextManager[None]:
    """Instrument what is imported meanwhile, so that inputs which reach new code are kept and mutated.

    Instrumenting takes ten seconds and more. A run of some hundred inputs is over before it could help, and goes
    without: `python -m fuzz --unguided`.
    """
    if os.environ.get(UNGUIDED):
        return nullcontext()
    found: AbstractContextManager[None] = atheris.instrument_imports(include=["milepost"], **options)
    return found


def start(one_input: Callable[[bytes], None], seeds: Iterable[bytes]) -> None:
    """Run the target with libFuzzer's arguments. An empty corpus folder among them gets the seeds first."""
    for argument in sys.argv[1:]:
        if (folder := Path(argument)).is_dir() and not any(folder.iterdir()):
            for number, seed in enumerate(seeds):
                (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
