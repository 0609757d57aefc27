"""Thousands of subscribers in one process: sockets, one epoll, and counting by the headers of frames."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator, Sequence

from benchmarks.load.wire import delivered
from benchmarks.load.worker import Commands
from milepost.wire import (
    HEADER,
    Credit,
    Hello,
    Kind,
    Ping,
    Pong,
    Subscribe,
    Welcome,
    decode_control,
    encode_control,
)

WINDOW = 1 << 20  # bytes of deliveries under way to each
AT_ONCE = 256  # connections that are being made at the same time: less than a listener's backlog
READ_BYTES = 1 << 18
_PEEK = HEADER.size + 24  # bytes of a DELIVER with one mark up to and including its number of rows
_PING = encode_control(Ping(1))
_DELIVER = int(Kind.DELIVER)
_PING_KIND = int(Kind.PING)
_FAILURE = int(Kind.FAILURE)


class Fleet:
    """Connections that subscribe to a topic each, or to nothing, and count their rows."""

    def __init__(self, host: str, port: int) -> None:
        self._address = (host, port)
        self._sockets: dict[int, socket.socket] = {}
        self._skip: dict[int, int] = {}  # bytes of a frame that was counted and is not here yet
        self._rest: dict[int, bytes] = {}  # the beginning of a frame, too short to be counted
        self._taken: dict[int, int] = {}  # bytes to give credit for
        self.rows: dict[int, int] = {}  # rows that came, by file descriptor
        self.answers = 0  # REPLY and WELCOME frames
        self._poll = select.epoll()
        self._buffer = bytearray(READ_BYTES)
        self._view = memoryview(self._buffer)
        # Between two heartbeats of one connection: half of the interval that the broker asks for, as our client does.
        self._beat_seconds = 0.0
        self._beats: Iterator[int] = iter(())
        self._next_beat = time.monotonic()

    def __len__(self) -> int:
        return len(self._sockets)

    def grow(self, topics: Sequence[str | None]) -> None:
        """Open one more connection for each topic of the list; returns when the broker has answered all of them."""
        hello = encode_control(Hello(name="", window=WINDOW))
        for start in range(0, len(topics), AT_ONCE):
            wanted = self.answers
            for topic in topics[start : start + AT_ONCE]:
                made = socket.create_connection(self._address)
                made.setblocking(False)
                first = hello
                wanted += 1
                if topic is not None:
                    first += encode_control(Subscribe(request=1, subscription=1, pattern=topic))
                    wanted += 1
                made.send(first)
                number = made.fileno()
                self._sockets[number] = made
                self._skip[number] = self._taken[number] = self.rows[number] = 0
                self._poll.register(number, select.EPOLLIN)
            while self.answers < wanted:
                self.turn(1.0)

    def turn(self, seconds: float) -> None:
        """Wait up to so long for something to read, and read it; send the heartbeats that are due."""
        for number, _ in self._poll.poll(seconds, 4096):
            try:
                count = self._sockets[number].recv_into(self._buffer)
            except BlockingIOError:
                continue
            if not count:
                raise ConnectionError("the broker closed a subscriber's connection")
            self._took(number, count)
        now = time.monotonic()
        while self._beat_seconds and now >= self._next_beat:
            self._next_beat += self._beat_seconds / len(self._sockets)
            self._beat()

    def _took(self, number: int, count: int) -> None:
        view, at, end = self._view, 0, count
        skip = self._skip[number]
        if skip:
            if skip >= count:
                self._skip[number] = skip - count
                return
            at, skip = skip, 0
        elif number in self._rest:
            whole = self._rest.pop(number) + self._buffer[:count]
            view, end = memoryview(whole), len(whole)
        while at < end:
            if end - at < HEADER.size:
                self._rest[number] = bytes(view[at:end])
                break
            length, kind, flags, _ = HEADER.unpack_from(view, at)
            if kind == _DELIVER:
                if end - at < _PEEK:
                    self._rest[number] = bytes(view[at:end])
                    break
                self.rows[number] += delivered(flags, view, at + HEADER.size)[0]
                taken = self._taken[number] + HEADER.size + length
                if taken > WINDOW // 2:
                    self._say(number, encode_control(Credit(taken)))
                    taken = 0
                self._taken[number] = taken
            elif kind == _PING_KIND:
                self._say(number, encode_control(Pong(0)))
            elif kind == _FAILURE:
                raise ConnectionError(f"the broker refuses: {bytes(view[at : at + 300])!r}")
            else:
                self.answers += kind in (Kind.WELCOME, Kind.REPLY)
                if kind == Kind.WELCOME and not self._beat_seconds:
                    welcome = decode_control(kind, view[at + HEADER.size : at + HEADER.size + length])
                    assert isinstance(welcome, Welcome)
                    self._beat_seconds = welcome.heartbeat_s / 2
                    self._next_beat = time.monotonic()
            at += HEADER.size + length
            if at > end:
                skip = at - end
        self._skip[number] = skip

    def _beat(self) -> None:
        number = next(self._beats, None)
        if number is None:
            self._beats = iter(list(self._sockets))
            number = next(self._beats)
        self._say(number, _PING)

    def _say(self, number: int, data: bytes) -> None:
        """A few bytes. The kernel takes them, unless the broker has not read for a long time: then it is overloaded."""
        try:
            self._sockets[number].send(data)
        except BlockingIOError:
            pass

    def close(self) -> None:
        for each in self._sockets.values():
            each.close()
        self._poll.close()


async def crew(commands: Commands, host: str, port: int) -> None:
    """A fleet's process. A command is a list of topics to subscribe to, "count", or a number of rows to wait for.

    Answers: the number of connections; (ns, rows of each connection); (rows, ns when the last one came).
    """
    fleet = Fleet(host, port)
    commands.say("open")
    wanted: int | None = None
    quiet = time.monotonic()
    before = 0
    while True:
        if wanted is None and commands.poll():
            word = commands.wait()
            if word is None:
                break
            if word == "count":
                commands.say((time.monotonic_ns(), list(fleet.rows.values())))
            elif isinstance(word, int):
                before, wanted, quiet = sum(fleet.rows.values()), word, time.monotonic()
                commands.say("receiving")
            else:
                fleet.grow(word)
                commands.say(len(fleet))
        fleet.turn(0.02 if len(fleet) else 0.05)
        if wanted is not None:
            came = sum(fleet.rows.values()) - before
            if came >= wanted or time.monotonic() - quiet > 60:
                commands.say((came, time.monotonic_ns()))
                wanted = None
    fleet.close()
