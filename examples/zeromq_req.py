"""Subscribe, put, get and acknowledge with only ZeroMQ and JSON. Needs `milepost up`; docs/zeromq.md has the bodies."""

import base64
import os

import zmq

socket = zmq.Context().socket(zmq.REQ)
socket.connect(os.environ.get("MILEPOST_ZMQ", "tcp://127.0.0.1:7451"))


def ask(msg_type: str, **fields: object) -> dict:
    return socket.send_json({"msg_type": msg_type, "payload": fields}) or socket.recv_json()["payload"]


print("subscribed behind message", ask("SUB", sub_id="desk-7", topic="news")["post_offset"])
ask("PUT", pub_id="feed", topic="news", message_uuid=os.urandom(16).hex(), payload="aGVsbG8=")
while "payload" in (message := ask("GET", sub_id="desk-7", topic="news")):
    print(message["message_no"], base64.b64decode(message["payload"]).decode())
    ask("ACK", sub_id="desk-7", message_no=message["message_no"])
