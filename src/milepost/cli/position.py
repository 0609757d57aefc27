"""A position in a durable topic as people write it: earliest, new, an offset, LOG:OFFSET, or a time."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from milepost.errors import InvalidValue

FORMS: Final = "earliest, new, an OFFSET, LOG:OFFSET,…, or a time as in 2026-03-02T14:30:00Z"
_LOGS: Final = re.compile(r"\d+:\d+(,\d+:\d+)*", re.ASCII)


def start(text: str, option: str) -> str | int | datetime | dict[int, int]:
    """The value for `subscribe(start=...)` and `look(start=...)`."""
    text = text.strip()
    if text in ("earliest", "new"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    if _LOGS.fullmatch(text):
        return {int(log): int(offset) for log, _, offset in (each.partition(":") for each in text.split(","))}
    return moment(text, option, "a position in a topic", FORMS)


def moment(text: str, option: str, what: str = "a time", forms: str = "2026-03-02T14:30:00Z") -> datetime:
    """A time with its zone. `what` and `forms` say in errors what the option takes."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(f"{option} {text!r} is not {what}: write {forms}") from None
    if found.tzinfo is None:
        raise InvalidValue(f"{option} {text!r} has no time zone: write {found.isoformat()}Z for UTC")
    return found


def shown(position: Mapping[int, int]) -> str:
    """A position in the form that `start` reads. For a single log, the offset alone would do as well."""
    return ",".join(f"{log}:{offset}" for log, offset in sorted(position.items())) or "0"
