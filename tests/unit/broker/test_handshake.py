import pytest

from milepost.wire import Bye, Failure, Hello, Ping, Pong, StatusRequest, Welcome

from .rig import BROKER_ID, Rig


def refused(rig, connection, code):
    failure = rig.last(connection)
    assert isinstance(failure, Failure)
    assert failure.fatal
    assert failure.code == code
    assert connection in rig.closed
    assert connection.number not in rig.core.connections
    assert rig.core.errors[code] == 1
    return failure.message


def test_a_client_is_welcomed_with_all_it_needs():
    rig = Rig()
    connection = rig.core.connected("here", 0.0)
    rig.say(connection, Hello(name="feed", window=1024))
    welcome = rig.last(connection)
    assert isinstance(welcome, Welcome)
    assert (welcome.broker, welcome.broker_id, welcome.publisher, welcome.high_water) == ("milepost", BROKER_ID, 100, 0)
    assert welcome.time_us == 1_000
    assert welcome.window == rig.core.settings.put_window
    assert connection.credit == 1024


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        (Hello(protocol=99, window=1), "handshake_refused"),
        (Hello(window=0), "handshake_refused"),
        (Hello(window=1, slow="panic"), "handshake_refused"),
        (Hello(window=1, kind="spy"), "handshake_refused"),
        (Hello(window=1, auth={"method": "token"}), "not_authenticated"),
        (Hello(window=1, name="x" * 256), "limit_exceeded"),
        (Ping(1), "protocol"),
        (StatusRequest(request=1), "protocol"),
    ],
)
def test_who_does_not_introduce_itself_well_is_told_and_closed(hello, code):
    rig = Rig()
    connection = rig.core.connected("here", 0.0)
    rig.say(connection, hello)
    refused(rig, connection, code)


def test_a_window_is_never_larger_than_the_broker_allows():
    rig = Rig(delivery_window=4096)
    assert rig.client(window=1 << 30).credit == 4096


def test_who_says_nothing_is_closed_and_who_came_later_stays():
    rig = Rig(handshake_s=10)
    silent = rig.core.connected("silent", 0.0)
    late = rig.core.connected("late", 8.0)
    rig.run(rig.core.tick(10.0))
    assert not rig.closed
    rig.run(rig.core.tick(10.5))
    assert rig.closed == {silent}
    assert "HELLO" in refused(rig, silent, "timed_out")
    assert late.open


def test_who_falls_silent_or_is_stuck_in_a_frame_is_closed():
    rig = Rig(heartbeat_s=30, frame_s=30)
    silent, stuck, alive = rig.client("silent"), rig.client("stuck"), rig.client("alive")
    for now in (30.0, 60.0, 90.0):
        rig.now = now
        rig.say(alive, Ping(1))
        rig.run(rig.core.liveness.scan(now, lambda connection: 100 if connection is stuck else 0))
    assert rig.closed == {stuck}
    rig.now = 91.0
    rig.say(alive, Ping(2))
    rig.run(rig.core.liveness.scan(91.0, lambda connection: 0))
    assert rig.closed == {stuck, silent}
    assert isinstance(rig.last(alive), Pong)


def test_a_second_client_of_a_name_fences_the_first_and_goes_on_above_its_mark():
    rig = Rig()
    first = rig.client("feed")
    rig.declare(first)
    rig.put(first, [{"symbol": "A", "price": 1.0, "size": 1}])
    second = rig.client("feed")
    assert refused(rig, first, "fenced")
    assert rig.last(second).publisher == first.publisher.number
    assert rig.last(second).high_water == first.publisher.last_stamp > 0
    rig.say(second, Bye())
    assert second in rig.closed
    third = rig.client("feed")
    assert rig.last(third).publisher == first.publisher.number
    assert rig.last(third).high_water == first.publisher.last_stamp
    assert rig.client().publisher.number != rig.client().publisher.number


def test_a_client_may_not_send_what_brokers_send():
    rig = Rig()
    connection = rig.client()
    rig.say(connection, Welcome(broker="x", broker_id=1, publisher=1, time_us=1, window=1, heartbeat_s=1.0))
    refused(rig, connection, "protocol")


def test_after_the_end_nothing_matters():
    rig = Rig()
    connection = rig.client()
    rig.run(rig.core.lost(connection))
    rig.say(connection, Ping(1))
    assert rig.core.lost(connection) == []
    assert isinstance(rig.last(connection), Welcome)
    assert rig.core.statistics()["connections"]["open"] == 0


def test_a_name_that_cannot_be_shown_is_refused():
    rig = Rig()
    connection = rig.core.connected("here", 0.0)
    rig.say(connection, Hello(name="a\x1b[2J", window=1))
    assert "printable" in refused(rig, connection, "handshake_refused")


@pytest.mark.parametrize("kind", ["client", "gateway"])
def test_a_connection_has_a_kind_and_a_principal(kind):
    rig = Rig()
    connection = rig.core.connected("here", 0.0)
    rig.say(connection, Hello(window=1024, kind=kind))
    assert isinstance(rig.last(connection), Welcome)
    (told,) = rig.core.statistics()["clients"]
    assert (told["kind"], told["principal"]) == (kind, "anonymous")
