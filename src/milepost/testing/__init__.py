"""For the tests of programs that use Milepost: a broker in memory, and a clock that goes when told.

::

    async with milepost.testing.broker() as broker:
        async with milepost.AsyncClient(broker.uri) as client:
            ...

It is the real broker on a transport without sockets. It needs `milepost[server]`.
"""

from milepost.testing.broker import MemoryBroker, broker
from milepost.testing.clock import FakeClock

__all__ = ["FakeClock", "MemoryBroker", "broker"]
