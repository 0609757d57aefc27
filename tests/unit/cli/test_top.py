"""Rates are differences of counters over the broker's own time."""

import io
from collections import deque

import pytest
from rich.console import Console

from milepost.cli import terminal
from milepost.cli.top import SHOWN, Picture, looked, short, sparkline
from milepost.errors import ConnectionLost


def status(seconds=0, rows=0, clients=(), subscriptions=(), topics=None, queues=(), lags=(), uncounted=0):
    return {
        "name": "here", "version": "milepost 0", "uptime_s": 100 + seconds, "time_us": seconds * 1_000_000,
        "connections": {"open": len(clients), "accepted": 9, "greeting": 0},
        "topics": topics if topics is not None else [topic("quotes", rows)],
        "clients": list(clients), "subscriptions": list(subscriptions), "subscriptions_total": len(subscriptions),
        "totals": {"rows_in": rows, "rows_out": 2 * rows, "bytes_in": 10 * rows, "bytes_out": 20 * rows,
                   "batches_in": 1, "rows_dropped": 0, "batches_refused": 0, "puts_throttled": 0},
        "errors": {}, "backlogs": {"connections": 0, "rows": 0, "bytes": 0},
        "queues": list(queues), "queues_total": len(queues), "queues_uncounted": uncounted,
        "lags": list(lags), "lags_total": len(lags),
    }  # fmt: skip


def topic(name, rows):
    return {"name": name, "rows_in": rows, "rows_out": 2 * rows, "bytes_in": 10 * rows, "bytes_out": 0,
            "batches_in": 1, "subscriptions": 3, "slow": "throttle"}  # fmt: skip


def client(name, queued=0, dropped=0, throttles=False, number=1):
    return {"name": name, "peer": "127.0.0.1:5", "number": number, "publisher": 1, "rows_in": 0, "rows_out": 0,
            "queued_rows": queued, "queued_bytes": queued, "dropped_rows": dropped, "throttles": throttles}  # fmt: skip


def drawn(picture):
    return printed(picture.drawn())


def printed(drawing):
    console = Console(file=io.StringIO(), width=140)
    console.print(drawing)
    return console.file.getvalue()


def test_the_first_look_shows_counts_and_the_second_rates():
    picture = Picture("milepost://here")
    picture.look(status(0, 1_000))
    first = drawn(picture)
    assert "1k rows " in first
    assert "/s" not in first
    picture.look(status(2, 5_000))
    second = drawn(picture)
    assert "2k rows/s" in second
    assert "4k rows/s" in second
    assert list(picture.history["rows_in"]) == [2_000]


def test_a_broker_that_was_started_anew_has_no_negative_rates():
    picture = Picture("milepost://here")
    picture.look(status(0, 1_000))
    picture.look(status(1, 10))
    assert list(picture.history["rows_in"]) == [0]


def test_a_broker_that_is_away_is_shown_as_it_was():
    picture = Picture("milepost://here")
    picture.look(status(0, 1_000))

    def lost():
        raise ConnectionLost("the connection to the broker was lost")

    shown = printed(looked(lost, picture.drawn))
    assert "the connection to the broker was lost; connecting again" in shown
    assert "1k rows " in shown
    assert "connecting again" not in printed(looked(lambda: picture.look(status(1, 10)), picture.drawn))


def test_who_is_slow_comes_first():
    picture = Picture("milepost://here")
    slow = client("tortoise", queued=5_000, throttles=True, number=2)
    lossy = client("hare", dropped=12, number=3)
    picture.look(status(clients=[client("busy"), lossy, slow]))
    lines = drawn(picture).splitlines()
    order = [line.split()[0] for line in lines if line.split() and line.split()[0] in ("busy", "hare", "tortoise")]
    assert order == ["tortoise", "hare", "busy"]
    assert "publishers wait" in drawn(picture)
    assert "loses messages" in drawn(picture)


def test_filters_are_shown_as_they_are_written():
    picture = Picture("milepost://here")
    found = {"client": "desk", "pattern": "quotes", "where": "symbol in ('[red]', 'x')", "rows_out": 5}
    picture.look(status(subscriptions=[found]))
    assert "symbol in ('[red]', 'x')" in drawn(picture)


def test_queues_and_lags_are_shown_where_there_are_some():
    picture = Picture("milepost://here")
    picture.look(status())
    assert "queue" not in drawn(picture)
    assert "named" not in drawn(picture)
    counts = {"waiting": 1_200, "delayed": 3, "taken": 0, "oldest_s": 125.0}
    orders = {"name": "orders\x1b[31m", **counts, "dead": "unread", "dead_letters": 7}
    unread = {"name": "unread", **counts, "waiting": 0, "delayed": 0}
    picture.look(
        status(queues=[orders, unread], lags=[{"topic": "quotes", "name": "desk", "rows": 4_500}], uncounted=1)
    )
    out = io.StringIO()
    terminal.Console(file=out, width=140).print(picture.drawn())
    lines = [" ".join(line.split()) for line in out.getvalue().splitlines()]
    assert "queue waiting delayed taken oldest dead letters" in lines
    assert "orders\\u001b[31m 1.2k 3 2m 5s 7" in lines
    assert "unread" in lines
    assert "1 of them are not counted yet" in lines
    assert "desk quotes 4.5k" in lines


def test_long_lists_end_in_a_sentence():
    picture = Picture("milepost://here")
    picture.look(status(topics=[topic(f"t{number}", number) for number in range(SHOWN + 5)]))
    assert "and 5 more topics" in drawn(picture)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (7, "7"), (999, "999"), (1_000, "1k"), (12_345, "12.3k"), (999_600, "1M"), (4.26, "4.26"), (3e15, "3P")],
)
def test_short_numbers(value, text):
    assert short(value) == text


def test_sparklines_reach_from_bottom_to_top():
    assert sparkline(deque([0, 5, 10])) == "▁▅█"
    assert sparkline(deque([0, 0])) == "▁▁"
    assert sparkline(deque()) == ""


def test_kernels_that_are_being_compiled_are_named():
    picture = Picture("milepost://here")
    for state, shown in (("compiling", True), ("failed", True), ("loaded", False), ("waiting", False)):
        picture.look(status() | {"kernels": state})
        assert (f"kernels: {state}" in drawn(picture)) is shown
