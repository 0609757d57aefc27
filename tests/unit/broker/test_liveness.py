"""Which clients count as gone, by a clock that goes when told."""

import pytest

from milepost.wire import Credit, Ping, Pong

from .rig import Rig, quotes


def scans(rig, start, end, partial=lambda _: 0, waiting=None):
    """Let time pass as the shell does; when each connection was closed."""
    closed = {}
    steps = round((end - start) / rig.core.liveness.interval_s)
    for step in range(1, steps + 1):
        now = start + step * rig.core.liveness.interval_s
        rig.now = now
        effects = rig.core.liveness.scan(now, partial, waiting) if waiting else rig.core.liveness.scan(now, partial)
        rig.run(effects)
        for connection in rig.closed:
            closed.setdefault(connection, now)
    return closed


@pytest.mark.parametrize(
    ("heartbeat_s", "frame_s"), [(2.0, 30.0), (30.0, 30.0), (30.0, 3600.0), (60.0, 5.0), (0.5, 30.0)]
)
def test_three_silent_heartbeats_end_a_client_whatever_else_is_set(heartbeat_s, frame_s):
    rig = Rig(heartbeat_s=heartbeat_s, frame_s=frame_s)
    client = rig.client()
    closed = scans(rig, 0.0, 5 * heartbeat_s)
    assert 3 * heartbeat_s < closed[client] <= 3.25 * heartbeat_s
    assert rig.last(client).code == "timed_out"


def test_a_client_that_is_only_sent_to_is_silent_all_the_same():
    rig = Rig(heartbeat_s=2.0)
    feed, reader = rig.client("feed"), rig.client("reader")
    rig.declare(feed)
    rig.subscribe(reader)
    for second in range(8):
        rig.now = float(second)
        rig.put(feed, quotes(1))
        rig.say(feed, Ping(1))
        scans(rig, float(second), second + 1.0)
    assert rig.closed == {reader}


def test_who_does_not_read_is_closed_although_it_pings():
    rig = Rig(heartbeat_s=2.0)
    client = rig.client()
    rig.core.delivery.blocked(client, 1_000, 1_000)
    for second in range(10):
        rig.now = float(second)
        rig.say(client, Ping(1))
        scans(rig, float(second), second + 1.0, waiting=lambda _: 1_000)
        if client in rig.closed:
            break
    assert 6 <= second <= 7
    assert "was read" in rig.last(client).message


def test_who_reads_slowly_stays():
    rig = Rig(heartbeat_s=2.0)
    client = rig.client()
    client.paused = True  # it does not read its answers fast enough, so that its pings are not heard
    kept = 1_000_000
    rig.core.delivery.blocked(client, kept, kept)
    for second in range(0, 60, 5):
        kept -= 1
        scans(rig, float(second), second + 5.0, waiting=lambda _: kept)  # noqa: B023
    assert client.open


def test_new_answers_do_not_hide_that_some_were_read():
    rig = Rig(heartbeat_s=2.0)
    client = rig.client()
    kept = 1_000
    rig.core.delivery.blocked(client, kept, kept)
    for second in range(0, 60, 5):
        kept += 90  # a hundred more were written, and ten were read
        rig.core.delivery.blocked(client, kept, 100)
        rig.say(client, Ping(1))
        scans(rig, float(second), second + 5.0, waiting=lambda _: kept)  # noqa: B023
    assert client.open


def test_a_paused_client_that_stops_reading_is_noticed_in_time():
    rig = Rig(heartbeat_s=2.0)
    client = rig.client()
    client.paused = True
    rig.core.delivery.blocked(client, 5_000, 5_000)
    closed = scans(rig, 0.0, 20.0, waiting=lambda _: 5_000)
    assert closed[client] <= 7.0


def test_who_is_paused_by_the_broker_alone_hears_that_it_lives():
    rig = Rig(heartbeat_s=2.0)
    client = rig.client()
    client.paused = True
    scans(rig, 0.0, 20.0)
    assert client.open
    assert isinstance(rig.last(client), Pong)


def test_a_long_frame_is_a_sign_of_life_as_long_as_it_grows():
    rig = Rig(heartbeat_s=2.0, frame_s=30.0)
    client = rig.client()
    here = 0

    def partial(_):
        nonlocal here
        here += 1_000
        return here

    scans(rig, 0.0, 60.0, partial)
    assert client.open
    closed = scans(rig, 60.0, 80.0, lambda _: here)
    assert closed[client] <= 67.0, "it stopped in the middle of a frame"


def test_credit_is_a_sign_of_life():
    rig = Rig(heartbeat_s=2.0)
    client = rig.client()
    for second in range(20):
        rig.now = float(second)
        rig.say(client, Credit(0))
        scans(rig, float(second), second + 1.0)
    assert client.open
