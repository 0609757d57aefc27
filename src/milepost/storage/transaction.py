"""One attempt at writing a group of operations in one transaction.

The module is long, since every kind of operation has a method here, and the methods share the state of the attempt:
gathered appends, moved high waters, dropped topics. Staging, keys and the joining of parts have modules of their own.
"""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

from milepost import limits
from milepost.batch import Batch
from milepost.errors import (
    CorruptLog,
    DuplicateMessage,
    Fenced,
    MilepostError,
    QueryTooCostly,
    ServedElsewhere,
    StoreError,
    SubscriptionExists,
    TopicMismatch,
    UnknownSubscription,
    UnknownTopic,
)
from milepost.operations import (
    Append,
    Appended,
    AppendedRows,
    AppendRows,
    Attach,
    Attached,
    ChangeTopic,
    Cursor,
    DropTopic,
    Enrol,
    Enrolled,
    Entry,
    Epoch,
    Made,
    MakeTopic,
    Move,
    Operation,
    Part,
    Publish,
    Published,
    Release,
    Remove,
    Retention,
    RetentionHold,
    Stage,
    Trim,
    Unstage,
    Work,
)
from milepost.storage import keys, lookups, statements
from milepost.storage.database import Session
from milepost.storage.entries import After, EncodedRows, add_rows, joined, new_rows, stays
from milepost.storage.execution import POSTPONED, Committed, Spoiled, WorkContext, execute
from milepost.storage.holds import hold, is_hold
from milepost.storage.memory import PUBLISHERS_KNOWN, LogHolder, PublisherState, StoreMemory
from milepost.storage.staging import StagingWrites

_ELSEWHERE: Final = "this publisher is connected elsewhere by now, or was never announced here; connect again"
_REMOVED: Final = b"-"  # prefix of a removal's token, which the name follows: tokens of puts have 16 bytes
_new: Final = tuple.__new__  # makes a named tuple without the cost of its Python constructor
_ONE_ROW: Final = Appended(1, 0)
_DRAWS: Final = 100  # attempts to draw a free publisher number; with a hundred million taken, two suffice


class Stale(Exception):
    """The memory of this process is out of date: clear it, and write again."""


class GroupCommit:
    """Operations on a session whose transaction has begun. The caller commits, and then calls `learned`.

    Appends and moves are gathered; they are written together before an operation that must see them, and at the end.
    """

    def __init__(self, session: Session, holder: LogHolder, memory: StoreMemory, time_us: int) -> None:
        self._session = session
        self._holder = holder
        self._memory = memory
        self._time_us = time_us
        self._outcomes: list[Any] = []
        self._entries: list[Entry] = []
        self._appends: list[tuple[int, Append | AppendRows]] = []  # with the index of its outcome
        self._moves: list[tuple[int, Move]] = []
        self._publishers: dict[int, PublisherState] = {}
        self._nexts: dict[int, int] = {}
        self._dropped: set[int] = set()
        self._later: list[Callable[[], None]] = []
        self.asked_s: dict[int, float] = {}  # index of an operation -> seconds that its clients' expressions took

    def run(
        self, operations: Sequence[Operation], refused: Mapping[int, MilepostError] | None = None,
        until: float = math.inf,
    ) -> Committed:  # fmt: skip
        """Carry out operations except the `refused` ones. Raises errors of the database: then nothing was written.

        `Work` that would begin after `until`, a time of the monotonic clock, is `POSTPONED`.
        """
        self._outcomes = [None] * len(operations)
        for place, operation in enumerate(operations):
            kind = type(operation)
            if refused and place in refused:
                self._outcomes[place] = refused[place]
            elif kind is Append or kind is AppendRows:
                self._appends.append((place, operation))  # type: ignore[arg-type]
            elif kind is Move:
                self._moves.append((place, operation))  # type: ignore[arg-type]
            elif isinstance(operation, Work) and time.monotonic() > until:
                self._outcomes[place] = POSTPONED
            else:
                asked_s = self._session.asked_s
                self._session.left_s = limits.QUERY_MS / 1_000
                if kind is not Stage:  # staged rows are not visible, so appends around them stay together
                    self._flush()
                try:
                    if isinstance(operation, Work):
                        holder, parts, later = self._holder, self._memory.parts, self._later.append
                        context = WorkContext(self._time_us, holder.log, holder.shared, parts, self._move_now, later)
                        self._outcomes[place] = execute(operation, self._session, context)
                    else:
                        self._outcomes[place] = self._carry_out(operation)
                except StoreError:
                    raise
                except Spoiled as spoiled:
                    spoiled.place = place
                    raise
                except QueryTooCostly as error:  # it may have aborted the transaction
                    raise Spoiled(error, place) from error
                except MilepostError as error:
                    self._outcomes[place] = error
                finally:
                    if self._session.asked_s != asked_s:
                        spent = self._session.asked_s - asked_s
                        self.asked_s[place] = self.asked_s.get(place, 0.0) + spent
        self._flush()
        if "_staging" in self.__dict__:  # an operation has made it
            self._staging.finish()
        return Committed(self._outcomes, self._entries)

    def learned(self) -> None:
        """Called after the commit: update the memory."""
        publishers, nexts = self._memory.publishers, self._memory.nexts
        publishers.update(self._publishers)
        while len(publishers) > PUBLISHERS_KNOWN:
            del publishers[next(iter(publishers))]
        nexts.update(self._nexts)
        for topic in self._dropped:
            nexts.pop(topic, None)
        for function in self._later:
            function()

    def _carry_out(self, operation: Operation) -> Any:
        match operation:
            case Enrol():
                return self._enrol(operation)
            case MakeTopic():
                return self._make_topic(operation)
            case ChangeTopic():
                return self._change_topic(operation)
            case DropTopic():
                return self._drop_topic(operation)
            case Trim():
                return self._trim(operation)
            case Attach():
                return self._attach(operation)
            case Release():
                self._session.run(statements.RELEASE, subscription=operation.subscription, epoch=operation.epoch)
                return None
            case Remove():
                return self._remove(operation)
            case RetentionHold():
                return hold(self._session, operation, self._time_us)
            case Stage():
                return self._staging.stage(operation)
            case Publish():
                return self._publish(operation)
            case Unstage():
                return self._staging.unstage(operation)
            case Epoch():
                return self._staging.epoch(operation.sink)
        raise AssertionError(operation)

    @cached_property
    def _staging(self) -> StagingWrites:
        """Made for the first operation on staged rows: most transactions have none."""
        return StagingWrites(self._session, self._time_us, self._memory.schemas)

    # Appends and moves

    def _move_now(self, move: Move) -> None:
        """Carry out a move that belongs to a `Work` operation."""
        self._moves.append((len(self._outcomes), move))
        self._outcomes.append(None)
        self._flush()
        outcome = self._outcomes.pop()
        if outcome is not None:
            raise outcome

    def _flush(self) -> None:
        """Write the gathered appends and moves."""
        if not self._appends and not self._moves:
            return
        parts: list[Part | EncodedRows] = []
        if self._appends:
            self._take_appends(parts)
            self._appends = []
        if self._moves:
            self._take_moves(parts)
            self._moves = []
        if parts:
            self._store(parts)

    def _take_appends(self, parts: list[Part | EncodedRows]) -> None:
        numbers: set[int] = set()
        for _, append in self._appends:
            numbers.update(append.publishers if isinstance(append, AppendRows) else (append.publisher,))
        self._recall(numbers)
        given = [append for _, append in self._appends if isinstance(append, Append) and append.token]
        taken = keys.taken(self._session, [key for append in given for key in keys.keys_of(append)])
        used: list[keys.Key] = []
        high_waters: dict[int, int] = {}
        for place, append in self._appends:
            try:
                if isinstance(append, AppendRows):
                    self._outcomes[place] = self._append_rows(append, high_waters, parts)
                    continue
                self._outcomes[place] = self._append(append, taken, high_waters, parts)
                if append.token and self._outcomes[place].stored:
                    used += keys.keys_of(append)
            except MilepostError as error:
                self._outcomes[place] = error
        if not high_waters:
            return
        if used and keys.remember(self._session, used, self._time_us) != len(used):
            raise Stale  # another broker has taken one of them since
        rows = []
        for number in sorted(high_waters):  # the same order in all brokers prevents deadlocks
            known = self._publisher(number)
            assert known is not None
            rows.append({"number": number, "epoch": known.epoch, "high_water": high_waters[number]})
            self._publishers[number] = _new(PublisherState, (known.epoch, high_waters[number], known.home, known.trail))
        if self._session.each(statements.MOVE_HIGH_WATERS, rows) != len(rows):
            raise Stale  # another process has enrolled one of them

    def _append(
        self, append: Append, taken: set[keys.Key], high_waters: dict[int, int], parts: list[Part | EncodedRows]
    ) -> Appended:
        known = self._publisher(append.publisher)
        if known is None:
            raise Fenced(_ELSEWHERE)
        before = high_water = high_waters.get(append.publisher, known.high_water)
        kept: list[Part] = []
        stored = total = previous = 0
        for part in append.parts:
            if part.topic not in self._nexts:
                self._nexts[part.topic] = self._next(part.topic)
            batch, last = new_rows(part.batch, before, previous)
            total += len(part.batch)
            if batch is not None:
                stored += len(batch)
                kept.append(part if batch is part.batch else Part(part.topic, batch))
            previous = last
            high_water = max(high_water, last)
        if not stored:
            return Appended(0, total)  # a repetition, with or without a token
        if append.token:
            wanted = keys.keys_of(append)
            if keys.Key(append.token) in taken or not taken.isdisjoint(wanted):
                where = "this topic" if len(wanted) == 1 else "one of these topics"
                raise DuplicateMessage(f"a message with this key is stored in {where} already; nothing was stored now")
            taken.update(wanted)
        if self._holder.shared:
            kept = [part._replace(after=self._after(append.publisher, part.topic)) for part in kept]
        parts += kept
        high_waters[append.publisher] = high_water
        return _ONE_ROW if total == 1 else Appended(stored, total - stored)

    def _append_rows(
        self, append: AppendRows, high_waters: dict[int, int], parts: list[Part | EncodedRows]
    ) -> AppendedRows:
        topic = append.topic
        if topic not in self._nexts:
            self._nexts[topic] = self._next(topic)
        refused = dict(append.refused)
        kept: list[bytes] = []
        writers: list[int] = []
        repeated = 0
        for place, number in enumerate(append.publishers):
            known = self._publisher(number)
            if known is None:
                refused.setdefault(place, Fenced(_ELSEWHERE))
            elif place not in refused:
                stamp = append.stamps[place]
                if stamp <= high_waters.get(number, known.high_water):
                    repeated += 1
                    continue
                high_waters[number] = stamp
                writers.append(number)
                kept.append(append.datas[place])
        if self._holder.shared:
            for number, data in zip(writers, kept, strict=True):
                parts.append(Part(topic, Batch.trusted(data, append.schema), self._after(number, topic)))
        elif kept:
            add_rows(parts, topic, append.schema, kept)
        return AppendedRows(refused, repeated)

    def _take_moves(self, parts: list[Part | EncodedRows]) -> None:
        session = self._session
        wanted = session.numbers(sorted({move.subscription for _, move in self._moves}))
        epochs = dict(tuple(row) for row in session.rows(statements.EPOCHS, numbers=wanted))
        cursors: dict[tuple[int, int], Cursor] = {}
        members: dict[tuple[int, bytes], int] = {}
        for place, move in self._moves:
            epoch = epochs.get(move.subscription)
            try:
                if epoch is None:
                    raise UnknownSubscription("this subscription was removed; subscribe again to make a new one")
                if epoch != move.epoch:
                    raise ServedElsewhere(
                        "this subscription was taken over since, here or by another broker; subscribe again"
                    )
                for part in move.dead:
                    self._next(part.topic)
            except MilepostError as error:
                self._outcomes[place] = error
                continue
            parts += move.dead
            for log, cursor in move.cursors.items():
                cursors[move.subscription, log] = cursor
            if move.member:
                members[move.subscription, move.member] = move.sequence
        if cursors:
            session.each(
                statements.MOVE_CURSOR,
                [
                    {"subscription": number, "log": log, "consumed": cursor.offset, "state": cursor.state}
                    for (number, log), cursor in cursors.items()
                ],
            )
        if members:
            session.each(
                statements.ACKNOWLEDGE,
                [
                    {"subscription": number, "member": member, "sequence": sequence}
                    for (number, member), sequence in members.items()
                ],
                time_us=self._time_us,
            )

    def _publish(self, publish: Publish) -> Any:
        try:
            parts = self._staging.staged(publish)
        except CorruptLog as error:
            return error  # only this epoch is damaged: other operations continue
        if parts is None:
            return Published(True, 0)
        for part in parts:
            self._next(part.topic)
        kept = self._store(parts, staged=True) if parts else set()
        self._staging.publish(publish, [part.piece for part in parts if part.piece not in kept])
        return Published(False, sum(len(part.batch) for part in parts))

    def _store(self, parts: Sequence[Part | EncodedRows], *, staged: bool = False) -> set[int]:
        """Write parts as entries, and grow the extents. Returns the staged pieces whose bytes stay where they are."""
        by_topic: dict[int, list[Part | EncodedRows]] = {}
        for part in parts:
            by_topic.setdefault(part.topic, []).append(part)
        log = self._holder.log
        entries: list[dict[str, Any]] = []
        grown: list[dict[str, Any]] = []
        kept: set[int] = set()
        for topic in sorted(by_topic):
            start = first = self._next(topic)
            size = 0
            made = joined(by_topic[topic])
            for part in made:
                data = _bytes(part.batch)
                in_place = stays(part)
                if in_place:
                    kept.add(part.piece)
                entries.append({
                    "topic": topic, "log": log, "first": first, "rows": len(part.batch), "bytes": len(data),
                    "first_us": self._time_us, "last_us": self._time_us, "times": None,
                    "after_log": part.after and part.after[0], "after_offset": part.after and part.after[1],
                    "seal": lookups.seal(topic, log, first, len(part.batch), data),
                    "data": b"" if in_place else data, "piece": part.piece if in_place else None,
                })  # fmt: skip
                self._entries.append(Entry(topic, log, first, part.batch, part.after, staged))
                first += len(part.batch)
                size += len(data)
            grown.append(
                {"topic": topic, "log": log, "first": start, "next": first, "bytes": size, "entries": len(made)}
            )
            self._nexts[topic] = first
        if self._session.each(statements.GROW, grown) != len(grown):
            raise Stale  # another process has dropped one of the topics
        self._session.each(statements.INSERT_ENTRY, entries)
        return kept

    def _next(self, topic: int) -> int:
        """The offset of a topic's next row in this log. `UnknownTopic` when there is no such topic."""
        found = self._nexts.get(topic)
        if found is None and topic not in self._dropped:
            found = self._memory.nexts.get(topic)
        if found is not None:
            return found
        row = self._session.row(statements.FIND_NEXT, topic=topic, log=self._holder.log)
        if row is None or self._session.row(statements.HOLD_TOPIC, topic=topic) is None:
            raise UnknownTopic(f"no durable topic has the number {topic}; it was deleted")
        if row[0] is None:
            self._session.run(statements.MAKE_EXTENT, topic=topic, log=self._holder.log)
        self._nexts[topic] = row[0] or 0
        return self._nexts[topic]

    # Publishers

    def _publisher(self, number: int) -> PublisherState | None:
        return self._publishers.get(number) or self._memory.publishers.get(number)

    def _recall(self, numbers: set[int]) -> None:
        """Look up publishers that this process enrolled but does not have in memory."""
        mine, known = self._publishers, self._memory.publishers
        missing = [number for number in numbers if number not in known and number not in mine]
        if not missing:
            return
        found = self._session.rows(
            statements.KNOWN_PUBLISHERS, numbers=self._session.numbers(missing),
            log=self._holder.log, opening=self._holder.opening,
        )  # fmt: skip
        for number, high_water, epoch, home in found:
            self._publishers[number] = PublisherState(epoch, high_water, home, self._trail(number))

    def _trail(self, number: int) -> dict[int, int]:
        if not self._holder.shared:
            return {}
        return {row[0]: row[1] for row in self._session.rows(statements.TRAIL, publisher=number)}

    def _after(self, number: int, topic: int) -> After | None:
        """Where the publisher wrote this topic before it moved here; only for its first rows here. Records the move."""
        known = self._publisher(number)
        assert known is not None
        last = known.trail.get(topic, known.home)
        if last == self._holder.log:
            return None
        # The current end of that log, not the end when the publisher moved: both are committed, and follow all of its
        # rows, since its enrolment here waited for them.
        row = self._session.row(statements.OTHER_NEXT, topic=topic, log=last)
        self._session.run(statements.FOLLOW, publisher=number, topic=topic, log=self._holder.log)
        self._publishers[number] = known._replace(trail=known.trail | {topic: self._holder.log})
        return (last, row[0]) if row is not None and row[0] else None

    def _enrol(self, enrol: Enrol) -> Enrolled | None:
        holder, session = self._holder, self._session
        here: dict[str, Any] = {"log": holder.log, "opening": holder.opening, "time_us": self._time_us}
        row = session.row(statements.ENROL, key=enrol.key, **here)
        if row is None:
            if not enrol.create:
                return None
            number = enrol.number
            for _ in range(_DRAWS):
                if number and session.row(statements.NUMBER_TAKEN, number=number) is None:
                    break
                number = secrets.randbits(32)
            session.run(statements.MAKE_PUBLISHER, key=enrol.key, number=number, **here)
            row = number, 0, 1, holder.log
        number, high_water, epoch, home = row
        self._publishers[number] = PublisherState(epoch, high_water, home, self._trail(number))
        return Enrolled(number, high_water)

    # Topics

    def _make_topic(self, make: MakeTopic) -> Made:
        found = self._session.row(statements.TOPIC_NAMED, name=make.name)
        if found is not None:
            return Made(lookups.topic(self._session, found), False)
        values = {"name": make.name, "slow": make.slow, **_retention(make.retention)}
        (number,) = self._session.row(statements.MAKE_TOPIC, **values)
        for text in make.schemas:
            self._session.run(statements.ADD_SCHEMA, topic=number, text=text)
        found = self._session.row(statements.TOPIC, topic=number)
        return Made(lookups.topic(self._session, found), True)

    def _require_topic(self, topic: int) -> Any:
        found = self._session.row(statements.TOPIC, topic=topic)
        if found is None:
            raise UnknownTopic(f"no durable topic has the number {topic}; it was deleted")
        return found

    def _change_topic(self, change: ChangeTopic) -> Made | None:
        found = self._require_topic(change.topic)
        if change.versions is not None:
            self._session.row(statements.HOLD_TOPIC_ALONE, topic=change.topic)
            record = lookups.topic(self._session, found)
            if len(record.schemas) != change.versions:
                return Made(record, False)
        if change.schema is not None:
            self._session.run(statements.ADD_SCHEMA, topic=change.topic, text=change.schema)
        if change.slow is not None:
            self._session.run(statements.SET_SLOW, topic=change.topic, slow=change.slow)
        if change.retention is not None:
            self._session.run(statements.SET_RETENTION, topic=change.topic, **_retention(change.retention))
        return None

    def _drop_topic(self, drop: DropTopic) -> None:
        if not self._session.run(statements.DROP_TOPIC, topic=drop.topic):
            raise UnknownTopic(f"no durable topic has the number {drop.topic}; it was deleted")
        for statement in statements.DROP:
            self._session.run(statement, topic=drop.topic)
        self._nexts.pop(drop.topic, None)
        self._dropped.add(drop.topic)

    def _trim(self, trim: Trim) -> int:
        self._require_topic(trim.topic)
        gone = 0
        for log in sorted(trim.before):
            row = self._session.row(statements.EXTENT, topic=trim.topic, log=log)
            if row is None:
                continue
            start = min(max(row[0], trim.before[log]), row[1])
            if start > row[0]:
                self._session.run(statements.TRIM, topic=trim.topic, log=log, start=start)
                gone += start - row[0]
        return gone

    # Named subscriptions

    def _attach(self, attach: Attach) -> Attached:
        session, holder = self._session, self._holder
        found = session.row(statements.FIND_SUBSCRIPTION, name=attach.name)
        if found is None:
            if not attach.create:
                raise UnknownSubscription(f"no durable subscription is called {attach.name!r}")
            if session.row(statements.HOLD_TOPIC, topic=attach.topic) is None:  # locks the topic: its rows stay
                raise UnknownTopic(f"no durable topic has the number {attach.topic}; it was deleted")
            (number,) = session.row(
                statements.MAKE_SUBSCRIPTION, name=attach.name, topic=attach.topic, predicate=attach.where,
                options=json.dumps(attach.options), token=attach.token, log=holder.log, opening=holder.opening,
                time_us=self._time_us,
            )  # fmt: skip
            position = lookups.resolve(session, attach.topic, attach.start)
            rows = [
                {"subscription": number, "log": log, "consumed": offset, "state": b""}
                for log, offset in position.items()
                if offset
            ]
            if rows:
                session.each(statements.MOVE_CURSOR, rows)
            return self._attached(attach, number, 1, True, attach.topic, attach.where, attach.options)
        number, topic, where, options, token, epoch, owner, opening = found
        if attach.topic and topic != attach.topic:
            raise TopicMismatch(f"the durable subscription {attach.name!r} is one to another topic; take another name")
        if is_hold(json.loads(options)):
            raise SubscriptionExists(
                f"{attach.name!r} is a hold, which serves no consumer; take another name, or remove it"
            )
        if attach.create and where != attach.where:
            raise SubscriptionExists(
                f"the durable subscription {attach.name!r} has another filter: {where or 'none'}; "
                "take another name, or remove it first"
            )
        if holder.shared and owner is not None and owner != holder.log:
            name, address, silent_us = session.row(statements.OWNER, log=owner, time_us=self._time_us)
            if silent_us < holder.lease_us:
                raise ServedElsewhere(
                    f"the broker {name!r} serves the subscription {attach.name!r}; "
                    f"connect {f'to {address}' if address else 'there'}, or try again"
                )
        mine = (owner, opening) == (holder.log, holder.opening)
        if not mine or attach.given_up == (number, epoch):
            (epoch,) = session.row(statements.SERVE, subscription=number, log=holder.log, opening=holder.opening)
        created = bool(token) and bytes(token) == attach.token
        attached = self._attached(attach, number, epoch, created, topic, where, json.loads(options))
        return attached._replace(unreleased=owner is not None and not mine)

    def _attached(
        self, attach: Attach, number: int, epoch: int, created: bool, topic: int, where: str | None, options: Any
    ) -> Attached:
        found = self._session.rows(statements.CURSORS, subscription=number)
        cursors = {log: Cursor(consumed, bytes(state)) for log, consumed, state in found}
        row = self._session.row(statements.SEQUENCE, subscription=number, member=attach.member)
        sequence = row[0] if row is not None else 0
        record = None if attach.topic else lookups.topic(self._session, self._require_topic(topic))
        return Attached(number, epoch, created, topic, where, options, cursors, sequence, record=record)

    def _remove(self, remove: Remove) -> bool:
        session = self._session
        older = _REMOVED + remove.token  # the form of version 3 of the tables
        token = older + remove.name.encode()
        if remove.token and session.row(statements.REMEMBERED, token=token, older=older) is not None:
            return True  # a new subscription of this name stays: the request meant the old one
        found = session.row(statements.FIND_SUBSCRIPTION, name=remove.name)
        if found is None:
            raise UnknownSubscription(f"no durable subscription is called {remove.name!r}")
        for statement in statements.REMOVE:
            session.run(statement, subscription=found[0])
        if remove.token:
            keys.remember(session, [keys.Key(token)], self._time_us)
        return True


def _retention(retention: Retention) -> dict[str, Any]:
    return {"age_s": retention.age_s, "bytes": retention.bytes, "hold": int(retention.hold)}


def _bytes(batch: Batch) -> bytes:
    return batch.data if type(batch.data) is bytes else bytes(batch.data)


__all__ = ["GroupCommit", "LogHolder", "Part", "Stale", "StoreMemory"]
