"""Functions that the interpreter calls as it calls `len`, compiled by Numba from Python.

Numba's own call of compiled code examines the type of each argument and takes at least 200 ns. That is too much for
reading some fields of a message, which takes 50 ns. A builtin gets its arguments as the interpreter has them, and makes
its result with the interpreter's own functions (`memory`). In exchange it has to check types and lengths and count
references itself.

A builtin is bound to one object, its plan: one compiled function serves every schema, each with its own plan.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from milepost.kernels.kernel import keep, numba_

Bind = Callable[[object], Callable[..., Any]]
_FASTCALL: Final = 0x80  # arguments as an array of objects, and their number


class _Definition(ctypes.Structure):
    """`PyMethodDef`."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


_definitions: Final[list[tuple[_Definition, Any]]] = []  # with their code: the interpreter holds no reference to either

_new = ctypes.pythonapi.PyCFunction_NewEx
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


def builtin(function: Callable[[int, int, int], Any]) -> Bind:
    """Compile `function(plan, arguments, count)`, which returns a new reference, or 0 with an error set.

    `plan` is the address of an object, and `arguments` that of an array of `count` addresses of objects. The result
    binds the function to a plan.
    """

    def compiled(**kept: bool) -> Any:
        signature = "intp(intp, intp, intp)"
        return numba_().cfunc(signature, error_model="numpy", boundscheck=False, **kept)(function)

    code = keep(function, compiled)
    definition = _Definition(function.__name__.encode(), code.address, _FASTCALL, (function.__doc__ or "").encode())
    _definitions.append((definition, code))
    address = ctypes.addressof(definition)

    def bind(plan: object) -> Callable[..., Any]:
        made: Callable[..., Any] = _new(address, plan, None)
        return made

    return bind
