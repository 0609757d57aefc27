"""A real broker, and the commands that talk to it, as a user runs them."""

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from milepost.client import Client
from soak.processes import free_port

from .process import PATIENCE, Up, command, environment, refused, started, until

QUOTE = "quote: [symbol: string, price: double, size: int?]"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """`milepost up`, until the tests of this module are done; then a SIGTERM must end it in good order."""
    folder = tmp_path_factory.mktemp("up")
    store = folder / "milepost.db"
    options = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--zmq", "127.0.0.1:0", "--store", store)
    up = Up(folder / "stderr", *options)
    assert up.address, (up.lines, up.errors.read_text())
    http = re.search(r"metrics at http://(127\.0\.0\.1:\d+)/", up.lines[0])[1]
    yield SimpleNamespace(address=up.address, http=http, lines=up.lines, pid=up.process.pid, store=store)
    up.stop()


@pytest.fixture
def client(broker):
    with Client(broker.address) as made:
        yield made


@pytest.fixture
def topic(client, request):
    """A topic of its own for each test."""
    name = re.sub(r"\W+", "_", request.node.name)
    client.declare_topic(name, QUOTE)
    return name


@pytest.fixture
def listening(broker):
    """Start `milepost sub` on a terminal of its own, and come back when it says that it waits."""
    running = []

    def start(*arguments):
        ours, theirs = pty.openpty()
        process = started("sub", *arguments, "--broker", broker.address, stdout=subprocess.PIPE, stderr=theirs)
        os.close(theirs)
        running.append((process, ours))
        process.heard = until(ours, b"waiting for messages")
        process.terminal = ours
        return process

    yield start
    for process, ours in running:
        process.kill()
        process.wait()
        process.stdout.close()
        os.close(ours)


# up


def test_up_says_in_five_lines_where_it_is_what_it_keeps_and_what_to_try(broker, ask):
    assert broker.http in broker.lines[0]
    assert re.search(r"ZeroMQ at tcp://127\.0\.0\.1:\d+;", broker.lines[0])
    assert f"kept in {broker.store}." in broker.lines[1]
    for line in broker.lines[2:]:
        assert line.rstrip().endswith(f"--broker {broker.address}")
    create, _, put = (line.split("milepost ", 1)[1].rstrip() for line in broker.lines[2:])
    for tried in (create, put):  # as a shell reads them
        done = subprocess.run(
            ["sh", "-c", f"exec {sys.executable} -m milepost.cli {tried}"],
            capture_output=True, text=True, env=environment(), stdin=subprocess.DEVNULL, check=False, timeout=PATIENCE,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
    assert ask("topic", "delete", "quotes").returncode == 0


def test_a_port_that_is_taken_is_named_with_what_to_do(broker, ask):
    said = refused(ask("up", "--listen", broker.address, "--http", ""), "is taken", "--listen")
    assert broker.address.rpartition(":")[2] in said
    assert len(said.splitlines()) == 1


def test_a_port_for_metrics_that_was_asked_for_and_is_taken_ends_it(broker, ask):
    refused(ask("up", "--listen", "127.0.0.1:0", "--http", broker.http, "--zmq", ""), "is taken", "--http")


def test_settings_that_cannot_be_are_named(ask, tmp_path):
    refused(ask("up", "--input-queues", "1000"), "input_queues")
    refused(ask("up", "--listen", "127.0.0.1:0", "--http", "nowhere"), "host:port")
    refused(ask("up", "--listen", "tcp://x:1"), "tcp")
    file = tmp_path / "broker.toml"
    file.write_text("[broker]\nqueue_byte = 3\n")
    refused(ask("up", "--config", file), "queue_byte", "queue_bytes")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_it_and_listening_further_is_warned_of(number):
    options = ("--listen", "0.0.0.0:0", "--http", "", "--store", "")
    process = started("up", *options, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [process.stdout.readline() for _ in range(5)]
    assert "metrics" not in lines[0]
    assert "ZeroMQ" not in lines[0]
    assert "keeps nothing" in lines[1]
    assert "--broker milepost://127.0.0.1:" in lines[4]
    process.send_signal(number)
    rest, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert rest == ""
    assert len(errors.splitlines()) == 1
    assert "everybody who can reach" in errors


def test_a_port_for_metrics_that_nobody_asked_for_and_is_taken_is_a_warning(broker, tmp_path):
    file = tmp_path / "broker.toml"
    file.write_text(f'[broker]\nlisten = "127.0.0.1:0"\nhttp = "{broker.http}"\nstore = ""\n')
    process = started("up", "--config", file, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    lines = [process.stdout.readline() for _ in range(5)]
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, errors
    assert "metrics" not in lines[0]
    assert len(errors.splitlines()) == 1
    assert "no metrics" in errors
    assert "--http" in errors


def test_metrics_are_served(broker, topic, client):
    client.put_many(topic, [{"symbol": "IBM", "price": 1.0}] * 3)
    client.flush()
    with urllib.request.urlopen(f"http://{broker.http}/metrics", timeout=PATIENCE) as answer:
        text = answer.read().decode()
    assert f'milepost_topic_rows_received_total{{topic="{topic}"}} 3.0' in text
    assert "# HELP milepost_backlog_bytes" in text


def test_kernels_that_are_kept_are_loaded_with_the_first_predicate(client, topic):
    with client.subscribe(topic, where="price > 5"):
        assert client.status()["kernels"] == "loaded"


def test_warm_has_nothing_left_to_do(broker, ask):
    done = ask("warm")
    assert done.returncode == 0, done.stderr
    assert "Nothing to do" in done.stdout


# topic


def test_a_topic_from_its_making_to_its_end(ask, tmp_path):
    file = tmp_path / "orders.txt"
    file.write_text("order: [id: long]\n")
    made = ask("topic", "create", "shop.orders", f"@{file}", "--slow", "drop")
    assert made.returncode == 0, made.stderr
    assert made.stdout.startswith("shop.orders takes order ")
    assert ask("topic", "create", "shop.orders", "-", text="order: [id: long, note: string?]").returncode == 0
    listed = ask("topic", "list", "shop.*")
    assert listed.stdout.split()[:3] == ["topic", "schema", "slow"]
    assert "order: [id: long, note: string?]" in listed.stdout
    assert listed.stdout.rstrip().endswith("drop")
    ask("put", "shop.orders", "id=7")
    shown = ask("topic", "show", "shop.orders")
    assert shown.returncode == 0, shown.stderr
    assert "note: string?" in shown.stdout
    assert "2 versions" in shown.stdout
    assert re.search(r"in +1 ", shown.stdout)
    gone = ask("topic", "delete", "shop.orders")
    assert gone.returncode == 0, gone.stderr
    refused(ask("topic", "show", "shop.orders"), "there is no topic 'shop.orders'")
    nothing = ask("topic", "list", "shop.*")
    assert nothing.returncode == 0
    assert nothing.stdout == ""
    assert "no topics" in nothing.stderr


def test_topics_that_cannot_be_are_refused(ask, topic, tmp_path):
    refused(ask("topic", "create", "t", "quote: [symbol string]"), "line 1, column", "^")
    refused(ask("topic", "create", "not a name", QUOTE), "not a name")
    refused(ask("topic", "create", "t", f"@{tmp_path}/none.txt"), "there is no file")
    refused(ask("topic", "create", "t", "none.txt"), "there is no file none.txt")
    (tmp_path / "other.txt").write_bytes(b"\xff")
    refused(ask("topic", "create", "t", f"{tmp_path}/other.txt"), "is not text in UTF-8")
    refused(ask("topic", "create", topic, "quote: [symbol: int]"), "symbol")
    refused(ask("topic", "delete", topic[:-1]), f"did you mean '{topic}'")
    refused(ask("topic", "show", topic[:-1]), f"did you mean '{topic}'")
    assert ask("topic", "create", "t", QUOTE, "--slow", "snail").returncode == 2


def test_without_a_broker_each_command_says_so_in_one_sentence(ask):
    nowhere = f"milepost://127.0.0.1:{free_port()}"
    for arguments in (["topic", "list"], ["put", "t", "a=1"], ["sub", "t"], ["top", "--once"]):
        said = refused(ask(*arguments, "--broker", nowhere), nowhere, "milepost up")
        assert len(said.splitlines()) == 1
    refused(ask("topic", "list", MILEPOST_BROKER="http://x"), "http")


# put


def test_put_by_fields_json_and_pipe(ask, topic, listening):
    heard = listening(topic, "--count", "6")
    assert ask("put", topic, "symbol=IBM", "price=101.5").stderr == f"1 row put into {topic}\n"
    assert ask("put", topic, '{"symbol": "A", "price": 1}', '{"symbol": "B", "price": 2}', "-q").stderr == ""
    assert ask("put", topic, "-", text='{"symbol": "C", "price": 3}\n\n{"symbol": "D", "price": 4}').returncode == 0
    assert ask("put", topic, text='{"symbol": "E", "price": 5, "size": 7}\n').returncode == 0
    out, _ = heard.communicate(timeout=PATIENCE)
    assert heard.returncode == 0
    rows = [json.loads(line) for line in out.splitlines()]
    assert [row["symbol"] for row in rows] == ["IBM", "A", "B", "C", "D", "E"]
    assert rows[0] == {"symbol": "IBM", "price": 101.5, "size": None}


def test_put_files(ask, topic, listening, tmp_path):
    rows = [{"symbol": f"s{number}", "price": number + 0.5, "size": number} for number in range(1000)]
    heard = listening(topic, "--format", "csv", "--count", "3000")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with (tmp_path / "rows.csv").open("w") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    for ending in ("parquet", "jsonl", "csv"):
        done = ask("put", topic, "--file", tmp_path / f"rows.{ending}")
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(f"1,000 rows put into {topic} in ")
    out, _ = heard.communicate(timeout=PATIENCE)
    found = list(csv.DictReader(io.StringIO(out.decode())))
    assert found == [{name: str(value) for name, value in row.items()} for row in rows] * 3


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"symbol": "IBM", "price": }', "line 3: this is not JSON"),
        ('{"symbol": "IBM", "price": "much"}', "line 3: price: 'much' is no double"),
        ('{"symbol": "IBM", "pirce": 1}', "did you mean 'price'?"),
    ],
)
def test_a_bad_line_is_named_and_those_before_it_were_put(ask, topic, text, words):
    good = '{"symbol": "IBM", "price": 1}\n'
    said = refused(ask("put", topic, text=f"{good}{good}{text}\n{good}"), words, "2 rows before it were put")
    assert len(said.splitlines()) == 1


def test_what_cannot_be_put_is_refused(ask, topic, tmp_path):
    refused(ask("put", topic[:-1], "symbol=IBM"), f"did you mean '{topic}'")
    refused(ask("put", topic, "symbol=IBM", "price=much"), "price: 'much' is no double", "nothing was put")
    refused(ask("put", topic, "symbol=IBM"), "price", "missing")
    refused(ask("put", topic, '{"symbol"'), "not JSON")
    (tmp_path / "rows.xml").write_text("")
    refused(ask("put", topic, "--file", tmp_path / "rows.xml"), "ends in .csv")
    assert ask("put", topic, "a=1", "--file", tmp_path / "rows.xml").returncode == 2


def test_a_file_has_a_progress_bar_on_a_terminal(broker, topic, tmp_path):
    (tmp_path / "rows.csv").write_text("symbol,price\n" + "IBM,1\n" * 1000)
    ours, theirs = pty.openpty()
    process = started("put", topic, "-f", tmp_path / "rows.csv", "--broker", broker.address, stderr=theirs)
    os.close(theirs)
    shown = until(ours, b"1,000 rows put")
    assert process.wait(PATIENCE) == 0
    os.close(ours)
    assert b"rows.csv" in shown
    assert b"100%" in shown
    assert b"1,000 rows, " in shown


# sub


def test_sub_prints_what_its_filter_takes_as_columns(ask, topic, listening):
    heard = listening(topic, "--where", "symbol = 'IBM' and price > 100", "--format", "table", "--count", "2")
    for price in (101.5, 99, 1000):
        ask("put", topic, "symbol=IBM", f"price={price}")
    ask("put", topic, "symbol=ACME", "price=200")
    out, _ = heard.communicate(timeout=PATIENCE)
    assert [line.split() for line in out.decode().splitlines()] == [
        ["symbol", "price", "size"], ["IBM", "101.5"], ["IBM", "1000.0"],
    ]  # fmt: skip


def test_a_pattern_says_which_topic(client, ask, listening):
    client.declare_topic("wide.a", QUOTE)
    client.declare_topic("wide.b", "order: [id: long]")
    heard = listening("wide.*", "--count", "2")
    client.put("wide.a", {"symbol": "IBM", "price": 1.0})
    client.flush()
    client.put("wide.b", {"id": 7})
    client.flush()
    out, _ = heard.communicate(timeout=PATIENCE)
    first, second = map(json.loads, out.splitlines())
    assert (first["topic"], first["message"]["symbol"]) == ("wide.a", "IBM")
    assert (second["topic"], second["message"]) == ("wide.b", {"id": 7})
    assert first["id"] != second["id"]
    picky = listening("wide.*", "--where", "id > 3")
    assert b"nothing of wide.a: there is no 'id'" in picky.heard


def test_a_subscription_that_cannot_be_is_refused(ask, topic):
    refused(ask("sub", topic, "--where", "symbol = 'IBM' and pirce > 1"), "did you mean 'price'?", "^")
    refused(ask("sub", topic, "--where", "symbol ="), "line 1, column", "^")
    refused(ask("sub", topic[:-1]), f"did you mean '{topic}'")
    assert ask("sub", topic, "--count", "0").returncode == 2


def test_ctrl_c_ends_sub_quietly(topic, listening):
    heard = listening(topic)
    heard.send_signal(signal.SIGINT)
    out, _ = heard.communicate(timeout=PATIENCE)
    assert heard.returncode in (0, 130)
    assert out == b""
    assert b"Traceback" not in rest_of(heard.terminal)


def test_a_closed_pipe_ends_sub_quietly(topic, client, listening):
    heard = listening(topic)
    client.put(topic, {"symbol": "IBM", "price": 1.0})
    client.flush()
    assert heard.stdout.readline()
    heard.stdout.close()
    client.put(topic, {"symbol": "IBM", "price": 2.0})
    client.flush()
    assert heard.wait(PATIENCE) in (0, 1, 141)
    assert b"Traceback" not in rest_of(heard.terminal)


def rest_of(terminal):
    """What a terminal shows until its last user has left."""
    seen = b""
    try:
        while data := os.read(terminal, 65_536):
            seen += data
    except OSError:  # Linux says so when the other side has closed
        pass
    return seen


def test_what_the_system_says_is_one_sentence(broker, topic):
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("topic", "list", "--broker", broker.address), stdin=subprocess.DEVNULL, stdout=full,
            stderr=subprocess.PIPE, env=environment(), text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
    refused(SimpleNamespace(returncode=done.returncode, stdout="", stderr=done.stderr), "No space left on device")
    assert len(done.stderr.splitlines()) == 1


# top


def test_top_once_shows_topics_and_filters(ask, topic, client, listening):
    listening(topic, "--where", "price > 12345")
    client.put_many(topic, [{"symbol": "IBM", "price": 1.0}] * 5)
    client.flush()
    shown = ask("top", "--once")
    assert shown.returncode == 0, shown.stderr
    assert "\x1b" not in shown.stdout
    assert "price > 12345" in shown.stdout
    line = next(line for line in shown.stdout.splitlines() if line.startswith(topic))
    assert line.split()[1] == "5"


def test_top_shows_rates_until_ctrl_c(broker):
    ours, theirs = pty.openpty()
    process = started("top", "--interval", "0.1", "--broker", broker.address, stdout=theirs, stderr=theirs)
    os.close(theirs)
    until(ours, b"rows/s")
    process.send_signal(signal.SIGINT)
    shown = rest_of(ours)
    os.close(ours)
    assert process.wait(PATIENCE) in (0, 130)
    assert b"Traceback" not in shown


def test_top_says_that_the_broker_is_away_and_goes_on_when_it_is_back(tmp_path):
    options = ("--http", "", "--zmq", "", "--store", "")
    up = Up(tmp_path / "errors", "--listen", "127.0.0.1:0", *options)
    ours, theirs = pty.openpty()
    process = started("top", "--interval", "0.1", "--broker", up.address, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        until(ours, b"rows/s")
        up.kill()
        until(ours, b"connecting again")
        up = Up(tmp_path / "errors", "--listen", up.address.removeprefix("milepost://"), *options)
        with Client(up.address) as client:
            client.declare_topic("seen_again", QUOTE)
            until(ours, b"seen_again")
        process.send_signal(signal.SIGINT)
        shown = rest_of(ours)
        assert process.wait(PATIENCE) in (0, 130)
        assert b"Traceback" not in shown
    finally:
        process.kill()
        process.wait()
        os.close(ours)
        up.kill()


# All


@pytest.mark.parametrize(
    "name", [("up",), ("warm",), ("topic", "create"), ("topic", "list"), ("topic", "show"), ("topic", "trim"),
             ("topic", "delete"), ("put",), ("sub",), ("get",), ("unsubscribe",), ("top",)],
)  # fmt: skip
def test_help_has_an_example(ask, name):
    shown = ask(*name, "--help")
    assert shown.returncode == 0
    assert f"milepost {' '.join(name)}" in shown.stdout.split("Example")[1]


@pytest.mark.parametrize(
    ("words", "completed"), [("milepost to", {"top", "topic"}), ("milepost put completed_", {"completed_topic"})]
)
def test_a_shell_can_complete_commands_and_topics(broker, client, words, completed):
    client.declare_topic("completed_topic", QUOTE)
    asked = {"_MILEPOST_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    for _ in range(10):  # a broker has a second to name its topics, and on busy cores one presses the key again
        done = subprocess.run(
            [Path(sys.executable).with_name("milepost")], env=environment(MILEPOST_BROKER=broker.address) | asked,
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        if done.stdout:
            break
    assert set(done.stdout.split()) == completed, done.stderr


def test_help_waits_for_nobody_s_packages():
    program = (
        "import sys\nimport milepost.cli\n"
        "print([name for name in ('numba', 'uvloop', 'prometheus_client', 'milepost.broker', 'milepost.match') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


ATTACK = "\x1b]0;owned\x07\x9b2J\u202e"


def test_nothing_of_another_client_is_obeyed_by_an_operators_terminal(broker, ask):
    """Names, filters, values and schemas of a hostile client, by every command that shows them."""
    topic, queue = "evil", "evil-queue"  # names themselves are checked
    with Client(broker.address) as client:
        client.declare_topic(topic, f"evil: [a: string] check (a != '{ATTACK}')", durable=True)
        client.subscribe(topic, f"a = '{ATTACK}x'")
        client.subscribe(topic, f"a = '{ATTACK}y'", name="evil-name").detach()
        client.put(topic, {"a": f"{ATTACK}z"})
        client.declare_type("eviltype: [a: string]")
        client.declare_queue(queue, ["eviltype"])
        with client.transaction() as transaction:
            transaction.enqueue(queue, {"a": ATTACK})
        commands = [
            ("top", "--once"), ("topic", "list"), ("topic", "show", topic), ("queue", "list"), ("queue", "show", queue),
            ("queue", "browse", queue), ("queue", "browse", queue, "--json"), ("queue", "list", "--json"),
            ("type", "list"), ("sub", topic, "--start", "earliest", "--count", 1), ("topic", "show", f"no{ATTACK}"),
            ("sub", topic, "--start", "earliest", "--count", 1, "--format", "table"), ("queue", "show", f"no{ATTACK}"),
            ("topic", "trim", topic, "--before", "new", "--yes"), ("queue", "purge", queue, "--yes"),
            ("unsubscribe", topic, "--name", "evil-name"), ("topic", "delete", topic), ("queue", "delete", queue),
        ]  # fmt: skip
        for arguments in commands:
            done = ask(*arguments)
            shown = done.stdout + done.stderr
            assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(shown), (arguments, shown)


@pytest.mark.parametrize(
    "store",
    ["postgresql://me:s3cret@127.0.0.1:1/db", "postgresql://me@127.0.0.1:1/db?password=s3cret",
     "postgresql:/me:s3cret@127.0.0.1:1/db", "postgresql://me:x@s3cret@127.0.0.1:1/db"],
)  # fmt: skip
@pytest.mark.parametrize("where", ["option", "environment"])
def test_a_password_is_never_said(milepost, store, where):
    options = ("up", "--listen", "127.0.0.1:0", "--http", "", "--zmq", "")
    done = milepost(*options, "--store", store) if where == "option" else milepost(*options, MILEPOST_STORE=store)
    assert done.returncode == 1
    assert "s3cret" not in done.stdout + done.stderr
    assert ("visible to all who list processes" in done.stderr) == (
        where == "option" and "postgresql://me" in store and "x@" not in store
    )
