"""The synchronous client, against a broker in another thread."""

import asyncio
import queue
import subprocess
import sys
import threading

import pytest

import milepost
from milepost import errors, testing

QUOTE = "quote: [symbol: string, price: double, size: int]"


@pytest.fixture
def address():
    """A broker's address, while the test runs."""
    started = queue.Queue()

    async def serve():
        async with testing.broker(listen="milepost://127.0.0.1:0") as broker:
            started.put((broker.uri, asyncio.get_running_loop(), broker))
            await broker.serve()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    uri, loop, broker = started.get(timeout=60)
    yield uri
    loop.call_soon_threadsafe(broker.finish)
    thread.join()


def quotes_of(count):
    return [{"symbol": "IBM", "price": 101.5, "size": size} for size in range(count)]


def test_the_same_verbs(address):
    with milepost.Client(address, name="feed") as client:
        assert client.declare_topic("quotes", QUOTE).created
        assert [topic.name for topic in client.topics()] == ["quotes"]
        with client.subscribe("quotes", "size >= 1") as quotes:
            assert (quotes.pattern, quotes.where, quotes.topics) == ("quotes", "size >= 1", {"quotes"})
            client.put("quotes", quotes_of(2)[1])
            assert quotes.get(timeout=60).size == 1
            assert client.put_many("quotes", quotes_of(10)) == 10
            client.flush()
            sizes = []
            for message in quotes:
                sizes.append(message.size)
                if message.size == 4:
                    break
            assert quotes.get().size == 5  # whoever breaks off leaves the rest
            for message in quotes:
                sizes.append(message.size)
                if message.size == 9:
                    break
            assert sizes == [1, 2, 3, 4, 6, 7, 8, 9]
            client.put_many("quotes", quotes_of(4))
            assert next(iter(quotes)).size == 1
            assert next(quotes.batches()).column("size").tolist() == [2, 3]
            assert quotes.get(timeout=0) is None
        assert list(quotes) == []
        with pytest.raises(AttributeError, match="no 'nothing'"):
            _ = quotes.nothing
        assert client.statistics().rows_put == 15
        assert isinstance(client.status(), dict)
        client.delete_topic("quotes")
        with pytest.raises(errors.UnknownTopic):
            client.put("quotes", quotes_of(1)[0])


def test_errors_come_through(address):
    with milepost.Client(address) as client:
        client.declare_topic("quotes", QUOTE)
        with pytest.raises(errors.InvalidValue, match="size"):
            client.put("quotes", {"symbol": "IBM", "price": 1.0, "size": "many"})
        with pytest.raises(errors.QueryTypeError):
            client.subscribe("quotes", "prise > 1")
        with pytest.raises(errors.UnknownSubscription):
            client.unsubscribe("quotes")
    with pytest.raises(errors.Closed):
        client.put("quotes", quotes_of(1)[0])
    with pytest.raises(errors.Closed):
        client.connect()
    with pytest.raises(errors.ConnectionLost), milepost.Client("milepost://127.0.0.1:1"):
        pass


def test_many_threads_may_put(address):
    with milepost.Client(address) as client:
        client.declare_topic("quotes", QUOTE)
        quotes = client.subscribe("quotes")
        threads = [
            threading.Thread(target=lambda: [client.put("quotes", row) for row in quotes_of(50)]) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        seen = []
        for message in quotes:
            seen.append(message.size)
            if len(seen) == 200:
                break
        for thread in threads:
            thread.join()
        assert sorted(seen) == sorted([*range(50)] * 4)


def test_callbacks_run_in_the_clients_thread(address):
    with milepost.Client(address) as client:
        client.declare_topic("quotes", QUOTE)
        came = queue.Queue()
        subscription = client.subscribe("quotes", callback=lambda message: came.put(message.size))
        client.put_many("quotes", quotes_of(3))
        assert [came.get(timeout=60) for _ in range(3)] == [0, 1, 2]
        client.unsubscribe(subscription)


def test_leaving_ends_a_loop_in_another_thread(address):
    with milepost.Client(address) as client:
        client.declare_topic("quotes", QUOTE)
        quotes = client.subscribe("quotes")
        began = threading.Event()
        seen = []

        def read():
            for message in quotes:
                seen.append(message.size)
                began.set()

        reader = threading.Thread(target=read)
        reader.start()
        client.put("quotes", quotes_of(1)[0])
        assert began.wait(20)
        quotes.unsubscribe()
        reader.join(20)
        assert not reader.is_alive()
        assert seen == [0]


def test_durable_topics(address):
    with milepost.Client(address) as client:
        assert client.declare_topic("kept", QUOTE, durable=True, retain=milepost.Retention(age_s=60.0)).durable
        desk = client.subscribe("kept", name="desk")
        client.put("kept", quotes_of(1)[0])
        client.put("kept", quotes_of(2)[1], wait=False)
        client.flush()
        with client.atomic() as together:
            together.put_many("kept", quotes_of(5)[2:])
        assert client.get("kept").size == 0
        assert desk.get(timeout=60).size == 1
        assert (desk.offset, desk.deliveries, desk.position) == (1, 0, {desk.log: 2})
        assert [message.size for message in client.get_many("desk", 2)] == [2, 3]
        for message in desk:
            assert message.size == 4
            break
        desk.close()
        (told,) = client.look("kept")["subscriptions"]
        assert told["behind"] == 1  # the loop did not come back
        with client.subscribe("kept", name="desk", ack="explicit") as again:
            (message,) = again.get_many(5, timeout=60)
            assert (message.size, again.deliveries) == (4, 1)
            again.nack(message)
            again.get(timeout=60)
            again.ack()
            with pytest.raises(errors.NotExpectingAck):
                again.ack()
        replay = client.subscribe("kept", start="earliest")
        assert [message.size for message in next(replay.batches())][:1] == [0]
        client.detach(replay)
        assert client.trim("kept", replay.position) == 5
        client.unsubscribe(name="desk")
        with pytest.raises(errors.UnknownSubscription):
            client.subscribe("kept", name="desk", create=False)
        with pytest.raises(AttributeError):
            _ = client.subscribe("kept").position
        with pytest.raises(errors.InvalidValue, match="not durable"):
            client.subscribe("kept").ack()
        for odd in (client.subscribe("kept"), "kept"):
            with pytest.raises(errors.InvalidValue, match="with a name or a start"):
                client.detach(odd)
        assert len(client.broker_id) == 32


def test_an_atomic_put_that_is_left_by_an_exception_stores_nothing(address):
    def fails(client):
        with client.atomic() as together:
            together.put("kept", quotes_of(1)[0])
            raise ZeroDivisionError

    with milepost.Client(address) as client:
        client.declare_topic("kept", QUOTE, durable=True)
        with pytest.raises(ZeroDivisionError):
            fails(client)
        assert [log["next"] for log in client.look("kept")["logs"]] in ([], [0])


FORKED = """
import os, sys
import milepost

with milepost.Client(sys.argv[1]) as client:
    client.declare_topic("quotes", "quote: [n: int]", durable=True)
    quotes = client.subscribe("quotes")
    child = os.fork()
    if not child:
        said = []
        for call in (client.topics, lambda: client.put("quotes", {"n": 1}), lambda: quotes.get(timeout=60),
                     lambda: client.transaction().__enter__().enqueue("q", {"n": 1})):
            try:
                call()
            except milepost.errors.Closed as error:
                said.append("forked" in str(error))
        client.close()
        with milepost.Client(sys.argv[1]) as own:
            own.put("quotes", {"n": 2})
        os._exit(0 if said == [True] * 4 else 1)
    _, status = os.waitpid(child, 0)
    client.put("quotes", {"n": 3})
    print(os.waitstatus_to_exitcode(status), quotes.get(timeout=60).n, quotes.get(timeout=60).n)
"""


def test_a_client_in_a_forked_child_says_so_at_once(address):
    """And neither what the child does with it nor its end harms the parent's."""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKED, address],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("0 2 3", 0), done.stderr
