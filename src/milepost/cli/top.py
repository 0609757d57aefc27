"""`milepost top`: the activity of a broker, live."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Final, NoReturn

import typer
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from milepost.cli import terminal
from milepost.cli.quantity import counted, short
from milepost.cli.session import DEFAULT_BROKER, Broker, connected
from milepost.cli.terminal import Console, escaped
from milepost.errors import ConnectionLost, TimedOut

EXAMPLES = """Examples:
  milepost top
  milepost top --once    [dim]# print once, for a script or a report[/]
"""

HISTORY: Final = 40  # rates that a sparkline shows, the newest on the right
SHOWN: Final = 12  # lines of each table; the others are counted
BARS: Final = " ▁▂▃▄▅▆▇█"
SLOW_BAR: Final = 10  # characters of a bar for waiting bytes
AWAY_S: Final = 3.0  # without an answer, after which the display is marked as old

Status = Mapping[str, Any]
Counter = tuple[Any, ...]  # what identifies a counter over two statuses
_COUNTED: Final = {  # what identifies an item of a list, and its counters that are shown
    "topics": (("name",), ("rows_in", "rows_out", "bytes_in")),
    "clients": (("number",), ("rows_in", "rows_out")),
    "subscriptions": (("client", "pattern", "where"), ("rows_out",)),
}
_NUMBERS: Final = (  # columns of numbers, by the start of their name
    "rows", "bytes", "waiting", "delayed", "taken", "oldest", "dead", "dropped", "subscriptions", "streams", "behind",
)  # fmt: skip


def run(
    once: Annotated[bool, typer.Option("--once", help="print once, with counts instead of rates, and stop")] = False,
    interval: Annotated[
        float, typer.Option(min=0.1, max=3600.0, metavar="SECONDS", help="between two refreshes")
    ] = 1.0,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Watch a broker: rates, connections, topics, subscriptions with their filters, and slow clients.

    Rates are over the last interval. Ctrl-C stops.
    """
    console = terminal.console()
    with connected(broker, reconnect=not once, say=False, timeout=AWAY_S) as client:
        picture = Picture(broker)
        picture.look(client.status())
        if once:
            console.print(picture.drawn())
            return
        watch(console, interval, lambda: picture.look(client.status()), picture.drawn)


def watch(console: Console, interval: float, look: Callable[[], None], drawn: Callable[[], RenderableType]) -> NoReturn:
    """Draw on the terminal, and look and draw again each interval, until Ctrl-C."""
    from rich.live import Live

    with Live(drawn(), console=console, screen=console.is_terminal, auto_refresh=False) as live:
        while True:
            time.sleep(interval)
            live.update(looked(look, drawn), refresh=True)


def looked(look: Callable[[], None], drawn: Callable[[], RenderableType]) -> RenderableType:
    """Look and draw. When the broker does not answer, the last status is drawn below the error."""
    try:
        look()
    except (ConnectionLost, TimedOut) as error:
        return Group(Text(f"{error}; connecting again. It was like this:\n", "red"), drawn())
    return drawn()


class Picture:
    """The last status of a broker, and the changes since the previous one."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._now: Status = {}
        self._before: dict[Counter, float] = {}  # counters of the previous status
        self._seconds = 0.0  # between the two; 0 for the first status
        self._unit = ""  # of rates; the first status has counts
        self.history: dict[str, deque[float]] = {
            name: deque(maxlen=HISTORY) for name in ("rows_in", "rows_out", "bytes_in", "bytes_out")
        }

    def look(self, status: Status) -> None:
        """Take a new status. Rates are over the time since the previous one, by the broker's clock."""
        if self._now:
            self._seconds = (status["time_us"] - self._now["time_us"]) / 1e6
            self._before = _counters(self._now)
        self._now = status
        if self._seconds > 0:
            self._unit = "/s"
            for name, rates in self.history.items():
                rates.append(self._rate(("totals", name), status["totals"][name]))

    def _rate(self, key: Counter, value: float) -> float:
        return max(0.0, value - self._before.get(key, 0)) / self._seconds  # negative: the broker was restarted

    def _cell(self, key: Counter, value: float) -> str:
        """A rate, once there are two statuses; the count until then."""
        return short(self._rate(key, value)) if self._seconds > 0 else short(value)

    def _cells(self, kind: str, item: Status) -> list[str]:
        return [self._cell(key, value) for key, value in _counted(kind, item)]

    def drawn(self) -> RenderableType:
        parts: list[RenderableType] = [self._head(), Text(), self._totals(), Text(), *self._topics()]
        for some in (self._lags(), self._queues(), self._clients(), self._subscriptions()):
            if some:
                parts += [Text(), *some]
        return Group(*parts)

    def _head(self) -> Text:
        now = self._now
        connections = now["connections"]
        head = Text()
        head.append(str(now["name"]), "bold")
        head.append(f"  {self._address}  ")
        if "uptime_s" in now:
            head.append(f"up {_duration(now['uptime_s'])}  ")
        head.append(f"{counted(connections['open'], 'connection')} ({connections['accepted']:,} so far)")
        if now.get("kernels") in ("compiling", "failed"):  # until they are compiled, matching is slow
            head.append(f"  kernels: {now['kernels']}", "yellow")
        if errors := now["errors"]:
            head.append(f"  errors: {', '.join(f'{code} {count:,}' for code, count in sorted(errors.items()))}", "red")
        return head

    def _totals(self) -> Table:
        totals, backlogs = self._now["totals"], self._now["backlogs"]
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        for way, colour in (("in", "green"), ("out", "cyan")):
            rows, size = f"rows_{way}", f"bytes_{way}"
            table.add_row(
                way,
                Text(f"{self._cell(('totals', rows), totals[rows])} rows{self._unit}", "bold", justify="right"),
                Text(f"{self._cell(('totals', size), totals[size])}B{self._unit}", justify="right"),
                Text(sparkline(self.history[rows]), colour),
            )
        waiting = Text(f"{short(backlogs['rows'])} rows, {short(backlogs['bytes'])}B wait")
        dropped = totals["rows_dropped"]
        refused = totals["batches_refused"]
        more = Text(f"{short(dropped)} rows dropped, {short(refused)} batches refused")
        table.add_row("under way", waiting, more if dropped or refused else Text(""), "")
        return table

    def _topics(self) -> list[RenderableType]:
        topics, unit = self._now["topics"], self._unit
        kept = any(topic.get("durable") for topic in topics)
        durable = ("streams", "behind") if kept else ()  # for named subscriptions and replays that are being read
        table = _table(
            "topic", f"rows in{unit}", f"rows out{unit}", f"bytes in{unit}", "subscriptions", *durable, "slow"
        )
        for topic in sorted(topics, key=lambda topic: (-topic["rows_in"], topic["name"]))[:SHOWN]:
            cells = self._cells("topics", topic)
            if topic.get("durable"):
                stored = [f"{topic['streams']:,}", short(topic["behind"]) if topic["behind"] else ""]
            else:
                stored = ["", ""] if kept else []
            table.add_row(Text(topic["name"]), *cells, f"{topic['subscriptions']:,}", *stored, str(topic["slow"]))
        return _with_rest(table, len(topics), "topics")

    def _lags(self) -> list[RenderableType]:
        """Named subscriptions, the furthest behind first. Nothing when there are none."""
        table = _table("named subscription", "of", "rows behind")
        for each in self._now["lags"][:SHOWN]:
            table.add_row(Text(escaped(each["name"])), Text(each["topic"]), short(each["rows"]))
        total = self._now["lags_total"]
        return _with_rest(table, total, "named subscriptions") if total else []

    def _queues(self) -> list[RenderableType]:
        """Queues, the longest first. Nothing when there are none."""
        table = _table("queue", "waiting", "delayed", "taken", "oldest", "dead letters")
        for each in self._now["queues"][:SHOWN]:
            oldest = _duration(each["oldest_s"]) if each["waiting"] else ""
            dead = short(each["dead_letters"]) if "dead" in each else ""
            counts = [short(each[state]) if each[state] else "" for state in ("waiting", "delayed", "taken")]
            table.add_row(Text(escaped(each["name"])), *counts, oldest, dead)
        total = self._now["queues_total"]
        shown = _with_rest(table, total, "queues") if total else []
        if uncounted := self._now["queues_uncounted"]:
            shown.append(Text(f"{uncounted:,} of them are not counted yet", "dim"))
        return shown

    def _clients(self) -> list[RenderableType]:
        clients, unit = self._now["clients"], self._unit
        table = _table("client", f"rows in{unit}", f"rows out{unit}", "waiting", "dropped", "")
        worst = max((client["queued_bytes"] for client in clients), default=0)
        for client in sorted(clients, key=_trouble)[:SHOWN]:
            cells = self._cells("clients", client)
            queued = client["queued_bytes"]
            bar = "█" * round(SLOW_BAR * queued / worst) if worst else ""
            state = Text(bar, "yellow")
            if client["throttles"]:
                state.append(" slow, publishers wait", "red")
            elif client["dropped_rows"]:
                state.append(" slow, loses messages", "red")
            name = Text(client["name"] or client["peer"])
            dropped = short(client["dropped_rows"]) if client["dropped_rows"] else ""
            table.add_row(name, *cells, f"{short(queued)}B" if queued else "", dropped, state)
        return _with_rest(table, self._now["connections"]["open"], "clients")

    def _subscriptions(self) -> list[RenderableType]:
        subscriptions = self._now["subscriptions"]
        table = _table("subscription", "of", f"rows out{self._unit}", "where")
        for found in sorted(subscriptions, key=lambda item: -item["rows_out"])[:SHOWN]:
            rows, where = self._cells("subscriptions", found), Text(found["where"] or "", "magenta")
            table.add_row(Text(found["pattern"]), Text(str(found["client"])), *rows, where)
        return _with_rest(table, self._now["subscriptions_total"], "subscriptions")


def _counters(status: Status) -> dict[Counter, float]:
    found: dict[Counter, float] = {("totals", name): value for name, value in status["totals"].items()}
    for kind in _COUNTED:
        for item in status[kind]:
            found.update(_counted(kind, item))
    return found


def _counted(kind: str, item: Status) -> Iterator[tuple[Counter, float]]:
    names, counters = _COUNTED[kind]
    return (((kind, *(item[name] for name in names), counter), item[counter]) for counter in counters)


def _trouble(client: Status) -> tuple[Any, ...]:
    """Slow consumers first, then the busiest."""
    return -client["queued_bytes"], -client["dropped_rows"], -(client["rows_in"] + client["rows_out"])


def _table(first: str, *others: str) -> Table:
    numbers = [name for name in others if name.startswith(_NUMBERS)]
    table = terminal.table(first, *others, right=numbers, wrapped=("where",))
    table.columns[0].min_width = 12
    return table


def _with_rest(table: Table, count: int, what: str) -> list[RenderableType]:
    if not count:
        return [Text(f"no {what}", "dim")]
    return [table] if count <= SHOWN else [table, Text(f"and {count - SHOWN:,} more {what}", "dim")]


def sparkline(rates: deque[float]) -> str:
    """The rates as bars, the highest at full height."""
    high = max(rates, default=0.0)
    if high <= 0:
        return BARS[1] * len(rates)
    return "".join(BARS[1 + round((len(BARS) - 2) * rate / high)] for rate in rates)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days}d {hours}h"
    return f"{hours}h {minutes}m" if hours else f"{minutes}m {rest}s" if minutes else f"{rest}s"
