"""Milepost's protocol spoken by hand, for loads that a client of Python objects could not make.

Frames to put are written once and only stamped for each use; frames that arrive are counted by their headers.
"""

from __future__ import annotations

import socket
import struct
import zlib
from typing import Any

import numpy as np

from benchmarks.load.pair import LOST_SECONDS
from milepost.batch import Batch
from milepost.batch.ids import Ids
from milepost.query import parse_schema
from milepost.wire import (
    HEADER,
    Credit,
    Declare,
    Failure,
    Frame,
    FrameReader,
    Hello,
    Kind,
    Ping,
    Pong,
    Reply,
    StatusRequest,
    TopicAnnounced,
    Welcome,
    decode_control,
    encode_control,
    put_parts,
)
from milepost.wire.control import Control
from milepost.wire.payload import MARKED_ROWS

WINDOW = 16 << 20  # bytes of deliveries under way, the most that a broker grants by default
FRAME_BYTES = 16 << 20  # the longest frame that is taken

_WORDS = struct.Struct("<II")
_CHECKSUM = struct.Struct("<I")
_PUT_HEAD = HEADER.size + _WORDS.size  # bytes of a PUT frame before the batch
_RUN_BYTES = 16  # at the end of a batch with message IDs of one publisher: the number of runs, and the run
_ROWS = 0xFFFFFF  # of the second word of a batch


class Stamped:
    """A PUT frame that is written once; `frame` stamps it and corrects its checksum."""

    def __init__(self, topic: int, schema: str, rows: Any, publisher: int, broker: int) -> None:
        parsed = parse_schema(schema)
        self.rows = len(Batch.encode(parsed, rows))
        stamps = np.arange(1, self.rows + 1, dtype=np.uint64)
        data = bytes(Batch.encode(parsed, rows, Ids.single(publisher, broker, stamps)).data)
        self._frame = bytearray(b"".join(put_parts(topic, data)))
        self._run = data[-_RUN_BYTES:]
        self._tail = 8 * self.rows + _RUN_BYTES  # bytes that change
        self._known = zlib.crc32(data[_CHECKSUM.size : -self._tail])  # the checksum of the bytes that do not change

    def __len__(self) -> int:
        return len(self._frame)

    def frame(self, first: int) -> bytearray:
        """The frame with stamps from `first` on, good until the next call."""
        stamps = first.to_bytes(8, "little") if self.rows == 1 else np.arange(first, first + self.rows).tobytes()
        self._frame[-self._tail :] = tail = stamps + self._run
        _CHECKSUM.pack_into(self._frame, _PUT_HEAD, zlib.crc32(tail, self._known))
        return self._frame


class Line:
    """One connection, blocking, for requests and for deliveries that are counted."""

    def __init__(self, host: str, port: int, window: int = WINDOW, instance: bytes = b"") -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.settimeout(LOST_SECONDS)
        self._reader = FrameReader(limit=FRAME_BYTES)
        self._window = window
        self._taken = 0
        self._requests = 0
        self.topics: dict[str, int] = {}
        self.rows = self.tags = 0  # that were delivered
        self.room = 0  # bytes of puts that the broker still takes
        self.socket.sendall(encode_control(Hello(name="", window=window, instance=instance)))
        welcomes: list[Control] = []
        while not welcomes:
            welcomes = self.read()
        welcome = welcomes[0]
        assert isinstance(welcome, Welcome)
        self.welcome = welcome
        self.room = welcome.window

    def __enter__(self) -> Line:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: type[Any], **values: Any) -> Any:
        """Send a request and wait for its reply. Raises an error for a `Failure`."""
        self._requests += 1
        self.socket.sendall(encode_control(request(request=self._requests, **values)))
        return self.replies(self._requests)[self._requests]

    def declare(self, name: str, schema: str) -> int:
        """Make a topic. Returns its number."""
        number: int = self.ask(Declare, name=name, schema=schema)["number"]
        return number

    def status(self) -> dict[str, Any]:
        said: dict[str, Any] = self.ask(StatusRequest)
        return said

    def replies(self, last: int) -> dict[int, Any]:
        """The answers up to the answer of request number `last`."""
        found: dict[int, Any] = {}
        while last not in found:
            for message in self.read():
                if isinstance(message, Reply):
                    found[message.request] = message.value
        return found

    def flush(self) -> None:
        """Wait until the broker has carried out everything that was put before."""
        self._requests += 1
        self.socket.sendall(encode_control(Ping(self._requests)))
        while not any(isinstance(each, Pong) and each.number == self._requests for each in self.read()):
            pass

    def read(self) -> list[Control]:
        """Wait for bytes, count deliveries, answer with credit and pongs; the other control frames among them."""
        count = self.socket.recv_into(self._reader.buffer())
        if not count:
            raise ConnectionError("the broker closed the connection")
        control: list[Control] = []
        for frame in self._reader.received(count):
            if frame.kind == Kind.DELIVER:
                self._taken += len(frame.body) + HEADER.size
                rows, tags = delivered(frame.flags, frame.body, 0)
                self.rows += rows
                self.tags += tags
            else:
                control.append(self.hear(frame))
        if self._taken > self._window // 2:
            self.socket.sendall(encode_control(Credit(self._taken)))
            self._taken = 0
        return control

    def hear(self, frame: Frame) -> Control:
        """The content of a control frame. Answers a ping, counts credit, and raises an error for a failure."""
        message = decode_control(frame.kind, frame.body)
        if isinstance(message, Failure):
            raise ConnectionError(f"the broker refuses: {message.message}")
        if isinstance(message, Ping):
            self.socket.sendall(encode_control(Pong(message.number)))
        elif isinstance(message, Credit):
            self.room += message.bytes
        elif isinstance(message, TopicAnnounced):
            self.topics[message.name] = message.number
        return message


def delivered(flags: int, buffer: Any, at: int) -> tuple[int, int]:
    """How many rows a DELIVER holds whose body starts at a position, and how many tags they have together."""
    _, count = _WORDS.unpack_from(buffer, at)
    if flags & MARKED_ROWS:
        return _CHECKSUM.unpack_from(buffer, at + _WORDS.size)[0], count
    batch = at + _WORDS.size + 4 * count
    batch += (at - batch) % 8
    rows = _WORDS.unpack_from(buffer, batch)[1] & _ROWS
    return rows, rows * count
