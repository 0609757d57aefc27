"""Credit, queues and the policies for the slow."""

import pytest

from milepost.wire import Credit, Dropped, Failure

from .rig import Rig, quotes


def slow_rig(policy, **changes):
    rig = Rig(**({"queue_bytes": 4096, "put_window": 2048, "join_bytes": 1024} | changes))
    feed, reader = rig.client("feed"), rig.client("reader", window=300)
    rig.declare(feed, slow=policy)
    rig.subscribe(reader)
    return rig, feed, reader


def credits(rig, connection):
    return sum(message.bytes for message in rig.said[connection] if isinstance(message, Credit))


def test_no_more_is_sent_than_credit_allows_and_credit_brings_the_rest_joined():
    rig, feed, reader = slow_rig("throttle")
    for number in range(10):
        rig.put(feed, quotes(1, start=number))
    sent = len(rig.got[reader])
    assert sent < 10
    assert reader.credit <= 0
    assert rig.core.statistics()["backlogs"]["rows"] == 10 - sent
    rig.say(reader, Credit(sum(rig.sizes(reader))))
    assert rig.rows(reader) == quotes(10)
    assert len(rig.got[reader]) == sent + 1  # what had gathered came as one frame
    assert reader.backlog is None
    assert rig.core.statistics()["backlogs"]["bytes"] == 0


def test_a_blocked_link_is_given_nothing_until_it_drains():
    rig, feed, reader = slow_rig("throttle")
    rig.say(reader, Credit(0))
    reader.credit = reader.window = 1 << 20
    rig.taking[reader] = False
    rig.put(feed, quotes(1))
    for number in range(1, 4):
        rig.put(feed, quotes(1, start=number))
    assert rig.rows(reader) == quotes(1)
    rig.taking[reader] = True
    rig.run(rig.core.delivery.drained(reader))
    assert rig.rows(reader) == quotes(4)
    assert len(rig.got[reader]) == 2
    assert reader.ready


def test_more_credit_than_was_delivered_is_a_protocol_error():
    rig, _, reader = slow_rig("throttle")
    rig.say(reader, Credit(1))
    assert rig.last(reader).code == "protocol"
    assert reader in rig.closed


def test_throttle_holds_the_publishers_credit_and_loses_nothing():
    rig, feed, reader = slow_rig("throttle")
    put, outstanding = 0, 0
    while outstanding < 2048 and put < 1_000:  # as a client does: as long as the window allows
        size = rig.put(feed, quotes(1, start=put))
        put += 1
        outstanding = feed.bytes_in - credits(rig, feed)
    assert put < 1_000
    assert rig.core.totals["puts_throttled"] > 0
    assert reader.backlog.bytes <= 4096 + 2048 + size  # bounded by the queue and the publisher's window
    assert rig.core.statistics()["clients"][0]["throttles"]
    while len(rig.rows(reader)) < put:
        rig.say(reader, Credit(min(300 - reader.credit, sum(rig.sizes(reader)))))
    assert rig.rows(reader) == quotes(put)
    assert feed.bytes_in - credits(rig, feed) < 1024  # all that is not worth a frame has been given back


def test_a_reader_that_goes_away_releases_its_publishers():
    rig, feed, reader = slow_rig("throttle", put_window=16_384)
    for number in range(120):
        rig.put(feed, quotes(1, start=number))
    before = credits(rig, feed)
    rig.run(rig.core.lost(reader))
    assert credits(rig, feed) > before
    assert feed.outstanding == feed.bytes_in - credits(rig, feed) < 8_192


def test_one_slow_reader_throttles_while_others_get_everything_at_once():
    rig, feed, reader = slow_rig("throttle", put_window=16_384)
    quick = rig.client("quick", window=1 << 20)
    rig.subscribe(quick)
    for number in range(100):
        rig.put(feed, quotes(1, start=number))
    assert rig.rows(quick) == quotes(100)
    assert len(rig.rows(reader)) < 100


def test_drop_loses_the_oldest_and_counts_them_for_the_client():
    rig, feed, reader = slow_rig("drop")
    for number in range(200):
        rig.put(feed, quotes(1, start=number))
        assert reader.backlog is None or reader.backlog.bytes <= 4096
    assert rig.core.totals["puts_throttled"] == 0
    while reader.backlog is not None:
        rig.say(reader, Credit(300 - reader.credit))
    rows = rig.rows(reader)
    told = sum(message.rows[1] for message in rig.said[reader] if isinstance(message, Dropped))
    assert told == reader.dropped_rows == 200 - len(rows) > 0
    assert [row["size"] for row in rows] == sorted(row["size"] for row in rows)
    assert rows[-1] == quotes(1, start=199)[0]
    assert feed.bytes_in - credits(rig, feed) < 1024


def test_disconnect_closes_the_slow_and_nobody_else():
    rig, feed, reader = slow_rig("disconnect")
    quick = rig.client("quick")
    rig.subscribe(quick)
    for number in range(200):
        rig.put(feed, quotes(1, start=number))
    failure = rig.last(reader)
    assert isinstance(failure, Failure)
    assert (failure.code, failure.fatal) == ("slow_consumer", True)
    assert reader in rig.closed
    assert rig.rows(quick) == quotes(200)
    assert feed.bytes_in - credits(rig, feed) < 1024


@pytest.mark.parametrize(("mine", "lost"), [("drop", True), (None, False)])
def test_a_clients_own_policy_goes_before_the_topics(mine, lost):
    rig = Rig(queue_bytes=4096)
    feed, reader = rig.client(), rig.client(window=300, slow=mine)
    rig.declare(feed, slow="throttle")
    rig.subscribe(reader)
    for number in range(200):
        rig.put(feed, quotes(1, start=number))
    assert (reader.dropped_rows > 0) is lost


def test_only_rows_of_topics_that_may_be_dropped_are():
    rig = Rig(queue_bytes=4096)
    feed, reader = rig.client(), rig.client(window=300)
    rig.declare(feed, "keep", slow="throttle")
    rig.declare(feed, "lose", slow="drop")
    rig.subscribe(reader, "keep", number=1)
    rig.subscribe(reader, "lose", number=2)
    for number in range(60):
        rig.put(feed, quotes(1, start=number), "keep" if number % 2 else "lose")
    while reader.backlog is not None:
        rig.say(reader, Credit(300 - reader.credit))
    kept = [row["size"] for row in rig.rows(reader) if row["size"] % 2]
    assert kept == list(range(1, 60, 2))
    assert 0 < len([row for row in rig.rows(reader) if row["size"] % 2 == 0]) < 30


def test_without_cut_through_everything_waits_for_its_turn():
    rig = Rig(cut_through=False)
    feed, reader = rig.client(), rig.client()
    rig.declare(feed)
    rig.subscribe(reader)
    for number in range(5):
        rig.put(feed, quotes(1, start=number))
    assert reader not in rig.got
    assert rig.core.delivery.turning
    rig.run(rig.core.delivery.turn())
    assert rig.rows(reader) == quotes(5)
    assert len(rig.got[reader]) == 1
    assert not rig.core.delivery.turning
