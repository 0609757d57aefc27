"""Queues and their types on the command line, as a user runs it; and what is said to those who mistype."""

import json
import re
import subprocess
from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from milepost.client import Client
from soak.processes import free_port

from .process import PATIENCE, Up, refused, started

QUOTE = "quote: [symbol: string, price: double, size: int] index (symbol)"
NOTE = "note: [text: string]"
ORDER = """DEFINE MESSAGETYPE OrderMessage;
NODE order; id: IDENT; name: STRING; lines: REFERENCE TO order_line; END;
NODE order_line; line_no: INTEGER; price: REAL; item: REFERENCE TO item; END;
NODE item; id: IDENT; name: STRING; END;
ROOT order;
END;"""
ODD = "it's; DROP TABLE queues; --\""  # as a name, and in what messages contain


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("up")
    up = Up(folder / "stderr", "--listen", "127.0.0.1:0", "--http", "", "--zmq", "", "--store", folder / "milepost.db")
    assert up.address, (up.lines, up.errors.read_text())
    with Client(up.address) as client:
        client.declare_type(QUOTE)
        client.declare_type(NOTE)
    yield SimpleNamespace(address=up.address)
    up.stop()


@pytest.fixture
def client(broker):
    with Client(broker.address) as made:
        yield made


@pytest.fixture
def queue(client, request):
    """A queue of its own for each test."""
    name = re.sub(r"\W+", "_", request.node.name)
    client.declare_queue(name, "quote")
    return name


def quote(size, symbol="IBM"):
    return {"symbol": symbol, "price": 1.5, "size": size}


@pytest.fixture
def filled(client, queue):
    """Five quotes in it, with sizes from 0 to 4."""
    with client.transaction() as tx:
        tx.enqueue(queue, [quote(size) for size in range(5)])
    return queue


def lines(done):
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def sizes(done):
    return [message["size"] for message in lines(done)]


def counts(client, queue):
    figures = client.queue(queue).figures
    return figures["waiting"], figures["taken"], figures["uncommitted"]


# type


def test_types_are_made_listed_shown_and_deleted(ask, tmp_path):
    file = tmp_path / "orders.txt"
    file.write_text(ORDER)
    made = ask("type", "create", file)
    assert re.fullmatch(r"OrderMessage [0-9a-f]{16}\n", made.stdout), made.stderr
    assert ask("type", "create", f"@{file}").stdout == ask("type", "create", "-", text=ORDER).stdout == made.stdout
    assert ask("type", "create", "pair: [a: int, b: int]").stdout.startswith("pair ")
    listed = ask("type", "list").stdout.splitlines()
    assert listed[0].split() == ["type", "fingerprint", "queues", "definition"]
    assert {line.split()[0] for line in listed[1:]} >= {"OrderMessage", "pair", "quote", "note"}
    (known,) = [each for each in lines(ask("type", "list", "--json")) if each["name"] == "pair"]
    assert (known["text"], known["queues"]) == ("pair: [a: int, b: int]", [])
    shown = ask("type", "show", "OrderMessage")
    assert "order_line: *(tuple)*" in shown.stdout
    assert shown.stdout == ask("type", "show", file).stdout
    refused(ask("type", "create", "pair: [a: int]"), "pair is declared in another way")
    assert ask("type", "delete", "pair").stdout == "pair is deleted\n"
    refused(ask("type", "show", "pair"), "neither a file 'pair' nor a message type")
    refused(ask("type", "show", "OrderMesage"), "did you mean 'OrderMessage'?")


def test_types_that_cannot_be_are_refused(ask, queue, tmp_path):
    refused(ask("type", "create", "quote: [symbol string]"), "line 1, column", "^")
    refused(ask("type", "create", f"@{tmp_path / 'none'}"), "there is no file")
    refused(ask("type", "delete", "qote"), "did you mean 'quote'?")
    refused(ask("type", "delete", "quote"), "is taken by", queue)
    nowhere = f"milepost://127.0.0.1:{free_port()}"
    heard = refused(ask("type", "show", "quote", "--broker", nowhere), "no file 'quote'", nowhere)
    assert len(heard.splitlines()) == 1


# create, list, show, drop


def test_a_queue_from_its_making_to_its_end(ask, client):
    made = ask(
        "queue", "create", "orders", "-t", "quote", "-t", "note", "--level", "ordered", "--direction", "asc",
        "--priority", "quote=price * size", "--priority", "5", "--dead-letter", "orders.dead",
    )  # fmt: skip
    assert made.stdout == "orders takes quote, note, ordered\n", made.stderr
    known = client.queue("orders")
    assert (known.priority, known.priorities, known.dead_letter, known.max_deliveries) == (
        5.0, {"quote": "price * size"}, "orders.dead", 3
    )  # fmt: skip
    assert known.direction == "asc"
    assert (
        ask("queue", "put", "orders", '{"text": "hello"}', "--type", "note").stderr == "1 message enqueued in orders\n"
    )
    assert (
        ask("queue", "put", "orders", "symbol=A", "price=2", "size=3", "-t", "quote", "--delay", "1h").returncode == 0
    )
    (line,) = [line.split() for line in ask("queue", "list").stdout.splitlines() if line.startswith("orders ")]
    assert line == ["orders", "quote,", "note", "ordered", "1", "1", "0", "orders.dead"]
    shown = ask("queue", "show", "orders").stdout
    for words in (
        "takes        quote  priority price * size", "takes        note  priority 5", "level        ordered",
        "low priorities first", "dead letter  to orders.dead, after 3 deliveries",
        f"waiting      {'█' * 40}  1  can be taken now; the oldest for",
        f"delayed      {'█' * 40}  1  not before", "taken  ", "uncommitted  ",
    ):  # fmt: skip
        assert words in shown
    (told,) = lines(ask("queue", "show", "orders", "--json"))
    assert (told["waiting"], told["delayed"], told["types"], told["level"]) == (1, 1, ["quote", "note"], "ordered")
    assert told in lines(ask("queue", "list", "--json"))
    refused(ask("queue", "delete", "orders"), "has 2 messages", "purge it")
    refused(ask("queue", "delete", "orders.dead"), "takes the dead messages of orders")
    assert ask("queue", "purge", "orders", "--yes").stdout == "2 messages removed from orders\n"
    assert ask("queue", "delete", "orders").stdout == "orders is deleted\n"
    assert ask("queue", "delete", "orders.dead").returncode == 0
    refused(ask("queue", "show", "orders"), "there is no queue 'orders'")


def test_bars_show_who_has_what(ask, client, filled):
    with client.transaction() as tx:
        assert len(tx.dequeue(filled, count=3)) == 3
        tx.enqueue(filled, quote(9))
        tx.flush()
        shown = ask("queue", "show", filled).stdout
        assert re.search(rf"^waiting +{'█' * 26}▋ +2 ", shown, re.MULTILINE)
        assert re.search(rf"^taken +{'█' * 40} +3 ", shown, re.MULTILINE)
        assert re.search(rf"^uncommitted +{'█' * 13}▍ +1 ", shown, re.MULTILINE)
        refused(ask("queue", "delete", filled), "has 6 messages")
        tx.abort()
    assert counts(client, filled) == (5, 0, 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--type", "quotes"], ["did you mean 'quote'?"]),
        (["--type", "quote", "--level", "orderd"], ["there is no level 'orderd'", "did you mean 'ordered'?"]),
        (["--type", "quote", "--level", "x"], ["there are none, ordered, blockwise, ordered blockwise"]),
        (["--type", "quote", "--priority", "symbol"], ["a priority is a number", "string"]),
        (["--type", "quote", "--priority", "prise * 2"], ["did you mean 'price'?", "^"]),
        (["--type", "quote", "--priority", "1; drop table queues"], ["';'"]),
        (["-t", "quote", "-t", "note", "--priority", "price"], ["name the type"]),
        (["-t", "quote", "--priority", "price", "--priority", "quote=size"], ["given twice"]),
        (["--type", "quote", "--dead-letter", "x"], ["cannot take its own dead"]),
        (["--type", "quote", "--type", "quote"], ["one type twice"]),
        (["--type", "quote", "--priority", "inf"], ["finite"]),
    ],
)
def test_queues_that_cannot_be_are_refused(ask, options, words):
    heard = refused(ask("queue", "create", "x", *options), *words)
    assert heard.startswith("milepost: ")
    refused(ask("queue", "show", "x"), "there is no queue 'x'")


def test_what_the_flags_exclude_is_told(ask, filled):
    for arguments in (
        ["create", "x"], ["create", "x", "-t", "quote", "--max-deliveries", "2"],
        ["create", "x", "-t", "quote", "--direction", "up"], ["get", filled, "--peek", "--keep"],
        ["get", filled, "--count", "0"], ["put", filled, "size=1", "--file", __file__], ["browse"],
    ):  # fmt: skip
        assert ask("queue", *arguments).returncode == 2, arguments


def test_names_and_values_with_quotes_and_semicolons_are_only_that(ask, client):
    assert ask("queue", "create", ODD, "--type", "quote").stdout == f"{ODD} takes quote\n"
    assert ask("queue", "put", ODD, json.dumps(quote(1, ODD)), json.dumps(quote(2))).returncode == 0
    assert ODD in ask("queue", "list").stdout
    assert ODD in ask("queue", "show", ODD).stdout
    written = ODD.replace("'", "''")
    assert sizes(ask("queue", "get", ODD, "--where", f"symbol = '{written}'", "--peek")) == [1]
    refused(ask("queue", "get", ODD, "--where", f"symbol = '{ODD}'"), "line 1")
    refused(ask("queue", "browse", ODD, "--where", "size = 1; delete from queues"), "';' has no use here")
    refused(ask("queue", "get", ODD, "--order", "size; --"), "';'")
    refused(ask("queue", "show", ODD[:-1]), "did you mean")
    assert counts(client, ODD) == (2, 0, 0)
    assert ask("queue", "purge", ODD, "--where", f"symbol = '{written}'").stdout == f"1 message removed from {ODD}\n"
    assert ask("queue", "purge", ODD, "--yes").returncode == 0
    assert ask("queue", "delete", ODD).stdout == f"{ODD} is deleted\n"


def test_a_queue_that_is_there_stays_as_it_is(ask, filled):
    assert ask("queue", "create", filled, "--type", "quote").returncode == 0
    refused(ask("queue", "create", filled, "--type", "quote", "--level", "ordered"), "is there, and is another")
    refused(ask("queue", "create", "", "--type", "quote"), "one at least")


# put


def test_messages_come_from_arguments_pipes_and_files(ask, client, queue, tmp_path):
    assert ask("queue", "put", queue, "symbol=A", "price=1", "size=1").stderr == f"1 message enqueued in {queue}\n"
    text = "".join(json.dumps(quote(size)) + "\n" for size in range(2, 7))
    assert ask("queue", "put", queue, text=text).stderr == f"5 messages enqueued in {queue}\n"
    heard = ask("queue", "put", queue, "-", "--per-transaction", "2", "--quiet", "--ids", text=text)
    assert heard.stderr == ""
    ids = [line.split("/") for line in heard.stdout.splitlines()]
    assert [[int(s), int(t), int(m)] for s, t, m in ids] == sorted([int(s), int(t), int(m)] for s, t, m in ids)
    assert [sum(each[1] == t for each in ids) for t in dict.fromkeys(each[1] for each in ids)] == [2, 2, 1]
    file = tmp_path / "quotes.csv"
    file.write_text("symbol,price,size\nA,1,7\nB,2,8\nC,3,9\n")
    heard = ask("queue", "put", queue, "--file", file, "--per-transaction", "2").stderr
    assert heard.startswith(f"3 messages enqueued in {queue}, in 2 transactions in ")
    assert sizes(ask("queue", "get", queue, "--count", "100")) == [1, 2, 3, 4, 5, 6, 2, 3, 4, 5, 6, 7, 8, 9]


def test_headers_of_messages_are_options(ask, client, queue):
    ask("queue", "put", queue, "symbol=A", "price=1", "size=1")
    ask("queue", "put", queue, "symbol=A", "price=1", "size=2", "--priority", "7")
    ask("queue", "put", queue, "symbol=A", "price=1", "size=3", "--not-before", "2999-01-01T00:00:00Z")
    ask("queue", "put", queue, "symbol=A", "price=1", "size=4", "--expires", "0s")
    found = lines(ask("queue", "get", queue, "--count", "9", "--envelope"))
    assert [(each["message"]["size"], each["priority"], each["deliveries"]) for each in found] == [
        (2, 7.0, 0),
        (1, 0.0, 0),
    ]
    assert all(re.fullmatch(r"\d+/\d+/\d+", each["id"]) and each["type"] == "quote" for each in found)
    at = datetime.fromisoformat(found[0]["enqueued_at"])
    assert abs((datetime.now(UTC) - at).total_seconds()) < PATIENCE
    assert client.queue(queue).figures["delayed"] == 1
    refused(ask("queue", "put", queue, "size=1", "--delay", "soon"), "'soon' is not a duration")
    refused(ask("queue", "put", queue, "size=1", "--not-before", "2999-01-01"), "time zone")
    refused(
        ask("queue", "put", queue, "symbol=A", "price=1", "size=1", "--priority", "nan"),
        "finite",
        "nothing was enqueued",
    )


def test_what_does_not_fit_is_told_with_its_line_and_its_transaction_is_undone(ask, client, queue):
    good = json.dumps(quote(1)) + "\n"
    for wrong, words in {
        '{"symbol": "A"': "not JSON",
        '{"symbol": "A"}': "missing",
        '{"symbol": "A", "price": 1, "size": "many"}': "size",
        '{"symbol": "A", "price": 1, "siz": 1}': "did you mean 'size'?",
        "[1, 2]": "line 4",
        '{"symbol": "a\\u0000b", "price": 1, "size": 1}': "0000",
    }.items():
        heard = ask("queue", "put", queue, "-", "--per-transaction", "2", text=3 * good + wrong)
        refused(heard, words, "(2 messages before it were enqueued)")
        assert counts(client, queue) == (2, 0, 0), wrong
        assert ask("queue", "purge", queue, "--yes").returncode == 0
        refused(ask("queue", "put", queue, wrong), "nothing was enqueued")
    assert counts(client, queue) == (0, 0, 0)


def test_a_message_over_a_limit_is_told_with_how_many_were_enqueued(ask, client):
    costly = " + ".join(["length(lower(text))"] * 40)
    client.declare_queue("costly", "note", priorities={"note": costly})
    texts = "".join(json.dumps({"text": "a" * size}) + "\n" for size in (1, 2, 2_000_000))
    heard = ask("queue", "put", "costly", "-", "--per-transaction", "1", text=texts)
    refused(heard, "QUERY_VALUE_BYTES", "(2 messages before it were enqueued)")
    assert counts(client, "costly") == (2, 0, 0)


def test_a_queue_of_several_types_wants_to_know_which(ask, client):
    client.declare_queue("mixed", ["quote", "note"])
    refused(ask("queue", "put", "mixed", "text=hello"), "takes messages of quote, note", "--type")
    refused(ask("queue", "put", "mixed", "text=hello", "--type", "notes"), "does not take", "quote, note")
    assert ask("queue", "put", "mixed", "text=hello", "--type", "note").returncode == 0
    refused(ask("queue", "get", "mixed", "--where", "text = 'hello'"), "name one of quote, note")
    refused(ask("queue", "get", "mixed", "--type", "quote"), "nothing in mixed")
    assert lines(ask("queue", "get", "mixed")) == [{"text": "hello"}]


# get


def test_messages_are_taken_by_content_and_order_once(ask, filled):
    found = ask("queue", "get", filled, "--count", "2", "--where", "size > 1", "--order", "size desc")
    assert sizes(found) == [4, 3]
    assert sizes(ask("queue", "get", filled, "--where", "size > 0 and symbol = 'IBM'")) == [1]
    assert sizes(ask("queue", "get", filled, "-n", "10")) == [0, 2]
    assert refused(ask("queue", "get", filled)) == f"milepost: there was nothing in {filled}\n"
    refused(ask("queue", "get", filled, "--where", "size > 9", "--timeout", "0.1"), "that qualifies within 0.1 s")


def test_what_is_kept_goes_back_and_what_is_peeked_at_stays(ask, client, filled):
    assert sizes(ask("queue", "get", filled, "--peek", "--count", "2")) == [0, 1]
    assert sizes(ask("queue", "get", filled, "--keep", "--count", "2")) == [0, 1]
    found = lines(ask("queue", "get", filled, "--peek", "--count", "9", "--envelope"))
    assert [each["deliveries"] for each in found] == [1, 1, 0, 0, 0]
    assert counts(client, filled) == (5, 0, 0)


def test_a_get_waits_for_what_comes(broker, ask, client, queue):
    waiting = started(
        "queue", "get", queue, "--timeout", "inf", "--where", "size = 2", "--broker", broker.address,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert ask("queue", "put", queue, json.dumps(quote(1)), json.dumps(quote(2))).returncode == 0
    out, _ = waiting.communicate(timeout=PATIENCE)
    assert (waiting.returncode, json.loads(out)["size"]) == (0, 2)
    assert sizes(ask("queue", "get", queue)) == [1]


def test_what_nobody_reads_is_not_taken(broker, client, filled):
    getting = started("queue", "get", filled, "-n", "9", "--broker", broker.address, stdout=subprocess.PIPE)
    getting.stdout.close()
    assert getting.wait(PATIENCE) == 1
    assert counts(client, filled) == (5, 0, 0)


def test_an_order_of_the_paper_goes_in_and_out(ask, client, tmp_path):
    assert ask("type", "create", ORDER).returncode == 0
    items = "count(select ol.item from mt_OrderMessage om, om.root o, o.lines ol)"
    assert ask("queue", "create", "paper", "-t", "OrderMessage", "--priority", items).returncode == 0
    made = [
        {"id": number, "name": name, "lines": [{"line_no": at, "price": 1.0, "item": [{"id": 7, "name": "ink"}]}
                                               for at in range(number)]}
        for number, name in enumerate(["Smith", "Jones", "Smith", "Smith"])
    ]  # fmt: skip
    assert ask("queue", "put", "paper", text="".join(json.dumps(each) + "\n" for each in made)).returncode == 0
    select = "select om from mt_OrderMessage om, om.root o where o.name = 'Smith'"
    assert lines(ask("queue", "get", "paper", "-n", "2", "--where", select, "--order", f"{items} desc")) == [
        made[3], made[2]
    ]  # fmt: skip
    assert [each["id"] for each in lines(ask("queue", "get", "paper", "-n", "9"))] == [1, 0]
    refused(ask("queue", "get", "paper", "--where", "select om from mt_OrderMessage om, order_line ol"), "^")


def test_a_block_is_taken_whole_or_not_at_all(ask, client):
    client.declare_queue("blocks", "quote", level="blockwise")
    with client.transaction() as tx:
        receipt = tx.enqueue("blocks", [quote(1), quote(2)])
    heard = ask("queue", "get", "blocks")
    assert json.loads(heard.stdout)["size"] == 1
    refused(heard, receipt.mids[1])
    assert counts(client, "blocks") == (2, 0, 0)
    assert sizes(ask("queue", "get", "blocks", "--count", "2")) == [1, 2]


# browse, move, purge


def test_a_queue_is_browsed_page_by_page_and_nothing_is_taken(ask, client, filled):
    page = ask("queue", "browse", filled, "--count", "2", "--where", "size > 0")
    rows = page.stdout.splitlines()
    assert rows[0].split() == ["id", "enqueued", "priority", "deliveries", "message"]
    assert [json.loads(row.split(maxsplit=4)[4])["size"] for row in rows[1:]] == [1, 2]
    last = rows[-1].split()[0]
    assert page.stderr == f"there are more: --after {last} continues, --count shows more at once\n"
    rest = ask("queue", "browse", filled, "--after", last)
    assert [json.loads(row.split(maxsplit=4)[4])["size"] for row in rest.stdout.splitlines()[1:]] == [3, 4]
    assert rest.stderr == ""
    found = lines(ask("queue", "browse", filled, "--json"))
    assert [each["message"]["size"] for each in found] == [0, 1, 2, 3, 4]
    assert ask("queue", "browse", filled, "--where", "size > 9").stdout == f"nothing in {filled} that qualifies\n"
    assert counts(client, filled) == (5, 0, 0)
    refused(ask("queue", "browse", filled, "--after", "there"), "not an ID of a message")
    refused(ask("queue", "browse", filled[:-1]), f"did you mean '{filled}'?")
    refused(ask("queue", "browse", filled, "--where", "sise > 1"), "did you mean 'size'?", "^")


def test_messages_are_shown_without_what_a_terminal_would_obey(ask, client, queue):
    with client.transaction() as tx:
        tx.enqueue(queue, quote(1, "\x1b[31m[red]\x07"))
    shown = ask("queue", "browse", queue).stdout
    assert "\x1b" not in shown
    assert "\x07" not in shown
    assert "[red]" in shown


def test_the_dead_are_found_and_brought_back(ask, client):
    ask("queue", "create", "work", "--type", "quote", "--dead-letter", "work.dead", "--max-deliveries", "2")
    assert ask("queue", "put", "work", json.dumps(quote(1)), json.dumps(quote(2, "B"))).returncode == 0
    for _ in range(2):
        assert sizes(ask("queue", "get", "work", "--keep", "--where", "size = 1")) == [1]
    (dead,) = lines(ask("queue", "browse", "work.dead", "--json"))
    assert (dead["message"]["size"], dead["deliveries"]) == (1, 2)
    moved = ask("queue", "move", "work.dead", "work", "--where", "symbol = 'IBM'", "--count", "5")
    assert moved.stdout == "1 message moved from work.dead to work\n"
    assert [each["deliveries"] for each in lines(ask("queue", "get", "work", "-n", "9", "--envelope"))] == [0, 0]
    refused(ask("queue", "move", "work", "work"), "is where these messages are")
    refused(ask("queue", "move", "work", "wrok"), "did you mean 'work'?")


def test_a_message_moves_only_to_a_queue_that_takes_it(ask, client, filled):
    client.declare_queue("notes", "note")
    refused(ask("queue", "move", filled, "notes"), "does not take messages of type quote")
    assert counts(client, filled) == (5, 0, 0)


def test_purge_asks_unless_it_is_told_what(ask, client, filled):
    refused(ask("queue", "purge", filled), "5 messages would be removed", "--yes", "nothing was removed")
    refused(ask("queue", "purge", filled, "--where", "prise = 1"), "did you mean 'price'?")
    assert counts(client, filled) == (5, 0, 0)
    assert ask("queue", "purge", filled, "--where", "size >= 3").stdout == f"2 messages removed from {filled}\n"
    assert ask("queue", "purge", filled, "--count", "1", "--yes").stdout == f"1 message removed from {filled}\n"
    assert sizes(ask("queue", "get", filled, "-n", "9")) == [1, 2]


def test_without_a_broker_each_command_is_one_sentence(ask):
    nowhere = f"milepost://127.0.0.1:{free_port()}"
    for arguments in (
        ["create", "x", "-t", "quote"], ["list"], ["show", "x"], ["delete", "x"], ["put", "x", "size=1"], ["get", "x"],
        ["browse", "x"], ["move", "x", "y"], ["purge", "x", "--yes"],
    ):  # fmt: skip
        heard = refused(ask("queue", *arguments, "--broker", nowhere), nowhere, "milepost up")
        assert len(heard.splitlines()) == 1


# transfer


def test_a_queue_goes_on_to_another_broker(ask, filled, tmp_path):
    other = Up(tmp_path / "stderr", "--listen", "127.0.0.1:0", "--http", "", "--zmq", "", "--store", tmp_path / "o.db")
    try:
        with Client(other.address) as there:
            there.declare_type(QUOTE)
            there.declare_queue("there", "quote")
            went = ask("queue", "transfer", filled, f"{other.address}/there", "--once")
            assert went.stdout == f"5 messages of {filled} went to there at {other.address}\n", went.stderr
            assert [message.size for message in there.browse("there")] == [0, 1, 2, 3, 4]
        assert ask("queue", "resolve").stdout == "Nothing is in doubt.\n"
        refused(ask("queue", "transfer", filled, other.address), "names no queue")
    finally:
        other.stop()
