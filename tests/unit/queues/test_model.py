"""A machine of writers, readers, crashes and leases over each level, against a model that says what each may see.

A database is dear, so one serves all examples of a module; each example has queues of its own, and leaves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from milepost.batch import Batch
from milepost.errors import BlockIncomplete, MilepostError, TransactionAborted, UnknownQueue
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.queues.states import LEVELS
from tests.unit.queues.conftest import LEASE_US, NOTE, Party, Queues
from tests.unit.queues.model import ANY, NAMED, Message, ModelQueue, Wanted

PARTIES = 5
STEPS = 25
MAX_DELIVERIES = 3

Check = Callable[[Any], None]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def lasting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Queues]:
    if request.param == "sqlite":
        made = Queues(str(tmp_path_factory.mktemp("model") / "store.db"))
        yield made
        made.close()
        return
    server = request.getfixturevalue("postgresql_server")
    url = server.database()
    made = Queues(url)
    yield made
    made.close()
    server.drop(url)


places = st.sampled_from([0, 1])
counts = st.integers(1, 3)
priorities = st.sampled_from([None, None, None, 1.0, 2.0, 0.0])
puts = st.tuples(st.just("enqueue"), places, counts, priorities)
wishes = [
    Wanted("size = 0", good=lambda m: m.size == 0),
    Wanted("size > 0", good=lambda m: m.size > 0),
    Wanted(order="size desc", key=lambda m: -m.size),
    Wanted("size <> 1", "size", lambda m: m.size != 1, lambda m: m.size),
]
gets = st.tuples(st.just("dequeue"), places, counts, st.sampled_from([ANY, ANY, ANY, *wishes]))
actions = st.one_of(
    puts, gets, gets, st.just(("commit",)), st.just(("abort",)),
    st.tuples(st.just("several"), st.lists(puts | gets, min_size=2, max_size=3)),
    st.tuples(st.just("put"), st.lists(puts, min_size=1, max_size=2)),
    st.tuples(st.just("spoil"), puts),
)  # fmt: skip
acts = st.lists(st.tuples(st.integers(0, PARTIES - 1), actions), min_size=1, max_size=3, unique_by=lambda each: each[0])


class Machine(RuleBasedStateMachine):
    """Parties with a transaction each, over two queues of one level and one for the dead."""

    made_before = 0
    idle: ClassVar[dict[Any, tuple[str, str, str]]] = {}  # queues of examples that left nothing: tables are dear

    def __init__(self, queues: Queues, level: str) -> None:
        super().__init__()
        self.queues = queues
        self.level = level
        self.texts = 0
        self.undone: set[int] = set()  # transactions whose parties do not know yet
        self.active: dict[int, Party] = {}
        self.prepared: dict[str, int] = {}
        self.committed: list[tuple[Party, int, int]] = []  # with the client's number for the transaction, and its own

    @initialize(direction=st.sampled_from(["desc", "asc"]), dying=st.booleans(), plain=st.booleans())
    def make(self, direction: str, dying: bool, plain: bool) -> None:
        """`plain`: no message has a priority of its own, which is another way to find the next one."""
        self.plain = plain
        self.kind = self.queues.url, self.level, direction, dying, plain
        self.names = Machine.idle.pop(self.kind, None)
        if self.names is None:
            Machine.made_before += 1
            self.names = tuple(f"{name} {Machine.made_before}" for name in ("one", "two", "dead"))
            one, two, dead = self.names
            self.queues.notes("none", dead)
            self.queues.notes(
                self.level, one, direction=direction, priority=1.0,
                dead_letter=dead if dying else None, max_deliveries=MAX_DELIVERIES if dying else 0,
            )  # fmt: skip
            self.queues.notes(self.level, two)
        one, two, dead = self.names
        self.dead = ModelQueue(dead)
        self.made = [
            ModelQueue(one, self.level, direction, 1.0, self.dead if dying else None, MAX_DELIVERIES),
            ModelQueue(two, self.level),
            self.dead,
        ]
        brokers = ["one", "two"] if self.queues.shared else ["one"]
        self.brokers = {index: brokers[index % len(brokers)] for index in range(PARTIES)}
        self.parties = [self.queues.party(self.brokers[index]) for index in range(PARTIES)]
        self.parties[-1].s = self.parties[0].s  # two transactions of one client

    # What parties do

    @rule(acts=acts)
    def act(self, acts: list[tuple[int, tuple[Any, ...]]]) -> None:
        """Steps of several transactions, in one write of one broker."""
        broker = self.brokers[acts[0][0]]
        planned: list[tuple[ops.Perform, Check]] = []
        for index, action in acts:
            if self.brokers[index] == broker:
                found = self.plan(self.parties[index], action)
                if found is not None:
                    planned.append(found)
        if not planned:
            return
        outcomes = self.queues.together([each[0] for each in planned], self.queues.store(broker))
        for (_, check), outcome in zip(planned, outcomes, strict=True):
            check(outcome)

    @rule(acts=acts)
    def act_again(self, acts: list[tuple[int, tuple[Any, ...]]]) -> None:
        """The same: this happens more often than anything else."""
        self.act(acts)

    @rule(acts=acts)
    def act_once_more(self, acts: list[tuple[int, tuple[Any, ...]]]) -> None:
        self.act(acts)

    def plan(self, party: Party, action: tuple[Any, ...]) -> tuple[ops.Perform, Check] | None:
        """An operation, and what is to come of it; the model moves when that is looked at."""
        made: list[tuple[steps.Step, Callable[[int, Any], None]]]
        match action:
            case ("enqueue" | "dequeue", *_):
                made = [self.step(party, action)]
            case ("several", several):
                made = [self.step(party, each) for each in several]
            case ("put", several):
                made = [*(self.step(party, each) for each in several), (steps.Commit(), self.ended(party, True))]
            case ("spoil", put):
                wrong = steps.Enqueue("nowhere", Batch.encode(NOTE, [{"text": "no"}]))
                operation = self.perform(party, (self.step(party, put)[0], wrong))
                return operation, lambda outcome: self.refused(party, outcome, UnknownQueue)
            case (how,):
                if not party.number:
                    return None
                commit = how == "commit"
                made = [(steps.Commit() if commit else steps.Abort(), self.ended(party, commit))]
        number = party.number

        def check(outcome: Any) -> None:
            if number in self.undone and isinstance(made[-1][0], steps.Abort):
                assert outcome.outcomes == (steps.Done(repeated=True),)
                self.undone.discard(number)
                party.over()
                return
            if number in self.undone:
                self.refused(party, outcome, TransactionAborted)
                return
            if isinstance(outcome, BlockIncomplete):
                # Of steps that fail together nothing is so; those before the commit did nothing then.
                assert isinstance(made[-1][0], steps.Commit)
                if len(made) == 1:
                    self.incomplete(number, outcome)
                else:
                    assert number
                    assert any(queue.remaining(number) for queue in self.made)
                return
            if isinstance(outcome, MilepostError):
                raise outcome
            assert isinstance(outcome, steps.Performed)
            if not outcome.number:
                assert not number
                assert len(made) == 1
                assert isinstance(made[0][0], steps.Dequeue)
            elif not number:
                assert outcome.number not in self.active
            else:
                assert outcome.number == number
            party.number = outcome.number
            if party.number:
                self.active[party.number] = party
            for (_, look), each in zip(made, outcome.outcomes, strict=True):
                look(outcome.number, each)

        return self.perform(party, tuple(step for step, _ in made)), check

    def perform(self, party: Party, given: tuple[steps.Step, ...]) -> ops.Perform:
        transaction = steps.TransactionOwner(party.number, party.s, party.instance, party.client, LEASE_US)
        return ops.Perform(transaction, given)

    def step(self, party: Party, action: tuple[Any, ...]) -> tuple[steps.Step, Callable[[int, Any], None]]:
        if action[0] == "enqueue":
            return self.enqueue(party, *action[1:])
        return self.dequeue(*action[1:])

    def enqueue(
        self, party: Party, place: int, count: int, priority: float | None
    ) -> tuple[steps.Step, Callable[[int, Any], None]]:
        queue = self.made[place]
        if self.plain:
            priority = None
        texts = [f"{self.texts + each}" for each in range(count)]
        self.texts += count
        batch = Batch.encode(NOTE, [{"text": text, "size": size} for size, text in enumerate(texts)])

        def look(number: int, outcome: Any) -> None:
            assert (outcome.s, outcome.t) == (party.s, number)
            assert outcome.mids == sorted(set(outcome.mids))
            value = queue.priority if priority is None else priority
            for size, (mid, text) in enumerate(zip(outcome.mids, texts, strict=True)):
                assert all(mid > each.mid for each in queue.messages if each.t == number)
                queue.messages.append(Message(mid, party.s, number, text, value, "e", number, size=size))

        return steps.Enqueue(queue.name, batch, priority), look

    def dequeue(self, place: int, count: int, wanted: Wanted) -> tuple[steps.Step, Callable[[int, Any], None]]:
        queue = self.made[place]

        def look(number: int, outcome: Any) -> None:
            self.same(outcome, queue.take(number, count, wanted))

        return steps.Dequeue(queue.name, count=count, where=wanted.select, order=wanted.order), look

    def same(self, got: steps.Got, wanted: list[Message]) -> None:
        found = [
            (*head, row["text"])
            for group in got.groups
            for *head, row in zip(
                group.mids, group.s, group.t, group.priorities, group.aborts, group.batch.to_pylist(), strict=True
            )
        ]
        assert found == [(m.mid, m.s, m.t, m.priority, m.aborts, m.text) for m in wanted]

    def ended(self, party: Party, commit: bool) -> Callable[[int, Any], None]:
        def look(number: int, outcome: Any) -> None:
            if commit:
                assert not [queue.name for queue in self.made if queue.remaining(number)]
                self.committed.append((party, party.client, number))
            touched = self.over(number, commit, counted=not commit)
            assert outcome.repeated is False
            assert touched <= set(outcome.touched)
            party.over()

        return look

    def over(self, number: int, commit: bool, counted: bool) -> set[str]:
        self.active.pop(number, None)
        return set().union(*(queue.end(number, commit, counted) for queue in self.made))

    def refused(self, party: Party, outcome: Any, wanted: type[MilepostError]) -> None:
        if party.number in self.undone:
            wanted = TransactionAborted
            self.undone.discard(party.number)
            party.over()
        assert isinstance(outcome, wanted), outcome

    def incomplete(self, number: int, error: BlockIncomplete) -> None:
        """It names exactly what remains, of the first queue in which something does."""
        remaining = next(found for queue in self.made if (found := queue.remaining(number)))
        named = str(error).partition("(")[2].partition(")")[0].removesuffix(", …").split(", ")
        assert named == remaining[:NAMED]

    # What happens to them

    @rule(index=st.integers(0, PARTIES - 1), way=st.sampled_from(["lease", "undo"]), elsewhere=st.booleans())
    def lost(self, index: int, way: str, elsewhere: bool) -> None:
        """A client is gone: its lease ends, or it said so."""
        party = self.parties[index]
        if party.number not in self.active:
            return
        if way == "lease":
            assert self.queues.do(ops.Renew((party.number, 1), LEASE_US), party.store) == [party.number]
            assert self.queues.do(ops.Renew((party.number,), -1), party.store) == [party.number]
            operation: Any = ops.Sweep()
        else:
            operation = ops.Undo(party.number)
        done = self.queues.do(operation, self.queues.store("two" if elsewhere and self.queues.shared else "one"))
        touched = self.over(party.number, commit=False, counted=True)
        assert touched <= set(done.touched)
        self.undone.add(party.number)
        assert self.queues.do(ops.Renew((party.number,), LEASE_US), party.store) == []

    @rule(first=st.booleans())
    def crash(self, first: bool) -> None:
        """A broker ends without a word and starts again; another that is on the same store goes on."""
        broker = "one" if first or not self.queues.shared else "two"
        self.queues.restart(broker)
        for index, party in enumerate(self.parties):
            if self.brokers[index] == broker:
                party.store = self.queues.store(broker)
                if party.number in self.active:
                    self.over(party.number, commit=False, counted=True)
                    self.undone.add(party.number)

    @rule(elsewhere=st.booleans())
    def ask_again(self, elsewhere: bool) -> None:
        """A commit whose answer was lost is asked for again, by a broker that need not know it."""
        if not self.committed:
            return
        party, client, number = self.committed[-1]
        transaction = steps.TransactionOwner(0, party.s, party.instance, client, LEASE_US)
        store = self.queues.store("two" if elsewhere and self.queues.shared else "one")
        done = self.queues.do(ops.Perform(transaction, (steps.Commit(),)), store)
        assert done == steps.Performed(number, (steps.Done(repeated=True),))

    @rule(index=st.integers(0, PARTIES - 1))
    def prepare(self, index: int) -> None:
        party = self.parties[index]
        number = party.number
        if number not in self.active:
            return
        gid = f"transaction {number}"
        try:
            party.perform(steps.Prepare(gid, "elsewhere"))
        except BlockIncomplete as error:
            self.incomplete(number, error)
            return
        assert not any(queue.remaining(number) for queue in self.made)
        party.over()
        del self.active[number]
        self.prepared[gid] = number

    @rule(commit=st.booleans())
    def decide(self, commit: bool) -> None:
        for gid, number in list(self.prepared.items())[:1]:
            done = self.queues.do(ops.Decide(gid, commit))
            assert self.over(number, commit, counted=False) <= set(done.touched)
            assert self.queues.do(ops.Decide(gid, commit)).repeated
            del self.prepared[gid]

    @rule()
    def look(self) -> None:
        for queue in self.made:
            assert self.queues.texts(queue.name) == [message.text for message in queue.free()]
            assert self.queues.figures(queue.name) == queue.figures()
        assert sorted(gid for gid, _ in self.queues.do(ops.Prepared())) == sorted(self.prepared)

    def teardown(self) -> None:
        """Everything that is there comes out, once, in order; then nothing is there."""
        if not hasattr(self, "made"):
            return
        while self.prepared:
            self.decide(commit=False)
        self.crash(first=True)
        if self.queues.shared:
            self.crash(first=False)
        self.look()
        reader = self.queues.party()
        for queue in self.made:
            outcome = reader.perform(steps.Dequeue(queue.name, count=1_000))
            self.same(outcome, queue.take(reader.number, 1_000))
            assert not any(message.state == "c" for message in queue.messages)
        if reader.number:
            reader.commit()
        self.queues.sweep()
        assert self.queues.tables() == {}
        Machine.idle[self.kind] = self.names


@pytest.mark.slow
@pytest.mark.hypothesis
@pytest.mark.parametrize("level", LEVELS)
def test_a_level_keeps_its_promise(lasting: Queues, level: str) -> None:
    profile = settings()
    # An example is 25 steps of up to three transactions each, and every run has others; PostgreSQL takes its time.
    examples = profile.max_examples // (4 if lasting.shared else 2)
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        lambda: Machine(lasting, level),
        settings=settings(profile, stateful_step_count=STEPS, max_examples=examples),
    )
