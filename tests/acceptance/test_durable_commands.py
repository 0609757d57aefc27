"""Durable topics on the command line, as a user runs it: made, filled, read, trimmed, killed and found again."""

import json
import re
import signal
import sqlite3
import subprocess
from contextlib import closing
from types import SimpleNamespace

import pytest
import zmq

from milepost.cli.session import connected, transact
from milepost.client import Client
from milepost.errors import StateLost, TransactionAborted
from soak.processes import free_port

from .conftest import ROOT
from .process import PATIENCE, Up, command, environment, pause, refused, started, until

QUOTE = "quote: [symbol: string, price: double, size: int?]"
ALONE = ("--listen", "127.0.0.1:0", "--http", "", "--zmq", "")


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("up")
    up = Up(folder / "stderr", *ALONE[:4], "--zmq", "127.0.0.1:0", "--store", folder / "milepost.db")
    assert up.address, (up.lines, up.errors.read_text())
    zeromq = re.search(r"ZeroMQ at (tcp://\S+:\d+);", up.lines[0])[1]
    yield SimpleNamespace(address=up.address, store=folder / "milepost.db", zmq=zeromq)
    up.stop()


@pytest.fixture
def client(broker):
    with Client(broker.address) as made:
        yield made


@pytest.fixture
def topic(client, request):
    """A durable topic of its own for each test; with it go its subscriptions, whose names are the broker's."""
    name = re.sub(r"\W+", "_", request.node.name)
    client.declare_topic(name, QUOTE, durable=True)
    yield name
    client.delete_topic(name)


@pytest.fixture
def filled(client, topic):
    """Five quotes in it, with prices from 0 to 4."""
    client.put_many(topic, [{"symbol": "IBM", "price": float(price)} for price in range(5)])
    return topic


@pytest.fixture
def ups(tmp_path):
    """Start brokers that are gone after the test, whatever happens."""
    running = []

    def start(*options):
        running.append(Up(tmp_path / f"stderr{len(running)}", *options))
        return running[-1]

    yield start
    for up in running:
        up.kill()


def prices(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line)["price"] for line in done.stdout.splitlines()]


def said(*arguments, **changes):
    """Run `milepost` as a process of its own, to its end."""
    return subprocess.run(
        command(*arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, env=environment(**changes),
        check=False, timeout=PATIENCE,
    )  # fmt: skip


# topic


def test_a_durable_topic_from_its_making_to_its_end(ask):
    made = ask("topic", "create", "kept", QUOTE, "--durable", "--keep", "30d", "--keep-bytes", "10GB")
    assert made.returncode == 0, made.stderr
    assert made.stdout.rstrip().endswith(", and keeps it")
    assert ask("put", "kept", "symbol=IBM", "price=101.5").stderr == "1 row stored in kept\n"
    listed = ask("topic", "list", "kept").stdout.splitlines()
    assert listed[0].split() == ["topic", "schema", "stored", "size", "slow"]
    assert re.search(r" 1 +\d+ B +throttle", listed[1])
    shown = ask("topic", "show", "kept").stdout
    assert "durable, kept for 30 days, 10 GB at most; longer if a named subscription has not consumed it" in shown
    assert "no named subscriptions" in shown
    assert ask("get", "kept", "--name", "desk", "--start", "earliest").returncode == 0
    assert ask("put", "kept", '{"symbol": "A", "price": 1}', '{"symbol": "B", "price": 2}').returncode == 0
    lines = [line.split() for line in ask("topic", "show", "kept").stdout.splitlines()]
    (log,) = (line for line in lines if line[:1] == ["1"])
    assert [log[:4], log[5:]] == [["1", "0", "3", "3"], ["2"]]  # log, start, next, rows, not the bytes, entries
    assert ["desk", "1:1", "2", "0"] in lines  # cursor, behind, members
    refused(ask("topic", "delete", "kept"), "desk has not consumed", "--yes")
    assert ask("topic", "delete", "kept", "--yes").stdout == "kept is deleted, and 3 rows with it\n"
    refused(ask("topic", "show", "kept"), "there is no topic 'kept'")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ((), "durable, kept for 7 days; longer if"),
        (("--keep", "for-ever"), "durable, kept for ever; longer if"),
        (("--keep", "consumed"), "durable, kept until consumed\n"),
        (("--keep", "12h", "--no-hold"), "durable, kept for 12 hours, consumed or not"),
        (("--keep-bytes", "500MB"), "durable, kept for ever, 500 MB at most; longer if"),
    ],
)
def test_what_a_topic_keeps_is_shown_in_words(ask, options, sentence):
    assert ask("topic", "create", "worded", QUOTE, "--durable", *options).returncode == 0
    assert sentence in ask("topic", "show", "worded").stdout
    assert ask("topic", "delete", "worded", "--yes").returncode == 0


def test_retention_can_be_changed_and_stays_when_nothing_is_said(ask, topic):
    assert ask("topic", "create", topic, QUOTE, "--durable", "--keep", "2h").returncode == 0
    assert ask("topic", "create", topic, QUOTE).returncode == 0
    assert "kept for 2 hours" in ask("topic", "show", topic).stdout


def test_what_cannot_be_kept_is_refused(ask, client):
    refused(ask("topic", "create", "t", QUOTE, "--durable", "--keep", "long"), "'long' is not a duration", "7d")
    refused(ask("topic", "create", "t", QUOTE, "--durable", "--keep-bytes", "much"), "'much' is not a number of bytes")
    assert ask("topic", "create", "t", QUOTE, "--keep", "7d").returncode == 2
    client.declare_topic("alive", QUOTE)
    refused(ask("topic", "create", "alive", QUOTE, "--durable"), "alive", "live")
    for arguments in (["get", "alive", "--name", "n"], ["sub", "alive", "--start", "earliest"],
                      ["sub", "alive", "--name", "n"], ["topic", "trim", "alive", "--before", "1"],
                      ["unsubscribe", "alive", "--name", "n"]):  # fmt: skip
        heard = refused(ask(*arguments), "alive is a live topic", "--durable")
        assert len(heard.splitlines()) == 1


def test_trim_asks_before_it_takes_what_somebody_has_not_consumed(ask, client, filled):
    assert ask("topic", "trim", filled, "--before", "1").stdout == f"1 row removed from {filled}\n"
    client.subscribe(filled, name="reader", start="earliest").detach()
    heard = refused(
        ask("topic", "trim", filled, "--before", "1:3"), "2 rows would be removed", "reader has not consumed", "--yes"
    )
    assert len(heard.splitlines()) == 1
    assert client.look(filled)["logs"][0]["start"] == 1
    assert ask("topic", "trim", filled, "--before", "1:3", "--yes").stdout == f"2 rows removed from {filled}\n"
    assert ask("topic", "trim", filled, "--before", "3").stdout.startswith(f"nothing of {filled} is before 3")
    heard = ask("sub", filled, "--name", "reader", "--count", "2")
    assert prices(heard) == [3.0, 4.0]
    assert "rows 1 to 2 of log 1 of reader were removed unread" in heard.stderr
    assert ask("topic", "trim", filled, "--before", "new").stdout == f"2 rows removed from {filled}\n"
    refused(ask("topic", "trim", filled, "--before", "yesterday"), "'yesterday' is not a position in a topic")
    refused(ask("topic", "trim", filled, "--before", "2026-01-01"), "time zone")
    nothing = ask("topic", "trim", filled, "--before", "2020-01-01T00:00:00Z")
    assert nothing.stdout.startswith(f"nothing of {filled} is before 2020")


# get


def test_get_gets_each_message_once(ask, filled):
    assert prices(ask("get", filled, "--name", "desk", "--start", "earliest")) == [0.0]
    assert prices(ask("get", filled, "--name", "desk", "--count", "3")) == [1.0, 2.0, 3.0]
    some = ask("get", filled, "--name", "desk", "--count", "3", "--timeout", "3")
    assert prices(some) == [4.0]
    assert some.stderr == "milepost: 1 of 3 messages came within 3 s\n"
    none = ask("get", filled, "--name", "desk", "--timeout", "0.1")
    assert none.stdout == ""
    assert refused(none) == f"milepost: nothing came for desk from {filled} within 0.1 s\n"
    assert prices(ask("get", filled, "--name", "other", "--start", "earliest", "--count", "5")) == [
        0.0,
        1.0,
        2.0,
        3.0,
        4.0,
    ]


def test_a_new_name_begins_with_what_comes_next_and_says_so(ask, filled):
    first = ask("get", filled, "--name", "desk", "--timeout", "0.1")
    assert refused(first, "nothing came").startswith(f"milepost: desk is a new subscription to {filled}, from now on")
    ask("put", filled, "symbol=IBM", "price=7")
    again = ask("get", filled, "--name", "desk", "--start", "earliest")
    assert prices(again) == [7.0]
    assert "continues where it was" in again.stderr


def test_the_filter_of_a_name_stays(ask, filled):
    large = ("--where", "price >= 2", "--start", "earliest")
    assert prices(ask("get", filled, "--name", "desk", *large)) == [2.0]
    assert prices(ask("get", filled, "--name", "desk")) == [3.0]
    assert prices(ask("get", filled, "--name", "desk", "--where", "price >= 2")) == [4.0]
    refused(ask("get", filled, "--name", "desk", "--where", "price >= 1"), "another filter: price >= 2")
    refused(ask("get", filled, "--name", "new", "--where", "prize >= 1"), "did you mean 'price'?", "^")


def test_get_prints_as_sub_does(ask, filled):
    take = ("get", filled, "--name", "desk", "--start", "earliest")
    assert ask(*take, "--format", "csv").stdout == "symbol,price,size\nIBM,0.0,\n"
    assert ask(*take, "--format", "table").stdout.split() == ["symbol", "price", "size", "IBM", "1.0"]
    (line,) = ask(*take, "--envelope").stdout.splitlines()
    whole = json.loads(line)
    assert (whole["topic"], whole["message"]["price"]) == (filled, 2.0)
    assert re.fullmatch(r"[0-9a-f]{32}", whole["id"])


def test_old_messages_are_printed_as_the_newest_schema_reads_them(ask, filled):
    wider = QUOTE.replace("]", ", venue: string?]")
    assert ask("topic", "create", filled, wider).returncode == 0
    ask("put", filled, "symbol=IBM", "price=5", "venue=X")
    got = ask("get", filled, "--name", "desk", "--start", "4", "--count", "2")
    assert [json.loads(line)["venue"] for line in got.stdout.splitlines()] == [None, "X"]


def test_messages_are_shared_by_all_who_get_under_one_name(broker, client, topic):
    client.subscribe(topic, name="team", start="earliest").detach()
    running = [
        started("get", topic, "--name", "team", "--count", "10", "--broker", broker.address, stdout=subprocess.PIPE)
        for _ in range(2)
    ]
    members = 0
    while members < 2:
        members = client.look(topic)["subscriptions"][0]["members"]
    for number in range(20):  # of 20 publishers: the messages of one would stay with one
        with Client(broker.address) as publisher:
            publisher.put(topic, {"symbol": "IBM", "price": float(number)})
    got = [
        [json.loads(line)["price"] for line in process.communicate(timeout=PATIENCE)[0].splitlines()]
        for process in running
    ]
    assert [len(each) for each in got] == [10, 10]
    assert sorted(got[0] + got[1]) == [float(number) for number in range(20)]


def test_what_cannot_be_gotten_is_refused(ask, filled):
    refused(ask("get", filled[:-1], "--name", "desk"), f"did you mean '{filled}'")
    refused(ask("get", filled, "--name", "desk", "--start", "then"), "'then' is not a position in a topic")
    assert ask("get", filled).returncode == 2
    assert ask("get", filled, "--name", "desk", "--count", "0").returncode == 2
    nowhere = f"milepost://127.0.0.1:{free_port()}"
    for arguments in (["get", filled, "--name", "desk"], ["unsubscribe", filled, "--name", "desk"],
                      ["topic", "trim", filled, "--before", "1"], ["sub", filled, "--name", "desk"]):  # fmt: skip
        heard = refused(ask(*arguments, "--broker", nowhere), nowhere, "milepost up")
        assert len(heard.splitlines()) == 1


# sub


def test_a_named_sub_acknowledges_what_it_has_printed_and_no_more(ask, client, filled):
    assert prices(ask("sub", filled, "--name", "desk", "--start", "earliest", "--count", "2")) == [0.0, 1.0]
    (known,) = client.look(filled)["subscriptions"]
    assert (known["name"], known["cursor"], known["behind"]) == ("desk", {1: 2}, 3)
    assert prices(ask("sub", filled, "--name", "desk", "--no-ack", "--count", "3")) == [2.0, 3.0, 4.0]
    assert prices(ask("sub", filled, "--name", "desk", "--count", "3")) == [2.0, 3.0, 4.0]
    refused(ask("sub", filled, "--name", "nobody", "--no-ack"), "no subscription", "'nobody'")
    assert ask("sub", filled, "--no-ack").returncode == 2


def test_a_topic_is_replayed_from_any_place_and_nothing_changes(ask, client, filled):
    assert prices(ask("sub", filled, "--start", "earliest", "--count", "5")) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert prices(ask("sub", filled, "--start", "3", "--count", "2")) == [3.0, 4.0]
    assert prices(ask("sub", filled, "--start", "1:1", "--where", "price != 2", "--count", "3")) == [1.0, 3.0, 4.0]
    assert prices(ask("sub", filled, "--start", "2020-01-01T00:00:00Z", "--count", "1")) == [0.0]
    assert client.look(filled)["subscriptions"] == []


def test_a_hold_is_shown_and_removed_and_nobody_is_served_from_it(ask, client, filled):
    client.hold(filled, "lane", {1: 3})
    shown = ask("topic", "show", filled).stdout
    (line,) = [line.split() for line in shown.splitlines() if line.startswith("lane")]
    assert line == ["lane", "1:3", "2", "hold"]
    refused(ask("sub", filled, "--name", "lane", "--count", "1"), "'lane' is a hold")
    refused(ask("topic", "trim", filled, "--before", "5"), "lane has not")
    assert ask("unsubscribe", filled, "--name", "lane").returncode == 0
    assert client.look(filled)["subscriptions"] == []


# unsubscribe


def test_a_subscription_is_removed_for_good(ask, client, filled):
    client.subscribe(filled, name="desk", start="earliest").detach()
    refused(ask("unsubscribe", filled, "--name", "desc"), "did you mean 'desk'?")
    gone = ask("unsubscribe", filled, "--name", "desk")
    assert gone.stdout == f"desk is no longer subscribed to {filled}; it had not consumed 5 rows\n"
    refused(ask("unsubscribe", filled, "--name", "desk"), "no subscription", "'desk'")
    assert client.look(filled)["subscriptions"] == []


def test_top_shows_who_is_behind(ask, client, filled):
    reader = client.subscribe(filled, name="slow", start="earliest", ack="explicit")
    assert reader.get(PATIENCE).price == 0.0
    shown = ask("top", "--once").stdout.splitlines()
    line = next(line for line in shown if line.startswith(filled))
    assert line.split()[-3:] == ["1", "5", "throttle"]  # streams, behind
    assert ["slow", filled, "5"] in [line.split() for line in shown]


# up


def test_what_was_stored_outlives_a_broker_that_was_killed(ups, tmp_path):
    options = ("--listen", f"127.0.0.1:{free_port()}", *ALONE[2:], "--store", tmp_path / "own.db")
    first = ups(*options)
    broker = {"MILEPOST_BROKER": first.address}
    assert said("topic", "create", "kept", QUOTE, "--durable", **broker).returncode == 0
    assert said("put", "kept", "symbol=IBM", "price=1", **broker).stderr == "1 row stored in kept\n"
    assert prices(said("get", "kept", "--name", "desk", "--start", "earliest", **broker)) == [1.0]
    waiting = started("get", "kept", "--name", "desk", "--broker", first.address, stdout=subprocess.PIPE)
    with Client(first.address) as client:
        while not client.look("kept")["subscriptions"][0]["members"]:
            pause()
    first.kill()
    second = ups(*options)
    assert second.address == first.address
    assert said("put", "kept", "symbol=IBM", "price=2", **broker).returncode == 0
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, json.loads(out)["price"]) == (0, 2.0)
    assert prices(said("sub", "kept", "--start", "earliest", "--count", "2", **broker)) == [1.0, 2.0]
    second.stop()


def test_lasting_commands_wait_for_a_broker_that_was_killed(ups, tmp_path):
    options = ("--listen", f"127.0.0.1:{free_port()}", *ALONE[2:], "--store", tmp_path / "own.db")
    first = ups(*options)
    with Client(first.address) as client:
        client.declare_topic("kept", QUOTE, durable=True)
        client.declare_type(QUOTE)
        for queue in ("filled", "awaited"):
            client.declare_queue(queue, "quote")

    def begun(*words):
        pipe = subprocess.PIPE
        arguments = command(*words, "--broker", first.address)
        return subprocess.Popen(arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment())

    writers = [begun("put", "kept", "-"), begun("queue", "put", "filled", "-")]
    readers = [
        begun("sub", "kept", "--name", "desk", "--start", "earliest", "--count", 6),
        begun("queue", "get", "awaited", "--timeout", "inf"),
    ]

    def write(*found):
        for each in writers:
            each.stdin.write(b"".join(b'{"symbol": "IBM", "price": %d}\n' % price for price in found))
            each.stdin.flush()

    try:
        write(0, 1)
        with Client(first.address) as client:
            while sum(log["rows"] for log in client.look("kept")["logs"]) < 2:
                pause()
            while client.queue("filled").figures["waiting"] < 2 or client.status()["queueing"]["waiting"] < 1:
                pause()
            # It has acknowledged what it has printed, or else that would come again.
            while not any(each["members"] and not each["behind"] for each in client.look("kept")["subscriptions"]):
                pause()
        first.kill()
        said_so = [until(each.stderr.fileno(), b"connecting again\n") for each in (*writers, *readers)]
        write(2, 3)
        second = ups(*options)
        write(4, 5)
        with Client(second.address) as client:
            with client.transaction() as tx:
                tx.enqueue("awaited", {"symbol": "IBM", "price": 9.0})
            ended = [each.communicate(timeout=PATIENCE) for each in (*writers, *readers)]
            for process, before, (_, after) in zip((*writers, *readers), said_so, ended, strict=True):
                assert process.returncode == 0, after
                assert (before + after).count(b"connecting again") == 1
            assert [json.loads(line)["price"] for line in ended[2][0].splitlines()] == [0, 1, 2, 3, 4, 5]
            assert json.loads(ended[3][0])["price"] == 9.0
            assert [sum(log["rows"] for log in client.look("kept")["logs"])] == [6], "stored once each"
            assert [message.price for message in client.browse("filled")] == [0, 1, 2, 3, 4, 5]
            assert client.queue("awaited").figures["waiting"] == 0
    finally:
        for each in (*writers, *readers):
            each.kill()
            each.communicate()


def test_what_a_killed_broker_undid_is_run_again_and_an_interrupt_waits_for_nobody(ups, tmp_path, caplog):
    options = ("--listen", f"127.0.0.1:{free_port()}", *ALONE[2:], "--store", tmp_path / "own.db")
    broker = ups(*options)
    taken = []

    def take(tx):
        nonlocal broker
        taken.append([message.price for message in tx.dequeue("work")])
        if len(taken) == 1:
            broker.kill()
            broker = ups(*options)
        tx.commit()

    def fail(tx):
        raise TransactionAborted("for another reason")

    with connected(broker.address, reconnect=True) as client:
        client.declare_type(QUOTE)
        client.declare_queue("work", "quote")
        with client.transaction() as tx:
            tx.enqueue("work", {"symbol": "IBM", "price": 1.0})
        transact(client, take)
        assert taken == [[1.0], [1.0]], "it was undone, and run again"
        assert client.queue("work").figures["waiting"] == 0
        with pytest.raises(TransactionAborted, match="for another reason"):
            transact(client, fail)
    with pytest.raises(KeyboardInterrupt), Client(broker.address, timeout=1.0) as client:
        client.declare_topic("kept", QUOTE, durable=True)
        broker.kill()
        client.put("kept", {"symbol": "IBM", "price": 1.0}, wait=False)
        raise KeyboardInterrupt
    assert "were not sent" not in caplog.text, "it did not wait for the broker"


def test_without_a_store_nothing_is_durable_and_it_says_so(ups):
    up = ups(*ALONE, "--store", "")
    assert "It keeps nothing" in up.lines[1]
    heard = said("topic", "create", "t", QUOTE, "--durable", MILEPOST_BROKER=up.address)
    refused(heard, "this broker keeps nothing", "--store")
    up.stop()


def test_the_default_store_is_in_the_user_s_data_folder(ups, data_folder):
    up = ups(*ALONE)
    assert f"Durable topics and queues are kept in {data_folder}/milepost/milepost.db." in up.lines[1]
    up.stop()


def test_a_store_that_cannot_be_is_one_sentence(broker, ask, tmp_path, monkeypatch):
    junk = tmp_path / "junk.db"
    junk.write_bytes(b"no database" * 1000)
    for store, words in {
        broker.store: ["another broker has the store", str(broker.store)],
        tmp_path / "none" / "own.db": ["cannot be opened", "No such file"],
        tmp_path: ["is a folder"],
        junk: ["junk.db", "damaged"],
        "mysql://host/base": ["'mysql'", "postgresql://"],
        f"postgresql://me:secret@127.0.0.1:{free_port()}/base": ["does not answer", "see that it runs"],
    }.items():
        heard = refused(ask("up", *ALONE, "--store", store), *words)
        assert len([line for line in heard.splitlines() if "password in --store is visible" not in line]) == 1
        assert "secret" not in heard
    heard = refused(ask("up", *ALONE, XDG_DATA_HOME="/proc/nowhere"), "cannot be made", "XDG_DATA_HOME")
    assert len(heard.splitlines()) == 1


def test_a_broker_whose_log_was_taken_over_says_so_and_ends(ups, tmp_path):
    store = tmp_path / "own.db"
    first = ups(*ALONE, "--store", store)
    assert said("topic", "create", "kept", QUOTE, "--durable", MILEPOST_BROKER=first.address).returncode == 0
    store.with_name("own.db.lock").unlink()  # what keeps a second broker out
    second = ups(*ALONE, "--store", store)
    late = said("put", "kept", "symbol=IBM", "price=1", MILEPOST_BROKER=first.address)
    assert late.returncode == 1
    assert first.process.wait(PATIENCE) == 1
    assert first.errors.read_text().startswith(
        "milepost: another process has taken over the log of the broker 'milepost'"
    )
    assert len(first.errors.read_text().splitlines()) == 1
    assert said("put", "kept", "symbol=IBM", "price=2", MILEPOST_BROKER=second.address).returncode == 0
    assert prices(said("sub", "kept", "--start", "0", "--count", "1", MILEPOST_BROKER=second.address)) == [2.0]
    second.stop()


@pytest.mark.slow
def test_a_paused_broker_on_postgresql_finds_its_log_taken_over(ups, tmp_path, postgresql):
    config = tmp_path / "broker.toml"
    config.write_text("[broker]\nlease_s = 3.0\n")  # on busy cores one that lives may be silent for a while
    options = (*ALONE, "--store", postgresql, "--config", config)
    first = ups(*options)
    assert "kept in postgresql://" in first.lines[1]
    assert "in the log of 'milepost'" in first.lines[1]
    taken = ups(*options)
    assert taken.address is None
    assert taken.process.wait(PATIENCE) == 1
    assert "a broker named 'milepost' is alive in" in taken.errors.read_text()
    other = ups(*options, "--name", "other")  # another name has another log
    assert other.address
    first.process.send_signal(signal.SIGSTOP)
    second = ups(*options)
    while second.address is None:  # until the lease is over
        second = ups(*options)
    first.process.send_signal(signal.SIGCONT)
    assert first.process.wait(PATIENCE) == 1
    assert "another process has taken over the log of the broker 'milepost'" in first.errors.read_text()
    second.stop()
    other.stop()


# ZeroMQ


def test_a_req_socket_is_answered(broker, ask, topic):
    ask("put", topic, "symbol=IBM", "price=1")
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(broker.zmq)

    def request(kind, **payload):
        socket.send_json({"msg_type": kind, "payload": payload})
        assert socket.poll(PATIENCE * 1000)
        return socket.recv_json()

    assert request("SUB", sub_id="req", topic=topic)["msg_type"] == "SUB"
    ask("put", topic, "symbol=IBM", "price=2")
    answer = request("GET", sub_id="req", topic=topic, timeout_ms=10_000)
    assert answer["payload"]["payload"]["price"] == 2.0
    shown = ask("topic", "show", topic).stdout
    assert re.search(r"^req +1:1 +1 +1", shown, re.MULTILINE)  # not acknowledged yet
    socket.close(linger=0)
    context.term()


def test_a_port_for_zeromq_that_is_taken_ends_it_if_it_was_asked_for(broker, ask, ups, tmp_path):
    where = broker.zmq.removeprefix("tcp://")
    own = ("--store", tmp_path / "own.db")
    refused(ask("up", *ALONE[:4], "--zmq", where, *own), "is taken", "--zmq")
    refused(ask("up", *ALONE[:4], "--zmq", "127.0.0.1:0", "--store", ""), "keeps nothing", "--store")
    refused(ask("up", *ALONE[:4], "--zmq-curve", tmp_path / "none", *own), "is not a CURVE certificate")
    config = tmp_path / "broker.toml"
    config.write_text(f'[broker]\nlisten = "127.0.0.1:0"\nhttp = ""\nzmq = "{where}"\n')
    up = ups("--config", config, *own)
    up.stop()
    assert "ZeroMQ" not in up.lines[0]
    assert re.fullmatch(r"milepost: no ZeroMQ: .* is taken, .*\n", up.errors.read_text())


# What docs/operations.md says about backups


def test_a_copy_of_a_store_in_use_is_a_whole_store_and_can_be_told_from_it(broker, client, filled, ups, tmp_path):
    copy = tmp_path / "copy.db"
    take, renew = re.findall(r'sqlite3 milepost\.db "(.*)"', (ROOT / "docs/operations.md").read_text())
    with closing(sqlite3.connect(broker.store)) as store:
        store.execute(take.replace("/backup/milepost.db", str(copy)))
    client.put(filled, {"symbol": "IBM", "price": 5.0})  # not in the copy
    same = ups(*ALONE, "--store", copy)
    with Client(same.address, known_broker_id=client.broker_id) as restored:
        assert restored.look(filled)["logs"][0]["next"] == 5
    assert prices(said("sub", filled, "--start", "4", "--count", "1", MILEPOST_BROKER=same.address)) == [4.0]
    same.stop()
    with closing(sqlite3.connect(copy, isolation_level=None)) as store:
        store.execute(renew)
    other = ups(*ALONE, "--store", copy)
    with pytest.raises(StateLost):
        Client(other.address, known_broker_id=client.broker_id).connect()
    other.stop()
