"""Other people's clients: programs that do not speak Milepost's protocol. Each gateway is a client of a broker.

`zmq.Gateway` serves put, get, ack, subscribe and unsubscribe to ZeroMQ's REQ sockets; docs/zeromq.md has the bodies.
"""

from milepost.extras import extra

with extra("ZeroMQ needs", "server"):
    import bson  # noqa: F401
    import zmq  # noqa: F401
