"""Looking into queues beside readers that take what is looked at."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from milepost.queues import operations as ops
from tests.unit.queues.conftest import Queues


class Interrupted(int):
    """A bound of bytes. It is first compared when headers are read and contents are not: then something is done."""

    between: Callable[[], object] | None = None

    def __gt__(self, size: int) -> bool:
        between, self.between = self.between, None
        if between is not None:
            between()
        return int(self) > size


@pytest.mark.parametrize("look", [ops.Peek, ops.Browse])
def test_what_is_taken_during_a_look_is_still_seen_by_it(
    queues: Queues, look: type[ops.Peek] | type[ops.Browse]
) -> None:
    queues.notes()
    queues.party().put("one", "two")
    reader, bound = queues.party(), Interrupted(1 << 20)

    def take() -> None:
        assert reader.dequeue(2) == ["one", "two"]
        reader.commit()

    bound.between = take
    store = queues.store()
    got = store.inspect(look("notes", count=2, most_bytes=bound), queues.now)
    assert [row["text"] for group in got.groups for row in group.batch.to_pylist()] == ["one", "two"]
    assert bound.between is None, "nobody took anything meanwhile"
    assert store.inspect(look("notes", count=2), queues.now).count == 0, "the next look sees what is there then"


@pytest.mark.parametrize("level", ["none", "ordered"])
def test_a_look_of_a_transaction_sees_what_that_would_take(queues: Queues, level: str) -> None:
    queues.notes(level)
    queues.party().put("one", "two")
    reader = queues.party()
    assert reader.dequeue(2) == ["one", "two"]
    reader.enqueue("own")
    store = queues.store()
    assert store.inspect(ops.Peek("notes", count=3), queues.now).count == 0
    assert store.inspect(ops.Peek("notes", count=3, owner=reader.number), queues.now).count == 1
    assert reader.dequeue(3) == ["own"]
