"""For tests of programs that use Milepost: a broker in memory, a clock that tests advance, a ledger.

::

    async with milepost.testing.broker() as broker:
        async with milepost.AsyncClient(broker.uri) as client:
            ...

It is the real broker on a transport without sockets. It needs `milepost[server]`. `milepost.testing.ledger` checks that
every message arrived, once and in order.
"""

from milepost.testing import ledger
from milepost.testing.broker import MemoryBroker, broker
from milepost.testing.clock import FakeClock

__all__ = ["FakeClock", "MemoryBroker", "broker", "ledger"]
