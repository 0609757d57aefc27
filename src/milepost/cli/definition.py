"""A schema as commands take it: the name of a file, the text itself, or - for standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.errors import SchemaError

if TYPE_CHECKING:
    from milepost.schema import Schema

METAVAR: Final = "FILE|TEXT|-"


def given(text: str) -> Schema:
    """The schema that an argument means. A single word is a file name, and so is text after an @."""
    from milepost.query import parse_schema

    if text == "-":
        return parse_schema(sys.stdin.read())
    name = text.removeprefix("@")
    file = file_of(name)
    if file is None and (name != text or (":" not in text and len(text.split()) == 1)):
        raise SchemaError(f"there is no file {name}")
    return parse_schema(text) if file is None else read(file)


def file_of(name: str) -> Path | None:
    """The file with this name, if it exists. The text may be a schema and not a name."""
    try:
        return Path(name) if Path(name).is_file() else None
    except (OSError, ValueError):
        return None


def read(file: Path) -> Schema:
    """The schema in a file."""
    from milepost.query import parse_schema

    try:
        text = file.read_text("utf-8")
    except OSError as error:
        raise SchemaError(f"cannot read the schema from {file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise SchemaError(f"{file} is not text in UTF-8: {error.reason} at byte {error.start}") from None
    return parse_schema(text)
