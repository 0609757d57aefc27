"""Puts to durable topics: stored once, in order, whatever happens to connections."""

import asyncio
import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.batch import Batch, Ids
from milepost.client.outbox import GATHERED_ROWS, IDS_BYTES, PUT_HEADER
from milepost.errors import (
    Closed,
    ConnectionLost,
    DuplicateMessage,
    InvalidValue,
    LimitExceeded,
    NotDurable,
    StateLost,
    StoreFull,
    TimedOut,
    UnknownTopic,
)
from milepost.query import parse_schema
from milepost.wire import Declare, Failure, Hello, Resume, Stored
from tests.unit.client.storing import SCHEMA, Eager, rows, with_store


def test_a_put_returns_when_it_is_stored():
    async def test(store, client):
        store.paused = True
        putting = asyncio.create_task(client.put("kept", {"n": 1}))
        await store.until(lambda: store.values() == [1])
        assert not putting.done()
        store.peer.say(Stored(1))
        await putting
        assert not client._publisher.durable_puts.unsettled

    with_store(test)


def test_puts_that_run_together_are_stored_together():
    async def test(store, client):
        await client.declare_topic("kept", "s: [n: int]")
        await asyncio.gather(*(client.put("kept", {"n": n}) for n in range(500)))
        assert store.values() == list(range(500))
        assert len(store.batches) == 1

    with_store(test)


def test_many_at_once_and_what_was_put_before_leaves_before():
    async def test(store, client):
        await client.put("kept", {"n": 0}, wait=False)
        assert await client.put_many("kept", rows(range(1, 4))) == 3
        assert await client.put_many("kept", iter(rows(range(4, 6)))) == 2
        assert store.values() == [0, 1, 2, 3, 4, 5]

    with_store(test)


def test_without_waiting_flush_says_what_became_of_it():
    async def test(store, client):
        for n in range(3_000):
            await client.put("kept", {"n": n}, wait=False)
        await client.flush()
        assert store.values() == list(range(3_000))
        store.faults = iter(["store"])
        await client.put("kept", {"n": -1}, wait=False)
        with pytest.raises(StoreFull):
            await client.flush()
        await client.flush()
        await client.put("kept", {"n": 3_000})
        assert store.values()[-2:] == [2_999, 3_000]

    with_store(test)


def test_rows_that_nobody_waits_for_leave_with_one_that_is_waited_for():
    async def test(store, client):
        await client.declare_topic("kept", "s: [n: int]")
        for n in range(3):
            await client.put("kept", {"n": n}, wait=False)
        with pytest.raises(InvalidValue):
            await client.put("kept", {"n": "three"}, wait=False)
        with pytest.raises(InvalidValue):
            await client.put("kept", {"n": "three"})
        await client.put("kept", {"n": 3})
        assert store.batches == [[0, 1, 2, 3]]
        await client.put("kept", {"n": 4}, wait=False)
        await client.put("other", {"n": 5})
        await client.flush()
        assert (store.values(), store.values("other")) == ([0, 1, 2, 3, 4], [5])

    with_store(test)


def test_rows_that_nobody_waits_for_wait_while_nothing_can_be_sent():
    async def test(store, client):
        await client.put("kept", {"n": 0})
        store.deaf = True
        store.peer.cut()
        await store.until(lambda: len(store.heard(Hello)) == 2)

        async def put():
            for n in range(1, 6_000):
                await client.put("kept", {"n": n}, wait=False)

        putting = asyncio.create_task(put())
        await asyncio.sleep(0)
        assert not putting.done()  # the outbox is bounded
        store.deaf = False
        store.peer.cut()
        await putting
        await client.flush()
        assert store.values() == list(range(6_000))

    with_store(test, eager=True)


def test_a_client_that_is_closed_takes_no_more_rows_however_they_are_put():
    async def test(store, client):
        await client.put("kept", {"n": 0})
        await client.put("kept", {"n": 1}, wait=False)
        await client.close(drain=False)
        with pytest.raises(Closed):
            await client.put("kept", {"n": 2}, wait=False)

    with_store(test)


def test_rows_that_wait_for_room_leave_when_what_took_it_is_refused():
    async def test(store, client):
        await client.put("kept", {"n": 0})
        store.welcome["window"] = 100
        store.peer.cut()
        await store.until(lambda: len(store.connections) == 2)
        await client.put("kept", {"n": 1})
        store.faults = iter(["store"])
        with pytest.raises(StoreFull):
            await asyncio.gather(client.put_many("kept", rows(range(100))), client.put("kept", {"n": 2}, wait=False))
        await store.until(lambda: store.values() == [0, 1, 2])

    with_store(test, eager=True)


def test_what_is_not_settled_is_bounded_by_the_put_window():
    async def test(store, client):
        store.paused = True
        store.welcome["window"] = 4_096
        store.peer.cut()
        await store.until(lambda: len(store.connections) == 2)
        putting = asyncio.create_task(client.put_many("kept", iter(rows(range(100_000)))))
        with pytest.raises(TimedOut):
            await client.flush(timeout=0.05)
        assert not putting.done()
        assert len(client._publisher.durable_puts.unsettled) == 1  # one frame may overshoot
        store.paused = False
        store.peer.say(Stored(1))
        assert await putting == 100_000
        assert store.values() == list(range(100_000))

    with_store(test)


def test_a_key_makes_a_put_idempotent():
    async def test(store, client):
        key = uuid.uuid4()
        await client.put("kept", {"n": 1}, key=key)
        with pytest.raises(DuplicateMessage):
            await client.put("kept", {"n": 1}, key=key.bytes)
        await client.put("kept", {"n": 2}, key=uuid.uuid4())
        assert store.values() == [1, 2]
        with pytest.raises(InvalidValue, match="3 bytes"):
            await client.put("kept", {"n": 1}, key=b"abc")
        with pytest.raises(NotDurable, match="live"):
            await client.put("live", {"n": 1}, key=key)
        await client.flush()

    with_store(test)


def test_a_keyed_put_without_waiting_returns_from_the_outbox_and_flush_tells_of_duplicates():
    async def test(store, client):
        used = uuid.uuid4()
        await client.put("kept", {"n": 0}, key=used)
        store.deaf = True
        store.peer.cut()
        await store.until(lambda: len(store.heard(Hello)) == 2)
        for n in range(1, 4):  # nothing is connected: these wait in the outbox, in their order
            await client.put("kept", {"n": n}, key=uuid.uuid4(), wait=False)
        await client.put("kept", {"n": -1}, key=used, wait=False)
        await client.put("kept", Batch.encode(SCHEMA, rows([4]), Ids.one(1, 2, 3)), key=uuid.uuid4(), wait=False)
        waited_for = asyncio.create_task(client.put("kept", {"n": 5}))
        store.deaf = False
        store.peer.cut()
        await waited_for  # a duplicate beside it is not its own
        with pytest.raises(DuplicateMessage, match=str(used)):
            await client.flush()
        assert store.values() == list(range(6))
        with pytest.raises(InvalidValue):
            await client.put("kept", {"n": "six"}, key=uuid.uuid4(), wait=False)
        await client.flush()

    with_store(test, eager=True)


def test_a_duplicate_does_not_hide_from_flush_that_something_was_not_stored():
    async def test(store, client):
        key = uuid.uuid4()
        await client.put("kept", {"n": 0}, key=key)
        store.faults = iter(["", "store"])
        await client.put("kept", {"n": 0}, key=key, wait=False)
        await client.put("kept", {"n": 1}, key=uuid.uuid4(), wait=False)
        with pytest.raises(StoreFull):
            await client.flush()
        await client.put("kept", {"n": 0}, key=key, wait=False)
        await client.put("live", {"n": 0})
        store.peer.cut()
        with pytest.raises(ConnectionLost):
            await client.flush()
        assert store.values() == [0]

    with_store(test, eager=True)


def test_keyed_puts_without_waiting_are_bounded_by_the_outbox():
    async def test(store, client):
        await client.put("kept", {"n": 0})
        store.deaf = True
        store.peer.cut()
        await store.until(lambda: len(store.heard(Hello)) == 2)

        async def put():
            for n in range(1, GATHERED_ROWS + 2):
                await client.put("kept", {"n": n}, key=uuid.UUID(int=n), wait=False)

        putting = asyncio.create_task(put())
        await asyncio.sleep(0)
        assert client.statistics().rows_waiting == GATHERED_ROWS
        assert not putting.done()
        store.deaf = False
        store.peer.cut()
        await putting
        await client.flush()
        assert store.values() == list(range(GATHERED_ROWS + 2))

    with_store(test, eager=True)


async def reconnected(store, **welcome):
    """A new connection, under another welcome."""
    store.welcome |= welcome
    before = len(store.connections)
    store.peer.cut()
    await store.until(lambda: len(store.connections) == before + 1)


def test_keyed_puts_without_waiting_stay_within_the_put_window():
    async def test(store, client):
        await client.put("kept", {"n": 0})
        await client.put("live", {"n": 0})
        await client.flush()
        await reconnected(store, window=4_096)
        numbers = itertools.count(1)

        async def fill():
            store.busy = True
            for n in itertools.islice(numbers, 300):
                await client.put("kept", {"n": n}, key=uuid.UUID(int=n), wait=False)
            await store.until(lambda: store.peer.outstanding >= 4_096)

        async def answered(put):
            putting = asyncio.create_task(put())
            await asyncio.sleep(0)
            store.busy = False
            store.peer.credit()
            await putting

        async def together():
            async with client.atomic() as atomic:
                atomic.put_many("kept", rows([next(numbers)]))

        for put in (
            lambda: client.put("kept", {"n": next(numbers)}),
            lambda: client.put("kept", {"n": next(numbers)}, key=uuid.uuid4()),
            lambda: client.put("kept", {"n": next(numbers)}, wait=False),
            lambda: client.put_many("kept", rows([next(numbers)])),
            lambda: client.put("live", {"n": 0}),
            together,
        ):
            await fill()
            await answered(put)  # behind a full window, and behind what waits for room
        await client.flush()
        assert store.values() == list(range(next(numbers)))
        assert max(map(len, store.batches)) < 10

    with_store(test, eager=True)


def test_a_put_behind_others_that_wait_for_room_does_not_fail_with_one_before_them():
    async def test(store, client):
        await client.put("kept", {"n": 0})
        await reconnected(store, window=1_000)
        await client.put("kept", {"n": 1})
        store.faults = iter(["store"])
        before = asyncio.create_task(client.put("kept", {"n": 2}))
        await asyncio.sleep(0)
        for n in range(3, 103):
            await client.put("kept", {"n": n}, key=uuid.UUID(int=n), wait=False)
        behind = asyncio.create_task(client.put("kept", {"n": 103}))
        with pytest.raises(StoreFull):
            await before
        await behind
        with pytest.raises(StoreFull):
            await client.flush()  # for what had been sent with the one that failed
        assert store.values()[:2] == [0, 1]
        assert store.values()[-2:] == [102, 103]
        assert 2 not in store.values()

    with_store(test, eager=True)


def test_a_row_that_leaves_no_room_for_its_id_takes_no_other_with_it():
    async def test(store, client):
        store.schema = parse_schema("s: [n: int, text: string]")
        store.welcome["frame_bytes"] = 1 << 16
        store.peer.cut()
        empty = len(Batch.encode(store.schema, [{"n": 0, "text": ""}]).data)
        await client.put("kept", {"n": 0, "text": ""})
        most = (1 << 16) - PUT_HEADER - IDS_BYTES - empty
        with pytest.raises(LimitExceeded, match="frame_bytes"):
            await client.put("kept", {"n": -1, "text": "x" * (most + 1)}, wait=False)
        await client.put("kept", {"n": 1, "text": ""}, key=uuid.uuid4(), wait=False)
        await client.put("kept", {"n": 2, "text": "x" * most}, wait=False)
        await client.flush()
        assert store.values() == [0, 1, 2]
        # The next broker takes smaller frames than the one for which a row was taken.
        store.deaf = True
        await reconnected(store, frame_bytes=1 << 15)
        await client.put("kept", {"n": 3, "text": "y" * 2_000}, wait=False)
        await client.put("kept", {"n": -1, "text": "x" * most}, wait=False)
        await client.put("kept", {"n": 4, "text": ""}, wait=False)
        await client.put("kept", {"n": 5, "text": ""}, key=uuid.uuid4(), wait=False)
        waited_for = asyncio.create_task(client.put("kept", {"n": 6, "text": ""}))
        store.deaf = False
        store.peer.cut()
        await waited_for
        with pytest.raises(LimitExceeded, match="frame_bytes"):
            await client.flush()
        assert store.values() == list(range(7))

    with_store(test, eager=True)


def test_live_puts_of_a_lost_connection_wait_in_the_outbox_and_leave_on_the_next():
    async def test(store, client):
        await client.put("live", {"n": 0})
        await client.flush()
        store.deaf = True
        store.peer.cut()
        await store.until(lambda: len(store.heard(Hello)) == 2)
        for n in range(1, GATHERED_ROWS + 1):
            await client.put("live", {"n": n})  # returns: the outbox has room
        further = [
            asyncio.create_task(client.put("live", {"n": GATHERED_ROWS + 1})),
            asyncio.create_task(client.put_many("live", rows([GATHERED_ROWS + 2]))),
        ]
        await asyncio.sleep(0)
        assert not any(each.done() for each in further)
        store.deaf = False
        store.peer.cut()
        await asyncio.gather(*further)
        await client.flush()
        assert [n for batch in store.batches for n in batch] == list(range(GATHERED_ROWS + 3))

    with_store(test, eager=True)


def test_flush_tells_of_rows_in_the_outbox_of_a_live_topic_that_is_gone():
    async def test(store, client):
        await client.put("live", {"n": 0})
        await client.flush()
        store.deaf = True
        store.peer.cut()
        await store.until(lambda: len(store.heard(Hello)) == 2)
        await client.put("live", {"n": 1})
        store.gone = {"live"}
        store.deaf = False
        store.peer.cut()
        with pytest.raises(UnknownTopic, match="live"):
            await client.flush()

    with_store(test, eager=True)


@pytest.mark.parametrize("fault", ["before", "after", "doubt before", "doubt after"])
def test_a_keyed_put_whose_answer_was_lost_is_no_duplicate(fault):
    async def test(store, client):
        store.faults = iter([fault])
        await client.put("kept", {"n": 1}, key=uuid.uuid4())
        assert store.values() == [1]

    with_store(test)


def test_topics_of_an_atomic_put_are_linked():
    async def test(store, client):
        async with client.atomic() as together:
            together.put("kept", {"n": 1})
            together.put("kept", {"n": 2})
            together.put_many("other", rows([10, 11]))
            together.put("kept", {"n": 3})
        assert together.rows == 5
        assert (store.values(), store.values("other")) == ([1, 2, 3], [10, 11])
        assert len(store.batches) == 2

        async def fails(topic, value):
            async with client.atomic() as together:
                together.put("kept", {"n": 4})
                together.put(topic, {"n": 1 // value if value != "no" else "no"})

        with pytest.raises(ZeroDivisionError):
            await fails("other", 0)
        with pytest.raises(InvalidValue):
            await fails("other", "no")
        with pytest.raises(NotDurable):
            await fails("live", 1)
        async with client.atomic():
            pass
        with pytest.raises(Closed, match="over"):
            together.put("kept", {"n": 4})
        assert (store.values(), store.values("other")) == ([1, 2, 3], [10, 11])

    with_store(test)


@pytest.mark.parametrize("fault", ["before", "after", "doubt before", "doubt after"])
def test_an_atomic_put_is_sent_again_as_a_whole(fault):
    async def test(store, client):
        store.faults = iter([fault])
        async with client.atomic() as together:
            together.put("kept", {"n": 1})
            together.put("other", {"n": 2})
        assert (store.values(), store.values("other")) == ([1], [2])

    with_store(test)


def test_an_atomic_put_that_no_window_takes_is_refused():
    async def test(store, client):
        together = client.atomic()
        together.put_many("kept", rows(range(100_000)))
        together.put("other", {"n": 2})
        with pytest.raises(LimitExceeded, match=r"put_window = 1048576.*raise the limit.*or use stage\(\) and publish"):
            await together.store()
        assert not store.batches
        async with client.atomic() as together:  # the last batch does not count
            together.put("other", {"n": 1})
            together.put_many("kept", {"n": list(range(100_000))})
        assert together.rows == 100_001

    with_store(test)


def test_after_a_failure_of_the_store_everything_in_flight_failed_and_the_next_put_counts():
    async def test(store, client):
        store.faults = iter(["store"])
        first = asyncio.create_task(client.put_many("kept", rows([1])))
        second = asyncio.create_task(client.put_many("other", rows([2])))
        for putting in (first, second):
            with pytest.raises(StoreFull):
                await putting
        await client.put("kept", {"n": 3})
        assert (store.values(), store.values("other")) == ([3], [])
        assert len(store.heard(Resume)) == 1
        await client.flush()  # whoever waited was told: there is no more to say

    with_store(test)


def test_a_failure_of_the_store_while_a_connection_is_restored_costs_no_put_behind_it():
    async def test(store, client):
        await client.put("kept", {"n": 1})
        await client.subscribe("kept", name="desk")  # is restored behind the puts: their failure comes meanwhile
        store.faults = iter(["before", "store"])
        with pytest.raises(StoreFull):
            await client.put("kept", {"n": 2})
        await client.put("kept", {"n": 3})
        assert store.values() == [1, 3]
        assert len(store.heard(Resume)) == 1

    with_store(test)


def test_a_client_without_a_name_is_found_again_by_its_instance():
    async def test(store, client):
        await client.put("kept", {"n": 1})
        store.peer.cut()
        await client.put("kept", {"n": 2})
        first, again = store.heard(Hello)
        assert (first.resume, again.resume) == (False, True)
        assert len(first.instance) == 16
        assert first.instance == again.instance
        assert store.values() == [1, 2]

    with_store(test)


def test_rows_that_go_to_another_broker_of_the_cell_carry_its_number():
    async def test(store, client):
        await client.put("kept", {"n": 1})
        store.faults = iter(["before"])
        putting = asyncio.create_task(client.put("kept", {"n": 2}))
        await store.until(lambda: len(store.batches) == 2)
        store.broker_id = 2
        await putting
        assert store.values() == [1, 2]  # the peer looks at the numbers

    with_store(test)


@pytest.mark.parametrize("fault", ["doubt before", "doubt after"])
def test_while_it_is_not_known_what_became_of_a_put_nothing_is_said(fault):
    """Also when the broker does not come back for longer than a request may take."""

    async def test(store, client):
        await client.put_many("kept", rows([1]))
        await client.put_many("other", rows([1]))
        store.faults = iter([fault])
        store.deaf = True
        client._session.timeout = 0.01  # of each attempt to connect, and of requests
        putting = [asyncio.create_task(client.put("kept", {"n": 2}))]
        await store.until(lambda: len(store.heard(Hello)) >= 2)
        together = client.atomic()
        together.put("other", {"n": 4})
        putting += [
            asyncio.create_task(put)  # while nobody is there
            for put in (
                client.put("kept", {"n": 3}),
                client.put_many("other", rows([2])),
                client.put("other", {"n": 3}, key=uuid.uuid4()),
                together.store(),
            )
        ]
        await asyncio.sleep(0)
        await client.put("kept", {"n": 4}, wait=False)
        await store.until(lambda: len(store.heard(Hello)) >= 5)
        with pytest.raises(TimedOut, match="may still"):
            await client.flush()
        assert not any(task.done() for task in putting)
        client._session.timeout = 10.0
        store.deaf = False
        await asyncio.gather(*putting)
        await client.flush()
        assert (store.values(), sorted(store.values("other"))) == ([1, 2, 3, 4], [1, 2, 3, 4])

    with_store(test, eager=True)


def test_live_puts_of_a_connection_that_was_closed_in_doubt_may_be_lost():
    async def test(store, client):
        await client.put("kept", {"n": 1})
        store.peer.send_away()
        await client.flush()  # durable ones are not
        await client.put("live", {"n": 1})
        store.faults = iter(["doubt after"])
        await client.put("kept", {"n": 2})
        with pytest.raises(ConnectionLost, match="nobody knows"):
            await client.flush()
        assert store.values() == [1, 2]

    with_store(test)


def test_a_put_that_is_said_to_be_in_doubt_is_settled_by_the_next_connection():
    async def test(store, client):
        peer = store.peer
        peer.put = lambda flags, body: peer.say(Failure(code="in_doubt", message="nobody knows", put=1))
        await client.put("kept", {"n": 1})
        assert store.values() == [1]
        assert client.statistics().reconnects == 1

    with_store(test)


def test_a_connection_that_is_closed_while_it_is_restored_loses_no_topic():
    async def test(store, client):
        await client.put("kept", {"n": 1})
        store.unwilling = Declare
        store.faults = iter(["before"])
        await asyncio.gather(*(client.put_many("kept", rows([n])) for n in (2, 3)))
        assert len(store.connections) == 3
        await client.put("kept", {"n": 4})
        assert store.values() == [1, 2, 3, 4]

    with_store(test)


def test_a_broker_that_closes_every_connection_is_asked_less_and_less_often():
    async def test(store, client):
        store.faults = iter(["doubt before"] * 3 + ["before"])
        await client.put("kept", {"n": 1})
        assert store.values() == [1]
        assert Eager.bounds == (0.05, 0.1, 0.2, 0.05)

    with_store(test, eager=True)


def test_a_mark_that_is_of_no_commit_settles_nothing():
    """Such as the stamp of a live put behind a durable one that the store did not take."""

    async def test(store, client):
        await client.put("kept", {"n": 1})
        store.faults = iter(["before"])
        store.welcome["high_water"] = (1 << 63) - 1_000
        await client.put("kept", {"n": 2})
        assert store.values() == [1, 2]
        await client.put("kept", {"n": 3})
        store.faults = iter(["after"])
        store.welcome["high_water"] += 500
        await client.put("kept", {"n": 4}, key=uuid.uuid4())  # sent again, and then its own duplicate
        assert store.values() == [1, 2, 3, 4]

    with_store(test)


def test_lost_state_is_an_error_everywhere():
    async def test(store, client):
        assert client.broker_id == "store-1"
        await client.put("kept", {"n": 1})
        store.faults = iter(["before"])
        putting = asyncio.create_task(client.put("kept", {"n": 2}))
        store.id = "store-2"
        with pytest.raises(StateLost, match="store-2"):
            await putting
        with pytest.raises(StateLost):
            await client.put("kept", {"n": 3})
        with pytest.raises(StateLost):
            await client.flush()

    with_store(test)


def test_who_has_used_nothing_durable_goes_on():
    async def test(store, client):
        await client.put("live", {"n": 1})
        store.id = "store-2"
        store.peer.cut()
        await store.until(lambda: len(store.connections) == 2)
        await client.put("kept", {"n": 1})
        assert client.broker_id == "store-2"

    with_store(test)


def test_a_topic_that_is_gone_fails_its_puts_only():
    async def test(store, client):
        with pytest.raises(UnknownTopic):
            await client.put("nothing", {"n": 1})
        await client.put("kept", {"n": 1})

    with_store(test)


def test_closing_waits_for_what_is_under_way():
    async def test(store, client):
        for n in range(10):
            await client.put("kept", {"n": n}, wait=False)
        await client.close()
        assert store.values() == list(range(10))
        with pytest.raises(Closed):
            await client.put("kept", {"n": 1})

    with_store(test)


def test_leaving_at_once_fails_what_is_under_way():
    async def test(store, client):
        store.paused = True
        putting = asyncio.create_task(client.put("kept", {"n": 1}))
        await store.until(lambda: store.batches)
        await client.close(drain=False)
        with pytest.raises(Closed):
            await putting

    with_store(test)


def test_a_put_that_is_cancelled_takes_no_other_with_it():
    async def test(store, client):
        store.paused = True
        one, other = (asyncio.create_task(client.put("kept", {"n": n})) for n in (1, 2))
        await store.until(lambda: store.batches)
        one.cancel()
        store.peer.say(Stored(1))
        await other
        assert one.cancelled()

    with_store(test)


FAULTS = st.lists(st.sampled_from(["", "", "before", "after", "store", "doubt before", "doubt after"]), max_size=20)


@given(FAULTS, st.lists(st.integers(1, 4), min_size=1, max_size=12))
def test_whatever_is_lost_on_the_way_what_was_put_is_stored_once_and_in_order(faults, sizes):
    """Some puts wait, some run together; the store may fail them, and then they are not stored."""

    async def test(store, client):
        store.faults = iter(faults)
        acknowledged, refused = [], []
        numbers = iter(range(1_000))

        async def put(values):
            try:
                if len(values) == 1:
                    await client.put("kept", {"n": values[0]})
                else:
                    await client.put_many("kept", rows(values))
                acknowledged.extend(values)
            except StoreFull:
                refused.extend(values)

        for size in sizes:
            await asyncio.gather(*(put([next(numbers) for _ in range(each)]) for each in range(1, size + 1)))
        assert sorted(acknowledged + refused) == list(range(len(acknowledged) + len(refused)))
        assert sorted(store.values()) == sorted(acknowledged)
        stamps = [stamp for stamp, _ in store.rows["kept"]]
        assert stamps == sorted(set(stamps))

    with_store(test, eager=True)


WAYS = st.sampled_from(["one", "many", "key", "atomic", "loose", "loose key", "live"])


@given(FAULTS, st.lists(st.integers(0, 12), max_size=15), st.lists(st.tuples(WAYS, st.booleans()), max_size=30))
def test_every_way_of_putting_over_connections_that_break_at_any_turn(faults, cuts, ways):
    """Connections break at a put (`faults`), and at any turn of the event loop (`cuts`)."""

    async def test(store, client):
        store.faults = iter(faults)
        acknowledged = {"kept": [], "other": []}
        loose = []

        async def put(way, n):
            try:
                match way:
                    case "one":
                        await client.put("kept", {"n": n})
                    case "many":
                        await client.put_many("kept", rows([n, n + 1, n + 2]))
                        acknowledged["kept"] += [n + 1, n + 2]
                    case "key":
                        await client.put("kept", {"n": n}, key=uuid.UUID(int=n + 1))
                    case "atomic":
                        async with client.atomic() as together:
                            together.put("kept", {"n": n})
                            together.put("other", {"n": n})
                        acknowledged["other"].append(n)
                    case "loose":
                        loose.append(n)
                        await client.put("kept", {"n": n}, wait=False)
                        return
                    case "loose key":
                        loose.append(n)
                        await client.put("kept", {"n": n}, key=uuid.UUID(int=n + 1), wait=False)
                        return
                    case "live":
                        await client.put("live", {"n": n})
                        return
                acknowledged["kept"].append(n)
            except StoreFull:
                pass

        async def cut():
            for turns in cuts:
                for _ in range(turns):
                    await asyncio.sleep(0)
                store.peer.cut()

        async with asyncio.TaskGroup() as group:
            group.create_task(cut())
            for number, (way, breath) in enumerate(ways):
                group.create_task(put(way, 10 * number))
                if breath:
                    await asyncio.sleep(0)
        told = False
        while True:
            try:
                await client.flush()
                break
            except StoreFull:
                told = True
            except ConnectionLost:
                pass  # of live puts, which may be lost
        stored = store.values()
        assert len(stored) == len(set(stored))
        assert set(acknowledged["kept"]) <= set(stored) <= set(acknowledged["kept"] + loose)
        assert told or set(loose) <= set(stored)
        assert sorted(store.values("other")) == sorted(acknowledged["other"])
        assert client._publisher.durable_puts.unsettled.bytes == 0

    with_store(test, eager=True)
