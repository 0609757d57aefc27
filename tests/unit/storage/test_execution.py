"""Operations of other parts: each registers how it is carried out."""

from milepost.errors import BrokerError
from milepost.operations import Barrier, Enrol, Enrolled, Work
from tests.unit.storage.conftest import Rig


class Unknown(Work):
    """Nobody has registered how it is carried out."""


def test_an_operation_that_no_part_carries_out_is_refused_and_the_others_go_on(rig: Rig) -> None:
    store = rig.open()
    refused, nothing, enrolled = rig.write(store, Unknown(), Barrier(), Enrol("feed", 1)).outcomes
    assert isinstance(refused, BrokerError)
    assert "cannot carry out" in str(refused)
    assert "test_execution.Unknown" in str(refused)
    assert nothing is None
    assert enrolled == Enrolled(1, 0)
