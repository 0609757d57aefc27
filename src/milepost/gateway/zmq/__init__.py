"""ZeroMQ: put, get, ack, subscribe and unsubscribe for REQ sockets; docs/zeromq.md has the bodies."""

from milepost.extras import extra

with extra("ZeroMQ needs", "server"):
    from milepost.gateway.zmq.gateway import Gateway

__all__ = ["Gateway"]
