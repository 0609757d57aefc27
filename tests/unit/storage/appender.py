"""A process that appends rows one at a time, and prints what the store said of each: run by the tests of faults.

    appender.py URL BROKER FIRST LAST [LEASE_S] [pause before|after N]

It enrols the publisher "feed" and appends FIRST to LAST as stamps to the topic "quotes", each again and again until it
is stored or somebody else has the publisher. With `pause`, it stops itself (SIGSTOP) when its Nth transaction is about
to commit, or when that commit has happened and nobody here knows yet.
"""

from __future__ import annotations

import os
import signal
import sys

from milepost.batch import Batch, Ids
from milepost.errors import Fenced, MilepostError, StoreError
from milepost.operations import Append, Appended, Enrol, MakeTopic, Part, Retention
from milepost.query import parse_schema
from milepost.storage import open_store
from milepost.storage.piped import PipedSession

TEXT = "quote: [symbol: string, number: long]"

TRIES = 200  # at one row


def say(*words: object) -> None:
    print(*words, flush=True)


def pause_at(when: str, number: int) -> None:
    seen = 0
    say = PipedSession.say

    def said(session: PipedSession, text: str) -> None:
        nonlocal seen
        seen += text == "COMMIT"
        if text == "COMMIT" and seen == number and when == "before":
            os.kill(os.getpid(), signal.SIGSTOP)
        say(session, text)
        if text == "COMMIT" and seen == number and when == "after":
            os.kill(os.getpid(), signal.SIGSTOP)

    PipedSession.say = said  # type: ignore[method-assign]


def main(url: str, broker: str, first: int, last: int, lease_s: float, pause: list[str]) -> None:
    schema = parse_schema(TEXT)
    now = 1_000_000
    store = open_store(url, broker=broker, broker_id=9, time_us=now, lease_s=lease_s, remember_s=10.0)
    made = store.write([MakeTopic("quotes", (TEXT,), "drop", Retention(None)), Enrol("feed", 5)], now).outcomes
    topic, publisher = made[0].topic.topic, made[1].number
    if pause:
        pause_at(pause[1], int(pause[2]))
    say("ready")
    for stamp in range(first, last + 1):
        batch = Batch.encode(schema, [{"symbol": "x" * 200, "number": stamp}], Ids.single(publisher, 9, [stamp]))
        for _ in range(TRIES):
            now += 1
            try:
                (outcome,) = store.write([Append(publisher, (Part(topic, batch),))], now).outcomes
            except StoreError as error:
                say("failed", stamp, type(error).__name__)
                continue
            except Fenced:
                say("log taken", stamp)
                return
            if isinstance(outcome, Appended):
                say("stored", stamp, outcome.stored)
                break
            assert isinstance(outcome, MilepostError)
            say("refused", stamp, type(outcome).__name__)
            return
        else:
            sys.exit("the store does not recover")
    store.close()
    say("done")


if __name__ == "__main__":
    arguments = sys.argv[1:]
    at = arguments.index("pause") if "pause" in arguments else len(arguments)
    url, broker, first, last, *lease = arguments[:at]
    main(url, broker, int(first), int(last), float(lease[0]) if lease else 2.0, arguments[at:])
