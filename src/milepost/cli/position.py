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
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidValue(f"{option} {text!r} is not a position in a topic: write {FORMS}") from None
    if moment.tzinfo is None:
        raise InvalidValue(f"{option} {text!r} has no time zone: write {moment.isoformat()}Z for UTC")
    return moment


def shown(position: Mapping[int, int]) -> str:
    """A position in the form that `start` reads. For a single log, the offset alone would do as well."""
    return ",".join(f"{log}:{offset}" for log, offset in sorted(position.items())) or "0"
