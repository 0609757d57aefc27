"""Queues and their messages drawn as tables, and as bars for the number of messages in each state."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from milepost.cli import quantity
from milepost.cli.printer import shown
from milepost.cli.terminal import table
from milepost.gateway.values import plain_rows

if TYPE_CHECKING:
    from milepost.client.queues import QueueInfo
    from milepost.client.taken import QueueMessage

BAR_COLUMNS: Final = 40  # of the longest bar
EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
WIDE_COLUMNS: Final = 120  # width of a terminal with room for whole IDs beside messages
STATES: Final = {  # as the broker counts them: a colour, and the meaning
    "waiting": ("green", "can be taken now"),
    "delayed": ("blue", "not before their time"),
    "taken": ("yellow", "by transactions under way"),
    "uncommitted": ("magenta", "written by transactions under way"),
    "expired": ("red", "go to the dead-letter queue, or are deleted"),
}
RULES: Final = {
    "none": "readers take the next message",
    "ordered": "a writer's messages oldest first, to one reader at a time",
    "blockwise": "what a writer's transaction wrote to one reader, whole",
    "ordered blockwise": "a writer's transactions whole and in order, to one reader at a time",
}


def of_queues(queues: list[QueueInfo]) -> Table:
    """A line for each queue."""
    states = [state for state in STATES if state in ("waiting", "taken") or any(q.figures.get(state) for q in queues)]
    made = table("queue", "types", "level", *states, "dead letter", right=states)
    for queue in queues:
        counts = [f"{queue.figures.get(state, 0):,}" for state in states]
        made.add_row(
            Text(queue.name), Text(", ".join(queue.types)), queue.level, *counts, Text(queue.dead_letter or "")
        )
    return made


def of_queue(queue: QueueInfo, now: datetime) -> Iterator[Table | Text]:
    """One queue: its rules in words, then the states of its messages as bars."""
    yield Text(queue.name, "bold")
    rules = Table.grid(padding=(0, 2, 0, 0))
    for name in queue.types:
        function = queue.priorities.get(name)
        priority = Text(function, "magenta") if function else Text(f"{queue.priority:g}")
        rules.add_row(Text("takes", "dim"), Text.assemble(name, ("  priority ", "dim"), priority))
    rules.add_row(Text("level", "dim"), Text.assemble(queue.level, (f"  {RULES.get(queue.level, '')}", "dim")))
    way = "high" if queue.direction == "desc" else "low"
    rules.add_row(Text("order", "dim"), Text(f"{way} priorities first, then as they came"))
    if queue.dead_letter is not None:
        rules.add_row(
            Text("dead letter", "dim"),
            Text(f"to {queue.dead_letter}, after {queue.max_deliveries:,} deliveries or when expired"),
        )
    rules.add_row(Text("made", "dim"), Text(moment(queue.created_at)))
    yield rules
    yield Text()
    yield bars(queue.figures, now)


def bars(figures: Mapping[str, int], now: datetime) -> Table:
    """The number of messages in each state."""
    made = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(2):
        made.add_column(no_wrap=True)
    made.add_column(justify="right", no_wrap=True)
    most = max([1, *(figures.get(state, 0) for state in STATES)])
    for state, (colour, meaning) in STATES.items():
        count = figures.get(state, 0)
        if state == "expired" and not count:
            continue
        since = figures.get("oldest_us", 0)
        age = ""
        if state == "waiting" and since:
            age = f"; the oldest for {_age(now.timestamp() - since / 1e6)}"
        made.add_row(state, Text(bar(count, most), colour), f"{count:,}", Text(meaning + age, "dim"))
    return made


def bar(count: int, most: int) -> str:
    """A bar in proportion to the longest one. A count above 0 is always visible."""
    eighths = max(int(count > 0), round(count / most * BAR_COLUMNS * 8))
    return EIGHTHS[8] * (eighths // 8) + (EIGHTHS[eighths % 8] if eighths % 8 else "")


def of_messages(messages: list[QueueMessage], columns: int) -> Table:
    """A line for each message: its header, and as much of its content as fits.

    An ID has about fifty digits. In a narrow table only its last part is shown, which identifies the message as well.
    """
    headers = [message.header for message in messages]
    types = {header.type for header in headers}
    whole = columns >= WIDE_COLUMNS
    made = table(
        "id", "enqueued", "priority", "deliveries", *(("type",) if len(types) > 1 else ()), "message",
        right=("priority", "deliveries"),
    )  # fmt: skip
    for header, message in zip(headers, messages, strict=True):
        name = header.id if whole else str(header.number)
        cells = [name, moment(header.enqueued_at), f"{header.priority:g}", f"{header.deliveries:,}"]
        made.add_row(*cells, *((header.type,) if len(types) > 1 else ()), Text(shown(plain(message))))
    for column in made.columns[:-1]:
        column.min_width = max(len(str(cell)) for cell in (column.header, *column.cells))
    return made


def as_json(queue: QueueInfo) -> dict[str, Any]:
    """A queue for programs."""
    figures = {state: queue.figures.get(state, 0) for state in STATES}
    oldest = queue.figures.get("oldest_us", 0)
    return {
        "name": queue.name, "types": list(queue.types), "level": queue.level, "direction": queue.direction,
        "priority": queue.priority, "priorities": dict(queue.priorities), "dead_letter": queue.dead_letter,
        "max_deliveries": queue.max_deliveries, "created_at": queue.created_at, **figures,
        "oldest_at": datetime.fromtimestamp(oldest / 1e6, UTC) if oldest else None,
    }  # fmt: skip


def message_json(message: QueueMessage) -> dict[str, Any]:
    """A message with its header."""
    header = message.header
    return {
        "id": header.id, "type": header.type, "priority": header.priority, "deliveries": header.deliveries,
        "enqueued_at": header.enqueued_at, "message": plain(message),
    }  # fmt: skip


def plain(message: QueueMessage) -> Any:
    """A message as JSON has it; see `plain_rows`."""
    from milepost.client.taken import one_row

    found = type(message).plain(message)  # a field may be called `plain`
    referring = any(type(value) is list for value in found.values())
    return plain_rows(one_row(message))[0] if referring else found


def moment(at: datetime) -> str:
    """A time, to the second."""
    return at.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _age(seconds: float) -> str:
    if seconds < 1:
        return "< 1 s"
    unit = next(length for length in (86_400, 3_600, 60, 1) if seconds >= length)
    return quantity.duration_text(int(seconds // unit) * unit)
