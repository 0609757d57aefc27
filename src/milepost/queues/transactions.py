"""Queue transactions: their steps in the database, their ends, and repetitions of requests.

Each `perform` is one database transaction, or a part of one in a group commit. It begins with the row of the queue
transaction, which tells whether that is still open, and ends with the log entries of its operations. A transaction that
begins and commits in one `perform`, and takes no message, needs no log and no state in between.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from functools import partial
from typing import Any, Final

from milepost.batch.plain_rows import PlainRows
from milepost.errors import (
    BlockIncomplete,
    InvalidValue,
    MilepostError,
    NoTransaction,
    TransactionAborted,
    WrongType,
)
from milepost.operations.queues import Perform
from milepost.operations.steps import (
    Abort,
    Commit,
    Dequeue,
    Done,
    Enqueue,
    Enqueued,
    Got,
    Performed,
    Prepare,
    Step,
    TransactionOwner,
)
from milepost.queues import catalogue, rows, selection, statements, states
from milepost.queues.catalogue import Queue, QueueCatalogue, TypeEntry
from milepost.queues.engine import Live, QueueEngine, engine_of
from milepost.queues.first_dequeue import FirstDequeue, nothing
from milepost.queues.messages import (
    beginning,
    committing,
    got,
    insert_headers,
    last_number,
    make_groups,
    owned_texts,
)
from milepost.queues.numbers import later, mid
from milepost.queues.outcomes import OUTCOME_US, finish, undo
from milepost.queues.selection import Criteria, Head
from milepost.queues.states import NEVER_US
from milepost.storage.database import Session
from milepost.storage.execution import Promise, Spoiled, WorkContext, execute
from milepost.storage.session import Check
from milepost.storage.transaction import Stale

TYPES_AT_ONCE: Final = 3  # most types of a queue for which the content of all types is queried before the type is known
REMAINING_NAMED: Final = 10  # most messages of an incomplete block that the error names


_NEW: Final = Live(0, frozenset(), {})


@execute.register
def perform(operation: Perform, session: Session, place: WorkContext) -> Performed | Promise | MilepostError:
    """Carry out steps. A returned error, unlike a raised one, has changed something."""
    performance = _Performance(session, place, operation.transaction)
    try:
        return performance.run(operation.steps)
    except MilepostError as error:
        session.settle()  # a wrong assumption may be the cause: check those first
        if performance.changed:
            raise Spoiled(error) from error
        raise


class _Performance:
    def __init__(self, session: Session, place: WorkContext, transaction: TransactionOwner) -> None:
        self._session = session
        self._place = place
        self._transaction = transaction
        self._engine: QueueEngine = engine_of(session, place)
        self._known: QueueCatalogue = self._engine.catalogue
        self._key = transaction.instance, transaction.client
        self._number = transaction.number
        self._operation = 0  # number of this operation in the transaction
        self._logged: dict[tuple[str, int], int] = {}  # (kind, queue) -> number of messages
        self._all: set[tuple[str, int]] = set()  # kinds and queues that are written to the log
        self._taken: dict[int, list[int]] = {}  # type -> messages that a commit removes
        self._touched: set[int] = set()
        self.changed = False

    def run(self, steps: tuple[Step, ...]) -> Performed | Promise | MilepostError:
        if not steps:
            raise NoTransaction("a transaction without a step is none")
        if any(isinstance(step, Commit | Abort | Prepare) for step in steps[:-1]):
            raise NoTransaction("a step behind the end of its transaction: begin another one")
        if self._number == 0:
            if self._transaction.came and self._place.shared:
                known = self._engine.known(self._session, None)
                self._engine.numbers.follow(last_number(self._session, known, self._transaction.s))
            if isinstance(steps[-1], Commit) and all(isinstance(step, Enqueue) for step in steps[:-1]):
                return self._at_once(steps)
            if isinstance(steps[0], Dequeue) and len(steps) == 1:
                # The transaction begins only if a message is found: a waiting consumer writes nothing.
                self._assume_known()
                promised = self._take_first(steps[0])
                if promised is not None:
                    return promised
                (number,) = self._engine.numbers.take(1, self._place.time_us)
                found = self._pick(steps[0], number, own=False)
                if not found:
                    return Performed(0, (self._nothing(steps[0]),))
                if not self._begin(number, "a", 0):
                    return self._repeated(steps)
                return self._ended((self._take(steps[0], found),))
            (number,) = self._engine.numbers.take(1, self._place.time_us)
            if not self._begin(number, "a", 0):
                return self._repeated(steps)
        else:
            if len(steps) == 1 and isinstance(steps[0], Commit):
                done = self._commit_known(steps[0])
                if done is not None:
                    return done
            if not self._go_on():
                return self._repeated(steps)
        return self._ended(tuple(self._step(step) for step in steps))

    # Begin, continue and end

    def _assume_known(self) -> None:
        """Assume the remembered catalogue; in a shared store it is checked with the next statements."""
        engine, key = self._engine, self._key
        if not engine.trusts(key):
            self._known = engine.known(self._session, None)
        elif self._place.shared:
            version = self._known.version
            self._session.later(statements.SAME_VERSION, self._require(1, self._key), raises=True, version=version)

    def _require(self, rows: int, what: Hashable) -> Check:
        """A check that a statement has this many rows. If not, the group is repeated without assumptions on `what`."""
        engine = self._engine

        def check(result: Any) -> None:
            if result.rowcount != rows:
                engine.doubt(what)
                raise Stale

        return check

    def _begin(self, number: int, state: str, messages: int) -> bool:
        """Write the row of the transaction; False when it exists already."""
        given = self._transaction
        values = {
            "number": number, "s": given.s, "instance": given.instance, "client": given.client, "log": self._place.log,
            "state": state, "messages": messages, "lease_us": given.lease_us if state == "a" else OUTCOME_US,
            "time_us": self._place.time_us,
        }  # fmt: skip
        if self._engine.trusts(self._key):
            engine, key, version = self._engine, self._key, self._known.version

            def check(result: Any) -> None:
                if result.fetchone() != (version,):
                    engine.doubt(key)
                    raise Stale

            self._session.later(statements.BEGIN_NEW, check, raises=True, version=version, **values)
        else:
            row = self._session.row(statements.BEGIN, **values)
            if row is None:
                return False
            self._known = self._engine.known(self._session, row[0])
        self.changed = True
        self._number, self._operation = number, 1
        return True

    def _go_on(self) -> bool:
        """Count another operation of the transaction; False when it has ended, or a crash has undone operations."""
        live = self._engine.live.get(self._number)
        row = self._session.row(
            statements.GO_ON, number=self._number, expected=live.operations if live is not None else 1
        )
        if row is None:
            return False
        self.changed = True
        self._operation = row[0]
        self._known = self._engine.known(self._session, row[1])
        return True

    def _commit_known(self, commit: Commit) -> Performed | None:
        """Commit from remembered state, with all statements sent together. None: the state is not known completely."""
        engine, number = self._engine, self._number
        live = engine.live.get(number)
        if live is None or not live.whole or number in engine.unlearned or not engine.trusts(number):
            return None
        queues = self._known.queues
        if any(at not in queues or queues[at].blocks for _, at in live.logged):
            return None
        session, check = self._session, self._require(1, number)
        self.changed = True
        logged, grouped = sorted(live.logged), any(queues[at].group for _, at in live.logged)
        types = self._known.types
        if session.dialect == "postgresql":
            taken = {f"m{at}": session.numbers(mids) for at, mids in enumerate(live.taken.values())}
            statement = committing(
                tuple((kind, queues[at].table) for kind, at in logged), grouped,
                tuple((types[each].schema, each) for each in live.taken),
            )  # fmt: skip
            session.later(
                statement, check, raises=True, owner=number, operations=live.operations, lease_us=OUTCOME_US, **taken
            )
        else:
            session.later(
                statements.COMMIT, check, number=number, operations=live.operations, lease_us=OUTCOME_US,
                time_us=self._place.time_us,
            )  # fmt: skip
            session.later(statements.CLEAR_LOG, number=number)
            for kind, at in logged:
                session.later(states.ending(states.COMMIT[kind], queues[at].table, told=False), owner=number)
            if grouped:
                session.later(statements.RELEASE, owner=number)
            for kind_number, mids in live.taken.items():
                rows.remove(session, types[kind_number].tables, mids)
        for kind, at in logged:
            if kind == "e":
                self._arrived(queues[at], self._transaction.s, number)
            elif kind == "d" and queues[at].group:
                self._touched.add(at)
        self._with(commit)
        self._place.later(lambda: engine.learn(number, None))
        return Performed(number, (Done(touched=self._known.names(self._touched)),))

    def _gone(self) -> TransactionAborted:
        return TransactionAborted(
            "this transaction was undone, because its broker ended or nothing was heard of its client: "
            "run it again from its beginning"
        )

    def _ended(self, outcomes: tuple[Any, ...]) -> Performed:
        """Write the log of the operation, and remember the state of the transaction."""
        number, engine = self._number, self._engine
        self._write_log()
        live: Live | None = None
        if not isinstance(outcomes[-1], Done):
            before = engine.live.get(number, _NEW)
            taken = {
                kind: before.taken.get(kind, []) + self._taken.get(kind, []) for kind in {**before.taken, **self._taken}
            }
            whole = self._operation == 1 or (number in engine.live and before.whole and number not in engine.unlearned)
            live = Live(self._operation, before.logged | self._all, taken, whole)
        engine.unlearned.add(number)
        self._place.later(lambda: engine.learn(number, live))
        return Performed(number, outcomes)

    def _repeated(self, steps: tuple[Step, ...]) -> Performed | MilepostError:
        """Reply for a transaction that was begun before: only a repetition of its end, if it was reached, succeeds."""
        given = self._transaction
        found = self._session.row(statements.FIND_TRANSACTION, instance=given.instance, client=given.client)
        if found is None:
            raise self._gone()
        number, state, messages, s = found
        if state == "a":
            # The client does not know what the transaction has done so far: another broker served it, or this one has
            # restarted. It is undone before the client gets the error, so that it cannot be committed later.
            done = undo(self._session, self._place, number)
            if isinstance(steps[-1], Abort):
                return Performed(number, (*(None for _ in steps[:-1]), done))
            return self._gone()
        if isinstance(steps[-1], Commit) and state == "c":
            outcomes: list[Any] = []
            first = 1
            for step in steps[:-1]:
                if isinstance(step, Enqueue) and messages:
                    count = len(step.batch)
                    outcomes.append(Enqueued([later(number, first + row) for row in range(count)], s, number))
                    first += count
                else:
                    outcomes.append(None)
            return Performed(number, (*outcomes, Done(repeated=True)))
        if (type(steps[-1]), state) in ((Prepare, "p"), (Abort, "x")):
            return Performed(number, (*(None for _ in steps[:-1]), Done(repeated=True)))
        raise self._gone()

    def _at_once(self, steps: tuple[Step, ...]) -> Performed | MilepostError:
        """Begin, enqueue and commit in one operation, without the states in between."""
        enqueues = [step for step in steps if isinstance(step, Enqueue)]
        commit = steps[-1]
        assert isinstance(commit, Commit)
        if not enqueues:
            return self._repeated_or_empty(steps)
        total = sum(len(step.batch) for step in enqueues)
        number, *mids = self._engine.numbers.take(1 + total, self._place.time_us)
        outcomes: list[Any] = []
        first = self._begin_with(enqueues[0], number, mids[: len(enqueues[0].batch)], total)
        if first is None and not self._begin(number, "c", total):
            return self._repeated(steps)
        for step in enqueues:
            taken, mids = mids[: len(step.batch)], mids[len(step.batch) :]
            queue, first = first or self._enqueue(step, taken, states.COMMITTED, 0), None
            self._arrived(queue, self._transaction.s, number)
            outcomes.append(Enqueued(taken, self._transaction.s, number))
        self._with(commit)
        return Performed(number, (*outcomes, Done(touched=self._known.names(self._touched))))

    def _begin_with(self, step: Enqueue, number: int, mids: list[int], total: int) -> Queue | None:
        """Begin and enqueue in one statement, into a known queue. None: that is not possible, or the step is wrong."""
        engine, place, given, session = self._engine, self._place, self._transaction, self._session
        if session.dialect != "postgresql" or not engine.trusts(self._key):
            return None
        queue = self._known.queues_by_name.get(step.queue)
        kind = self._known.types_by_name.get(step.batch.schema.name)
        if queue is None or kind is None or kind.number not in queue.functions:
            return None
        if kind.schema.fingerprint != step.batch.schema.fingerprint:
            return None
        if step.priority is not None and (
            not math.isfinite(step.priority) or (not queue.prioritized and step.priority != queue.priority)
        ):
            return None
        statement = beginning(queue, kind, step.priority)
        if statement is None:
            return None
        values = rows.poured(step.batch, kind.tables, mids)
        session.later(
            statement, self._require(len(mids), self._key), raises=True,
            number=number, s=given.s, instance=given.instance, client=given.client,
            log=place.log, state="c", messages=total, keep_us=OUTCOME_US, version=self._known.version,
            mids=session.numbers(mids), type=kind.number,
            priority=float(queue.priority if step.priority is None else step.priority), due_us=step.due_us or 0,
            ends_us=NEVER_US if step.ends_us is None else step.ends_us, **values,
        )  # fmt: skip
        self.changed = True
        self._number, self._operation = number, 1
        return queue

    def _repeated_or_empty(self, steps: tuple[Step, ...]) -> Performed | MilepostError:
        given = self._transaction
        if self._session.row(statements.FIND_TRANSACTION, instance=given.instance, client=given.client) is not None:
            return self._repeated(steps)
        commit = steps[-1]
        assert isinstance(commit, Commit)
        if not commit.moves and commit.decision is None:
            raise self._gone()  # nothing was begun under this number, or its outcome is forgotten
        (number,) = self._engine.numbers.take(1, self._place.time_us)
        self._begin(number, "c", 0)
        self._with(commit)
        return Performed(number, (Done(),))

    def _with(self, commit: Commit) -> None:
        """Carry out the moves and the decision of a commit."""
        for move in commit.moves:
            self._place.move(move)
        if commit.decision is not None:
            gid, participant = commit.decision
            if self._session.row(statements.DECIDED, gid=gid) is not None:
                raise InvalidValue(f"transaction {gid!r} was decided before: each has a name of its own")
            self._session.run(statements.DECIDE, gid=gid, participant=participant, time_us=self._place.time_us)

    # Steps

    def _step(self, step: Step) -> Any:
        match step:
            case Enqueue():
                mids = self._engine.numbers.take(len(step.batch), self._place.time_us)
                queue = self._enqueue(step, mids, states.ENQUEUED, self._number)
                self._count("e", queue, len(mids))
                return Enqueued(mids, self._transaction.s, self._number)
            case Dequeue():
                queue = self._known.queue(step.queue)
                key = "e", queue.number
                own = key in self._logged or key in self._all
                if not own and self._operation > 1:
                    own = key in map(tuple, self._session.rows(statements.LOGGED, number=self._number))
                found = self._pick(step, self._number, own)
                return self._take(step, found) if found else self._nothing(step)
            case Commit():
                self._require_whole()
                self._with(step)
                return self._finish("c", counted=False)
            case Abort():
                return self._finish("x", counted=True)
            case Prepare():
                self._require_whole()
                self._write_log()
                if self._session.row(statements.FIND_PREPARED, gid=step.gid) is not None:
                    raise InvalidValue(f"a transaction {step.gid!r} was prepared before: each has a name of its own")
                self._session.run(statements.PREPARE, number=self._number, gid=step.gid, coordinator=step.coordinator)
                return Done()

    def _count(self, kind: str, queue: Queue, messages: int) -> None:
        key = kind, queue.number
        self._logged[key] = self._logged.get(key, 0) + messages

    def _write_log(self) -> None:
        for (kind, queue), messages in self._logged.items():
            self._session.later(
                statements.LOG,
                number=self._number,
                operation=self._operation,
                kind=kind,
                queue=queue,
                messages=messages,
            )
        self._all |= self._logged.keys()
        self._logged.clear()

    def _enqueue(self, step: Enqueue, mids: list[int], state: states.MessageState, owner: int) -> Queue:
        queue = self._known.queue(step.queue)
        kind = _type_of(self._known, queue, step)
        session = self._session
        if step.priority is not None:
            if not math.isfinite(step.priority):
                raise InvalidValue(f"priority {step.priority}: takes a finite number")
            if not queue.prioritized and step.priority != queue.priority:
                self._engine.change(self._place)
                catalogue.prioritize(session, queue)
        self.changed = True
        batch = step.batch.batch() if isinstance(step.batch, PlainRows) else step.batch
        rows.store(session, batch, kind.tables, mids)
        insert_headers(
            session, queue, kind, mids, s=self._transaction.s, t=self._number, priority=step.priority, log=state.log,
            owner=owner, due_us=step.due_us or 0, ends_us=NEVER_US if step.ends_us is None else step.ends_us,
        )  # fmt: skip
        return queue

    def _arrived(self, queue: Queue, s: int, t: int) -> None:
        """Called when messages of a writer become visible in a queue: makes their group, which consumers reserve."""
        self._touched.add(queue.number)
        if queue.group:
            make_groups(self._session, queue, [s if queue.group == "s" else t])

    def _take_first(self, step: Dequeue) -> FirstDequeue | None:
        """Begin with a dequeue, in one round trip; its result arrives with the commit. None: that is not possible."""
        engine, place, known = self._engine, self._place, self._known
        if not engine.trusts(self._key):
            return None
        selection.require_count(step.count)
        queue = known.queue(step.queue)
        taking = selection.taking(self._session, known, queue, Criteria(step.type, step.where, step.order))
        if taking is None or len(queue.functions) > TYPES_AT_ONCE:
            return None
        (number,) = engine.numbers.take(1, place.time_us)
        given, session = self._transaction, self._session
        made = FirstDequeue(engine, self._key, known, queue, number, place.time_us, step.plain)
        # A client wrote the predicate: run it now, so that only this dequeue can fail because of it.
        take = session.bounded if step.where else partial(session.later, raises=True)
        take(
            taking.statement, made.headers, now=place.time_us, count=step.count, owner=number,
            s=given.s, instance=given.instance, client=given.client, log=place.log, lease_us=given.lease_us,
            time_us=place.time_us, queue=queue.number, **taking.values,
        )  # fmt: skip
        for text in owned_texts(known, queue):
            session.later_text(text, (number,), made.rows)
        self.changed = True
        return made

    def _pick(self, step: Dequeue, number: int, own: bool) -> list[Head]:
        selection.require_count(step.count)
        queue = self._known.queue(step.queue)
        criteria = Criteria(step.type, step.where, step.order)
        return selection.pick(
            self._session, self._known, queue, criteria, step.count, number, own, self._place.time_us,
            begun=self._number != 0, lock=self._place.shared, groups=self._engine.groups.get(queue.number),
        )  # fmt: skip

    def _take(self, step: Dequeue, found: list[Head]) -> Got:
        session, queue = self._session, self._known.queue(step.queue)
        self.changed = True
        for kind, arc in states.DEQUEUE.items():
            assert arc.old is not None
            mids = [head.mid for head in found if head.log == arc.old.log]
            if mids:
                # They are locked, or this is the only process; only an assumption may be wrong.
                check = self._require(len(mids), self._key)
                session.later(states.taking(arc, queue.table), check, mids=session.numbers(mids), owner=self._number)
                self._count(kind, queue, len(mids))
        for head in found:
            self._taken.setdefault(head.type, []).append(head.mid)
        if queue.group:
            members = sorted({head.member(queue.group) for head in found if head.log == "c"})
            if members:
                check = self._require(len(members), self._key)
                values = {"queue": queue.number, "members": session.numbers(members), "owner": self._number}
                session.later(statements.RESERVE, check, **values)
        self._write_log()  # before the query for the content, to be sent with it
        return got(session, self._known, found)

    def _nothing(self, step: Dequeue) -> Got:
        return nothing(self._session, self._known.queue(step.queue), self._place.time_us)

    # Ends

    def _require_whole(self) -> None:
        """Raise `BlockIncomplete` if a block was not read completely."""
        logged = self._session.rows(statements.LOGGED, number=self._number)
        for kind, number in sorted({*map(tuple, logged), *self._logged}):
            queue = self._known.queues[number]
            if kind != "d" or not queue.blocks:
                continue
            remaining = self._session.rows(
                statements.about(statements.REST_OF_BLOCKS, queue.table),
                owner=self._number,
                now=self._place.time_us,
                most=REMAINING_NAMED + 1,
            )
            if remaining:
                named = ", ".join(mid(*row) for row in remaining[:REMAINING_NAMED])
                more = ", …" if len(remaining) > REMAINING_NAMED else ""
                raise BlockIncomplete(
                    f"queue {queue.name!r} is read by whole transactions of its writers, and of those that were begun "
                    f"some messages remain ({named}{more}): dequeue them too, or abort"
                )

    def _finish(self, state: str, *, counted: bool) -> Done:
        self._write_log()
        self._session.run(
            statements.END, number=self._number, state=state, lease_us=OUTCOME_US, time_us=self._place.time_us
        )
        self._touched |= finish(self._session, self._known, self._number, self._transaction.s, state == "c", counted)
        return Done(touched=self._known.names(self._touched))


def _type_of(known: QueueCatalogue, queue: Queue, step: Enqueue) -> TypeEntry:
    schema = step.batch.schema
    kind = known.types_by_name.get(schema.name)
    if kind is None or kind.schema.fingerprint != schema.fingerprint:
        raise WrongType(
            f"message type {schema.name} is not declared as this message has it: declare it, or look at its definition"
        )
    return known.taken_by(queue, kind.name)
