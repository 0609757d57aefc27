"""A scene: a broker, its clients, and the messages that each of them gets."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from rich.markup import escape

from milepost import query
from milepost.cli.demo.durable import broker_process
from milepost.cli.demo.market import TRADE, TRADE_TEXT, many
from milepost.cli.demo.narrator import Narrator

if TYPE_CHECKING:
    from milepost.client import Client

ROWS: Final = 10_000
BATCH: Final = 250  # rows that are put at once
FILTERS: Final = {
    "north": "symbol = 'IBM' and price > 100",
    "south": "size >= 1500 or any(tags, it = 'block')",
}
SMALL_BYTES: Final = 65_536  # of every queue and window, so that a subscriber soon counts as slow


def play(narrator: Narrator) -> None:
    narrator.scene("A broker sends each message to the subscribers that want it")
    if not narrator.has_broker():
        return
    with broker_process(narrator, queue_bytes=SMALL_BYTES, put_window=SMALL_BYTES, join_bytes=16_384) as broker:
        narrator.say(
            f"A broker listens on {broker.address}. Three clients connect to it; one puts {ROWS:,} trades, "
            "each with a symbol, a price, a size, tags and more."
        )
        _by_content(narrator, broker.address)
        _slow(narrator, broker.address)


def _by_content(narrator: Narrator, address: str) -> None:
    from milepost.client import Client

    rows = many(ROWS)
    expected = {}
    for name, where in FILTERS.items():
        wanted = query.compile(where, TRADE)
        expected[name] = [row for row in rows if wanted.test(row) is True]
    got = {}
    with (
        Client(address, name="feed") as feed,
        Client(address, name="north") as north,
        Client(address, name="south") as south,
    ):
        feed.declare_topic("trades", TRADE_TEXT)
        desks = {"north": north, "south": south}
        subscriptions = {name: desks[name].subscribe("trades", where=where) for name, where in FILTERS.items()}
        _put(feed, "trades", rows)
        feed.flush()
        for name, subscription in subscriptions.items():
            got[name] = _take(subscription, len(expected[name]))
        status = feed.status()
    narrator.say("")
    narrator.show(_picture({name: len(found) for name, found in got.items()}))
    for name in FILTERS:
        narrator.claim(f"{name} got the {len(got[name]):,} trades that its filter selects in plain Python, in order",
                    got[name] == expected[name])  # fmt: skip
    sent = {found["client"]: found["rows_out"] for found in status["subscriptions"]}
    narrator.claim("and the broker has sent them no others", sent == {name: len(found) for name, found in got.items()})


def _slow(narrator: Narrator, address: str) -> None:
    from milepost.client import Client

    rows = many(ROWS)
    narrator.say("\nA subscriber that does not read must not fill the broker's memory. The topic says what happens:")
    with Client(address, name="feed") as feed, Client(address, name="sleepy", window=SMALL_BYTES) as sleepy:
        feed.declare_topic("lossy", TRADE_TEXT, slow="drop")
        subscription = sleepy.subscribe("lossy")
        _put(feed, "lossy", rows)
        feed.flush()
        status = feed.status()
        waiting = status["backlogs"]["bytes"]
        dropped = next(found["dropped_rows"] for found in status["clients"] if found["name"] == "sleepy")
        kept = _take(subscription, ROWS - dropped)
        narrator.say(
            f"[cyan]slow = drop[/]: {dropped:,} of {ROWS:,} trades were dropped while it slept, the oldest first."
        )
        narrator.claim(f"what waited took {waiting:,} bytes, no more than the {SMALL_BYTES:,} allowed",
                    dropped > 0 and waiting <= SMALL_BYTES)  # fmt: skip
        narrator.claim(
            f"it was told of all {dropped:,}, and got all others",
            subscription.dropped == dropped and len(kept) + dropped == ROWS,
        )
        narrator.claim("the newest trade is among them", kept[-1] == rows[-1])
        sleepy.unsubscribe(subscription)

        feed.declare_topic("complete", TRADE_TEXT, slow="throttle")
        subscription = sleepy.subscribe("complete")
        putting = threading.Thread(target=_put, args=(feed, "complete", rows), name="the publisher of the demo")
        with Client(address, name="observer") as observer:
            before = observer.status()["totals"]["puts_throttled"]
            putting.start()
            while (status := observer.status())["totals"]["puts_throttled"] == before:
                pass  # it is putting; each look takes a round trip
        taken = next(found["rows_in"] for found in status["topics"] if found["name"] == "complete")
        narrator.say(
            f"[cyan]slow = throttle[/]: the publisher had to wait after {taken:,} trades. Then the subscriber woke."
        )
        narrator.claim(
            "all trades arrived, none was dropped", _take(subscription, ROWS) == rows and subscription.dropped == 0
        )
        putting.join()


def _put(feed: Client, topic: str, rows: list[dict[str, Any]]) -> None:
    for start in range(0, len(rows), BATCH):
        feed.put_many(topic, rows[start : start + BATCH])


def _take(subscription: Any, count: int) -> list[Any]:
    found: list[Any] = []
    if count:
        for batch in subscription.batches():
            found += batch.to_pylist()
            if len(found) >= count:
                break
    return found


def _picture(counts: dict[str, int]) -> str:
    """Publisher, broker and subscribers, with the number of messages between them."""
    lines = []
    (first, one), (second, two) = counts.items()
    put = f"{ROWS:,}"
    blank = " " * (len("feed ─") + len(put) + len("─► "))
    for left, wall, name, count in (
        (blank, "┌────────┐", "", 0),
        (blank, "│        ├", first, one),
        (f"[bold]feed[/] ─{put}─► ", "│ [bold]broker[/] │", "", 0),
        (blank, "│        ├", second, two),
        (blank, "└────────┘", "", 0),
    ):
        arrow = f"─{count:─>6,}─► [bold]{name}[/]  [cyan]{escape(FILTERS[name])}[/]" if name else ""
        lines.append(f"{left}{wall}{arrow}")
    return "\n".join(lines)
