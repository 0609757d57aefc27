"""What the targets share: write seeds into the corpus, then start Atheris."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import atheris


def start(one_input: Callable[[bytes], None], seeds: Iterable[bytes]) -> None:
    """Run the target with libFuzzer's arguments. An empty corpus folder among them gets the seeds first."""
    for argument in sys.argv[1:]:
        if (folder := Path(argument)).is_dir() and not any(folder.iterdir()):
            for number, seed in enumerate(seeds):
                (folder / f"seed-{number}").write_bytes(seed)
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
