"""Parts of transactions and workers that need no broker."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import milepost
from milepost.batch import Batch
from milepost.client.transaction import Receipt, _pieces
from milepost.client.worker import takes_two
from milepost.errors import InvalidValue, NoTransaction

SCHEMA = milepost.parse_schema("note: [text: string, n: int]")


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.integers(64, 4_000))
def test_pieces_are_the_batch_and_no_longer_than_they_may_be(lengths, most):
    batch = milepost.encode(SCHEMA, [{"text": "x" * length, "n": length} for length in lengths])
    pieces = _pieces(batch, most)
    assert Batch.concat(pieces).to_pylist() == batch.to_pylist()
    assert all(len(piece.data) <= most or len(piece) == 1 for piece in pieces)


def test_a_receipt_has_ids_when_all_of_its_frames_are_answered():
    receipt = Receipt(3, 2)
    receipt.tell(7, 8, np.array([1, 2], "<i8").tobytes())
    with pytest.raises(NoTransaction):
        receipt.mids  # noqa: B018
    receipt.tell(7, 8, np.array([3], "<i8").tobytes())
    assert receipt.mids == ["7/8/1", "7/8/2", "7/8/3"]


def test_a_worker_takes_a_message_or_a_transaction_too():
    class Callable:
        def __call__(self, message, tx): ...

    assert not takes_two(lambda message: None)
    assert not takes_two(lambda message, *, more=None: None)
    assert takes_two(lambda message, tx: None)
    assert takes_two(lambda *both: None) is False, "one that takes any number gets the message"
    assert takes_two(Callable())
    assert not takes_two(int)
    for wrong in (lambda: None, lambda a, b, c: None, "text"):
        with pytest.raises(InvalidValue):
            takes_two(wrong)
