"""The ROUTER socket: its endpoint, its key, and the bounds that ZeroMQ enforces."""

from __future__ import annotations

from pathlib import Path
from typing import Final, TypeAlias

import zmq
import zmq.asyncio
import zmq.auth

from milepost.errors import ConfigError
from milepost.gateway.zmq.bodies import BODY_BYTES

FRAMES: Final = 10  # of a request with its envelope: a REQ socket sends three, and each device between adds one
HWM: Final = 8  # messages that ZeroMQ queues for a client or from it; a REQ socket has one
HANDSHAKE_MS: Final = 10_000
KEEPALIVE_S: Final = (
    30  # the kernel's probes of silent peers, three of them; ZeroMQ's own heartbeats confuse some older peers
)

Keys: TypeAlias = tuple[bytes, bytes]  # public, secret


def endpoint_of(listen: str) -> str:
    """The endpoint in ZeroMQ's notation; IPv6 hosts are in brackets."""
    host, colon, port = listen.removeprefix("tcp://").rpartition(":")
    if not colon or not host or not (port == "*" or (port.isdecimal() and int(port) <= 65_535)):
        raise ConfigError(f"{listen!r} is not an address for ZeroMQ: write HOST:PORT, as in 127.0.0.1:7451")
    return f"tcp://{host}:{'*' if port == '0' else port}"


def keys_of(file: str) -> Keys:
    """The CURVE keys in a certificate file. Raises `ConfigError` when they are missing."""
    try:
        public, secret = zmq.auth.load_certificate(Path(file).expanduser())
    except (OSError, ValueError) as error:
        raise ConfigError(f"zmq_curve: {file} is not a CURVE certificate: {error}; {_MAKE_ONE}") from None
    if secret is None:
        raise ConfigError(f"zmq_curve: {file} has no secret key, which the broker needs; {_MAKE_ONE}")
    if not zmq.has("curve"):
        raise ConfigError("zmq_curve: this build of ZeroMQ has no CURVE; install pyzmq from its wheel")
    return public, secret


_MAKE_ONE: Final = (
    """make one with python -c 'import zmq.auth; zmq.auth.create_certificates(".", "milepost")', """
    "name milepost.key_secret here, and give milepost.key to clients"
)


def open_router(context: zmq.asyncio.Context, endpoint: str, keys: Keys | None) -> zmq.asyncio.Socket:
    """A bound socket. Raises `OSError` when the port is taken."""
    socket = context.socket(zmq.ROUTER)
    socket.maxmsgsize = BODY_BYTES  # of one frame; libzmq closes the connection of a client that sends a longer one
    socket.rcvhwm = socket.sndhwm = HWM
    socket.router_mandatory = True  # an answer that cannot be sent is an error, which is counted
    socket.handshake_ivl = HANDSHAKE_MS
    socket.tcp_keepalive, socket.tcp_keepalive_cnt = 1, 3
    socket.tcp_keepalive_idle = socket.tcp_keepalive_intvl = KEEPALIVE_S
    socket.linger = 0
    if "[" in endpoint:
        socket.ipv6 = True
    if keys is not None:
        socket.curve_server = True
        socket.curve_publickey, socket.curve_secretkey = keys
    try:
        socket.bind(endpoint)
    except zmq.ZMQError as error:
        raise OSError(error.errno, f"{error} ({endpoint})") from None
    return socket


def envelope_of(frames: list[bytes]) -> int | None:
    """The number of frames before the body: the peer's identity, frames of devices, an empty one. None: not a
    request.
    """
    if 3 <= len(frames) <= FRAMES and b"" in frames[1:-1] and frames.index(b"", 1) == len(frames) - 2:
        return len(frames) - 1
    return None
