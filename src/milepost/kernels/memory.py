"""The parts of builtins: words at addresses, and the interpreter's own functions by name.

Addresses and objects are plain integers here. Nothing checks an address: the caller must have compared it with the
length of the object.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

from numba import types
from numba.extending import intrinsic

ir: Any = import_module("llvmlite.ir")  # untyped for mypy, which has no stubs for it
OBJECT: Final = types.intp
"""An object of the interpreter, by its address; 0 where its C functions return NULL."""


def _loaded(kind: Any, result: Any, *, signed: bool = False) -> Any:
    """A function that reads one little-endian number, at any alignment.

    All integers have one type: Numba makes floats of mixed ones.
    """

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
    """A function of the interpreter, found by name when the code is loaded, so that the code can be cached."""
    return types.ExternalFunction(name, result(*arguments))


# New references, or 0 with an error set
new_text: Final = python("PyUnicode_DecodeUTF8", OBJECT, types.intp, types.intp, types.intp)
new_tuple: Final = python("PyTuple_New", OBJECT, types.intp)
new_int: Final = python("PyLong_FromLongLong", OBJECT, types.int64)
new_uint: Final = python("PyLong_FromUnsignedLongLong", OBJECT, types.uint64)
new_float: Final = python("PyFloat_FromDouble", OBJECT, types.float64)
call: Final = python(
    "PyObject_Vectorcall", OBJECT, OBJECT, types.intp, types.intp, OBJECT
)  # the last is the keywords: 0
# Steals a reference to the value
set_item: Final = python("PyTuple_SetItem", types.int32, OBJECT, types.intp, OBJECT)
# Returns a borrowed reference
item: Final = python("PyTuple_GetItem", OBJECT, OBJECT, types.intp)
# For a wrong type they set an error and return 0 or -1
incref: Final = python("Py_IncRef", types.void, OBJECT)
decref: Final = python("Py_DecRef", types.void, OBJECT)
as_int: Final = python("PyLong_AsLongLong", types.int64, OBJECT)  # -1 with an error set
clear_error: Final = python("PyErr_Clear", types.void)
bytes_at: Final = python("PyBytes_AsString", types.intp, OBJECT)
bytes_size: Final = python("PyBytes_Size", types.intp, OBJECT)
bytearray_at: Final = python("PyByteArray_AsString", types.intp, OBJECT)
bytearray_size: Final = python("PyByteArray_Size", types.intp, OBJECT)
