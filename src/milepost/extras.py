"""Extras: packages that only a part of Milepost needs, and what to install where one is missing.

`pyproject.toml` says which packages an extra has. A part that needs one says so where users come in:
in the package of the broker, in a command, in a function that a user calls.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Final

from milepost.errors import MissingPackage

_CALLED: Final = {"bson": "pymongo", "zmq": "pyzmq", "prometheus_client": "prometheus-client"}  # where names differ


def installed(*modules: str) -> bool:
    """Whether modules are there, without importing them."""
    return all(find_spec(each) is not None for each in modules)


def install(name: str) -> str:
    """The command that installs an extra."""
    return f"pip install 'milepost[{name}]'"


def require(words: str, name: str, *modules: str) -> None:
    """Refuse to go on without modules of the extra `name`: `MissingPackage` says what to install.

    `words` begin its sentence, as in "a broker needs".
    """
    for module in modules:
        if not installed(module):
            raise _missing(words, name, module)


@contextmanager
def extra(words: str, name: str) -> Iterator[None]:
    """The same for modules that are imported within."""
    try:
        yield
    except MissingPackage:
        raise
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module in ("", "milepost"):  # a fault of ours
            raise
        raise _missing(words, name, module) from None


def _missing(words: str, name: str, module: str) -> MissingPackage:
    package = _CALLED.get(module, module)
    return MissingPackage(f"{words} {package}, which is not installed: {install(name)}", name=module)
