"""The soak of queues in its short form, and its ledger: what it must find, and what it must not."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from soak.queues import records
from soak.queues.ledger import KINDS, Ledger
from soak.queues.records import Book, read_records
from soak.queues.roles import BROKERLESS
from soak.queues.scenario import SETTINGS, QueuesScenario
from soak.queues.tables import left_over

ROOT = Path(__file__).resolve().parents[2]
KILLS = 2
IN, OUT = "in ordered blockwise", "out ordered blockwise"


@pytest.mark.slow
@pytest.mark.xdist_group("soak")
def test_sqlite_as_the_command_runs_it():
    again = f"python -m soak --queues only --store sqlite --queues-cycles {KILLS} --seed 14"
    done = subprocess.run(
        [sys.executable, *again.split()[1:]],
        cwd=ROOT, capture_output=True, text=True, timeout=900, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST")},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert "verdict: good" in done.stdout
    assert again in done.stdout
    assert int(re.search(r"([\d,]+) messages written", done.stdout)[1].replace(",", "")) > 0


@pytest.mark.slow
@pytest.mark.xdist_group("soak")
def test_two_brokers_of_one_postgresql(postgresql, tmp_path):
    scenario = QueuesScenario(tmp_path, postgresql, 15, brokers=2, settings=SETTINGS["postgresql"])
    try:
        scenario.open()
        assert scenario.cycles(KILLS) >= KILLS
        verdict = scenario.close()
    finally:
        scenario.clear()
    assert verdict, verdict
    assert not scenario.complaints
    assert verdict.figures["written"] == verdict.figures["moved"] == verdict.figures["drained"] > 0
    assert left_over(postgresql) == []


@pytest.mark.slow
@pytest.mark.xdist_group("soak")
def test_clients_without_a_broker_are_killed_in_the_middle_of_a_transaction(postgresql, tmp_path):
    scenario = QueuesScenario(tmp_path, postgresql, 16, settings=SETTINGS["postgresql"])
    writer, mover, drain = BROKERLESS
    try:
        scenario.open()
        for moment, *roles in (("committing", writer), ("inside", mover), ("committing", drain, mover)):
            scenario.strike([], roles, moment)
        verdict = scenario.close()
    finally:
        scenario.clear()
    assert verdict, verdict
    assert not scenario.complaints
    assert scenario.kills == {"writers without a broker": 1, "readers without a broker": 3}
    assert verdict.figures["written"] == verdict.figures["moved"] == verdict.figures["drained"] > 0
    assert left_over(postgresql) == []


class Story:
    """Events of clients, told one after the other."""

    def __init__(self):
        self.ledger = Ledger()
        self._at = 0

    def tell(self, kind, *told):
        self._at += 1
        self.ledger.note(kind(self._at, *told))

    def writes(self, member, number, first, count, queue=IN, end=records.Committed):
        self.tell(records.Write, member, number, queue, first, count)
        self.ends(member, number, end)

    def takes(self, member, number, *messages, queue=IN, origins=None):
        """Messages: writer, its transaction, sequence."""
        self.tell(records.Reach, member, number, queue)
        told = [list(each) for each in zip(*messages, strict=True)]
        self.tell(records.Took, member, number, queue, *told, origins or [""] * len(messages))

    def ends(self, member, number, end=records.Committed):
        """`end` None: it died while it asked for its commit."""
        if end is not records.Undone:
            self.tell(records.Commits, member, number)
        if end is not None:
            self.tell(end, member, number)

    def drains(self, number, *messages, queue=IN, end=records.Committed, member="drain"):
        self.takes(member, number, *messages, queue=queue)
        self.ends(member, number, end)

    def found(self):
        return set(self.ledger.verdict().findings)


A1, A2, A3 = ("a", 1, 10), ("a", 1, 11), ("a", 2, 12)


def test_all_is_well():
    story = Story()
    story.writes("a", 1, 10, 2)
    story.writes("a", 2, 12, 1)
    story.writes("b", 1, 5, 3, end=records.Undone)
    story.takes("drain", 1, A1, A2)
    story.ends("drain", 1, records.Undone)
    story.takes("mover", 1, A1)
    story.ends("mover", 1, records.Refused)
    story.takes("mover", 1, A2)
    story.tell(records.Write, "mover", 1, OUT, 1, 2)
    story.ends("mover", 1)
    story.drains(2, A3)
    story.takes("drain", 3, ("mover", 1, 1), ("mover", 1, 2), queue=OUT, origins=["a/10", "a/11"])
    story.ends("drain", 3)
    verdict = story.ledger.verdict()
    assert verdict, verdict
    assert verdict.figures["committed"] == 5
    assert (verdict.figures["written"], verdict.figures["moved"], verdict.figures["drained"]) == (3, 2, 3)
    assert "verdict: good" in str(verdict)


@pytest.mark.parametrize("done", [True, False])
def test_one_without_an_answer_is_done_or_not(done):
    story = Story()
    story.writes("a", 1, 10, 2, end=None)
    if done:
        story.drains(1, A1, A2, end=None)
        story.drains(2, A1, A2)  # so the first one was not
    assert story.found() == set()


def test_what_it_finds():
    def told(tell):
        story = Story()
        tell(story)
        return story.found()

    def two(story):
        story.writes("a", 1, 10, 2)

    def lost(story):
        two(story)
        story.drains(1, A1, A2, end=records.Undone)

    def twice(story):
        two(story)
        story.drains(1, A1, A2)
        story.drains(2, A1, A2)

    def leaked(story):
        story.writes("a", 1, 10, 1, end=records.Undone)
        story.drains(1, A1)

    def died_before_its_commit(story):
        story.tell(records.Write, "a", 1, IN, 10, 1)
        story.drains(1, A1)

    def torn_writer(story):
        story.writes("a", 1, 10, 2, end=None)
        story.drains(1, A1)

    def torn_reader(story):
        story.writes("a", 1, 10, 2, queue="in ordered")
        story.drains(1, A1, A2, queue="in ordered", end=None)
        story.drains(2, A1, queue="in ordered")

    def early(story):
        story.tell(records.Write, "a", 1, IN, 10, 1)
        story.takes("drain", 1, A1)
        story.ends("a", 1)
        story.ends("drain", 1)

    def shared(story):
        two(story)
        story.takes("drain", 1, A1, A2)
        story.takes("other", 1, A1, A2)
        story.ends("other", 1, records.Undone)
        story.ends("drain", 1)

    def order(story):
        two(story)
        story.writes("a", 2, 12, 1)
        story.drains(1, A3)
        story.drains(2, A1, A2)

    def block(story):
        two(story)
        story.drains(1, A1)
        story.drains(2, A2)

    def changed(story):
        story.writes("a", 1, 10, 1)
        story.drains(1, ("a", 7, 10))

    def moved_something_else(story):
        story.writes("a", 1, 10, 1)
        story.takes("mover", 1, A1)
        story.tell(records.Write, "mover", 1, OUT, 1, 1)
        story.ends("mover", 1)
        story.takes("drain", 1, ("mover", 1, 1), queue=OUT, origins=["a/9"])
        story.ends("drain", 1)

    def invented(story):
        story.drains(1, A1)

    found = {
        lost: "lost", twice: "twice", leaked: "leaked", died_before_its_commit: "leaked", torn_writer: "torn",
        torn_reader: "torn", early: "early", shared: "shared", order: "order", block: "block", changed: "changed",
        moved_something_else: "changed", invented: "changed",
    }  # fmt: skip
    assert set(found.values()) == KINDS.keys()
    for tell, kind in found.items():
        assert kind in told(tell), tell.__name__


def test_records_outlive_a_death_in_the_middle_of_a_line(tmp_path):
    path = tmp_path / "a.records"
    book = Book(path, "a")
    assert book.life == 1
    book.write(1, IN, 1, 2)
    book.close()
    with path.open("ab") as file:
        file.write(b'["commits",5,"a"')
    again = Book(path, "a")
    assert again.life == 2
    again.undone(2)
    again.close()
    kinds = [type(event).__name__ for event in read_records(path)]
    assert kinds == ["Began", "Write", "Began", "Undone"]
    path.write_bytes(b'["beg\n["undone",1,"a",1]\n')
    with pytest.raises(ValueError, match="line 1"):
        list(read_records(path))
