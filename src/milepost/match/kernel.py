"""What a kernel is, and where its machine code is kept.

A kernel is a function that Numba compiles for the types it names, to run without the GIL. Compiling all of them takes
tens of seconds, so the code is kept in a folder of the user, `$XDG_CACHE_HOME/milepost/kernels` or
`~/.cache/milepost/kernels`, in a folder for each version of Numba, of Python and of the sources; whoever sets
`NUMBA_CACHE_DIR` has decided otherwise. Where the folder cannot be written, each process compiles for itself.

This module does not import Numba until a kernel is made, and kernels are made when their module is imported: `compiled`
can be asked for nothing.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
Progress = Callable[[str, int, int], None]

# Every kernel, in the order in which they are made, and the modules that hold them.
KERNELS: Final = (
    "read_codes",
    "text_codes",
    "fill_slots",
    "probe",
    "sweep",
    "build",
    "unfold",
    "split",
    "assemble",
    "regroup",
)
MODULES: Final = ("reading", "probing", "building", "grouping")

_progress: list[Progress] = []
_made: list[str] = []
_unkept: list[str] = []  # compiled for this process only: the folder has no room, or cannot be written


def folder() -> Path:
    """Where machine code is kept: a folder for these very sources, since kernels are compiled into each other."""
    home = os.environ.get("XDG_CACHE_HOME") or str(Path("~").expanduser() / ".cache")
    base = os.environ.get("NUMBA_CACHE_DIR") or str(Path(home) / "milepost" / "kernels")
    try:
        numba = version("numba")
    except PackageNotFoundError:
        numba = "none"
    digest = hashlib.sha256()
    for source in _sources():
        digest.update(source.read_bytes())
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return Path(base) / f"python-{python}-numba-{numba}-{digest.hexdigest()[:12]}"


def _sources() -> list[Path]:
    return [Path(__file__).with_name(f"{module}.py") for module in (*MODULES, "kernel")]


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile a function for one signature, or load what was compiled before."""

    def make(function: Function) -> Function:
        numba = _numba()
        place = folder()
        usual = numba.config.CACHE_DIR
        try:
            place.mkdir(parents=True, exist_ok=True)
            numba.config.CACHE_DIR = str(place)
            made = numba.njit(signature, nogil=True, cache=True, error_model="numpy", boundscheck=False)(function)
        except (OSError, RuntimeError):  # no folder that can be written: Numba finds "no locator available"
            made = numba.njit(signature, nogil=True, error_model="numpy", boundscheck=False)(function)
            _unkept.append(function.__name__)
        finally:
            numba.config.CACHE_DIR = usual
        _made.append(function.__name__)
        for report in _progress:
            report(function.__name__, len(_made), len(KERNELS))
        return cast(Function, made)

    return make


def part(function: Function) -> Function:
    """A function that kernels of the same module call; compiled into each of them."""
    return cast(Function, _numba().njit(nogil=True, error_model="numpy", boundscheck=False)(function))


def _numba() -> Any:
    return import_module("numba")  # as what it is to mypy: its types do not fit what is compiled


def warm(progress: Progress | None = None) -> None:
    """Make every kernel: compile it into the folder, or load it from there.

    `progress` is told the name of each kernel that is ready, how many are, and how many there will be.
    """
    if progress is not None:
        _progress.append(progress)
    try:
        for module in MODULES:
            import_module(f"milepost.match.{module}")
    finally:
        _progress.clear()
    if _unkept:
        return
    try:
        _mark().touch()
    except OSError:
        pass  # then `kept` goes on saying no, which is true


def compiled() -> bool:
    """Whether the folder holds what `warm` would make, so that it will be quick. Does not import Numba."""
    return len(_made) >= len(KERNELS) or kept()


def kept() -> bool:
    """Whether later processes will find the kernels in the folder."""
    return _mark().exists()


def _mark() -> Path:
    """A file that says that all kernels were compiled; named by place and time of the sources, which Numba goes by."""
    times = " ".join(f"{source} {source.stat().st_mtime_ns}" for source in _sources())
    return folder() / f"complete-{hashlib.sha256(times.encode()).hexdigest()[:12]}"
