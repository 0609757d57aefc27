"""Extras: packages that only a part of Milepost needs, and the command that installs a missing one.

`pyproject.toml` lists the packages of each extra. A part that needs an extra requires it where users enter:
in the broker's package, in a command, in a public function.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from milepost.errors import MissingPackage

_CALLED: Final = {"bson": "pymongo", "zmq": "pyzmq", "prometheus_client": "prometheus-client"}  # where names differ


def installed(*modules: str) -> bool:
    """Whether modules are installed, without importing them."""
    return all(find_spec(each) is not None for each in modules)


def install(name: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'milepost[{name}]'"


def require(words: str, name: str, *modules: str) -> None:
    """Raise `MissingPackage`, with the command to install, unless the modules of the extra `name` are installed.

    `words` begin the message, as in "a broker needs".
    """
    for module in modules:
        if not installed(module):
            raise _missing(words, name, module)


@contextmanager
def extra(words: str, name: str) -> Iterator[None]:
    """`require` for the modules that the block imports."""
    try:
        yield
    except MissingPackage:
        raise
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "milepost"):  # a fault of Milepost
            raise
        raise _missing(words, name, module) from None


def _missing(words: str, name: str, module: str) -> MissingPackage:
    package = _CALLED.get(module, module)
    return MissingPackage(f"{words} {package}, which is not installed: {install(name)}", name=module)
