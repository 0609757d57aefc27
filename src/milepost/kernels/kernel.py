"""What a kernel is, and where its machine code is kept.

A kernel is a function that Numba compiles for the types it names, to run without the GIL. Compiling all of them takes
tens of seconds, so the code is kept in a folder of the user, `$XDG_CACHE_HOME/milepost/kernels` or
`~/.cache/milepost/kernels`, in a folder for each version of Numba, of Python and of the sources; whoever sets
`NUMBA_CACHE_DIR` has decided otherwise. Where the folder cannot be written, each process compiles for itself. Of
processes that would compile into one folder at the same time, one does, and the others wait for it.

This module does not import Numba until a kernel is made, and kernels are made when their module is imported: `compiled`
can be asked for nothing.
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

# The modules that hold kernels and builtins, by room, and what they hold, in the order in which it is made.
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
_PACKAGE: Final = Path(__file__).parents[1]

_progress: list[Progress] = []
_made: dict[str, None] = {}  # by name, in order
_found: dict[str, ModuleType] = {}  # modules that are at hand,
_missed: set[str] = set()  # and those that were not
# Held while a function is made. Of two threads that do so at once each may wait for a lock of Numba's that the other
# has, for ever; and the folder of the cache, which is a setting of the process, is of one room at a time.
_making: Final = threading.RLock()
_unkept: list[str] = []  # compiled for this process only: the folder has no room, or cannot be written
_instead: list[Path] = []  # where they are kept for this process, since the usual place cannot be written


def folder(room: str) -> Path:
    """Where a room's machine code is kept: a folder for these very sources, as kernels are compiled into each other."""
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
    """The folder of all these folders."""
    if _instead:
        return _instead[-1]
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path("~").expanduser() / ".cache") / "milepost" / "kernels"


@contextmanager
def kept_in(place: Path) -> Iterator[None]:
    """Meanwhile kernels are kept in, and loaded from, another folder."""
    _instead.append(place)
    try:
        yield
    finally:
        _instead.remove(place)


def _sources(room: str) -> list[Path]:
    own = [_PACKAGE / room / f"{module}.py" for module in ROOMS[room]]
    return own + [Path(__file__).with_name(f"{module}.py") for module in ("kernel", "builtin", "memory")]


def kernel(signature: str) -> Callable[[Function], Function]:
    """Compile a function for one signature, or load what was compiled before."""

    def make(function: Function) -> Function:
        def compiled(**kept: bool) -> Function:
            options = {"nogil": True, "error_model": "numpy", "boundscheck": False}
            return cast(Function, numba_().njit(signature, **options, **kept)(function))

        return keep(function, compiled)

    return make


def keep(function: Callable[..., Any], compiled: Callable[..., Made]) -> Made:
    """What `compiled(cache=True)` makes, with the room's folder as Numba's cache; without one where there is none."""
    with _making:
        numba = numba_()
        room = function.__module__.split(".")[1]
        usual = numba.config.CACHE_DIR
        try:
            place = folder(room)
            place.mkdir(parents=True, exist_ok=True)
            numba.config.CACHE_DIR = str(place)
            made = compiled(cache=True)
        except (OSError, RuntimeError):  # no folder that can be written: Numba finds "no locator available"
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
        return cast(Function, numba_().njit(nogil=True, error_model="numpy", boundscheck=False)(function))


def inner(function: Function) -> Function:
    """A part that is written out wherever it is called, before anything is compiled.

    For parts that are given arrays, and give arrays, in a loop: passing them counts references, which takes time.
    """
    options = {"nogil": True, "error_model": "numpy", "boundscheck": False, "inline": "always"}
    with _making:
        return cast(Function, numba_().njit(**options)(function))


def numba_() -> Any:
    """Numba, as what it is to mypy: its types do not fit what is compiled."""
    return import_module("numba")


def warm(progress: Progress | None = None) -> None:
    """Make every kernel and builtin: compile it into its folder, or load it from there.

    `progress` is told the name of each that is ready, how many are, and how many there will be.
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
            pass  # then `kept` goes on saying no, which is true


@contextmanager
def _alone() -> Iterator[None]:
    """Meanwhile no other process compiles into the same folders; where they cannot be written, nobody does anyway."""
    from fcntl import LOCK_EX, flock

    with ExitStack() as stack:
        with suppress(OSError):  # also of a file system that knows no locks
            home().mkdir(parents=True, exist_ok=True)
            flock(stack.enter_context((home() / "compiling").open("a")), LOCK_EX)  # goes with the process
        yield


def compiled() -> bool:
    """Whether the folders hold what `warm` would make, so that it will be quick. Does not import Numba."""
    return loaded() or kept()


def loaded() -> bool:
    """Whether this process has them all."""
    return _made.keys() >= _ALL


def kept(room: str | None = None) -> bool:
    """Whether later processes will find what is compiled, of one room or of all, in its folder."""
    return all(_mark(each).exists() for each in (ROOMS if room is None else (room,)))


def at_hand(room: str, module: str) -> ModuleType | None:
    """A module of kernels or builtins, if having it costs a moment: Numba is there, and what it would compile is kept.

    For code that has another way: nothing that reads or matches a message waits for a compiler.
    """
    name = f"milepost.{room}.{module}"
    found = _found.get(name)
    if found is not None:
        return found
    # Not whether it is in `sys.modules`: a thread may be compiling it, and importing would wait for that.
    if _made.keys() >= set(ROOMS[room][module]) or (name not in _missed and kept(room)):
        try:
            found = import_module(name)  # waits for a thread that loads it: until then a module lacks half of its names
        except ImportError:
            pass
    if found is None:
        _missed.add(name)  # looking costs a thousand times as much as what is looked for brings
    else:
        _found[name] = found
    return found


def _mark(room: str) -> Path:
    """A file that says that all was compiled; named by what Numba goes by: processor, place and time of the sources."""
    times = " ".join(f"{source} {source.stat().st_mtime_ns}" for source in _sources(room))
    return folder(room) / f"complete-{hashlib.sha256(f'{_processor()} {times}'.encode()).hexdigest()[:12]}"


@cache
def _processor() -> str:
    """The kind of processor: machine code of another one is not loaded, but compiled again."""
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().partition("\n\n")[0].splitlines()
        return "".join(line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part")))
    return platform.processor()
