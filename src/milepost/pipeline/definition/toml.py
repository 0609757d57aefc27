"""Prints plain values as TOML, laid out as people write pipelines.

Inner tables go on one line, and each item of a list of tables gets a heading, so a rule takes a few lines. General
printers give every inner table a heading, and move `{ peak = "max(load)" }` away from its rule.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_BARE: Final = re.compile(r"[A-Za-z0-9_\-]+")


def printed(table: Mapping[str, Any]) -> str:
    """A whole file. `tomllib` reads equal values from it."""
    lines = [f"{_key(name)} = {_value(value)}" for name, value in table.items() if not _is_below(value)]
    for name, value in table.items():
        if isinstance(value, Mapping):
            lines += ["", f"[{_key(name)}]", *_body(value)]
        elif _is_below(value):
            for item in value:
                lines += ["", f"[[{_key(name)}]]", *_body(item)]
    return "\n".join(lines) + "\n"


def _is_below(value: Any) -> bool:
    """Whether a value gets a heading, and so comes after the values without one."""
    return isinstance(value, Mapping) or (isinstance(value, list) and bool(value) and isinstance(value[0], Mapping))


def _body(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_value(value)}" for name, value in table.items()]


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _text(value)
        case int() | float():
            return repr(value)
        case list():
            return f"[{', '.join(map(_value, value))}]"
        case Mapping():
            inner = ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items())
            return f"{{ {inner} }}" if inner else "{}"
        case _:
            raise TypeError(f"{value!r} cannot be printed as TOML")


def _text(text: str) -> str:
    # A basic string of TOML escapes as JSON does, except for DEL, which JSON does not escape.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
