"""Kernels, and the cache of their machine code.

A kernel is a function that Numba compiles for the types it names, to run without the GIL. Compiling all of them takes
tens of seconds, so the code is kept in a folder of the user, `$XDG_CACHE_HOME/milepost/kernels` or
`~/.cache/milepost/kernels`, with a subfolder for each version of Numba, of Python and of the sources.
`NUMBA_CACHE_DIR` overrides it. If the folder cannot be written, each process compiles for itself. If several processes
need to compile into one folder at the same time, one does, and the others wait for it.

This module imports Numba when the first kernel is made. Kernels are made when their module is imported, so `compiled`
costs nothing.
"""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any, Final, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., Any])
Made = TypeVar("Made")
Progress = Callable[[str, int, int], None]

# The modules of kernels and builtins, by room, and the names in each, in the order in which they are made.
ROOMS: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "match": {
        "decoder": ("read_codes", "text_codes", "fill_slots"),
        "scan": (),
        "probe": ("probe", "sweep"),
        "builder": ("build", "unfold"),
        "assembly": ("split", "assemble", "regroup"),
    },
    "batch": {"native": ("project", "read_text", "judge")},
}
KERNELS: Final = tuple(name for modules in ROOMS.values() for names in modules.values() for name in names)
_ALL: Final = frozenset(KERNELS)
_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "error_model": "numpy", "boundscheck": False}
_PACKAGE: Final = Path(__file__).parents[1]

_progress: list[Progress] = []
_made: dict[str, None] = {}  # by name, in order
_found: dict[str, ModuleType] = {}  # modules that `at_hand` has returned,
_missed: set[str] = set()  # and modules that were not available
# Held while a function is made. Two threads that make one at once could deadlock on Numba's locks, and the cache
# folder, which is a setting of the process, belongs to one room at a time.
_making: Final = threading.RLock()
_unkept: list[str] = []  # compiled for this process only: the folder has no room, or cannot be written
_instead: list[Path] = []  # the folder of this process, if the usual one cannot be written


def folder(room: str) -> Path:
    """The cache folder of a room: one for each version of its sources, as kernels are compiled into each other."""
    try:
        numba = version("numba")
    except PackageNotFoundError:
        numba = "none"
    digest = hashlib.sha256()
    for source in _sources(room):
        digest.update(source.read_bytes())
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return home() / f"{room}-python-{python}-numba-{numba}-{digest.hexdigest()[:12]}"


def home() -> Path:
    """The folder that holds the folders of all rooms."""
    if _instead:
        return _instead[-1]
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "milepost" / "kernels"


@contextmanager
def kept_in(place: Path) -> Iterator[None]:
    """Use another cache folder inside the block."""
    _instead.append(place)
    try:
        yield
    finally:
        _instead.remove(place)


def _sources(room: str) -> list[Path]:
    own = [_PACKAGE / room / f"{module}.py" for module in ROOMS[room]]
    return own + [Path(__file__).with_name(f"{module}.py") for module in ("kernel", "builtin", "memory")]


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile a function for one signature, or load its machine code from the cache."""

    def make(function: Function) -> Function:
        def compiled(**kept: bool) -> Function:
            return cast(Function, numba_().njit(signature, **_OPTIONS, **kept)(function))

        return keep(function, compiled)

    return make


def keep(function: Callable[..., Any], compiled: Callable[..., Made]) -> Made:
    """The result of `compiled(cache=True)` with the room's folder as Numba's cache; uncached if there is no folder."""
    with _making:
        numba = numba_()
        room = function.__module__.split(".")[1]
        usual = numba.config.CACHE_DIR
        try:
            place = folder(room)
            place.mkdir(parents=True, exist_ok=True)
            numba.config.CACHE_DIR = str(place)
            made = compiled(cache=True)
        except (OSError, RuntimeError):  # no folder can be written: Numba finds "no locator available"
            made = compiled()
            _unkept.append(function.__name__)
        finally:
            numba.config.CACHE_DIR = usual
        _made[function.__name__] = None
        for report in _progress:
            report(function.__name__, len(_made), len(KERNELS))
        return made


def part(function: Function) -> Function:
    """A function that kernels of the same room call; compiled into each of them."""
    with _making:
        return cast(Function, numba_().njit(**_OPTIONS)(function))


def inner(function: Function) -> Function:
    """A part that is inlined wherever it is called, before anything is compiled.

    For parts that take and return arrays in a loop: passing an array counts references, which takes time.
    """
    with _making:
        return cast(Function, numba_().njit(**_OPTIONS, inline="always")(function))


def numba_() -> Any:
    """Numba without its types, which do not fit compiled functions."""
    return import_module("numba")


def warm(progress: Progress | None = None) -> None:
    """Make every kernel and builtin: compile it into its folder, or load it from there.

    `progress` gets the name of each that is ready, the number of ready ones, and the total.
    """
    with nullcontext() if compiled() else _alone():
        if progress is not None:
            _progress.append(progress)
        try:
            for room, modules in ROOMS.items():
                for module in modules:
                    import_module(f"milepost.{room}.{module}")
        finally:
            _progress.clear()
        if _unkept:
            return
        try:
            for room in ROOMS:
                _mark(room).touch()
        except OSError:
            pass  # `kept` stays false, as it should


@contextmanager
def _alone() -> Iterator[None]:
    """Keep other processes from compiling into the same folders. If these cannot be written, there is no need."""
    from fcntl import LOCK_EX, flock

    with ExitStack() as stack:
        with suppress(OSError):  # also for a file system without locks
            home().mkdir(parents=True, exist_ok=True)
            flock(stack.enter_context((home() / "compiling").open("a")), LOCK_EX)  # released when the process ends
        yield


def compiled() -> bool:
    """Whether the cache holds everything that `warm` makes, so that it will be quick. Does not import Numba."""
    return loaded() or kept()


def loaded() -> bool:
    """Whether this process has loaded every kernel and builtin."""
    return _made.keys() >= _ALL


def kept(room: str | None = None) -> bool:
    """Whether later processes will find the compiled code of one room, or of all, in the cache."""
    return all(_mark(each).exists() for each in (ROOMS if room is None else (room,)))


def at_hand(room: str, module: str) -> ModuleType | None:
    """A module of kernels or builtins, if it can be loaded at once: Numba is installed and the cache has its code.

    For callers with an alternative: code that reads or matches messages never waits for a compiler.
    """
    name = f"milepost.{room}.{module}"
    found = _found.get(name)
    if found is not None:
        return found
    # `sys.modules` does not tell: a thread may be compiling the module, and the import would wait for that.
    if _made.keys() >= set(ROOMS[room][module]) or (name not in _missed and kept(room)):
        try:
            found = import_module(name)  # waits for a thread that loads it, since a module is incomplete until then
        except ImportError:
            pass
    if found is None:
        _missed.add(name)  # looking again would cost a thousand times what the module saves
    else:
        _found[name] = found
    return found


def _mark(room: str) -> Path:
    """A file that marks a complete cache; its name hashes Numba's keys: processor, paths and times of the sources."""
    times = " ".join(f"{source} {source.stat().st_mtime_ns}" for source in _sources(room))
    return folder(room) / f"complete-{hashlib.sha256(f'{_processor()} {times}'.encode()).hexdigest()[:12]}"


@cache
def _processor() -> str:
    """The processor model: machine code of another one is compiled again instead of loaded."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        return "".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    return platform.processor()
