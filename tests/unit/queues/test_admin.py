"""Types, queues, and what people do with messages: errors leave nothing behind, and names and values are only that."""

from __future__ import annotations

import math
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from milepost.batch import Batch
from milepost.errors import (
    InvalidValue,
    LimitExceeded,
    MilepostError,
    QueryError,
    QueueExists,
    QueueInUse,
    TypeExists,
    TypeInUse,
    UnknownQueue,
    UnknownType,
    WrongType,
)
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.query import parse_schema
from milepost.queues.states import LEVELS
from tests.unit.queues.conftest import NOTE, ORDERS, Party, Queues

OTHER = parse_schema("other: [value: int]")
ORDER = parse_schema(ORDERS)
DAY = date(2026, 1, 1)


def both(queues: Queues, level: str = "none", name: str = "both") -> None:
    """A queue that takes two types."""
    queues.do(ops.DeclareType(str(NOTE)))
    queues.do(ops.DeclareType(str(OTHER)))
    queues.do(ops.DeclareQueue(name, ("note", "other"), level))


def put_other(party: Party, *values: int, queue: str = "both") -> None:
    party.perform(steps.Enqueue(queue, Batch.encode(OTHER, [{"value": value} for value in values])))
    party.commit()


def state(queues: Queues) -> Any:
    """All that the store knows of types and queues."""
    found = queues.do(ops.Queues())
    return found, [tuple(each[:3]) for each in queues.do(ops.Types())], queues.tables()


# Types and queues


def test_types(queues: Queues) -> None:
    made = queues.do(ops.DeclareType(str(NOTE)))
    assert (made.name, made.schema.fingerprint) == ("note", NOTE.fingerprint)
    assert queues.do(ops.DeclareType(str(NOTE))).number == made.number
    queues.do(ops.DeclareType(ORDERS))
    assert [each.name for each in queues.do(ops.Types())] == ["note", "OrderMessage"]
    before = state(queues)
    with pytest.raises(TypeExists):
        queues.do(ops.DeclareType("note: [text: string]"))
    with pytest.raises(UnknownType, match="did you mean 'note'"):
        queues.do(ops.DeleteType("nota"))
    for wrong in (
        "",
        "note",
        "no'te: [a: int]",
        'no"te: [a: int]',
        "x: [a: int]; DROP TABLE queues",
        "x: [a: nothing]",
    ):
        with pytest.raises(MilepostError):
            queues.do(ops.DeclareType(wrong))
    assert state(queues) == before
    queues.do(ops.DeleteType("note"))
    assert [each.name for each in queues.do(ops.Types())] == ["OrderMessage"]
    queues.do(ops.DeclareType("note: [text: string]"))
    queues.restart()
    assert [each.name for each in queues.do(ops.Types())] == ["OrderMessage", "note"]


def test_queues(queues: Queues) -> None:
    both(queues)
    queues.do(ops.DeclareQueue("full", ("note",), "ordered", "asc", 2.5, (("note", "size"),), "dead", 3))
    names = {each.name: each for each in queues.do(ops.Queues())}
    assert set(names) == {"both", "full", "dead"}
    full = names["full"]
    assert (full.level, full.direction, full.priority, full.types) == ("ordered", "asc", 2.5, ("note",))
    assert (full.functions, full.dead_letter, full.max_deliveries) == ({"note": "size"}, "dead", 3)
    before = state(queues)
    queues.do(ops.DeclareQueue("full", ("note",), "ordered", "asc", 2.5, (("note", "size"),), "dead", 3))
    queues.do(ops.DeclareQueue("both", ("other", "note")))  # the order of types says nothing
    assert state(queues) == before
    with pytest.raises(QueueExists):
        queues.do(ops.DeclareQueue("both", ("note",)))
    with pytest.raises(QueueExists):
        queues.do(ops.DeclareQueue("both", ("note", "other"), "ordered"))
    assert state(queues) == before
    with pytest.raises(QueueInUse, match="full"):
        queues.do(ops.DeleteQueue("dead"))
    with pytest.raises(TypeInUse, match="both, dead, full"):
        queues.do(ops.DeleteType("note"))
    for name in ("full", "dead", "both"):
        queues.do(ops.DeleteQueue(name))
    queues.do(ops.DeleteType("note"))
    assert queues.do(ops.Queues()) == []
    assert queues.tables() == {}


WRONG = [
    ({"types": ("note", "thing")}, UnknownType),
    ({"types": ("nota",)}, UnknownType),
    ({"types": ()}, InvalidValue),
    ({"types": ("note", "note")}, InvalidValue),
    ({"level": "orderd"}, InvalidValue),
    ({"level": ""}, InvalidValue),
    ({"direction": "up"}, InvalidValue),
    ({"priority": math.nan}, InvalidValue),
    ({"dead_letter": "d", "max_deliveries": 1 << 63}, LimitExceeded),
    ({"priority": math.inf}, InvalidValue),
    ({"dead_letter": "dead"}, InvalidValue),
    ({"max_deliveries": 3}, InvalidValue),
    ({"dead_letter": "dead", "max_deliveries": -1}, InvalidValue),
    ({"dead_letter": "q", "max_deliveries": 1}, InvalidValue),
    ({"dead_letter": "", "max_deliveries": 1}, InvalidValue),
    ({"dead_letter": "x" * 10_000, "max_deliveries": 1}, MilepostError),
    ({"dead_letter": "others", "max_deliveries": 1}, WrongType),
    ({"name": ""}, InvalidValue),
    ({"name": "a\0b"}, InvalidValue),
    ({"name": "a\nb"}, InvalidValue),
    ({"name": "x" * 10_000}, MilepostError),
    ({"functions": (("other", "value"),)}, WrongType),
    ({"functions": (("note", "text"),)}, WrongType),
    ({"functions": (("note", "size > 3"),)}, WrongType),
    ({"functions": (("note", "length"),)}, QueryError),
    ({"functions": (("note", "size +"),)}, QueryError),
    ({"functions": (("note", "size; DROP TABLE queues"),)}, QueryError),
]


def test_queues_that_cannot_be(queues: Queues) -> None:
    queues.do(ops.DeclareType(str(NOTE)))
    queues.do(ops.DeclareType(str(OTHER)))
    queues.do(ops.DeclareQueue("others", ("other",)))
    before = state(queues)
    for wrong, error in WRONG:
        with pytest.raises(error):
            queues.do(ops.DeclareQueue(**({"name": "q", "types": ("note",)} | wrong)))
        assert state(queues) == before, wrong
    with pytest.raises(InvalidValue, match="did you mean 'ordered'"):
        queues.do(ops.DeclareQueue("q", ("note",), "orderd"))
    # In a group, only the wrong one fails.
    outcomes = queues.together(
        [ops.DeclareQueue("a", ("note",)), ops.DeclareQueue("b", ("nota",)), ops.DeleteQueue("a")]
    )
    assert isinstance(outcomes[1], UnknownType)
    assert state(queues) == before


NAMES = ["it's", 'a "quoted" one', "a;b", "x'; DROP TABLE queues; --", "%s", ":v0 {in mids}", "ä / ö", "q1", "queues"]


def test_names_are_only_names(queues: Queues) -> None:
    queues.do(ops.DeclareType(str(NOTE)))
    for name in NAMES:
        queues.do(ops.DeclareQueue(name, ("note",)))
        queues.party().put(name, queue=name)
    assert sorted(each.name for each in queues.do(ops.Queues())) == sorted(NAMES)
    reader = queues.party()
    for name in NAMES:
        assert queues.texts(name) == [name]
        assert reader.one(queue=name) == name
    assert set(reader.commit().touched) <= set(NAMES)
    for name in NAMES:
        queues.do(ops.DeleteQueue(name))
    assert queues.do(ops.Queues()) == []


def test_a_queue_in_use_is_not_dropped(queues: Queues) -> None:
    queues.notes()
    queues.notes(name="others")
    party = queues.party()
    party.enqueue("a")
    with pytest.raises(QueueInUse, match="1 message"):
        queues.do(ops.DeleteQueue("notes"))
    party.commit()
    with pytest.raises(QueueInUse):
        queues.do(ops.DeleteQueue("notes"))
    assert party.one() == "a"
    with pytest.raises(QueueInUse):
        queues.do(ops.DeleteQueue("notes"))
    party.commit()
    party.enqueue("b")
    assert party.one() == "b"
    party.enqueue("c", queue="others")
    party.abort()
    queues.do(ops.DeleteQueue("notes"))
    queues.do(ops.DeleteQueue("others"))
    with pytest.raises(UnknownQueue):
        party.one()
    with pytest.raises(UnknownQueue):
        queues.do(ops.DeleteQueue("notes"))
    assert queues.tables() == {}


def test_queues_that_are_not_there(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    for operation in (
        ops.Peek("note"), ops.Browse("note"), ops.Queues("note"), ops.Purge("note"), ops.DeleteQueue("note"),
        ops.MoveMessages("note", "notes"), ops.MoveMessages("notes", "note"),
    ):  # fmt: skip
        with pytest.raises(UnknownQueue, match="did you mean 'notes'"):
            queues.do(operation)
    with pytest.raises(UnknownQueue):
        party.enqueue("a", queue="note")
    with pytest.raises(UnknownQueue):
        party.dequeue(queue="note")
    assert party.number == 0
    assert queues.tables() == {}


def test_messages_that_a_queue_does_not_take(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    with pytest.raises(WrongType):
        put_other(party, 1, queue="notes")
    queues.do(ops.DeclareType(str(OTHER)))
    with pytest.raises(WrongType, match="it takes note"):
        put_other(party, 1, queue="notes")
    otherwise = Batch.encode(parse_schema("note: [text: string]"), [{"text": "a"}])
    with pytest.raises(WrongType, match="not declared as"):
        party.perform(steps.Enqueue("notes", otherwise), steps.Commit())
    with pytest.raises(WrongType):
        party.dequeue(type="other")
    with pytest.raises(UnknownType):
        party.dequeue(type="nota")
    assert queues.tables() == {}


def test_two_types(queues: Queues) -> None:
    both(queues)
    party = queues.party()
    party.put("a", queue="both")
    put_other(party, 1, 2)
    party.put("b", queue="both")
    for criteria in ({"where": "size = 1"}, {"order": "size"}):
        with pytest.raises(WrongType, match="name one of note, other"):
            party.dequeue(queue="both", **criteria)
    with pytest.raises(WrongType):
        queues.do(ops.Purge("both", where="size = 1"))
    with pytest.raises(QueryError):
        party.dequeue(queue="both", type="other", where="size = 1")
    got = party.perform(steps.Dequeue("both", count=9))
    assert [(group.type, len(group.mids)) for group in got.groups] == [("note", 1), ("other", 2), ("note", 1)]
    assert [group.batch.to_pylist() for group in got.groups][1] == [{"value": 1}, {"value": 2}]
    party.abort()
    got = party.perform(steps.Dequeue("both", type="other", count=9, order="value desc"))
    assert [row["value"] for group in got.groups for row in group.batch.to_pylist()] == [2, 1]
    assert queues.texts("both") == ["a", "b"]
    party.commit()
    assert party.dequeue(9, queue="both", type="note", where="text = 'b'") == ["b"]
    party.abort()


@pytest.mark.parametrize("level", ["ordered", "ordered blockwise"])
def test_a_type_that_is_not_asked_for_holds_those_behind_it_back(queues: Queues, level: str) -> None:
    both(queues, level)
    writer, reader = queues.party(), queues.party()
    put_other(writer, 1)
    writer.put("a", queue="both")
    assert reader.dequeue(queue="both", type="note") == []
    got = reader.perform(steps.Dequeue("both", type="other"))
    assert got.count == 1
    assert reader.dequeue(queue="both", type="note") == ["a"]
    reader.commit()


# Looking, moving, removing


@pytest.mark.parametrize("level", LEVELS)
def test_peek_takes_nothing(queues: Queues, level: str) -> None:
    queues.notes(level)
    queues.party().put("a", "b", priority=1.0)
    queues.party().put("c")
    before = queues.tables()

    def peeked(**criteria: Any) -> list[str]:
        got = queues.do(ops.Peek("notes", **criteria))
        return [row["text"] for group in got.groups for row in group.batch.to_pylist()]

    assert peeked() == ["a"]
    assert peeked(count=9) == ["a", "b", "c"]
    if "ordered" not in level:
        assert peeked(where="text = 'b'") == ["b"]
    assert peeked(count=2, order="text desc")[0] == "c"
    assert queues.tables() == before
    one, two = queues.party(), queues.party()
    assert one.one() == "a"
    assert peeked(count=9) == (["b", "c"] if level == "none" else ["c"])
    assert two.one() == ("b" if level == "none" else "c")


@pytest.mark.parametrize("level", LEVELS)
def test_browse_goes_on_where_it_was(queues: Queues, level: str) -> None:
    queues.notes(level)
    party = queues.party()
    mids = party.put(*(str(each) for each in range(7)))
    party.enqueue("not committed")
    found: list[int] = []
    after = 0
    while True:
        got = queues.do(ops.Browse("notes", after=after, count=3))
        if not got.groups:
            break
        found += got.groups[0].mids
        after = found[-1]
    assert found == mids
    got = queues.do(ops.Browse("notes", where="text > '4'", count=10))
    assert [row["text"] for row in got.groups[0].batch.to_pylist()] == ["5", "6"]
    with pytest.raises(InvalidValue):
        queues.do(ops.Browse("notes", count=0))


@pytest.mark.parametrize("level", LEVELS)
def test_move_and_purge(queues: Queues, level: str) -> None:
    queues.notes()
    queues.notes(level, "target", priority=9.0)
    one, two = queues.party(), queues.party()
    one.put("a", "bb", "ccc", priority=2.0)
    two.put("dddd", "it's; --")
    taken = queues.party()
    assert taken.one() == "a"
    assert queues.do(ops.MoveMessages("notes", "target", where="text = 'it''s; --' or size < 3")) == 2
    assert queues.texts() == ["ccc", "dddd"]
    assert queues.texts("target") == ["bb", "it's; --"]
    assert queues.do(ops.MoveMessages("notes", "target", count=1)) == 1
    assert queues.texts("target") == ["bb", "ccc", "it's; --"]
    reader = queues.party()
    got = reader.perform(steps.Dequeue("target", count=9))
    (group,) = got.groups
    assert (group.s, group.priorities) == ([one.s, one.s, two.s], [2.0, 2.0, 0.0])
    reader.abort()
    assert queues.do(ops.Purge("target", where="text like 'it%'")) == 1
    assert queues.do(ops.Purge("notes", count=(1 << 64) - 1)) == 1  # more than a database counts to
    taken.abort()
    assert queues.do(ops.Purge("notes")) == 1
    assert queues.do(ops.Purge("notes")) == 0
    assert queues.do(ops.Purge("target", type="note")) == 2
    queues.do(ops.Sweep())
    assert queues.tables() == {}


def test_moves_that_cannot_be(queues: Queues) -> None:
    both(queues)
    queues.notes()
    put_other(queues.party(), 1)
    for operation, error in [
        (ops.MoveMessages("both", "both"), InvalidValue),
        (ops.MoveMessages("both", "notes"), WrongType),
        (ops.MoveMessages("both", "notes", count=0), InvalidValue),
        (ops.MoveMessages("both", "notes", where="value = 1"), WrongType),
        (ops.MoveMessages("both", "notes", type="other", where="nothing = 1"), QueryError),
        (ops.Purge("both", count=-1), InvalidValue),
        (ops.Purge("both", type="thing"), UnknownType),
    ]:
        with pytest.raises(error):
            queues.do(operation)
    assert queues.figures("both") == {"waiting": 1}
    assert queues.do(ops.MoveMessages("both", "notes", type="note")) == 0


@pytest.mark.parametrize("level", ["ordered", "blockwise", "ordered blockwise"])
def test_what_a_reader_has_reserved_is_not_moved(queues: Queues, level: str) -> None:
    queues.notes(level)
    queues.notes("none", "target")
    queues.party().put("a", "b")
    queues.party().put("c")
    reader = queues.party()
    assert reader.one() == "a"
    assert queues.do(ops.MoveMessages("notes", "target")) == 1
    assert queues.texts("target") == ["c"]
    assert queues.do(ops.Purge("notes")) == 0
    assert reader.one() == "b"
    reader.commit()


def test_statistics(queues: Queues) -> None:
    queues.notes(name="empty")
    queues.notes()
    one, two = queues.party(), queues.party()
    start = queues.now
    one.put("a", "b")
    one.put("later", due_us=queues.now + 10**9)
    one.put("over", ends_us=queues.now)
    one.enqueue("c", "d")
    assert two.one() == "a"
    by_name = {each.name: each.statistics for each in queues.do(ops.Queues())}
    assert set(by_name["empty"].values()) == {0}
    oldest = by_name["notes"].pop("oldest_us")
    assert start <= oldest <= queues.now
    assert by_name["notes"] == {"waiting": 1, "delayed": 1, "taken": 1, "uncommitted": 2, "expired": 1}


# Selection, order, priorities


def order(number: int, name: str, items: int, price: float = 1.0) -> dict[str, Any]:
    lines = [
        {"line_no": line, "amount": line + 1, "price": price, "item": [{"id": line, "name": f"item {line}", "ean": 7}]}
        for line in range(items)
    ]
    return {"id": number, "date": DAY, "name": name, "lines": lines}


def orders(queues: Queues, level: str = "none", **options: Any) -> None:
    queues.do(ops.DeclareType(ORDERS))
    queues.do(ops.DeclareQueue("orders", ("OrderMessage",), level, **options))


def put_orders(queues: Queues, *given: dict[str, Any], **options: Any) -> None:
    party = queues.party()
    party.perform(steps.Enqueue("orders", Batch.encode(ORDER, given), **options), steps.Commit())


def ids(got: steps.Got) -> list[int]:
    return [row["id"] for group in got.groups for row in group.batch.to_pylist()]


COUNT = "count(select ol.item from mt_OrderMessage om, om.root o, o.lines ol)"


@pytest.mark.parametrize("level", LEVELS)
def test_the_orders_of_one_customer_by_number_of_items(queues: Queues, level: str) -> None:
    """The paper's example. At levels that keep a writer's order, each order here has a writer of its own."""
    orders(queues, level)
    wanted = [(1, "Smith", 2), (2, "Jones", 9), (3, "Smith", 5), (4, "O'Neil; --", 7), (5, "Smith", 0), (6, "Smith", 3)]
    for each in wanted:
        put_orders(queues, order(*each))
    reader = queues.party()
    step = steps.Dequeue("orders", "OrderMessage", 2, "name = 'Smith'", f"{COUNT} desc")
    assert ids(reader.perform(step)) == [3, 6]
    assert ids(reader.perform(step)) == [1, 5]
    assert ids(reader.perform(step)) == []
    reader.abort()
    step = steps.Dequeue("orders", None, 9, "name = 'O''Neil; --'")
    assert ids(reader.perform(step)) == [4]
    assert ids(reader.perform(steps.Dequeue("orders", count=9, order="name, id desc"))) == [2, 6, 5, 3, 1]
    reader.commit()
    queues.do(ops.Sweep())
    assert queues.tables() == {}


@pytest.mark.parametrize("level", ["ordered", "ordered blockwise"])
def test_a_selection_never_jumps_over_an_older_message(queues: Queues, level: str) -> None:
    orders(queues, level)
    one = queues.party()
    for number, name in [(1, "a"), (2, "b"), (3, "a")]:
        one.perform(steps.Enqueue("orders", Batch.encode(ORDER, [order(number, name, number)])), steps.Commit())
        one.over()
    put_orders(queues, order(10, "b", 1))
    reader = queues.party()
    assert ids(reader.perform(steps.Dequeue("orders", count=9, where="name = 'b'"))) == [10]
    assert ids(reader.perform(steps.Dequeue("orders", count=9, where="name = 'a'"))) == [1]
    assert ids(reader.perform(steps.Dequeue("orders", count=9, order="id desc"))) == [2, 3]
    reader.abort()
    assert ids(reader.perform(steps.Dequeue("orders", count=9, order="id desc"))) == [10, 1, 2, 3]
    reader.commit()


@pytest.mark.parametrize("level", LEVELS)
def test_priority_functions(queues: Queues, level: str) -> None:
    orders(queues, level, functions=(("OrderMessage", COUNT),), priority=-5.0)
    for each in [(1, "x", 2), (2, "x", 4), (3, "x", 0)]:
        put_orders(queues, order(*each))
    put_orders(queues, order(4, "x", 1), priority=3.0)
    reader = queues.party()
    got = reader.perform(steps.Dequeue("orders", count=9))
    assert ids(got) == [2, 4, 1, 3]
    assert [priority for group in got.groups for priority in group.priorities] == [4.0, 3.0, 2.0, 0.0]
    reader.abort()
    assert ids(
        reader.perform(steps.Dequeue("orders", count=9, order="select m from mt_OrderMessage m order by m.priority"))
    ) == [3, 1, 4, 2]
    reader.commit()


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_a_priority_that_is_null_is_the_default(queues: Queues, direction: str) -> None:
    queues.do(ops.DeclareType(str(NOTE)))
    queues.do(ops.DeclareQueue("notes", ("note",), "none", direction, 2.0, (("note", "size"),)))
    party = queues.party()
    rows = [{"text": "one", "size": 1}, {"text": "none", "size": None}, {"text": "three", "size": 3}]
    party.perform(steps.Enqueue("notes", Batch.encode(NOTE, rows)))
    party.commit()
    found = party.dequeue(3)
    assert found == (["one", "none", "three"] if direction == "asc" else ["three", "none", "one"])


NUMBERS = parse_schema("numbers: [i: int?, u: uint64?, d: double?, m: decimal(10, 2)?, w: decimal(30, 2)?]")
VALUES = [
    ("i", -7, -7.0), ("u", 5, 5.0), ("u", (1 << 64) - 1, float((1 << 64) - 1)), ("d", 2.5, 2.5),
    ("m", Decimal("12.50"), 12.5), ("w", Decimal("-12.25"), -12.25), ("d", math.nan, 9.0), ("i", None, 9.0),
    ("d", math.inf, 9.0), ("d", -math.inf, 9.0),
]  # fmt: skip


def test_priorities_of_every_kind_of_number(queues: Queues) -> None:
    """What is no number is no priority: the default takes its place."""
    queues.do(ops.DeclareType(str(NUMBERS)))
    party = queues.party()
    for place, (name, value, wanted) in enumerate(VALUES):
        queue = f"numbers {place}"
        queues.do(ops.DeclareQueue(queue, ("numbers",), "none", "desc", 9.0, (("numbers", name),)))
        party.perform(steps.Enqueue(queue, Batch.encode(NUMBERS, [{name: value}])))
        party.commit()
        got = party.perform(steps.Dequeue(queue))
        assert got.groups[0].priorities == [wanted], (name, value)
        party.commit()


def test_queries_that_are_wrong_leave_nothing(queues: Queues) -> None:
    queues.notes()
    party = queues.party()
    party.put("a")
    for criteria in (
        {"where": "length = 1"}, {"where": "size"}, {"where": "size = 1; DROP TABLE queues"},
        {"where": "text = 'a"},
        {"where": "x.size = 1"}, {"order": "nothing"}, {"order": "size sideways"}, {"order": "size,"},
    ):  # fmt: skip
        with pytest.raises(QueryError):
            party.dequeue(**criteria)
        with pytest.raises(QueryError):
            queues.do(ops.Peek("notes", **criteria))
    assert party.number == 0
    assert queues.texts() == ["a"]
    party.enqueue("b")
    with pytest.raises(QueryError):
        party.dequeue(where="size")
    party.commit()
    assert queues.texts() == ["a", "b"], "the transaction goes on"


def test_a_sweep_looks_at_some_queues_and_all_have_their_turn(queues: Queues, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.queues.upkeep.SWEPT_QUEUES", 2)
    names = [f"turn {number}" for number in range(5)]
    for name in names:
        queues.notes(name=name)
        queues.party().put("old", queue=name, ends_us=queues.now + 100)
    queues.now += 1_000
    left = []
    for _ in range(3):
        queues.do(ops.Sweep())
        left.append(sum(queues.figures(name).get("expired", 0) for name in names))
    assert left == [3, 1, 0]
