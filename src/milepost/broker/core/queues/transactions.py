"""Queues in the core: transactions of clients, dequeues that wait, leases.

Everything about messages is decided in the store, by `milepost.queues`. Here it is decided when the store is asked:
what a client sends for one transaction is carried out in order, one request at a time, with the ENQUEUE frames before
it in the same go; a dequeue that finds nothing waits here.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from milepost import limits
from milepost.batch.header import fingerprint_of
from milepost.broker.core.effects import Effect, Say, Write
from milepost.broker.core.queues.leases import Leases
from milepost.broker.core.queues.taken import messages
from milepost.broker.core.queues.transaction import Answer, Held, OpenTransaction, Request
from milepost.broker.core.queues.waiters import Waiters
from milepost.broker.core.sessions.connection import Connection
from milepost.errors import (
    AckMismatch,
    BrokerError,
    InDoubt,
    InvalidValue,
    MilepostError,
    NotDurable,
    NoTransaction,
    ProtocolError,
    StoreError,
    TransactionAborted,
    UnknownType,
)
from milepost.operations import queues as operations
from milepost.operations import steps
from milepost.operations.steps import Group, Performed, Step
from milepost.query import decode
from milepost.queues.requests import decision_of, dequeue_of, enqueue_of, require_right, undone_by
from milepost.schema import Schema
from milepost.wire import Dequeue, Enqueue, Finish, Reply

if TYPE_CHECKING:
    from milepost.broker.core.core import Core
    from milepost.broker.core.log.acknowledgements import Settling

PREPARED_KEPT: Final = 10_000  # transactions whose messages are counted when they are decided
HELD_SHARE: Final = 4  # ENQUEUE frames of a client are held up to a quarter of its window: the rest stays in flow

log = logging.getLogger("milepost.broker")


class QueueTransactions:
    """See above."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self.totals: Final = core.totals
        self.memory: Final = core.memory
        self.waiting: Final = Waiters(self)
        self.leases: Final = Leases(self, core.settings.queue_lease_s)
        self._types: dict[int, Schema] = {}  # by fingerprint
        self._looking: list[OpenTransaction] | None = None  # those who wait until the types are read again
        self._orders = count(1)
        self._prepared: dict[str, Counter[str]] = {}  # messages of transactions that are not decided, by name

    def begin(self) -> list[Effect]:
        """The store is open."""
        return [Write(operations.Recover(), self.leases.swept), Write(operations.Types(), self._typed)]

    def _typed(self, outcome: Any) -> list[Effect]:
        waiting, self._looking = self._looking or [], None
        if isinstance(outcome, MilepostError):
            log.warning("the message types of the store cannot be read: %s", outcome)
        else:
            self._types = {each.schema.fingerprint: each.schema for each in outcome}
        effects: list[Effect] = []
        for dealing in waiting:
            dealing.busy = False
            effects += self.advance(dealing)
        return effects

    def learn_type(self, schema: Schema) -> None:
        """A type was defined."""
        self._types[schema.fingerprint] = schema

    @property
    def used(self) -> bool:
        """Whether there is anything to look after, as far as this broker knows."""
        return bool(self._types)

    def figures(self) -> dict[str, int]:
        """How many of what there are now."""
        owners = self.leases.owners.values()
        return {
            "transactions": sum(len(owner.dealings) for owner in owners),
            "waiting": len(self.waiting),
            "held_bytes": sum(owner.held_bytes for owner in owners),
        }

    # What clients send

    def enqueue(self, connection: Connection, said: Enqueue) -> list[Effect]:
        """An ENQUEUE frame."""
        size = said.size
        if connection.outstanding >= self._core.settings.put_window:
            raise ProtocolError(
                f"an ENQUEUE came while {connection.outstanding} bytes were under way; WELCOME allowed "
                f"{self._core.settings.put_window}, and CREDIT says when there may be more"
            )
        connection.outstanding += size
        self.memory.held += size
        connection.bytes_in += size
        held = Held(said, connection, size)
        try:
            dealing, repeated = self._dealing(connection, said.transaction, said.step)
            if dealing is None or repeated:
                effects = self._given_back([held])
                return effects if said.held else effects + self._again(connection, said)
        except MilepostError as error:
            effects = self._given_back([held])
            if said.held:
                return effects  # the request behind it hears the same
            return effects + self._core.durable.failed(connection, said.request, error)
        dealing.step = said.step
        self._check(dealing, held)
        dealing.held.append(held)
        dealing.held_bytes += size
        dealing.owner.held_bytes += size
        much = dealing.owner.held_bytes > self._core.settings.put_window // HELD_SHARE
        if said.held and not much:
            return []
        if dealing.resumed and not dealing.number:  # only a request says whether the store should know it
            dealing.over = _unknown(said.transaction)
        return self._ask(dealing, None, 0) if said.held else self._ask(dealing, said, said.request)

    def asked(self, connection: Connection, request: Dequeue | Finish, now: float) -> list[Effect]:
        """A request of a transaction."""
        require_right(request)
        aborts = isinstance(request, Finish) and request.how == "abort"
        dealing, repeated = self._dealing(connection, request.transaction, request.step, aborts)
        if dealing is None or repeated:
            return self._again(connection, request)
        dealing.step = request.step
        if dealing.resumed and not dealing.number:
            dealing.claimed = request.number
        until = now + request.wait_s if isinstance(request, Dequeue) and request.wait_s else 0.0
        return self._ask(dealing, request, request.request, until)

    def _dealing(
        self, connection: Connection, number: int, step: int, aborts: bool = False
    ) -> tuple[OpenTransaction | None, bool]:
        """The transaction of a frame, None when it is over and remembered; and whether the frame came before.

        Whoever `aborts` need not send again what he will not have.
        """
        self.require_store()
        if not connection.instance:
            raise BrokerError("a client that uses queues says in its HELLO which instance it is")
        if number < 1 or step < 1 or number >= 1 << 63:
            raise NoTransaction("queues are used in a transaction: a client counts them from 1 on, and their steps")
        owner = self.leases.owner(connection)
        dealing = owner.dealings.get(number)
        if dealing is not None:
            if step > dealing.step + 1 and not aborts:
                raise TransactionAborted(f"steps of transaction {number} are missing before {step}; run it again")
            return dealing, step <= dealing.step
        if number in owner.answers:
            return None, True
        limits.require("TRANSACTIONS", len(owner.dealings) + 1, "the transactions of one client at once")
        dealing = owner.dealings[number] = OpenTransaction(owner, number, connection.publisher.number)
        # One that does not begin with its first step was begun on another broker, or on this one before it was started
        # anew. Whether it was done, or nothing was done of it yet, the store knows.
        dealing.resumed = step > 1
        dealing.step = dealing.asked = step - 1
        self.totals["queue_transactions"] += 1
        return dealing, False

    def _again(self, connection: Connection, said: Dequeue | Finish | Enqueue) -> list[Effect]:
        """A request that came before, on another connection: what was answered, or will be."""
        owner, number = connection.owner, said.transaction
        assert owner is not None
        dealing = owner.dealings.get(number)
        answer = owner.answers.get(number) if dealing is None else dealing.answer
        if dealing is not None:
            for each in dealing.requests:
                if each.step == said.step:
                    each.number = said.request
                    return []
        if answer is None or answer.step != said.step:
            raise NoTransaction(f"transaction {number} is over; begin another")
        return self._said(connection, said.request, answer)

    def _check(self, dealing: OpenTransaction, held: Held) -> None:
        """Find out whether a batch is right; what is wrong is told with the next request."""
        said = held.said
        try:
            limits.require("NAME_CHARS", len(said.queue), "the characters of a queue's name")
            if math.isinf(said.priority):
                raise InvalidValue(f"priority {said.priority}: takes a finite number")
            if said.due_us < 0 or said.ends_us < 0:
                raise InvalidValue("a message is due, and ends, at a time after 1970")
            schema = self._types.get(fingerprint_of(said.data))
            if schema is None:
                if held.looked:
                    raise UnknownType(
                        f"a batch for queue {said.queue!r} is of no message type that this broker has; declare it first"
                    )
                return
            batch = decode(said.data, schema)
            if not len(batch):
                raise InvalidValue("an ENQUEUE without messages")
            self.memory.measured(said.queue, len(batch), len(batch.data))
            dealing.messages += len(batch)
            limits.require("TRANSACTION_MESSAGES", dealing.messages, "the messages that one transaction enqueues")
            held.batch = batch
        except MilepostError as error:
            held.error = error
        held.said = said._replace(data=b"" if held.batch is not None else said.data)

    # One request after the other

    def _ask(
        self, dealing: OpenTransaction, said: Dequeue | Finish | Enqueue | None, number: int, until: float = 0.0
    ) -> list[Effect]:
        """Let a request be carried out when those before it are, with what was held before it."""
        held, dealing.held = dealing.held, []
        dealing.owner.held_bytes -= dealing.held_bytes
        dealing.held_bytes = 0
        dealing.asked = dealing.step
        dealing.answer = None  # whoever goes on has it
        self.memory.keep(dealing, 0)
        dealing.requests.append(Request(dealing, said, number, dealing.step, held, until, next(self._orders)))
        first = dealing.requests[0]
        if first.waiting:  # its client does not wait for it any more
            return self.waiting.come_away(first)
        return self.advance(dealing)

    def advance(self, dealing: OpenTransaction) -> list[Effect]:
        """Carry out the next request, if none is under way."""
        effects: list[Effect] = []
        while dealing.requests and not dealing.busy and not dealing.requests[0].waiting:
            effects += self._carry_out(dealing, dealing.requests[0])
        return effects

    def _carry_out(self, dealing: OpenTransaction, request: Request) -> list[Effect]:
        said = request.said
        if isinstance(said, Finish) and said.how == "abort":
            return self._abort(dealing, request)
        if dealing.over is not None:
            error = undone_by(dealing.over) if dealing.told else dealing.over
            dealing.told = True
            return self._settle(request, Answer(request.step, error=error))
        if dealing.claimed and not dealing.number:
            return self._claim(dealing, request)
        for held in request.held:
            if held.batch is None and held.error is None:
                if not held.looked:
                    return self._look(dealing, request)
                self._check(dealing, held)
            if held.error is not None:
                return self._spoiled(request, held.error)
        todo: list[Step] = [_step(held) for held in request.held]
        if isinstance(said, Dequeue):
            if not todo and said.wait_s and self.waiting.joins(request):
                return []
            connection = dealing.owner.connection
            if connection is not None:
                try:
                    self.memory.require(connection, dealing.owner)
                except MilepostError as error:
                    return self._refused(request, error)
            todo.append(self.step_of(said))
        elif isinstance(said, Finish) and said.how == "commit":
            if not dealing.number and not todo and not said.acks and not said.decision and not dealing.resumed:
                self.totals["queue_commits"] += 1
                return self._finish(request, Answer(request.step, self._receipt(dealing)))
            if said.acks:
                effects: list[Effect] = []
                try:
                    settling = self._settling(dealing, said, effects)
                except MilepostError as error:  # rows that come again, to whomever: nothing may be done about them here
                    return self._spoiled(request, error) + effects
                if settling is None:
                    dealing.busy = True
                    return []
                request.settling = settling
            todo.append(steps.Commit(decision_of(said), tuple(each.move for each in request.settling)))
        elif isinstance(said, Finish) and said.how == "prepare":
            todo.append(steps.Prepare(said.gid, said.coordinator))
        if not todo:
            return self._settle(request, Answer(request.step, self._receipt(dealing)))
        return self.give(request, tuple(todo), self._performed)

    def step_of(self, said: Dequeue) -> steps.Dequeue:
        """The step of a dequeue, of no more messages than an answer may have now."""
        step = dequeue_of(said)
        most = self.memory.messages(said.queue, said.count)
        return step if most == said.count else replace(step, count=most)

    def _refused(self, request: Request, error: MilepostError) -> list[Effect]:
        """Nothing of a request is carried out, but what was held before it will be, with the next one."""
        dealing = request.dealing
        if request.held:
            dealing.requests.appendleft(Request(dealing, None, 0, request.step, request.held, order=next(self._orders)))
            request.held = []
            return []
        return self._settle(request, Answer(request.step, error=error))

    def _settling(self, dealing: OpenTransaction, said: Finish, effects: list[Effect]) -> list[Settling] | None:
        """The acknowledgements that a commit carries; None: they have to wait."""
        connection = dealing.owner.connection
        if connection is None:
            raise AckMismatch("the connection broke before this was acknowledged; the messages come again")
        return self._core.durable.subscriptions.acks.settle(connection, said.acks, dealing, effects)

    def _claim(self, dealing: OpenTransaction, request: Request) -> list[Effect]:
        """A transaction that another broker had begun: it has ended as the request says, or it is undone now.

        Its number is not given to the store, which finds it by its client: nobody can claim another's.
        """
        said = request.said
        effects = self._given_back(request.held)
        request.held = []
        if isinstance(said, Finish) and said.how == "commit":
            return effects + self.give(request, (steps.Commit(),), self._performed)
        if isinstance(said, Finish) and said.how == "prepare":
            return effects + self.give(request, (steps.Prepare(said.gid, said.coordinator),), self._performed)
        dealing.over = _unknown(dealing.client)
        effects.append(Write(self._perform(dealing, (steps.Abort(),)), self._disclaimed))
        return effects + self._settle(request, Answer(request.step, error=dealing.over))

    def _disclaimed(self, outcome: Any) -> list[Effect]:
        effects: list[Effect] = []
        if not isinstance(outcome, MilepostError):
            self.waiting.stir(outcome.outcomes[-1].touched, effects)
        return effects

    def give(
        self, request: Request, todo: tuple[Step, ...], then: Callable[[Request, Any], list[Effect]]
    ) -> list[Effect]:
        """Have the store carry out steps of a transaction."""
        dealing = request.dealing
        dealing.busy = True
        return [Write(self._perform(dealing, todo), partial(then, request))]

    def _perform(self, dealing: OpenTransaction, todo: tuple[Step, ...]) -> operations.Perform:
        instance = dealing.owner.instance
        transaction = steps.Transaction(
            dealing.number, dealing.writer, instance, dealing.client, self.leases.us, dealing.owner.came
        )
        return operations.Perform(transaction, todo)

    def _look(self, dealing: OpenTransaction, request: Request) -> list[Effect]:
        """A type that is not known: another broker may have defined it."""
        for held in request.held:
            held.looked = held.batch is None
        dealing.busy = True
        if self._looking is not None:
            self._looking.append(dealing)
            return []
        self._looking = [dealing]
        return [Write(operations.Types(), self._typed)]

    def _performed(self, request: Request, outcome: Any) -> list[Effect]:
        """The store has carried a request out, or has not."""
        dealing, said = request.dealing, request.said
        dealing.busy = False
        wrong = outcome if isinstance(outcome, MilepostError) else None
        settling, request.settling = request.settling, []
        effects = self._core.durable.subscriptions.acks.settled(settling, wrong) if settling else []
        if wrong is not None:
            return effects + self.failed(request, wrong) + self.advance(dealing)
        effects += self._given_back(request.held) + self.learn(dealing, outcome)
        for held, each in zip(request.held, outcome.outcomes, strict=False):
            self._enqueued(dealing, held, each)
        request.held = []
        last = outcome.outcomes[-1]
        if isinstance(said, Dequeue):
            effects += self.waiting.got(request, last)
        elif isinstance(said, Finish) and said.how in ("commit", "prepare"):
            effects += self._finish(request, Answer(request.step, self._receipt(dealing)))
            self.totals["queue_commits"] += said.how == "commit"
            if not last.repeated:
                self._ended(dealing, said)
            self.waiting.stir(last.touched, effects, dealing.enqueued, dealing.taken)
        elif said is None:
            dealing.requests.popleft()
        else:
            effects += self._settle(request, Answer(request.step, self._receipt(dealing)))
        return effects + self.advance(dealing)

    def _ended(self, dealing: OpenTransaction, said: Finish) -> None:
        """Count the messages of a transaction that is committed; of one that is prepared, when that is decided."""
        moved = Counter(messages_enqueued=dealing.enqueued.total(), messages_dequeued=dealing.taken.total())
        if said.how == "commit":
            self.totals.update(moved)
            return
        if len(self._prepared) >= PREPARED_KEPT:
            del self._prepared[next(iter(self._prepared))]
        self._prepared[said.gid] = moved

    def decided(self, gid: str, commit: bool) -> None:
        """A prepared transaction has ended."""
        moved = self._prepared.pop(gid, None)
        if commit and moved is not None:
            self.totals.update(moved)

    def learn(self, dealing: OpenTransaction, outcome: Performed) -> list[Effect]:
        """What the store calls a transaction, once it has heard of it."""
        begun, dealing.number = not dealing.number, outcome.number
        dealing.owner.came = False
        if begun and dealing.number and dealing.over is not None:  # its client went for good meanwhile
            return self.leases.undo_late(dealing)
        return []

    def _enqueued(self, dealing: OpenTransaction, held: Held, outcome: steps.Enqueued | None) -> None:
        if outcome is None:  # of a commit that was done before: what the messages' numbers were is forgotten
            dealing.mids.append(b"")
            return
        rows = len(outcome.mids)
        dealing.writer = outcome.s  # of a commit that was done before, the number that the client had then
        dealing.mids.append(np.asarray(outcome.mids, "<i8").tobytes())
        dealing.enqueued[held.said.queue] += rows
        held.connection.rows_in += rows

    def _receipt(self, dealing: OpenTransaction) -> dict[str, Any]:
        mids, dealing.mids = dealing.mids, []
        return {"s": dealing.writer, "t": dealing.number, "mids": mids}

    def failed(self, request: Request, error: MilepostError) -> list[Effect]:
        """The store has carried out nothing of a request."""
        dealing, said = request.dealing, request.said
        if isinstance(error, InDoubt) and isinstance(said, Finish):
            # Neither done nor not: the client hears nothing, connects again, and asks again. The store knows then.
            effects: list[Effect] = []
            for each in dealing.requests:
                effects += self._given_back(each.held)
                dealing.uncount(each.held)
            dealing.requests.clear()
            dealing.asked = dealing.step = request.step - 1 - len(request.held)
            connection = dealing.owner.connection
            return effects + (self._core.refused(connection, error) if connection is not None else [])
        if isinstance(error, StoreError | TransactionAborted):
            return self._spoiled(request, error)
        if request.held and said is not None and not isinstance(said, Enqueue):
            # Whose fault it is will be seen: first what was held, alone, then the request.
            first = Request(dealing, None, 0, request.step, request.held, order=next(self._orders))
            request.held = []
            dealing.requests.appendleft(first)
            return []
        if request.held:
            return self._spoiled(request, error)
        return self._settle(request, Answer(request.step, error=error))

    def _spoiled(self, request: Request, error: MilepostError) -> list[Effect]:
        """A transaction cannot go on: it is undone, and its client told why."""
        dealing = request.dealing
        effects = self._given_back(request.held)
        request.held = []
        dealing.over = error
        effects += self.leases.undo(dealing)
        if request.said is None:
            dealing.requests.popleft()  # the next request hears of it
            return effects
        dealing.told = True
        return effects + self._settle(request, Answer(request.step, error=error))

    def _abort(self, dealing: OpenTransaction, request: Request) -> list[Effect]:
        effects = self._given_back(request.held)
        request.held = []
        if dealing.over is not None:
            return effects + self._finish(request, Answer(request.step, {}))
        self.totals["queue_aborts"] += 1
        if not dealing.number and not dealing.claimed:
            return effects + self._finish(request, Answer(request.step, {}))
        return effects + self.give(request, (steps.Abort(),), self._aborted)

    def _aborted(self, request: Request, outcome: Any) -> list[Effect]:
        dealing = request.dealing
        dealing.busy = False
        if isinstance(outcome, StoreError):
            # Nobody will ask again. As this broker does not know it any more its lease ends, and `Sweep` undoes it.
            return self._finish(request, Answer(request.step, error=outcome))
        effects = self._finish(request, Answer(request.step, {}))  # also when it was undone before
        if not isinstance(outcome, MilepostError):
            self.waiting.stir(outcome.outcomes[-1].touched, effects, dealing.taken)
        return effects

    # Answers

    def _settle(self, request: Request, answer: Answer) -> list[Effect]:
        """A request has its answer, which is kept until the client goes on."""
        dealing = request.dealing
        dealing.requests.popleft()
        dealing.answer = answer
        self.memory.keep(dealing, sum([len(group.batch.data) for group in answer.groups]))
        connection = dealing.owner.connection
        return self._said(connection, request.number, answer) if connection is not None and request.number else []

    def _finish(self, request: Request, answer: Answer) -> list[Effect]:
        """The last request of a transaction."""
        dealing = request.dealing
        effects = self._settle(request, answer)
        self.memory.keep(dealing, 0)
        dealing.owner.keep(dealing.client, answer)
        effects += self._given_back(dealing.forget_held())
        while dealing.requests:  # sent behind the end
            late = dealing.requests[0]
            effects += self._given_back(late.held)
            error = NoTransaction(f"transaction {dealing.client} is over; begin another")
            effects += self._settle(late, Answer(late.step, error=error))
        return effects

    def _said(self, connection: Connection, request: int, answer: Answer) -> list[Effect]:
        if not connection.open:
            return []
        if answer.error is not None:
            return self._core.durable.failed(connection, request, answer.error)
        reply = Reply(request=request, value=answer.value)
        if not answer.groups:
            return [Say(connection, reply)]
        self.memory.answered(connection, request)
        return messages(connection, request, answer.groups, reply)

    def looked(self, connection: Connection, request: int, value: dict[str, Any], groups: list[Group]) -> list[Effect]:
        """Messages that were only looked at."""
        return self._said(connection, request, Answer(0, value, groups))

    def took(self, request: Request, groups: list[Group], rows: int) -> list[Effect]:
        """A dequeue is over, with or without messages."""
        dealing = request.dealing
        dealing.taken[request.dequeue.queue] += rows
        self.memory.measured(request.dequeue.queue, rows, sum([len(group.batch.data) for group in groups]))
        return self._settle(request, Answer(request.step, self._receipt(dealing) | {"messages": rows}, groups))

    def _given_back(self, held: list[Held]) -> list[Effect]:
        from milepost.broker.core.core import Source

        effects: list[Effect] = []
        for each in held:
            self._core.give_back([Source(each.connection, each.size, 0)], [], effects)
        return effects

    def require_store(self) -> None:
        """Raise what is to be done when there is no store."""
        if not self._core.durable.on:
            raise NotDurable("this broker keeps nothing, and so has no queues: start it with a store")


def _unknown(number: int) -> TransactionAborted:
    return TransactionAborted(
        f"the broker does not know transaction {number}, or no longer: it was undone; run it again"
    )


def _step(held: Held) -> steps.Enqueue:
    assert held.batch is not None
    return enqueue_of(held.said, held.batch)
