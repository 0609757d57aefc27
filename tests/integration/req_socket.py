"""REQ sockets that know nothing of Milepost, and a broker in a process of its own that they talk to."""

import json
import re
import signal
import subprocess
import sys
import uuid
from base64 import b64decode, b64encode
from contextlib import asynccontextmanager

import bson
import zmq
import zmq.asyncio


class Req:
    """A REQ socket, in JSON or BSON, that knows nothing of Milepost."""

    def __init__(self, context, address, encoding="json", **options):
        self.socket = context.socket(zmq.REQ)
        for name, value in options.items():
            setattr(self.socket, name, value)
        self.socket.linger = 0
        self.socket.connect(address)
        self.encoding = encoding

    def packed(self, value):
        return value if self.encoding == "bson" or isinstance(value, dict) else b64encode(value).decode()

    def unpacked(self, value):
        return value if self.encoding == "bson" or isinstance(value, dict) else b64decode(value)

    async def raw(self, body):
        await self.socket.send(body)
        return await self.socket.recv()

    def body(self, msg_type, **fields):
        whole = {"msg_type": msg_type, "payload": fields}
        return bson.encode(whole) if self.encoding == "bson" else json.dumps(whole).encode()

    async def ask(self, msg_type, **fields):
        answer = await self.raw(self.body(msg_type, **fields))
        whole = bson.decode(answer) if self.encoding == "bson" else json.loads(answer)
        assert whole["msg_type"] in (msg_type, "ERROR")
        return whole["payload"]

    async def put(self, topic, payload, key=None, pub_id="p"):
        key = key or str(uuid.uuid4())
        return await self.ask("PUT", pub_id=pub_id, topic=topic, message_uuid=key, payload=self.packed(payload))

    async def get(self, sub_id="s", topic="t", **fields):
        """A number and a payload, or the name of an error."""
        said = await self.ask("GET", sub_id=sub_id, topic=topic, **fields)
        return said["error_type"] if "error_type" in said else (said["message_no"], self.unpacked(said["payload"]))

    async def error(self, msg_type, **fields):
        """The error that a request is answered with."""
        said = await self.ask(msg_type, **fields)
        assert said["broker_id"]
        assert said["description"]
        assert isinstance(said["retry"], bool)
        return said["error_type"]

    async def take(self, sub_id="s", topic="t"):
        """Get and acknowledge: a number and a payload."""
        number, payload = await self.get(sub_id, topic)
        assert (await self.ask("ACK", sub_id=sub_id, message_no=number))["message_no"] == number
        return number, payload

    def close(self):
        self.socket.close()


@asynccontextmanager
async def connected(address, count=1, encoding="json", **options):
    context = zmq.asyncio.Context()
    try:
        made = [Req(context, address, encoding, **options) for _ in range(count)]
        yield made[0] if count == 1 else made
    finally:
        context.destroy(linger=0)


class Process:
    """`milepost up` with a store, which can be killed and started again."""

    def __init__(self, folder, zmq=""):
        self.folder = folder
        self.address = "127.0.0.1:0"
        self.zmq = zmq

    def start(self):
        """Start it, the second time at the addresses that it found the first time."""
        store = self.folder / "store.db"
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "milepost.cli", "up", "--listen", self.address, "--store", store, "--http", "",
                "--zmq", self.zmq,
            ],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        said = self.process.stdout.readline()
        self.address = re.search(r"milepost://(\S+:\d+)", said)[1]
        self.uri = f"milepost://{self.address}"
        if self.zmq:
            self.zmq = re.search(r"tcp://(\S+:\d+)", said)[1]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
