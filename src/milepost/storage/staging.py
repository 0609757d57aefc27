"""Staging: rows that are stored but not visible until the epoch of their sink is published.

A sink is a program that writes epochs, such as a Spark query. A *stage* holds the rows of one attempt at one part of an
epoch; its *pieces* are batches. Only whole stages are published or discarded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from milepost import limits
from milepost.batch import Batch
from milepost.batch.header import fingerprint_of
from milepost.errors import CorruptLog, LimitExceeded, StagingLost
from milepost.operations import Part, Publish, Stage, Staged, Unstage
from milepost.query import parse_schema
from milepost.schema import Schema
from milepost.storage import lookups, statements
from milepost.storage.database import Session

READ_BYTES: Final = 16 << 20  # of pieces that one statement reads
PIECE_LEAST: Final = 4_096  # bytes that a piece counts as at least, since even a small one costs a row
SCHEMAS_KNOWN: Final = 10_000  # kept parsed, some ten kilobytes each at most


class Sink(NamedTuple):
    """A sink's row, locked until the transaction ends."""

    number: int
    epoch: int | None  # the last published epoch
    bytes: int  # staged


class StagingWrites:
    """The staging operations of one transaction. They check before the first write: a refused one changes nothing.

    `schemas`, by topic and fingerprint, is kept between transactions: a fingerprint never changes its meaning.
    """

    def __init__(self, session: Session, time_us: int, schemas: dict[tuple[int, int], Schema]) -> None:
        self._session = session
        self._time_us = time_us
        self._schemas = schemas
        self._sinks: dict[str, Sink] = {}  # locked until the transaction ends, with their current state
        self._changed: set[str] = set()

    def finish(self) -> None:
        """Write the changed sinks. Called before the commit."""
        for name in sorted(self._changed):
            sink = self._sinks[name]
            self._session.run(
                statements.TOUCH_SINK, sink=sink.number, bytes=sink.bytes, epoch=sink.epoch, time_us=self._time_us
            )

    def stage(self, stage: Stage) -> Staged:
        """Store a piece."""
        session = self._session
        sink = self._made(stage.sink)
        rows, size = len(stage.batch), max(len(stage.batch.data), PIECE_LEAST)
        if sink.epoch is not None and stage.epoch <= sink.epoch:
            return Staged(rows, "late")
        place = {"sink": sink.number, "epoch": stage.epoch, "part": stage.part, "attempt": stage.attempt}
        found = session.row(statements.FIND_STAGE, **place)
        mine = found is not None and bytes(found[1]) == stage.writer
        pieces = found[2] if mine else 0
        if stage.sequence < pieces:
            return Staged(rows, "repeated")
        if stage.sequence > pieces:
            raise StagingLost(
                f"piece {stage.sequence} of part {stage.part}, attempt {stage.attempt} of epoch {stage.epoch} does not "
                f"follow what the sink {stage.sink!r} has of it: a piece before it failed, or its rows were thrown "
                "away, or another client uses these numbers; stage under a new attempt"
            )
        # Another process began this attempt, and its progress is unknown: start the attempt again.
        freed = found[3] if found is not None and not mine else 0
        total = sink.bytes - freed + size
        if total > limits.STAGED_BYTES:
            what = f"the bytes that the sink {stage.sink!r} has staged and not published"
            raise LimitExceeded("STAGED_BYTES", total, limits.STAGED_BYTES, what)
        if mine:
            number = found[0]
        else:
            if found is not None:
                discard(session, [found[0]])
            (number,) = session.row(statements.MAKE_STAGE, writer=stage.writer, **place)
        session.run(
            statements.INSERT_PIECE, stage=number, sequence=stage.sequence, topic=stage.topic, rows=rows,
            bytes=len(stage.batch.data), data=stage.batch.data,
        )  # fmt: skip
        session.run(statements.GROW_STAGE, stage=number, bytes=size)
        self._change(stage.sink, sink._replace(bytes=total))
        return Staged(rows, "staged")

    def staged(self, publish: Publish) -> list[Part] | None:
        """The pieces of an epoch to publish, in order; None when the epoch is published already."""
        sink = self._made(publish.sink)  # even for an epoch without rows, to lock the sink
        if sink.epoch is not None and publish.epoch <= sink.epoch:
            return None
        stages = self._session.rows(statements.STAGES_OF, sink=sink.number, epoch=publish.epoch)
        found = {(part, attempt): stage for part, attempt, *stage in stages}
        missing = [pair for pair in publish.parts if pair not in found]
        if missing:
            named = ", ".join(f"part {part} (attempt {attempt})" for part, attempt in missing[:3])
            more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
            raise StagingLost(
                f"nothing is staged for {named}{more} of epoch {publish.epoch} of the sink {publish.sink!r}; nothing "
                "was published: stage the epoch again, under new attempts"
            )
        pieces: list[Part] = []
        for pair in publish.parts:
            pieces += self._pieces(*found[pair])
        return pieces

    def _pieces(self, stage: int, count: int, size: int) -> Iterator[Part]:
        """The pieces of a stage, `READ_BYTES` at a time: the server ends a session that is idle for long."""
        stops = [count]
        if size > READ_BYTES:
            sizes = [row[0] for row in self._session.rows(statements.PIECE_SIZES, stage=stage)]
            stops, size = [], 0
            for place, more in enumerate(sizes):
                if size and size + more > READ_BYTES:
                    stops.append(place)
                    size = 0
                size += more
            stops.append(count)
        first = there = 0
        for stop in stops:
            for piece, topic, rows, data in self._session.rows(statements.PIECES, stage=stage, first=first, stop=stop):
                there += 1
                yield self._opened(piece, topic, rows, data)
            first = stop
        if there != count:
            raise CorruptLog(f"of {count} pieces that are staged together, {there} are there: unstage their epoch")

    def publish(self, publish: Publish, copied: list[int]) -> None:
        """Called when an epoch's rows are in the log: move the sink's epoch, and discard all other stages up to it.

        `copied` are pieces whose rows were copied into entries.
        """
        session = self._session
        if copied:
            session.each(statements.DELETE_PIECE, [{"piece": number} for number in copied])
        sink = self._made(publish.sink)
        named = set(publish.parts)
        stages = session.rows(statements.STAGES_OF, sink=sink.number, epoch=publish.epoch)
        taken = {number for part, attempt, number, *_ in stages if (part, attempt) in named}
        freed = 0
        over: list[int] = []
        for number, _, size in session.rows(statements.STAGES_UP_TO, sink=sink.number, epoch=publish.epoch):
            freed += size
            if number not in taken:
                over.append(number)
        if taken:
            session.each(statements.DELETE_STAGE, [{"stage": number} for number in sorted(taken)])
        discard(session, over)
        self._change(publish.sink, sink._replace(epoch=publish.epoch, bytes=sink.bytes - freed))

    def unstage(self, unstage: Unstage) -> None:
        """Discard the stages of an epoch."""
        sink = self._sink(unstage.sink)
        if sink is None:
            return
        rows = self._session.rows(statements.STAGES_UP_TO, sink=sink.number, epoch=unstage.epoch)
        gone = [(number, size) for number, epoch, size in rows if epoch == unstage.epoch]
        discard(self._session, [number for number, _ in gone])
        self._change(unstage.sink, sink._replace(bytes=sink.bytes - sum(size for _, size in gone)))

    def epoch(self, name: str) -> int | None:
        """The last epoch that a sink has published; None when there is none."""
        sink = self._sink(name)
        return None if sink is None else sink.epoch

    def _made(self, name: str) -> Sink:
        if name not in self._sinks:
            self._session.run(statements.MAKE_SINK, name=name, time_us=self._time_us)
        found = self._sink(name)
        assert found is not None
        return found

    def _sink(self, name: str) -> Sink | None:
        if name not in self._sinks:
            row = self._session.row(statements.FIND_SINK, name=name)
            if row is None:
                return None
            self._sinks[name] = Sink(*row)
        return self._sinks[name]

    def _change(self, name: str, sink: Sink) -> None:
        self._sinks[name] = sink
        self._changed.add(name)

    def _opened(self, piece: int, topic: int, rows: int, data: Any) -> Part:
        whole = lookups.intact(rows, data)
        if whole is None:
            raise CorruptLog(
                f"a staged piece for topic {topic} is not what was written: unstage its epoch, and stage it again"
            )
        return Part(topic, Batch.trusted(whole, self._schema(topic, fingerprint_of(whole))), piece=piece)

    def _schema(self, topic: int, fingerprint: int) -> Schema:
        found = self._schemas.get((topic, fingerprint))
        if found is None:
            while len(self._schemas) >= SCHEMAS_KNOWN:
                del self._schemas[next(iter(self._schemas))]
            for _, text in self._session.rows(statements.SCHEMAS_OF, topic=topic):
                schema = parse_schema(text)
                self._schemas[topic, schema.fingerprint] = schema
            found = self._schemas.get((topic, fingerprint))
        if found is None:
            raise StagingLost(
                f"rows are staged for topic {topic}, which was deleted, or does not have their schema; nothing was "
                "published: unstage the epoch, and stage it again"
            )
        return found


def discard(session: Session, stages: list[int]) -> None:
    """Discard stages; upkeep removes their pieces in steps."""
    if stages:
        rows = [{"stage": number} for number in stages]
        session.each(statements.DISCARD, rows)
        session.each(statements.DELETE_STAGE, rows)
