"""The model in Python: the types of values, and names that are valid in Python source."""

from __future__ import annotations

import datetime
import decimal
import keyword
import uuid
from collections.abc import Collection, Mapping
from typing import Final

from milepost.errors import SchemaError
from milepost.schema.types import INTEGER_RANGES

# The Python type of each atomic kind, as batches take and give it.
PYTHON_TYPES: Final[Mapping[str, type]] = {
    **dict.fromkeys(INTEGER_RANGES, int),
    "bool": bool,
    "float": float,
    "double": float,
    "decimal": decimal.Decimal,
    "string": str,
    "bytes": bytes,
    "date": datetime.date,
    "timestamp": datetime.datetime,
    "uuid": uuid.UUID,
}


def require_attribute(name: str, where: str, reserved: Collection[str] = ()) -> None:
    """Raise `SchemaError` for a name that cannot be an attribute of a Python class, or is `reserved`."""
    if keyword.iskeyword(name):
        reason = "is a keyword of Python"
    elif name.startswith("__"):
        reason = "begins with two underscores, which Python changes inside a class"
    elif name in reserved:
        reason = "is taken by the class itself"
    else:
        return
    raise SchemaError(f"{where}: {name!r} {reason}, so it cannot be an attribute; use dicts or generic nodes instead")


def class_name(name: str) -> str:
    """A name in camel case: `order_line` gives `OrderLine`. It has no underscores unless Python needs one."""
    parts = name.replace(".", "_").split("_")
    camel = "".join(part[:1].upper() + part[1:] for part in parts)
    if not camel.isidentifier():
        camel = f"N{camel}"  # nothing but underscores and digits remained
    return f"{camel}_" if keyword.iskeyword(camel) else camel


class GlobalNames:
    """The global names of a Python source that is being written; none of the names `taken` is among them.

    A class body resolves names in itself first: after an attribute called `date` or `int`, annotations would no longer
    mean the type. So such a type is imported under another name.
    """

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = taken
        self._modules: set[str] = set()
        self._names: dict[str, set[str]] = {}  # imported from each module

    def free(self, name: str) -> str:
        """The name, or a similar one that is not taken."""
        while name in self._taken:
            name = f"{name}_"
        return name

    def imported(self, module: str, name: str) -> str:
        """The text for a name of another module."""
        self._names.setdefault(module, set()).add(self._renamed(name))
        return self.free(name)

    def type(self, of: type) -> str:
        """The text for a Python type."""
        if of.__module__ == "builtins" and of.__name__ not in self._taken:
            return of.__name__
        self._modules.add(self._renamed(of.__module__))
        return f"{self.free(of.__module__)}.{of.__name__}"

    def _renamed(self, name: str) -> str:
        return name if name not in self._taken else f"{name} as {self.free(name)}"

    def imports(self) -> list[str]:
        """The import statements for all names used so far: the standard library's, then Milepost's."""
        lines = [f"import {module}" for module in sorted(self._modules)]
        lines += [f"from {module} import {', '.join(sorted(names))}" for module, names in sorted(self._names.items())]
        ours = [line for line in lines if line.startswith("from milepost")]
        theirs = [line for line in lines if line not in ours]
        return [*theirs, "", *ours] if ours and theirs else lines
