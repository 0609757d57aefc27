"""Functions that the interpreter calls as it calls `len`, compiled by Numba from Python.

Numba's own way into compiled code looks at the type of each argument and takes 200 ns and more; for work of 50 ns,
which reading some fields of a message is, that is too much. A builtin gets its arguments as the interpreter has them,
and makes its result with the interpreter's own functions (`memory`). In exchange it does by hand what Python does for
others: types and lengths are its own to check, and references its own to count.

A builtin is bound to one object, its plan, which says what a single compiled function does for this schema or that.
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


_definitions: Final[list[tuple[_Definition, Any]]] = []  # with their code: the interpreter keeps neither alive

_new = ctypes.pythonapi.PyCFunction_NewEx
_new.restype = ctypes.py_object
_new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)


def builtin(function: Callable[[int, int, int], Any]) -> Bind:
    """Compile `function(plan, arguments, count)`, all addresses, which returns a new reference or 0 with an error set.

    `arguments` is where `count` addresses of objects stand one behind the other. The result binds it to a plan.
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
