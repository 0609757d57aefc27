"""ActiveMQ through STOMP 1.0, spoken by hand: frames written beforehand, answers counted by the byte that ends each."""

from __future__ import annotations

import socket
import time

from benchmarks.load.pair import LOST_SECONDS
from benchmarks.load.selection import Selection
from benchmarks.load.worker import Commands

TOPIC = "/topic/events"
READ_BYTES = 1 << 18
# Deliveries under way to one subscription. STOMP's connector would start with none; JMS clients have this many.
PREFETCH = 32_766


async def publish(commands: Commands, host: str, port: int, selectors: int, most: int) -> None:
    """For each number it sends as many events, from the first on, and answers with the start time in ns."""
    events = Selection(selectors).events(most)
    frames = [
        f"SEND\ndestination:{TOPIC}\nsymbol:S{symbol}\nprice:{price}\n\n{number}\0".encode()
        for number, (symbol, price) in enumerate(zip(events["symbol"], events["price"], strict=True))
    ]
    with _connected(host, port) as connection:
        commands.say("open")
        while (count := await commands.next()) is not None:
            written = b"".join(frames[:count])
            began = time.monotonic_ns()
            connection.sendall(written)
            commands.say(began)


async def subscribe(commands: Commands, host: str, port: int, selectors: int) -> None:
    """All selectors on one connection. For each number it takes as many deliveries, and answers when the last came."""
    frames = [
        f"SUBSCRIBE\nid:{number}\ndestination:{TOPIC}\nack:auto\nactivemq.prefetchSize:{PREFETCH}\n"
        f"receipt:{number}\nselector:{text}\n\n\0".encode()
        for number, text in enumerate(Selection(selectors).texts())
    ]
    buffer = bytearray(READ_BYTES)
    with _connected(host, port) as connection:
        answers = 0
        for frame in frames:
            connection.sendall(frame)
        while answers < selectors:
            read = connection.recv_into(buffer)
            answers += buffer.count(b"\0", 0, read)
        assert b"ERROR" not in buffer
        commands.say("open")
        while (count := await commands.next()) is not None:
            commands.say("receiving")
            came = 0
            try:
                while came < count and (read := connection.recv_into(buffer)):
                    came += buffer.count(b"\0", 0, read)
            except TimeoutError:
                pass
            commands.say((came, time.monotonic_ns()))


def _connected(host: str, port: int) -> socket.socket:
    made = socket.create_connection((host, port))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.settimeout(LOST_SECONDS)
    made.sendall(b"CONNECT\naccept-version:1.0\nheart-beat:0,0\n\n\0")
    assert made.recv(4096).startswith(b"CONNECTED")
    return made
