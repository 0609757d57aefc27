"""The account of all bytes that are held: it is what its connections hold, and nothing when they are gone."""

import random

import pytest

from milepost.broker.core.memory import ANSWER_BYTES, DECODED, LEAST_ANSWER, MESSAGE_BYTES, Barrier
from milepost.wire import Credit, Dequeue, Publish

from .rig import Rig, quotes


def held(rig):
    return sum(connection.held for connection in rig.core.connections.values())


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", ["throttle", "drop", "disconnect"])
def test_whatever_happens_the_account_is_what_the_connections_hold(policy, seed):
    chance = random.Random(f"{policy} {seed}")
    rig = Rig(queue_bytes=4096, put_window=8192, join_bytes=1024, memory_bytes=1 << 20)
    memory = rig.core.memory
    feed = rig.client("feed")
    rig.declare(feed, slow=policy)
    readers = []
    for _ in range(250):
        match chance.randrange(8):
            case 0 if len(readers) < 6:
                readers.append(rig.client(window=chance.choice([1, 300, 100_000])))
                rig.subscribe(readers[-1], where=chance.choice([None, "size < 3", "size >= 3"]))
            case 1 | 2 | 3 if feed.outstanding < 8192:
                rig.put(feed, quotes(chance.randrange(1, 8)))
            case 4 if readers:
                reader = chance.choice(readers)
                if reader.open and reader.window > reader.credit:
                    rig.say(reader, Credit(chance.randrange(1, reader.window - reader.credit + 1)))
            case 5 if readers:
                reader = chance.choice(readers)
                rig.taking[reader] = False
                if reader.open:
                    size = chance.randrange(1, 1000)
                    rig.core.delivery.blocked(reader, reader.unsent + size, size)
            case 6 if readers:
                reader = chance.choice(readers)
                rig.taking[reader] = True
                if reader.open:
                    rig.run(rig.core.delivery.drained(reader))
            case 7 if chance.random() < 0.2 and readers:
                reader = readers.pop(chance.randrange(len(readers)))
                rig.run(rig.core.lost(reader))
                memory.unsent(reader, 0)
        for reader in [each for each in readers if not each.open]:
            readers.remove(reader)
            memory.unsent(reader, 0)
        assert memory.held == held(rig), f"seed {seed}"
        assert all(connection.held >= 0 for connection in rig.core.connections.values())
    for reader in [*readers, feed]:
        rig.run(rig.core.lost(reader))
        memory.unsent(reader, 0)
    assert memory.held == 0


def test_rows_that_several_wait_for_count_once():
    rig = Rig()
    feed = rig.client("feed")
    rig.declare(feed)
    readers = [rig.client(window=1) for _ in range(10)]
    for reader in readers:
        rig.subscribe(reader)
    rig.put(feed, quotes(1))  # takes all of their credit
    size = rig.put(feed, quotes(1_000))
    assert size <= rig.core.memory.held <= 1.1 * size


def test_when_memory_is_short_a_slow_reader_has_less_room_than_the_setting_says():
    rig = Rig(memory_bytes=1 << 20, queue_bytes=8 << 20)
    feed, reader = rig.client("feed"), rig.client("reader", window=1)
    rig.declare(feed, slow="drop")
    rig.subscribe(reader)
    for _ in range(200):
        rig.put(feed, quotes(500))
    assert reader.dropped_rows > 0
    assert rig.core.memory.held < 1 << 20


def test_a_request_counts_as_what_it_is_decoded_to_until_it_is_answered():
    rig = Rig(put_window=100_000)
    client, memory = rig.client(), rig.core.memory
    request = Publish(request=7, sink="s", epoch=1, parts=[(1, 1)])
    memory.asked(client, request, 10_000)
    assert memory.held == client.held == 10_000 * DECODED
    assert memory.full(client)
    memory.asked(client, request, 1)  # the same number again: neither is answered before both are
    memory.answered(client, 7)
    assert memory.full(client)
    memory.answered(client, 7)
    memory.answered(client, 7)
    assert memory.held == client.held == 0


def test_dequeues_that_wait_do_not_keep_a_client_from_saying_more():
    rig = Rig(put_window=100_000)
    client, memory = rig.client(), rig.core.memory
    for number in range(1, 101):
        memory.asked(client, Dequeue(request=number, transaction=number, step=1, queue="q", wait_s=60.0), 100)
    assert client.held == 100 * 100 * DECODED
    assert not memory.full(client)
    memory.asked(client, Dequeue(request=1_000, queue="q", peek=True), 10_000)
    assert memory.full(client), "a peek waits for nothing"


def test_only_who_holds_more_than_its_share_has_to_wait():
    rig = Rig(memory_bytes=1 << 20)
    greedy, modest = rig.client(), rig.client()
    memory = rig.core.memory
    memory.partial(greedy, 600_000)
    memory.partial(modest, 1_000)
    assert memory.scarce
    assert memory.over(greedy)
    assert not memory.over(modest)
    memory.partial(greedy, 0)
    assert not memory.scarce


def test_answers_become_short_as_memory_does_and_never_vanish():
    rig = Rig(memory_bytes=64 << 20)
    memory, client = rig.core.memory, rig.client()
    assert memory.answer_bytes() == ANSWER_BYTES
    assert memory.messages("q", 1_000_000) == ANSWER_BYTES // MESSAGE_BYTES
    memory.measured("q", 10, 10 * 100_000)
    assert memory.messages("q", 1_000_000) == ANSWER_BYTES // 100_000
    memory.measured("q", 10, 10 * 100)
    assert memory.messages("q", 1_000_000) < ANSWER_BYTES // 40_000, "one small one does not mean that all are"
    memory.unsent(client, 63 << 20)
    assert memory.answer_bytes() == 1 << 20
    memory.unsent(client, 100 << 20)
    assert memory.answer_bytes() == LEAST_ANSWER
    assert memory.messages("q", 100) == 1
    assert memory.messages("q", 1) == 1


def test_what_a_lost_connection_gave_to_the_store_counts_until_the_store_is_done():
    rig = Rig()
    rig.core.durable.on = True
    client, memory = rig.client(), rig.core.memory
    rig.declare(client)
    rig.core.put(client, rig.core.topics["quotes"].number, bytes(64), 1_000_000)
    memory.asked(client, Publish(request=7, sink="s", epoch=1, parts=[]), 100)
    effects = rig.core.lost(client)
    assert memory.held == 1_000_000 + 100 * DECODED
    (barrier,) = [effect for effect in effects if getattr(effect, "operation", None) == Barrier()]
    assert barrier.then(None) == []
    assert memory.held == 0
