"""What builtins are made of: words at addresses, and the interpreter's own functions by their names.

Addresses and objects are plain integers here. Whoever reads at an address has compared it with the length of what is
there; nobody else will.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from numba import types
from numba.extending import intrinsic

ir: Any = import_module("llvmlite.ir")  # as what it is to mypy, which has no types of it
OBJECT: Final = types.intp
"""An object of the interpreter, by its address; 0 where its C functions return NULL."""


def _loaded(kind: Any, result: Any, *, signed: bool = False) -> Any:
    """The reading of one little-endian number, at any alignment. Whole ones are of one type: mixed, they are floats."""

    def load(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            found = builder.load(builder.inttoptr(arguments[0], kind.as_pointer()), align=1)
            if result is types.float64 or kind.width == _WORD.width:
                return found
            return builder.sext(found, _WORD) if signed else builder.zext(found, _WORD)

        return result(types.intp), generate

    return intrinsic(load)


_WORD: Final = ir.IntType(64)
u8: Final = _loaded(ir.IntType(8), types.int64)
u32: Final = _loaded(ir.IntType(32), types.int64)
i32: Final = _loaded(ir.IntType(32), types.int64, signed=True)
i64: Final = _loaded(_WORD, types.int64)
f64: Final = _loaded(ir.DoubleType(), types.float64)


def python(name: str, result: Any, *arguments: Any) -> Any:
    """A function of the interpreter. It is found by name when the code is loaded, so the code can be kept."""
    return types.ExternalFunction(name, result(*arguments))


# New references, or 0 with an error set
new_text: Final = python("PyUnicode_DecodeUTF8", OBJECT, types.intp, types.intp, types.intp)
new_tuple: Final = python("PyTuple_New", OBJECT, types.intp)
new_int: Final = python("PyLong_FromLongLong", OBJECT, types.int64)
new_uint: Final = python("PyLong_FromUnsignedLongLong", OBJECT, types.uint64)
new_float: Final = python("PyFloat_FromDouble", OBJECT, types.float64)
call: Final = python("PyObject_Vectorcall", OBJECT, OBJECT, types.intp, types.intp, OBJECT)  # the last: no keywords, 0
# Steals the value
set_item: Final = python("PyTuple_SetItem", types.int32, OBJECT, types.intp, OBJECT)
# Borrowed
item: Final = python("PyTuple_GetItem", OBJECT, OBJECT, types.intp)
# What they say of a wrong type is an error that is set, and 0 or -1
hold: Final = python("Py_IncRef", types.void, OBJECT)
let_go: Final = python("Py_DecRef", types.void, OBJECT)
as_int: Final = python("PyLong_AsLongLong", types.int64, OBJECT)  # -1 with an error set
forgive: Final = python("PyErr_Clear", types.void)
bytes_at: Final = python("PyBytes_AsString", types.intp, OBJECT)
bytes_size: Final = python("PyBytes_Size", types.intp, OBJECT)
bytearray_at: Final = python("PyByteArray_AsString", types.intp, OBJECT)
bytearray_size: Final = python("PyByteArray_Size", types.intp, OBJECT)
