"""Dequeues by content, without an index: which way they go, and that all ways lead to the same messages."""

from __future__ import annotations

import psycopg
import pytest

from milepost.queues import catalogue, selection
from milepost.queues.selection import FEW_WAITING, Criteria
from tests.unit.queues.conftest import Queues

LONG, SHORT = 2 * FEW_WAITING, 20  # messages; beside the long queue the short one is looked through one by one
WISHES = [
    ("size = 7", "text"),
    ("size = 7", "text desc"),
    ("size > 3", "size desc, text"),
    (None, "size, text desc"),
    ("size = 1000", "text"),
]


def filled(queues: Queues) -> dict[str, list[str]]:
    """Two queues of one type, one long and one short."""
    queues.notes()
    queues.notes(name="short")
    writer = queues.party()
    texts = {
        "notes": [f"{number:x<{3 + number % 7}}" for number in range(LONG)],
        "short": [f"{number:y<{3 + number % 7}}" for number in range(SHORT)],
    }
    for name, some in texts.items():
        writer.put(*some, queue=name)
    return texts


def finding(queues: Queues, name: str, select: str | None, order: str) -> selection.SelectionQuery:
    with queues.store()._database.reading() as session:
        known = catalogue.load(session)
        about = selection._Cached(known, known.queue(name), known.type("note"))
        return selection._finding(about, select, order, False, session.dialect, True, True)


@pytest.mark.parametrize(("select", "order"), WISHES)
def test_a_long_queue_and_a_short_one_give_what_they_should(queues: Queues, select: str | None, order: str) -> None:
    texts = filled(queues)
    session = queues.store()._session
    assert session is not None
    for name, short in (("notes", False), ("short", True)):
        asked = finding(queues, name, select, order).short
        assert asked is not None
        assert bool(session.row(asked)[0]) is short
        left = [text for text in texts[name] if select is None or _holds(select, len(text))]
        left = _in_order(left, order)
        reader, other = queues.party(), queues.party()
        assert other.dequeue(2, name, type="note", where=select, order=order) == left[:2], "and nobody else gets these"
        assert reader.dequeue(3, name, type="note", where=select, order=order) == left[2:5]
        other.abort()
        assert reader.dequeue(3, name, type="note", where=select, order=order) == (left[:2] + left[5:])[:3]
        reader.abort()


def _holds(select: str, size: int) -> bool:
    return bool(eval(select.replace(" = ", " == "), {"size": size}))


def _in_order(texts: list[str], order: str) -> list[str]:
    for key in reversed(order.split(", ")):
        name, _, direction = key.partition(" ")
        texts = sorted(texts, key=len if name == "size" else str, reverse=direction == "desc")
    return texts


def test_messages_that_are_not_to_be_had_are_passed_over(queues: Queues) -> None:
    filled(queues)
    writer, reader = queues.party(), queues.party()
    writer.put("a late one", due_us=queues.now + 1_000_000)
    writer.put("a gone one", ends_us=queues.now + 1)
    writer.put("a good one")
    criteria = Criteria("note", "size = 10", "text")
    assert reader.dequeue(3, **criteria._asdict()) == ["a good one"]
    reader.enqueue("my own one")
    assert reader.dequeue(3, **criteria._asdict()) == ["my own one"]
    reader.commit()
    queues.now += 2_000_000
    assert reader.dequeue(3, **criteria._asdict()) == ["a late one"]


def test_how_postgresql_goes_through_a_table_that_it_knows_nothing_about(shared: Queues) -> None:
    """Without statistics it takes a table of thousands for one of three rows, and would look up each message."""
    filled(shared)
    text, _ = finding(shared, "notes", "size = 7", "text").statement.numbered
    ways = " ".join(f"-c enable_{way}=off" for way in ("seqscan", "sort", "bitmapscan"))  # as a store has them
    with psycopg.connect(shared.url, options=f"-c search_path=milepost {ways}") as own:
        plan = "\n".join(line for (line,) in own.execute(f"EXPLAIN (GENERIC_PLAN) {text}"))
    assert "Tid Range Scan on mt1" in plan
    assert "Index Scan using q1_pkey" in plan
    assert plan.count("Scan on") + plan.count("Scan using") == 3, f"each table once, and what was found: {plan}"
    assert plan.index("LockRows") < plan.index("Nested Loop") < plan.index("Sort"), "sorted, then looked up in turn"
