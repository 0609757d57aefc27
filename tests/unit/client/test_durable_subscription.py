"""Durable subscriptions: exactly once by get, again and again until acknowledged otherwise."""

import asyncio
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.client import acks
from milepost.client.logbatch import LogBatch
from milepost.errors import (
    AckMismatch,
    Closed,
    InvalidValue,
    NotExpectingAck,
    ServedElsewhere,
    StateLost,
    StoreFull,
    SubscriptionExists,
    TimedOut,
    TopicMismatch,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.wire import Ack, Dropped, Failure, Hello, Look, Subscribe, Unsubscribe
from tests.unit.client.storing import LOG, with_store


def consumed(store, name="desk"):
    return sorted(store.cursors[name][1])


def test_a_message_is_acknowledged_before_get_returns_it():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        assert (sub.created, sub.name, sub.topics) == (True, "desk", {"kept"})
        store.put("kept", [10, 11, 12])
        assert (await client.get("kept")).n == 10
        assert consumed(store) == [0]
        assert (sub.log, sub.offset, sub.deliveries, sub.position) == (LOG, 0, 0, {LOG: 1})
        assert [message.n for message in await client.get_many("desk", 500)] == [11, 12]
        assert consumed(store) == [0, 1, 2]
        assert (sub.offset, sub.position) == (2, {LOG: 3})
        assert await client.get("kept", timeout=0.01) is None
        assert await sub.get_many(5, timeout=0.01) == []
        assert [ack.done for ack in store.heard(Ack)] == [{LOG: [[0, 0]]}, {LOG: [[1, 2]]}]
        assert [ack.sequence for ack in store.heard(Ack)] == [1, 2]

    with_store(test)


def test_get_needs_one_subscription():
    async def test(store, client):
        with pytest.raises(UnknownSubscription, match="subscribe first"):
            await client.get("kept")
        await client.subscribe("kept", name="one")
        await client.subscribe("kept", name="two")
        with pytest.raises(InvalidValue, match="2 subscriptions"):
            await client.get("kept")
        assert await client.get("two", timeout=0) is None
        with pytest.raises(InvalidValue, match="from 1 on"):
            await client.get_many("two", 0)

    with_store(test)


@pytest.mark.parametrize("fault", ["before", "after", "doubt before", "doubt after"])
def test_a_lost_acknowledgement_is_neither_lost_nor_twice(fault):
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.faults = iter([fault])
        store.put("kept", [10, 11])
        assert (await sub.get()).n == 10
        assert (await sub.get()).n == 11
        assert consumed(store) == [0, 1]
        assert client.statistics().reconnects == 1
        assert sub.deliveries == 1  # it was prefetched before the connection broke

    with_store(test)


def test_a_get_that_is_given_up_loses_nothing():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        hold = asyncio.Event()
        peer = store.peer
        answer, peer.ack = peer.ack, lambda said: hold.set()
        store.put("kept", [10, 11])
        getting = asyncio.create_task(sub.get())
        await hold.wait()
        getting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await getting
        assert await sub.get(timeout=0.01) is None  # 10 is on its way, and 11 comes behind it
        peer.ack = answer
        answer(store.heard(Ack)[0])
        assert [(await sub.get()).n, (await sub.get()).n] == [10, 11]
        assert consumed(store) == [0, 1]

    with_store(test)


def test_a_get_that_is_given_up_in_the_moment_of_its_answer_loses_nothing():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        hold = asyncio.Event()
        store.peer.ack = lambda said: hold.set()
        store.put("kept", [10])
        getting = asyncio.create_task(sub.get())
        await hold.wait()
        loop = asyncio.get_running_loop()
        loop.call_soon(getting.cancel)
        # In the same turn, before the task hears of it: the broker says that the first acknowledgement was carried out.
        loop.call_soon(sub.attached, client._session.connection, {"sequence": 1})
        with pytest.raises(asyncio.CancelledError):
            await getting
        assert (await sub.get(timeout=5)).n == 10

    with_store(test)


def test_an_acknowledgement_that_is_said_to_be_in_doubt_is_settled_by_the_next_connection():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        peer = store.peer
        peer.ack = lambda said: peer.say(Failure(code="in_doubt", message="nobody knows", request=said.request))
        store.put("kept", [10])
        assert (await sub.get()).n == 10
        assert client.statistics().reconnects == 1
        assert consumed(store) == [0]

    with_store(test)


def test_rows_whose_acknowledgement_the_store_did_not_take_are_got_again():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.put("kept", range(5))
        store.faults = iter(["store", "", "store"])
        with pytest.raises(StoreFull):
            await sub.get_many(3)
        assert [message.n for message in await sub.get_many(2)] == [0, 1]
        with pytest.raises(StoreFull):
            await sub.get()
        seen = []
        async for message in sub:
            seen.append(message.n)
            if message.n == 4:
                break
        assert seen == [2, 3, 4]
        await sub.detach()
        assert consumed(store) == [0, 1, 2, 3]  # the loop did not come back behind the last

    with_store(test)


def test_iteration_acknowledges_when_the_loop_comes_back():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.put("kept", range(3))
        seen = []
        async for message in sub:
            seen.append((message.n, sub.offset, sub.position))
            if message.n == 2:
                assert consumed(store) == []
                store.put("kept", [3])
            if message.n == 3:
                break
        assert seen == [(n, n, {LOG: n + 1}) for n in range(4)]
        await sub.detach()
        assert consumed(store) == [0, 1, 2]
        assert sub.ended

    with_store(test)


def test_an_idle_loop_has_acknowledged_everything():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        seen = []

        async def read():
            async for message in sub:
                seen.append(message.n)

        reading = asyncio.create_task(read())
        store.put("kept", range(3_000))
        await store.until(lambda: len(store.cursors["desk"][1]) == 3_000)
        assert seen == list(range(3_000))
        reading.cancel()

    with_store(test)


def test_a_callback_acknowledges_by_coming_back():
    async def test(store, client):
        seen = []
        await client.subscribe("kept", name="desk", callback=lambda message: seen.append(message.n))
        store.put("kept", range(3))
        await store.until(lambda: len(store.cursors["desk"][1]) == 3)
        assert seen == [0, 1, 2]

    with_store(test)


def test_batches_know_their_offsets():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.put("kept", range(4))
        async for message in sub:
            assert message.n == 0
            break
        async for batch in sub.batches():
            assert isinstance(batch, LogBatch)
            assert (batch.log, batch.offsets.tolist(), batch.column("n").tolist()) == (LOG, [1, 2, 3], [1, 2, 3])
            assert (sub.offset, sub.position) == (3, {LOG: 4})
            break
        await sub.detach()
        assert consumed(store) == [0]

    with_store(test)


def test_explicit_acknowledgement():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", ack="explicit")
        store.put("kept", range(6))
        with pytest.raises(NotExpectingAck, match="nothing"):
            await sub.ack()
        messages = [await sub.get() for _ in range(2)]
        assert consumed(store) == []
        await sub.ack(messages[1])
        assert consumed(store) == [1]
        with pytest.raises(AckMismatch):
            await sub.ack(messages[1])
        async for message in sub:
            messages.append(message)
            if message.n == 4:
                break
        await sub.ack(messages[3])
        await sub.ack()
        assert consumed(store) == [0, 1, 2, 3, 4]
        assert [ack.done[LOG] for ack in store.heard(Ack)] == [[[1, 1]], [[3, 3]], [[0, 0], [2, 2], [4, 4]]]
        (batch,) = [await sub.next_batch()]
        await sub.ack(batch)
        assert consumed(store) == [0, 1, 2, 3, 4, 5]
        with pytest.raises(InvalidValue, match="by ack"):
            await sub.ack("a message")

    with_store(test)


def test_what_the_store_did_not_take_can_be_acknowledged_again():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", ack="explicit")
        store.put("kept", [10, 11])
        messages = await sub.get_many(2)
        store.faults = iter(["store", "store"])
        with pytest.raises(StoreFull):
            await sub.ack(messages[0])
        with pytest.raises(StoreFull):
            await sub.nack()
        await sub.ack(messages[0])
        await sub.ack()
        assert consumed(store) == [0, 1]

    with_store(test)


def test_what_the_store_did_not_take_of_automatic_ones_goes_again_when_nothing_else_comes(monkeypatch):
    monkeypatch.setattr(acks, "RETAINED_S", 0.0)

    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", ack="auto")
        store.put("kept", [10])
        messages = aiter(sub)
        assert (await anext(messages)).n == 10
        store.faults = iter(["store", "store"])
        waiting = asyncio.ensure_future(anext(messages))  # coming back for the next is what acknowledges
        await store.until(lambda: consumed(store) == [0])
        assert len(store.heard(Ack)) == 3
        store.put("kept", [11])
        assert (await waiting).n == 11

    with_store(test)


def test_what_was_sent_back_comes_again_and_counts():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", ack="explicit", max_deliveries=5, dead_letter="other")
        assert (store.heard(Subscribe)[0].max_deliveries, store.heard(Subscribe)[0].dead_letter) == (5, "other")
        store.put("kept", [10, 11])
        first = await sub.get()
        await sub.nack(first)
        second = await sub.get()
        assert (second.n, sub.deliveries) == (11, 0)
        again = await sub.get()
        assert (again.n, sub.deliveries, sub.offset, sub.position) == (10, 1, 0, {LOG: 2})
        await sub.ack()
        assert consumed(store) == [0, 1]

    with_store(test)


def test_rows_between_others_are_not_taken_in_by_a_range():
    """10 and 12 are handed out in one frame, then 11: acknowledging the two must leave the third alone."""

    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        peer = store.peer
        peer.pump = lambda: None
        store.put("kept", [10, 11, 12])
        number = sub.number
        peer.subscriptions[number][2].update([0, 1, 2])
        peer.hand(number, "kept", [0, 2], "desk")
        peer.hand(number, "kept", [1], "desk")
        await client.flush()
        assert [message.n for message in await sub.get_many(2)] == [10, 12]
        assert consumed(store) == [0, 2]
        assert (await sub.get()).n == 11

    with_store(test)


def test_a_row_that_comes_while_its_neighbours_are_acknowledged_is_left_alone():
    """A member has 0 and 2; another one, with 1, dies, and 1 is on its way here when the acknowledgement arrives."""

    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        peer = store.peer
        peer.pump = lambda: None
        store.put("kept", [10, 11, 12])
        held = peer.subscriptions[sub.number][2]
        held.update([0, 2])
        peer.hand(sub.number, "kept", [0, 2], "desk")
        acknowledge = peer.ack

        def ack(said):
            peer.ack = acknowledge
            held.add(1)
            peer.hand(sub.number, "kept", [1], "desk")
            acknowledge(said)

        peer.ack = ack
        assert [message.n for message in await sub.get_many(2)] == [10, 12]
        assert consumed(store) == [0, 2]
        assert (await sub.get()).n == 11
        assert consumed(store) == [0, 1, 2]

    with_store(test)


def test_ranges_name_the_rows_that_are_meant_in_order_and_once():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", ack="explicit")
        peer = store.peer
        peer.pump = lambda: None
        store.put("kept", range(100))
        peer.subscriptions[sub.number][2].update(range(100))
        for offsets in (range(50, 100, 3), [10, 11, 12], [0, 1], [13, 14]):
            peer.hand(sub.number, "kept", list(offsets), "desk")
        await client.flush()
        messages = await sub.get_many(500)
        assert len(messages) == 24
        answer, peer.ack = peer.ack, lambda said: None
        first = asyncio.create_task(sub.ack(messages[0]))
        await store.until(lambda: store.heard(Ack))
        others = [asyncio.create_task(sub.nack(message)) for message in messages[1:3]]
        others += [asyncio.create_task(sub.ack(message)) for message in reversed(messages[17:])]
        await asyncio.sleep(0)
        peer.ack = answer
        answer(store.heard(Ack)[0])
        await asyncio.gather(first, *others)
        assert [ack.done for ack in store.heard(Ack)] == [{LOG: [[50, 50]]}, {LOG: [[0, 1], [10, 14]]}]
        assert [ack.again for ack in store.heard(Ack)] == [{}, {LOG: [[53, 53], [56, 56]]}]

    with_store(test)


@pytest.mark.slow
def test_an_acknowledgement_of_more_ranges_than_go_into_one_is_several():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", ack="explicit", prefetch=500_000)
        peer = store.peer
        peer.pump = lambda: None
        store.put("kept", range(500_000))
        even = range(0, 500_000, 2)
        peer.subscriptions[sub.number][2].update(even)
        peer.hand(sub.number, "kept", list(even), "desk")
        got = 0
        while got < len(even):
            got += len(await sub.get_many(50_000))
        store.faults = iter(["", "store", ""])
        with pytest.raises(StoreFull):
            await sub.ack()
        assert [len(ack.done[LOG]) for ack in store.heard(Ack)] == [100_000, 100_000, 50_000]
        assert len(consumed(store)) == 150_000
        await sub.ack()  # what the store did not take, and no more
        assert consumed(store) == list(even)

    with_store(test)


@pytest.mark.slow
def test_gets_that_do_not_fit_into_one_acknowledgement_get_theirs_with_the_next():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", prefetch=500_000)
        peer = store.peer
        peer.pump = lambda: None
        store.put("kept", range(400_000))
        even = range(0, 400_000, 2)
        peer.subscriptions[sub.number][2].update(even)
        peer.hand(sub.number, "kept", list(even), "desk")
        await client.flush()
        answer, peer.ack = peer.ack, lambda said: None
        getting = [asyncio.create_task(sub.get_many(50_000)) for _ in range(4)]
        await store.until(lambda: store.heard(Ack))
        peer.ack = answer
        answer(store.heard(Ack)[0])
        seen = [message.n for messages in await asyncio.gather(*getting) for message in messages]
        assert sorted(seen) == consumed(store) == list(even)
        assert [len(ack.done[LOG]) for ack in store.heard(Ack)] == [50_000, 100_000, 50_000]

    with_store(test)


def test_an_explicit_acknowledgement_that_was_lost_says_so():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", ack="explicit")
        store.put("kept", [10])
        store.faults = iter(["before", "", "after"])
        message = await sub.get()
        with pytest.raises(AckMismatch, match="come again"):
            await sub.ack(message)
        with pytest.raises(AckMismatch, match="comes again"):
            await sub.ack(message)
        message = await sub.get()
        assert (message.n, sub.deliveries) == (10, 1)
        await sub.ack(message)
        store.put("kept", [11])
        message = await sub.get()
        await sub.ack(message)  # carried out, and its answer lost
        assert consumed(store) == [0, 1]

    with_store(test)


def test_a_replay_acknowledges_nothing_and_goes_on_where_it_was():
    async def test(store, client):
        store.put("kept", range(5))
        replay = await client.subscribe("kept", start="earliest")
        assert [(await replay.get()).n, (await replay.get()).n] == [0, 1]
        assert replay.position == {LOG: 2}
        store.peer.cut()
        await store.until(lambda: len(store.heard(Subscribe)) == 2)
        assert store.heard(Subscribe)[1].start == {"position": {LOG: 5}}
        store.put("kept", [5])
        assert [message.n for message in await replay.get_many(3)] == [2, 3, 4]
        assert [message.n for message in await replay.get_many(3)] == [5]
        assert replay.position == {LOG: 6}
        with pytest.raises(NotExpectingAck, match="start=position"):
            await replay.ack()
        assert not store.heard(Ack)
        other = await client.subscribe("kept", start=replay.position)
        assert await other.get(timeout=0) is None
        fourth = await client.subscribe("kept", start=4)
        assert store.heard(Subscribe)[-1].start == {"position": {LOG: 4}}
        assert (await fourth.get()).n == 4

    with_store(test)


def test_where_a_subscription_starts():
    async def test(store, client):
        moment = datetime(2026, 1, 1, tzinfo=UTC)
        store.peer.subscribe = lambda said: store.peer.say(
            Failure(code="not_durable", message="no", request=said.request)
        )
        for start in ("new", "earliest", moment, {LOG: 4}):
            with pytest.raises(Exception, match="no"):
                await client.subscribe("kept", start=start)
        told = [said.start for said in store.heard(Subscribe)]
        assert told == ["new", "earliest", {"time_us": 1_767_225_600_000_000}, {"position": {LOG: 4}}]
        for wrong in ("old", datetime(2026, 1, 1), {LOG: -1}, {"a": 1}, -1, True, 1.5):  # noqa: DTZ001
            with pytest.raises(InvalidValue):
                await client.subscribe("kept", start=wrong)

    with_store(test)


@pytest.mark.parametrize(
    "options",
    [
        {"ack": "explicit"},
        {"prefetch": 5},
        {"start": "new", "ack": "explicit"},
        {"start": "new", "dead_letter": "other"},
        {"name": ""},
        {"name": "desk", "ack": "later"},
        {"name": "desk", "prefetch": 0},
        {"name": "desk", "max_deliveries": 0},
        {"name": "desk", "dead_letter": "other"},
        {"name": "desk", "token": b"short"},
    ],
)
def test_options_that_cannot_be_are_refused_here(options):
    async def test(store, client):
        with pytest.raises(InvalidValue):
            await client.subscribe("kept", **options)
        assert not store.heard(Subscribe)

    with_store(test)


@pytest.mark.parametrize("fault", ["doubt before", "doubt after"])
def test_while_it_is_not_known_what_became_of_an_acknowledgement_nothing_is_said(fault):
    """Also when the broker does not come back for longer than a request may take."""

    async def test(store, client):
        desk = await client.subscribe("kept", name="desk")
        work = await client.subscribe("kept", name="work", ack="explicit")
        store.put("kept", [10, 11])
        message = await work.get()
        store.faults = iter([fault, fault])
        store.deaf = True
        client._session.timeout = 0.01  # of each attempt to connect, and of requests
        acting = [asyncio.create_task(act) for act in (desk.get(), work.ack(message))]
        await store.until(lambda: len(store.heard(Hello)) >= 4)
        assert not any(task.done() for task in acting)
        assert await desk.get(timeout=0) is None
        client._session.timeout = 10.0
        store.deaf = False
        assert (await acting[0]).n == 10
        try:
            await acting[1]
            acknowledged = True
        except AckMismatch:  # it comes again
            acknowledged = False
        assert (0 in store.cursors["work"][1]) == acknowledged
        assert consumed(store) == [0]

    with_store(test, eager=True)


def test_a_request_is_made_again_when_the_broker_closes_the_connection_in_doubt():
    async def test(store, client):
        store.unwilling = Look
        assert (await client.look("kept"))["logs"]
        store.unwilling = Subscribe
        await client.subscribe("kept", name="desk")
        assert (len(store.heard(Look)), len(store.heard(Subscribe))) == (2, 2)

    with_store(test)


def test_lost_rows_are_told(caplog):
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.peer.say(Dropped({}, [[sub.number, LOG, 3, 8]]))
        await client.flush()
        assert sub.lost == [(LOG, 3, 8)]
        assert "rows 3 to 7 of log 3" in caplog.text

    with_store(test)


def test_detaching_leaves_it_and_unsubscribing_removes_it():
    async def test(store, client):
        async with await client.subscribe("kept", name="desk"):
            pass
        assert "desk" in store.cursors
        again = await client.subscribe("kept", name="desk", create=False)
        assert not again.created
        store.faults = iter(["after"])
        await again.unsubscribe()
        assert "desk" not in store.cursors
        tokens = {said.token for said in store.heard(Unsubscribe) if said.name}
        assert len(tokens) == 1
        with pytest.raises(UnknownSubscription):
            await client.subscribe("kept", name="desk", create=False)
        with pytest.raises(UnknownSubscription):
            await client.unsubscribe(name="desk")
        await client.subscribe("kept", name="desk")
        await client.unsubscribe("kept")
        assert "desk" not in store.cursors

    with_store(test)


def test_a_client_has_one_subscription_of_a_name():
    async def test(store, client):
        first, second = await asyncio.gather(
            client.subscribe("kept", name="desk"), client.subscribe("kept", name="desk"), return_exceptions=True
        )
        assert isinstance(second, SubscriptionExists)
        assert "already" in str(second)
        with pytest.raises(TopicMismatch, match="to 'kept'"):
            await client.subscribe("other", name="desk")
        assert len(store.heard(Subscribe)) == 1
        store.put("kept", [1])
        assert (await client.get("desk")).n == 1
        await first.detach()
        await (await client.subscribe("kept", name="desk")).unsubscribe()
        last = await client.subscribe("kept", name="desk")
        store.peer.say(Failure(code="unknown_topic", message="deleted", subscription=last.number))
        with pytest.raises(UnknownTopic):
            await last.get()
        await client.subscribe("kept", name="desk")
        for _ in range(2):
            await client.subscribe("kept", start="earliest")  # replays have no name to share

    with_store(test)


def test_one_that_was_removed_while_the_connection_was_away_ends():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk", start="earliest")
        del store.cursors["desk"]
        store.peer.cut()
        with pytest.raises(UnknownSubscription):
            await sub.get()

    with_store(test)


def test_one_that_another_broker_serves_is_waited_for():
    async def test(store, client):
        refusals = iter([True, True, False])

        def elsewhere(peer, said, subscribe):
            if next(refusals, False):
                peer.say(Failure(code="served_elsewhere", message="not here", request=said.request))
            else:
                subscribe(said)

        def refuse(peer):
            subscribe = peer.subscribe
            peer.subscribe = lambda said: elsewhere(peer, said, subscribe)

        refuse(store.peer)
        sub = await client.subscribe("kept", name="desk")
        refusals = iter([True, True, False])
        accept = store.accept

        def accepted():
            peer = accept()
            refuse(peer)
            return peer

        store.accept = accepted
        store.peer.cut()
        store.put("kept", [1])
        assert (await sub.get()).n == 1

    with_store(test)


@pytest.mark.parametrize("options", [{"name": "desk"}, {"start": "new"}, {}])
def test_a_subscription_that_was_not_answered_in_time_is_given_up_at_the_broker_too(options):
    async def test(store, client):
        store.peer.subscribe = lambda said: None
        with pytest.raises(TimedOut):
            await client.subscribe("kept", **options)
        await store.until(lambda: store.heard(Unsubscribe))
        assert store.heard(Unsubscribe)[0].subscription == store.heard(Subscribe)[0].subscription
        assert not store.heard(Unsubscribe)[0].name  # somebody else may have it

    with_store(test, options={"timeout": 0.05})


def test_giving_up_between_refusals_leaves_nothing_at_the_broker():
    async def test(store, client):
        def refuse(said):
            store.peer.say(Failure(code="served_elsewhere", message="not here", request=said.request))
            store.peer.subscribe = lambda said: None

        store.peer.subscribe = refuse
        with pytest.raises(ServedElsewhere):
            await client.subscribe("kept", name="desk")
        asked = len(store.heard(Subscribe))
        await store.until(lambda: len(store.heard(Unsubscribe)) == asked - 1)  # a refusal proves that there is nothing

    with_store(test, options={"timeout": 0.5})


def test_one_that_was_detached_is_not_asked_for_any_more():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")

        def refuse(said):
            store.peer.say(Failure(code="served_elsewhere", message="not here", request=said.request))

        store.peer.subscribe = refuse
        store.peer.say(Failure(code="served_elsewhere", message="taken over", subscription=sub.number))
        await store.until(lambda: len(store.heard(Subscribe)) > 1)
        await client.flush()
        attaching = [task for task in asyncio.all_tasks() if task.get_name() == "milepost attaching desk"]
        await sub.detach()
        await asyncio.wait(attaching)
        await client.flush()
        asked = [said for said in store.requests if isinstance(said, Subscribe | Unsubscribe)]
        assert isinstance(asked[-1], Unsubscribe)

    with_store(test)


def test_lost_state_ends_it():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.id = "store-2"
        store.peer.cut()
        with pytest.raises(StateLost):
            await sub.get()
        with pytest.raises(StateLost):
            await client.get("kept")

    with_store(test)


def test_closing_the_client_acknowledges_what_is_due():
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.put("kept", range(3))
        async for message in sub:
            if message.n == 1:
                break
        assert consumed(store) == []
        await client.close()
        assert consumed(store) == [0]
        with pytest.raises(Closed):
            await client.get("kept")

    with_store(test)


def test_members_share():
    async def test(store, one, other):
        first = await one.subscribe("kept", name="desk")
        store.put("kept", [1, 2])
        second = await other.subscribe("kept", name="desk")
        assert (await first.get()).n == 1
        store.connections[0].cut()
        store.connections[1].pump()
        assert (await second.get()).n == 2
        assert consumed(store) == [0, 1]

    with_store(test, clients=2)


def test_look_and_trim():
    async def test(store, client):
        store.put("kept", range(5))
        assert (await client.look("kept"))["logs"] == [{"log": LOG, "start": 0, "next": 5}]
        assert await client.trim("kept", {LOG: 3}) == 3
        assert await client.trim("kept", 4) == 4
        with pytest.raises(InvalidValue):
            await client.trim("kept", "all")

    with_store(test)


FAULTS = st.lists(st.sampled_from(["", "", "before", "after", "store", "doubt before", "doubt after"]), max_size=25)


@given(FAULTS, st.lists(st.integers(1, 7), min_size=1, max_size=8), st.booleans())
def test_by_get_every_message_comes_once_and_in_order_whatever_is_lost(faults, sizes, cancels):
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        total = sum(sizes)
        store.faults = iter(faults)
        seen = []
        numbers = iter(range(total))
        for size in sizes:
            store.put("kept", [next(numbers) for _ in range(size)])
            try:
                if cancels:
                    seen += [message.n for message in await sub.get_many(3, timeout=0)]
                else:
                    seen += [message.n for message in await sub.get_many(3)]
            except StoreFull:
                pass
        while len(seen) < total:
            try:
                seen += [message.n for message in await sub.get_many(3)]
            except StoreFull:
                pass
        assert seen == list(range(total))
        assert await sub.get(timeout=0) is None
        assert len(store.cursors["desk"][1]) == total

    with_store(test, eager=True)


@given(FAULTS, st.lists(st.integers(0, 9), max_size=12), st.integers(1, 60))
def test_members_that_get_share_every_message_once_whatever_is_lost(faults, cuts, total):
    """Connections break at an acknowledgement (`faults`), and at any turn of the event loop (`cuts`)."""

    async def test(store, one, other):
        subs = [await client.subscribe("kept", name="desk") for client in (one, other)]
        store.faults = iter(faults)
        seen = []

        async def take(sub):
            while len(seen) < total:
                try:
                    seen.extend(message.n for message in await sub.get_many(2, timeout=0.01))
                except StoreFull:
                    pass

        async def cut():
            for turns in cuts:
                for _ in range(turns):
                    await asyncio.sleep(0)
                store.connections[turns % len(store.connections)].cut()

        async with asyncio.TaskGroup() as group:
            for sub in subs:
                group.create_task(take(sub))
            group.create_task(cut())
            for n in range(total):
                store.put("kept", [n])
                await asyncio.sleep(0)
        assert sorted(seen) == list(range(total))
        assert len(store.cursors["desk"][1]) == total

    with_store(test, clients=2, eager=True)


@given(FAULTS, st.integers(1, 40))
def test_by_iteration_everything_comes_at_least_once_and_nothing_acknowledged_again(faults, total):
    async def test(store, client):
        sub = await client.subscribe("kept", name="desk")
        store.faults = iter(faults)
        store.put("kept", range(total))
        seen = []
        async for message in sub:
            assert message.n not in store.cursors["desk"][1]
            seen.append(message.n)
            if message.n == total - 1:
                break
        await sub.detach()
        assert sorted(set(seen)) == list(range(total))

    with_store(test, eager=True)
