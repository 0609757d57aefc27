"""Queues in the core: what is asked of the store when, and who is answered what. The store is the test itself."""

import math

import numpy as np
import pytest

import milepost
from milepost.broker.core.effects import Deliver, Inspect, Say, Write
from milepost.broker.core.queues.clients import REPLIES_KEPT, REPLY_BYTES, ConnectedClient
from milepost.errors import InDoubt, QueryTypeError, StoreFull, TransactionAborted, UnknownQueue
from milepost.operations import queues as operations
from milepost.operations.records import TypeRecord
from milepost.operations.steps import Abort, Commit, Dequeue, Done, Enqueue, Enqueued, Got, Group, Performed, Prepare
from milepost.queues.open_transaction import KeptReply
from milepost.queues.waiting_line import MOST_TRIES, WaitingLine
from milepost.wire import (
    Bye,
    Credit,
    Decide,
    Failure,
    Finish,
    FrameReader,
    Hello,
    Kind,
    Reply,
    TypeAnnounced,
    decode_control,
    read_taken,
)
from milepost.wire import Dequeue as DequeueRequest
from milepost.wire import Enqueue as EnqueueFrame
from milepost.wire import MoveMessages as MoveRequest
from milepost.wire.queue import NO_PRIORITY
from tests.unit.broker.rig import QUOTE, Rig, quotes

SCHEMA = milepost.parse_schema(QUOTE)
LEASE_US = 30_000_000
T = 4242


class QueueRig(Rig):
    """A core whose store does what the test says: `asked` has the operations that it was given and has not done."""

    def __init__(self, **changes):
        super().__init__(**changes)
        self.core.durable.on = True
        self.asked = []
        self.taken = {}  # connection -> TAKEN frames
        self.run(self.core.queues.begin())
        assert [type(effect.operation) for effect in self.asked] == [operations.Recover, operations.Types]
        self.done(Done())
        self.done([TypeRecord(1, "quote", QUOTE, SCHEMA)])

    def run(self, effects):
        rest = []
        for effect in effects:
            if isinstance(effect, Write | Inspect):
                self.asked.append(effect)
            elif isinstance(effect, Deliver):
                (connection,) = effect.connections
                for kind, _, body in FrameReader(limit=1 << 20).feed(b"".join(effect.parts)):
                    if kind == Kind.TAKEN:
                        self.taken.setdefault(connection, []).append(read_taken(body))
                    else:
                        rest.append(Say(connection, decode_control(kind, body)))
            else:
                rest.append(effect)
        super().run(rest)

    def done(self, *outcomes):
        """The store has done the first operations that it was given."""
        for outcome in outcomes:
            effect = self.asked.pop(0)
            self.run(self.core.durable.stored([(effect.then, outcome)], []))

    def steps(self):
        """What the store is asked to perform, in the order it was asked."""
        return [effect.operation.steps for effect in self.asked]

    def looked(self, waits_us=None):
        """A dequeue that waits has looked, which writes nothing, and has seen nothing; what it looked for."""
        look = self.asked[0]
        assert isinstance(look, Inspect)
        assert isinstance(look.operation, operations.Peek)
        self.done(Got([], waits_us))
        return look.operation

    def reader(self, instance=b"i" * 16):
        connection = self.core.connected("test", self.now)
        self.say(connection, Hello(name="", window=1 << 20, instance=instance))
        return connection

    def enqueue(
        self, connection, step, *rows, transaction=1, queue="quotes", held=True, schema=QUOTE, request=0, **more
    ):
        batch = milepost.encode(milepost.parse_schema(schema), list(rows) or quotes(1))
        fields = {"priority": NO_PRIORITY, "due_us": 0, "ends_us": 0} | more
        frame = EnqueueFrame(
            request=request,
            transaction=transaction,
            step=step,
            queue=queue,
            held=held,
            data=bytes(batch.data),
            **fields,
        )
        self.say(connection, frame)
        return batch

    def dequeue(self, connection, step, request, transaction=1, wait_s=0.0, **more):
        fields = {"queue": "quotes", "type": "quote"} | more
        said = DequeueRequest(request=request, transaction=transaction, step=step, wait_s=wait_s, **fields)
        self.say(connection, said)

    def finish(self, connection, step, request, how="commit", transaction=1, **more):
        self.say(connection, Finish(request=request, transaction=transaction, step=step, how=how, **more))

    def answer(self, connection, request):
        found = [each for each in self.said[connection] if getattr(each, "request", 0) == request]
        assert len(found) <= 1
        return found[0] if found else None

    def figures(self):
        return self.core.queues.figures()


@pytest.fixture
def rig():
    return QueueRig()


def got(*sizes, mids=None):
    batch = milepost.encode(SCHEMA, [quotes(1, start=size)[0] for size in sizes])
    count = len(sizes)
    return Got(
        [
            Group(
                "quote",
                batch.schema,
                batch,
                mids or list(range(count)),
                [7] * count,
                [8] * count,
                [0.5] * count,
                [2] * count,
            )
        ]
    )


def nothing(waits_us=None):
    return Performed(0, (Got([], waits_us),))


WANTED = Dequeue("quotes", "quote", 1, None, None)


# One transaction


def test_what_is_held_travels_with_the_next_request(rig):
    client = rig.reader()
    first = rig.enqueue(client, 1, *quotes(2), priority=2.5, due_us=3, ends_us=4)
    second = rig.enqueue(client, 2)
    assert rig.asked == []
    assert rig.figures()["held_bytes"] > 0
    rig.finish(client, 3, request=9)
    (effect,) = rig.asked
    assert effect.session is None
    assert effect.operation.transaction == (0, client.publisher.number, b"i" * 16, 1, LEASE_US, True)
    assert effect.operation.steps == (
        Enqueue("quotes", first, 2.5, 3, 4), Enqueue("quotes", second, None, None, None), Commit(None, ()),
    )  # fmt: skip
    assert rig.answer(client, 9) is None
    rig.done(Performed(T, (Enqueued([5, 6], 1, T), Enqueued([7], 1, T), Done(touched=("quotes",)))))
    value = rig.answer(client, 9).value
    assert [np.frombuffer(mids, "<i8").tolist() for mids in value["mids"]] == [[5, 6], [7]]
    assert (value["s"], value["t"]) == (1, T)
    assert rig.figures() == {"transactions": 0, "waiting": 0, "held_bytes": 0}
    totals = rig.core.statistics()["totals"]
    assert (totals["messages_enqueued"], totals["queue_commits"], totals["queue_transactions"]) == (3, 1, 1)
    assert client.outstanding == client.taken, "all of it is on its way back"


def test_requests_of_a_transaction_are_carried_out_one_after_the_other(rig):
    client = rig.reader()
    rig.dequeue(client, 1, request=1)
    rig.enqueue(client, 2)
    rig.finish(client, 3, request=2)
    assert rig.steps() == [(WANTED,)]
    rig.done(Performed(T, (got(3, 4),)))
    assert rig.answer(client, 1).value["messages"] == 2
    (taken,) = rig.taken[client]
    assert (taken.request, taken.type, taken.mids.tolist(), taken.aborts.tolist()) == (1, "quote", [0, 1], [2, 2])
    assert rig.said[client][-2] == TypeAnnounced(name="quote", text=str(SCHEMA))
    assert [type(step) for step in rig.steps()[0]] == [Enqueue, Commit]
    assert rig.asked[0].operation.transaction.number == T
    rig.done(Performed(T, (Enqueued([5], 1, T), Done())))
    assert isinstance(rig.answer(client, 2), Reply)


def test_messages_are_an_answer_whose_reader_is_waited_for(rig):
    client = rig.reader()
    for number in (1, 2):
        rig.dequeue(client, 1, request=number, transaction=number)
    first, second = (effect.then for effect in rig.asked)
    effects = rig.core.durable.stored([(first, Performed(T, (got(1),)))], [])
    assert [type(effect) for effect in effects] == [Say, Deliver], "the type, then all in one write"
    assert effects[1].answer, "the shell looks at what it keeps of it"
    rig.core.delivery.blocked(client)
    effects = rig.core.durable.stored([(second, Performed(T, (got(2),)))], [])
    assert [type(effect) for effect in effects] == [Deliver]
    assert effects[0].answer


def test_two_transactions_of_one_client_do_not_wait_for_each_other(rig):
    client = rig.reader()
    for number in (1, 2):
        rig.dequeue(client, 1, request=number, transaction=number)
    assert len(rig.asked) == 2
    rig.done(Performed(T, (got(1),)), Performed(T + 1, (got(2),)))
    assert [each.name for each in rig.said[client] if isinstance(each, TypeAnnounced)] == ["quote"], (
        "a type is told once"
    )
    assert rig.core.statistics()["queueing"]["transactions"] == 2


def test_a_transaction_of_which_the_store_has_nothing_ends_without_it(rig):
    client = rig.reader()
    rig.dequeue(client, 1, request=1)
    rig.done(nothing())
    rig.finish(client, 2, request=2)
    rig.enqueue(client, 1, transaction=2)
    rig.finish(client, 2, request=3, how="abort", transaction=2)
    assert rig.asked == []
    assert isinstance(rig.answer(client, 2), Reply)
    assert isinstance(rig.answer(client, 3), Reply)
    assert rig.figures() == {"transactions": 0, "waiting": 0, "held_bytes": 0}


def test_an_enqueue_that_is_not_held_and_a_flush_are_answered(rig):
    client = rig.reader()
    rig.enqueue(client, 1, held=False, request=5)
    assert [type(step) for step in rig.steps()[0]] == [Enqueue]
    rig.done(Performed(T, (Enqueued([5], 1, T),)))
    assert rig.answer(client, 5).value["t"] == T
    rig.enqueue(client, 2)
    rig.finish(client, 3, request=6, how="flush")
    rig.done(Performed(T, (Enqueued([6], 1, T),)))
    assert len(rig.answer(client, 6).value["mids"]) == 1
    rig.finish(client, 4, request=7, how="prepare", gid="g", coordinator="c")
    assert rig.steps() == [(Prepare("g", "c"),)]
    rig.done(Performed(T, (Done(),)))
    assert rig.figures()["transactions"] == 0


def test_more_than_a_quarter_of_the_window_is_not_held():
    rig = QueueRig(put_window=8_192)
    client = rig.reader()
    for step in range(1, 40):
        rig.enqueue(client, step, *quotes(30))
        if rig.asked:
            break
    steps = rig.steps()[0]
    assert len(steps) == step
    assert rig.figures()["held_bytes"] == 0
    assert not any(isinstance(each, Credit) for each in rig.said[client])
    rig.done(Performed(T, tuple(Enqueued([1] * 30, 1, T) for _ in steps)))
    assert client.outstanding == client.taken
    rig.finish(client, step + 1, request=9)
    rig.done(Performed(T, (Done(),)))
    assert len(rig.answer(client, 9).value["mids"]) == step


def test_enqueues_of_a_transaction_that_is_over_give_their_credit_back(rig):
    client = rig.reader()
    rig.dequeue(client, 1, request=1, queue="none")
    rig.done(StoreFull("no room"))
    assert rig.answer(client, 1).code == "store_full"
    rig.enqueue(client, 2)
    rig.finish(client, 3, request=2)
    assert rig.answer(client, 2).code == "transaction_aborted"
    rig.enqueue(client, 4)
    rig.finish(client, 5, request=3, how="abort")
    assert client.outstanding == client.taken
    assert rig.figures() == {"transactions": 0, "waiting": 0, "held_bytes": 0}


def test_a_decision_that_lacks_something_is_refused_and_the_transaction_goes_on(rig):
    client = rig.reader()
    rig.dequeue(client, 1, request=1)
    rig.done(Performed(T, (got(1),)))
    rig.finish(client, 2, request=2, decision={"gid": "g"})
    assert "participant" in rig.answer(client, 2).message
    rig.finish(client, 2, request=3)
    rig.done(Performed(T, (Done(),)))
    assert isinstance(rig.answer(client, 3), Reply)


def test_enqueues_behind_the_end_of_a_transaction_give_their_credit_back(rig):
    client = rig.reader()
    rig.enqueue(client, 1)
    rig.finish(client, 2, request=1)
    rig.enqueue(client, 3)
    rig.done(Performed(T, (Enqueued([5], 1, T), Done())))
    assert client.outstanding == client.taken
    assert rig.figures() == {"transactions": 0, "waiting": 0, "held_bytes": 0}
    assert client.owner.held_bytes == 0


def test_a_client_that_does_not_mind_its_window_is_closed():
    rig = QueueRig(put_window=1_024)
    client = rig.reader()
    for step in range(1, 10):
        rig.enqueue(client, step, *quotes(20))
    assert client in rig.closed


# What is wrong


def test_a_batch_that_is_wrong_fails_the_next_request_and_the_transaction(rig):
    client = rig.reader()
    rig.dequeue(client, 1, request=1)
    rig.done(Performed(T, (got(1),)))
    wrong = EnqueueFrame(
        0, 1, 2, "quotes", NO_PRIORITY, 0, 0, True, milepost.encode(SCHEMA, quotes(1)).data[:-1] + b"?"
    )
    rig.say(client, wrong)
    rig.finish(client, 3, request=2)
    assert rig.answer(client, 2).code == "malformed_batch"
    assert [effect.operation for effect in rig.asked] == [operations.Undo(T)]
    rig.dequeue(client, 4, request=3)
    assert rig.answer(client, 3).code == "transaction_aborted"
    rig.finish(client, 5, request=4, how="abort")
    assert isinstance(rig.answer(client, 4), Reply)
    assert rig.figures()["transactions"] == 0
    assert client.outstanding == client.taken


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"priority": math.inf}, "invalid_value"),
        ({"due_us": -1}, "invalid_value"),
        ({"ends_us": -1}, "invalid_value"),
        ({"queue": "q" * 256}, "limit_exceeded"),
    ],
)
def test_words_before_a_batch_that_are_wrong(rig, more, code):
    client = rig.reader()
    rig.enqueue(client, 1, **more)
    rig.finish(client, 2, request=2)
    assert rig.answer(client, 2).code == code
    assert rig.asked == []


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"transaction": 0}, "no_transaction"),
        ({"step": 0}, "no_transaction"),
        ({"step": 3}, "transaction_aborted"),
        ({"count": 0}, "invalid_value"),
        ({"count": 1 << 30}, "limit_exceeded"),
        ({"wait_s": -1.0}, "invalid_value"),
        ({"wait_s": math.nan}, "invalid_value"),
        ({"where": "x" * 30_000}, "limit_exceeded"),
    ],
)
def test_a_dequeue_that_is_wrong_is_refused_and_the_connection_stays(rig, more, code):
    client = rig.reader()
    rig.dequeue(client, 1, request=1)
    rig.done(nothing())
    rig.dequeue(client, request=2, **{"step": 2} | more)
    assert rig.answer(client, 2).code == code
    rig.finish(client, 2, request=3, how="explode")
    assert rig.answer(client, 3).code == "broker"
    assert client.open


def test_whose_fault_an_error_is_will_be_seen(rig):
    client = rig.reader()
    error = QueryTypeError("no such field")
    rig.enqueue(client, 1)
    rig.dequeue(client, 2, request=1)
    rig.done(error)
    assert [[type(step) for step in steps] for steps in rig.steps()] == [[Enqueue]], "first what was held, alone"
    rig.done(Performed(T, (Enqueued([5], 1, T),)))
    assert rig.steps() == [(WANTED,)]
    rig.done(error)
    assert rig.answer(client, 1).code == "query_type"
    rig.enqueue(client, 3, queue="nowhere")
    rig.dequeue(client, 4, request=2)
    rig.done(UnknownQueue("nowhere"), UnknownQueue("nowhere"))
    assert rig.answer(client, 2).code == "unknown_queue"
    assert [effect.operation for effect in rig.asked] == [operations.Undo(T)]


def test_a_type_that_is_not_known_is_looked_up_once(rig):
    client = rig.reader()
    other = "note: [n: int]"
    rig.enqueue(client, 1, {"n": 1}, schema=other)
    rig.enqueue(client, 1, {"n": 2}, schema=other, transaction=2)
    rig.finish(client, 2, request=1)
    rig.finish(client, 2, request=2, transaction=2)
    assert [effect.operation for effect in rig.asked] == [operations.Types()]
    schema = milepost.parse_schema(other)
    rig.done([TypeRecord(2, "note", other, schema)])
    assert [[type(step) for step in steps] for steps in rig.steps()] == [[Enqueue, Commit]] * 2
    rig.asked.clear()
    rig.enqueue(client, 1, {"m": 1}, schema="unheard: [m: int]", transaction=3)
    rig.finish(client, 2, request=3, transaction=3)
    rig.done([])
    assert rig.answer(client, 3).code == "unknown_type"


def test_a_store_that_fails_ends_the_transaction_and_one_in_doubt_the_connection(rig):
    client = rig.reader()
    rig.enqueue(client, 1)
    rig.finish(client, 2, request=1)
    rig.done(StoreFull("no room"))
    assert rig.answer(client, 1).code == "store_full"
    rig.enqueue(client, 1, transaction=2)
    rig.finish(client, 2, request=2, transaction=2)
    rig.done(InDoubt("went away"))
    assert client in rig.closed
    assert rig.answer(client, 2) is None
    again = rig.reader()
    rig.enqueue(again, 1, transaction=2)
    rig.finish(again, 2, request=1, transaction=2)
    assert [type(step) for step in rig.steps()[0]] == [Enqueue, Commit]
    assert rig.asked[0].operation.transaction[2:4] == (b"i" * 16, 2), "the store knows it by these"
    rig.done(Performed(T, (Enqueued([5], 1, T), Done(repeated=True))))
    assert rig.answer(again, 1).value["t"] == T


# Waiting


def wait(rig, *connections, **more):
    """A dequeue that waits, for each connection: what the first of a kind finds is nothing."""
    for place, connection in enumerate(connections):
        rig.dequeue(connection, 1, request=1, transaction=1, wait_s=10.0, **more)
        if rig.asked:
            assert not place, "who sees that others wait for the same need not look"
            rig.done(nothing())


def clients(rig, count):
    return [rig.reader(bytes([number + 1]) * 16) for number in range(count)]


def answered(rig, connections):
    return [rig.answer(each, 1) is not None for each in connections]


def commit(rig, writer, count, transaction, touched=("quotes",)):
    rig.enqueue(writer, 1, *quotes(count), transaction=transaction)
    rig.finish(writer, 2, request=100 + transaction, transaction=transaction)
    rig.done(Performed(T, (Enqueued(list(range(count)), 1, T), Done(touched=touched))))


def test_who_waits_is_woken_as_often_as_there_are_messages(rig):
    writer = rig.reader()
    readers = clients(rig, 100)
    wait(rig, *readers)
    assert rig.figures()["waiting"] == 100
    commit(rig, writer, 2, 1)
    assert rig.steps() == [(WANTED,), (WANTED,)], "two messages, two tries"
    assert [effect.operation.transaction.instance for effect in rig.asked] == [b"\1" * 16, b"\2" * 16]
    rig.done(Performed(T, (got(1),)), Performed(T, (got(2),)))
    assert answered(rig, readers[:3]) == [True, True, False]
    assert rig.asked == []
    commit(rig, writer, 1, 2, touched=("another",))
    assert rig.asked == []


def test_a_try_that_finds_nothing_tells_all_who_wait_for_the_same(rig):
    writer = rig.reader()
    readers = clients(rig, 6)
    wait(rig, *readers[:4])
    wait(rig, *readers[4:], where="size > 5")
    rig.run(rig.core.queues.waiting.notify_all())
    assert len(rig.asked) == 1, "nobody knows how many there are: one looks"
    assert rig.looked().where is None
    assert rig.looked().where == "size > 5", "the first of those who want something else"
    assert rig.asked == []
    commit(rig, writer, 3, 1)
    assert len(rig.asked) == 3
    rig.done(Performed(T, (got(1),)), Performed(T, (got(2),)), Performed(T, (got(3),)))
    assert answered(rig, readers) == [True, True, True, False, False, False]


def test_a_try_before_something_came_says_nothing_about_it(rig):
    writer = rig.reader()
    (reader,) = clients(rig, 1)
    wait(rig, reader)
    rig.run(rig.core.queues.waiting.notify_all())
    assert len(rig.asked) == 1
    rig.enqueue(writer, 1, transaction=1)
    rig.finish(writer, 2, request=7)
    rig.asked.reverse()
    rig.done(Performed(T, (Enqueued([1], 1, T), Done(touched=("quotes",)))))
    rig.looked()
    assert rig.steps() == [(WANTED,)], "it is known that something has come"
    rig.done(Performed(T, (got(1),)))
    assert answered(rig, [reader]) == [True]


def test_what_a_look_sees_is_taken_and_what_is_behind_it_without_a_look(rig):
    _, second, third = readers = clients(rig, 3)
    wait(rig, *readers)
    rig.run(rig.core.queues.waiting.notify_all())
    rig.done(got(1))
    assert rig.steps() == [(WANTED,)]
    rig.done(Performed(T, (got(1),)))
    assert rig.steps() == [(WANTED,), (WANTED,)], "there may be more of it"
    rig.done(nothing(), nothing())
    assert rig.asked == []
    assert answered(rig, readers) == [True, False, False]
    rig.run(rig.core.queues.waiting.notify_all())
    assert rig.looked() is not None, "nobody knows any more"
    assert rig.asked == []
    rig.run(rig.core.queues.waiting.notify_all())
    rig.say(second, Bye("gone"))
    rig.run(rig.core.lost(second))
    rig.done(got(1))
    assert rig.looked() is not None, "nothing is taken for a client that left: the next one looks"
    rig.run(rig.core.queues.waiting.notify_all())
    rig.done(got(2))
    rig.done(Performed(T, (got(2),)))
    assert answered(rig, [third]) == [True]
    assert not rig.core.queues.waiting.some


def test_a_dequeue_in_a_transaction_that_has_begun_looks_as_that(rig):
    (reader,) = clients(rig, 1)
    rig.dequeue(reader, 1, request=1)
    rig.done(Performed(T, (got(1),)))
    rig.dequeue(reader, 2, request=2, wait_s=9.0)
    rig.done(Performed(T, (Got([]),)))
    rig.run(rig.core.queues.waiting.notify_all())
    assert rig.looked().owner == T


def test_a_wait_ends_at_its_time_and_what_is_due_is_looked_for(rig):
    (first,) = clients(rig, 1)
    rig.dequeue(first, 1, request=1, wait_s=5.0)
    rig.done(nothing(waits_us=2_000_000))
    rig.run(rig.core.queues.waiting.wake(0.1, 1_000_000))
    rig.looked(waits_us=2_000_000)  # the look without a reason, once a second
    rig.run(rig.core.queues.waiting.wake(0.2, 1_999_999))
    assert rig.asked == []
    rig.run(rig.core.queues.waiting.wake(0.3, 2_000_000))
    rig.looked()
    rig.run(rig.core.queues.waiting.wake(4.9, 3_000_000))
    rig.run(rig.core.queues.waiting.wake(5.0, 3_000_000))
    assert rig.answer(first, 1) is None, "it looks for the last time"
    rig.looked()
    assert rig.answer(first, 1).value["messages"] == 0
    assert not rig.core.queues.waiting.some


def test_whoever_sends_more_for_a_transaction_waits_no_longer(rig):
    (client,) = clients(rig, 1)
    wait(rig, client)
    rig.finish(client, 2, request=2, how="abort")
    assert rig.answer(client, 1).value["messages"] == 0
    assert isinstance(rig.answer(client, 2), Reply)
    assert not rig.core.queues.waiting.some
    rig.dequeue(client, 1, request=3, transaction=2, wait_s=9.0)
    rig.finish(client, 2, request=4, how="abort", transaction=2)
    rig.done(Performed(T, (got(1),)))
    assert rig.answer(client, 3).value["messages"] == 1
    assert rig.steps() == [(Abort(),)]
    rig.done(Performed(T, (Done(touched=("quotes",)),)))
    assert isinstance(rig.answer(client, 4), Reply)


def test_an_abort_wakes_for_what_it_gives_back_and_a_move_for_what_it_brings(rig):
    taker, *readers = clients(rig, 4)
    rig.dequeue(taker, 1, request=1, count=2)
    rig.done(Performed(T, (got(1, 2),)))
    wait(rig, *readers)
    rig.finish(taker, 2, request=2, how="abort")
    rig.done(Performed(T, (Done(touched=("quotes",)),)))
    assert len(rig.asked) == 2
    rig.done(Performed(T, (got(1),)), Performed(T, (got(2),)))
    rig.say(taker, MoveRequest(request=9, source="other", target="quotes"))
    rig.done(1)
    assert rig.answer(taker, 9).value == {"messages": 1}
    assert len(rig.asked) == 1


def test_an_error_while_waiting_is_told_and_those_behind_go_on(rig):
    first, second = clients(rig, 2)
    wait(rig, first, second)
    rig.run(rig.core.queues.waiting.notify_all())
    rig.done(UnknownQueue("dropped"), UnknownQueue("dropped"))  # the look, and the dequeue that is told so
    assert rig.answer(first, 1).code == "unknown_queue"
    rig.run(rig.core.queues.waiting.notify_all())
    rig.done(UnknownQueue("dropped"), UnknownQueue("dropped"))
    assert rig.answer(second, 1).code == "unknown_queue"
    assert not rig.core.queues.waiting.some


# Figures


def test_messages_count_when_their_transaction_is_committed(rig):
    (client,) = clients(rig, 1)

    def totals():
        return rig.core.totals["messages_enqueued"], rig.core.totals["messages_dequeued"]

    def begin(transaction):
        rig.enqueue(client, 1, *quotes(3), transaction=transaction)
        rig.dequeue(client, 2, request=10 * transaction, transaction=transaction, count=2)
        rig.done(Performed(T + transaction, (Enqueued([1, 2, 3], 1, T), got(1, 2))))

    begin(1)
    rig.finish(client, 3, request=1, how="abort")
    rig.done(Performed(T + 1, (Done(touched=("quotes",)),)))
    assert totals() == (0, 0)
    begin(2)
    assert totals() == (0, 0)
    rig.finish(client, 3, request=2, transaction=2)
    rig.done(Performed(T + 2, (Done(touched=("quotes",)),)))
    assert totals() == (3, 2)
    for transaction, commit in ((3, True), (4, False)):
        begin(transaction)
        how = {"how": "prepare", "gid": f"g{transaction}", "coordinator": "c"}
        rig.finish(client, 3, request=transaction, transaction=transaction, **how)
        rig.done(Performed(T + transaction, (Done(),)))
        assert totals() == ((3, 2) if commit else (6, 4)), "it is not decided"
        rig.say(client, Decide(request=100 + transaction, gid=f"g{transaction}", commit=commit))
        rig.done(Done())
    assert totals() == (6, 4)


# Clients that are away


def test_a_client_that_comes_back_gets_the_answers_that_it_missed(rig):
    client = rig.reader()
    rig.enqueue(client, 1)
    rig.dequeue(client, 2, request=1)
    rig.run(rig.core.lost(client))
    rig.done(Performed(T, (Enqueued([5], 1, T), got(1))))
    again = rig.reader()
    rig.enqueue(again, 1)
    rig.dequeue(again, 2, request=1)
    assert rig.asked == [], "it was done"
    assert rig.answer(again, 1).value["messages"] == 1
    assert len(rig.taken[again]) == 1
    assert again.outstanding == again.taken
    rig.enqueue(again, 3)
    rig.run(rig.core.lost(again))  # what was held is gone with it
    assert rig.figures() == {"transactions": 1, "waiting": 0, "held_bytes": 0}
    third = rig.reader()
    rig.enqueue(third, 3)
    rig.finish(third, 4, request=1)
    assert [type(step) for step in rig.steps()[0]] == [Enqueue, Commit]
    rig.run(rig.core.lost(third))
    fourth = rig.reader()
    rig.enqueue(fourth, 3)
    rig.finish(fourth, 4, request=1)
    assert len(rig.asked) == 1, "it is being done"
    rig.done(Performed(T, (Enqueued([6], 1, T), Done())))
    assert len(rig.answer(fourth, 1).value["mids"]) == 1
    rig.finish(fourth, 4, request=2)
    assert rig.answer(fourth, 2).value["t"] == T, "also when it is over"
    rig.finish(fourth, 5, request=3)
    assert rig.answer(fourth, 3).code == "no_transaction"


def test_a_waiting_dequeue_ends_when_its_client_is_lost(rig):
    first, second = clients(rig, 2)
    wait(rig, first, second)
    rig.run(rig.core.lost(first))
    assert rig.figures()["waiting"] == 1
    again = rig.reader(b"\1" * 16)
    rig.dequeue(again, 1, request=1, wait_s=10.0)
    assert rig.answer(again, 1).value["messages"] == 0


def test_leases_are_renewed_and_those_of_the_lost_end(rig):
    here, away = clients(rig, 2)
    for number, client in enumerate((here, away)):
        rig.dequeue(client, 1, request=1)
        rig.done(Performed(T + number, (got(1),)))
    rig.run(rig.core.tick(100.0))
    renewed = operations.Renew((T, T + 1), LEASE_US)
    assert [effect.operation for effect in rig.asked] == [renewed, operations.Sweep()]
    rig.done([], Done())
    rig.run(rig.core.tick(101.0))
    assert rig.asked == []
    rig.run(rig.core.tick(105.0))
    assert [effect.operation for effect in rig.asked] == [renewed, operations.Sweep()], "the clock may have jumped"
    rig.done([], Done())
    rig.run(rig.core.lost(away))
    rig.run(rig.core.tick(106.0))
    rig.run(rig.core.tick(135.0))
    rig.asked.clear()
    rig.run(rig.core.tick(136.0))
    assert operations.Undo(T + 1) in [effect.operation for effect in rig.asked]
    assert rig.figures()["transactions"] == 1
    rig.asked.clear()
    late = rig.reader(b"\2" * 16)
    rig.dequeue(late, 2, request=1, number=T + 1)
    assert rig.answer(late, 1).code == "transaction_aborted"
    assert rig.steps() == [(Abort(),)], "nobody else is to have it either"
    rig.done(TransactionAborted("it was undone"))


def test_the_store_hears_who_has_just_come(rig):
    """A client may have written at another broker, whose clock is ahead: numbers given here follow its own."""
    client = rig.reader()
    for transaction, came in ((1, True), (2, False)):
        rig.dequeue(client, 1, request=transaction, transaction=transaction)
        assert rig.asked[0].operation.transaction.came is came
        rig.done(Performed(T, (got(1),)))
    rig.run(rig.core.lost(client))
    again = rig.reader()
    rig.dequeue(again, 1, request=3, transaction=3)
    assert rig.asked[0].operation.transaction.came


def test_a_sweep_that_was_not_enough_is_followed_by_another(rig):
    rig.run(rig.core.tick(100.0))
    rig.done(Done(more=True))
    assert [effect.operation for effect in rig.asked] == [operations.Sweep()]
    rig.done(Done())
    assert rig.asked == []


def test_an_abort_that_the_store_fails_to_do_is_renewed_no_longer(rig):
    """Its lease ends, and whoever sweeps undoes it. Else its messages were nobody's while the client is there."""
    client = rig.reader()
    rig.dequeue(client, 1, 1)
    rig.done(Performed(T, (got(1),)))
    rig.finish(client, 2, request=2, how="abort")
    rig.done(StoreFull("no room"))
    assert rig.answer(client, 2).code == "store_full"
    assert rig.figures()["transactions"] == 0
    rig.run(rig.core.queues.leases.tick(rig.now))
    assert not [each for each in rig.asked if isinstance(each.operation, operations.Renew)]


def test_a_client_that_leaves_is_undone_at_once(rig):
    client = rig.reader()
    rig.dequeue(client, 1, request=1)
    rig.done(Performed(T, (got(1),)))
    rig.dequeue(client, 1, request=2, transaction=2)  # under way: what it is called, the store has not told yet
    rig.say(client, Bye())
    assert [effect.operation for effect in rig.asked[1:]] == [operations.Undo(T)]
    rig.done(Performed(T + 1, (got(2),)))
    assert [effect.operation for effect in rig.asked] == [operations.Undo(T), operations.Undo(T + 1)]
    assert rig.figures()["transactions"] == 0
    assert rig.core.totals["queue_aborts"] == 2


def test_a_broker_that_was_started_anew_asks_its_store_about_a_commit(rig):
    client = rig.reader()
    rig.enqueue(client, 3)
    rig.finish(client, 4, request=1, number=T)
    assert rig.steps() == [(Commit(None, ()),)], "either it was done whole, or it is not done"
    assert rig.asked[0].operation.transaction.number == 0, "the store finds it by its client"
    rig.done(Performed(T, (Done(repeated=True),)))
    assert isinstance(rig.answer(client, 1), Reply)
    rig.finish(client, 4, request=2, transaction=2, number=T)
    rig.done(TransactionAborted("it was undone"))
    assert rig.answer(client, 2).code == "transaction_aborted"
    rig.asked.clear()
    rig.enqueue(client, 3, transaction=3)  # nothing of it was in the store, as far as its client knows
    rig.finish(client, 4, request=3, transaction=3)
    assert [type(step) for step in rig.steps()[0]] == [Enqueue, Commit]


def test_a_client_without_an_instance_has_no_transactions(rig):
    client = rig.client()
    rig.dequeue(client, 1, request=1)
    assert isinstance(rig.answer(client, 1), Failure)
    assert client.open


# The line itself


class One:
    def __init__(self, order, selector="s"):
        self.order, self.selector, self.waiting, self.changes = order, selector, False, 0


def test_a_line_is_first_come_first_served_also_after_a_try_in_vain():
    line = WaitingLine()
    ones = [One(number) for number in range(5)]
    for each in ones:
        line.join(each)
    assert line.next() is None, "nothing says that there is anything"
    line.notify(2)
    tried = [line.next(), line.next()]
    assert tried == ones[:2]
    assert line.next() is None
    line.came(tried[0], 0)
    line.join(tried[0])
    line.came(tried[1], 1)
    assert line.next() is None, "the first found nothing, and the others want the same"
    line.notify(1)
    assert line.next() is ones[0]


def test_an_infinite_hope_is_tried_carefully():
    line = WaitingLine()
    ones = [One(number) for number in range(100)]
    for each in ones:
        line.join(each)
    line.notify()
    most = 0
    under_way = [line.next()]
    while under_way:
        most = max(most, len(under_way))
        line.came(under_way.pop(0), 1)
        while (each := line.next()) is not None:
            under_way.append(each)
    assert line.idle
    assert 1 < most <= MOST_TRIES


def test_a_probe_looks_after_a_few_wishes_and_after_others_the_next_time():
    line = WaitingLine()
    ones = [One(number, selector=number) for number in range(10)]
    for each in ones:
        line.join(each)

    def tried():
        found = []
        while (each := line.next()) is not None:
            found.append(each.order)
            line.came(each, 0)
            line.join(each)
        return found

    line.notify()
    assert tried() == list(range(10))
    assert tried() == []
    line.probe(4)
    assert tried() == [0, 1, 2, 3]
    line.probe(4)
    assert tried() == [4, 5, 6, 7]
    line.probe(4)
    assert tried() == [0, 1, 8, 9]


def test_those_who_gave_up_leave_nothing_behind():
    line = WaitingLine()
    stays = One(0, "other")
    line.join(stays)
    for number in range(1, 100):
        one = One(number, f"wish {number}")
        line.join(one)
        line.probe(1)
        while (tried := line.next()) is not None:
            line.came(tried, 0)
            line.join(tried)
        line.leave(one)
    assert len(line._waiters) == len(line._empty) == 1
    line.notify(1)
    assert line.next() is stays


def test_answers_that_are_kept_are_bounded():
    owner = ConnectedClient(b"i")
    for number in range(REPLIES_KEPT + 10):
        owner.keep(number, KeptReply(1, {"mids": [b"x" * 8]}))
    assert len(owner.replies) == REPLIES_KEPT
    for number in range(2000, 2005):
        owner.keep(number, KeptReply(1, {"mids": [bytes(REPLY_BYTES // 2)]}))
    assert list(owner.replies) == [2003, 2004]
    owner.keep(9, KeptReply(1, {"mids": [bytes(2 * REPLY_BYTES)]}))
    assert list(owner.replies) == [9], "the last one stays"


def test_who_gives_up_is_passed_over():
    line = WaitingLine()
    ones = [One(number, selector=number % 2) for number in range(4)]
    for each in ones:
        line.join(each)
    line.leave(ones[0])
    line.leave(ones[1])
    assert line.known(0)
    line.notify(10)
    assert line.next() is ones[2]
    assert line.next() is ones[3]
    assert line.next() is None
    for each in ones[2:]:
        line.came(each, 1)
    assert line.idle
    assert not line.known(0)
