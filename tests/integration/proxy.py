"""A proxy between a client and a broker that loses frames: it breaks the connection at one that the test names."""

import asyncio
import struct

HEADER = struct.Struct("<IBBH")


class Proxy:
    """Listens at `port`, passes frames on to the broker's, and cuts where it is told to."""

    def __init__(self, target):
        self.target = target
        self.port = 0
        self.cuts = []  # (direction, kind): the connection ends instead of passing such a frame on
        self.cut = asyncio.Event()
        self.seen = []
        self._passing = asyncio.Event()
        self._passing.set()
        self._refusing = False
        self._writers = set()
        self._tasks = set()

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_):
        self._server.close()
        self.sever()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def address(self):
        return f"milepost://127.0.0.1:{self.port}"

    def lose(self, direction, kind):
        """Break off at the next frame of a kind: "up" is from the client to the broker."""
        self.cut.clear()
        self.cuts.append((direction, int(kind)))

    def block(self, *, refuse=False):
        """Break all connections, and let none come through until `unblock`: they wait, or are closed at once."""
        self._passing.clear()
        self._refusing = refuse
        self.sever()

    def unblock(self):
        self._passing.set()

    def sever(self):
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader, writer):
        task = asyncio.current_task()
        self._tasks.add(task)
        self._writers.add(writer)
        there = None
        try:
            if self._refusing and not self._passing.is_set():
                return
            await self._passing.wait()
            upstream, there = await asyncio.open_connection(*self.target)
            self._writers.add(there)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, there, "up", (writer, there)))
                group.create_task(self._pass(upstream, writer, "down", (writer, there)))
        except* (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            for each in (writer, there):
                if each is not None:
                    each.transport.abort()
                    self._writers.discard(each)
            self._tasks.discard(task)

    async def _pass(self, reader, writer, direction, both):
        while True:
            header = await reader.readexactly(HEADER.size)
            length, kind, _, _ = HEADER.unpack(header)
            body = await reader.readexactly(length)
            self.seen.append((direction, kind))
            if (direction, kind) in self.cuts:
                self.cuts.remove((direction, kind))
                for each in both:
                    each.transport.abort()
                self.cut.set()
                raise ConnectionResetError
            writer.write(header + body)
            await writer.drain()
