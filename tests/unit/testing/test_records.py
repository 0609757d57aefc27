"""Record files: what a killed process leaves behind can be read, and damage that no death explains is found."""

import os
import signal
import subprocess
import sys

import pytest

from milepost.testing.ledger import Ledger, Recorder
from milepost.testing.ledger import records as module
from milepost.testing.ledger.records import BeganRecord, Damage, GotRecord, PutRecord, read_records


def ledger_of(*paths):
    ledger = Ledger()
    ledger.subscription("desk", "t")
    for path in paths:
        ledger.read(path)
    return ledger


def test_what_was_noted_is_read(tmp_path):
    with Recorder(tmp_path / "p", "p") as feed, Recorder(tmp_path / "c", "c") as desk:
        feed.put("p", "t", 1, 3)
        feed.stored("p", "t", 1, 3)
        feed.put("p", "t", 4)
        feed.refused("p", "t", 4)
        desk.reach("desk", "c", 3)
        desk.got("desk", "p", [1, 2, 3], member="c")
        desk.done("desk", "p", [1, 2, 3], member="c")
        desk.cursor("desk", 1, 3)
    verdict = ledger_of(tmp_path / "c", tmp_path / "p").verdict()
    assert verdict, verdict
    assert (verdict.attempted, verdict.acknowledged, verdict.refused) == (4, 3, 1)


def test_files_are_merged_by_time_not_by_the_order_of_reading(tmp_path):
    with Recorder(tmp_path / "p", "p") as feed, Recorder(tmp_path / "a", "a") as a, Recorder(tmp_path / "b", "b") as b:
        feed.put("p", "t", 0, 4)
        for number, book in enumerate((a, b, a, b)):
            book.got("desk", "p", number, member="a" if book is a else "b")
    for order in ("pab", "bap"):
        ledger = Ledger()
        ledger.subscription("desk", "t", "at least once")
        for name in order:
            ledger.read(tmp_path / name)
        assert ledger.verdict(), order


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_a_torn_last_line_is_a_death(tmp_path, cut):
    path = tmp_path / "c"
    with Recorder(path, "c") as desk:
        desk.reach("desk", "c")
        whole = path.stat().st_size
        desk.got("desk", "p", 1, member="c")
    os.truncate(path, whole + cut)
    ledger = ledger_of(path)
    ledger.put("p", "t", 1)
    ledger.stored("p", "t", 1)
    verdict = ledger.verdict()
    assert verdict, verdict
    assert verdict.torn == 1
    assert verdict.subscriptions["desk"].in_hand == 1


def test_the_next_life_goes_on_behind_a_torn_line(tmp_path):
    path = tmp_path / "c"
    with Recorder(path, "c") as desk:
        desk.got("desk", "p", 1, member="c")
    os.truncate(path, path.stat().st_size - 5)
    with Recorder(path, "c") as desk:
        desk.got("desk", "p", 1, member="c")
    read = list(read_records(path))
    assert [type(event) for event in read] == [BeganRecord, Damage, BeganRecord, GotRecord]
    assert read[1].torn


def test_damage_in_the_middle_is_no_death(tmp_path):
    path = tmp_path / "p"
    with Recorder(path, "p") as feed:
        feed.put("p", "t", 1)
        feed.put("p", "t", 2)
        feed.put("p", "t", 3)
    lines = path.read_bytes().split(b"\n")
    lines[2] = lines[2][:9]
    path.write_bytes(b"\n".join(lines))
    verdict = ledger_of(path).verdict()
    assert [finding.kind for finding in verdict.findings] == ["records"]
    assert "line 3" in str(verdict)
    assert verdict.attempted == 2


@pytest.mark.parametrize("garbage", [b"[]\n", b'["put"]\n', b"\xff\xfe\n", b'["nonsense",1]\n', b"{}\n"])
def test_lines_that_are_no_events_are_found(tmp_path, garbage):
    path = tmp_path / "p"
    with Recorder(path, "p") as feed:
        feed.put("p", "t", 1)
    path.write_bytes(path.read_bytes() + garbage)
    assert not ledger_of(path).verdict()


def test_a_file_longer_than_a_chunk(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_BYTES", 64)
    path = tmp_path / "p"
    with Recorder(path, "p") as feed:
        for number in range(100):
            feed.put("p", "t", number)
    events = list(read_records(path))
    assert [event.first for event in events if isinstance(event, PutRecord)] == list(range(100))


WRITER = """
import sys
from milepost.testing.ledger import Recorder

with Recorder(sys.argv[1], "p") as feed:
    number = 0
    while True:
        feed.put("p", "t", number)
        feed.stored("p", "t", number)
        number += 1
        if number == 100:
            print("go", flush=True)
"""


def test_a_killed_writer_leaves_all_that_it_noted(tmp_path):
    path = tmp_path / "p"
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE)
    writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    ledger = Ledger()
    ledger.read(path)
    verdict = ledger.verdict()
    assert verdict, verdict
    assert verdict.acknowledged >= 100
    assert verdict.unknown <= 1
