"""Pings take a short way through the broker after the first, and nobody can tell but by the clock."""

from __future__ import annotations

import asyncio
from typing import Any

from milepost import testing
from milepost.broker.pings import PingPath
from milepost.wire import Hello, Ping, Pong, Subscribe, Unsubscribe, encode_control
from tests.integration.test_bad_input import Stranger


def with_stranger(test: Any, **changes: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(60), testing.broker(listen="milepost://127.0.0.1:0", **changes) as broker:
            stranger = await Stranger.at(broker)
            await stranger.send(encode_control(Hello(window=1 << 20, name="stranger")))
            await stranger.next()
            await test(broker, stranger)
            stranger.close()

    asyncio.run(main())


def connection_of(broker: Any) -> Any:
    return next(each for each in broker.core.connections.values() if each.name == "stranger")


async def beaten(stranger: Stranger, *numbers: int) -> None:
    """Each ping alone, and its answer."""
    for number in numbers:
        await stranger.send(encode_control(Ping(number)))
        answer = await stranger.next()
        assert isinstance(answer, Pong)
        assert answer.number == number
        assert answer.time_us > 0


def test_pings_are_answered_before_and_after_the_first() -> None:
    async def test(broker: Any, stranger: Stranger) -> None:
        connection = connection_of(broker)
        assert connection.channel.fast_path is None
        await beaten(stranger, 7)
        assert isinstance(connection.channel.fast_path, PingPath)
        taken = []
        way = connection.channel.fast_path
        connection.channel.fast_path = lambda count: taken.append(way(count)) or taken[-1]  # type: ignore[func-returns-value]
        await beaten(stranger, 7, 7, 8, 1 << 40, 7)
        assert taken == [True, True, False, False, True]

    with_stranger(test)


def test_a_ping_is_a_sign_of_life() -> None:
    async def test(broker: Any, stranger: Stranger) -> None:
        await beaten(stranger, 1)
        connection = connection_of(broker)
        connection.heard = -1e9
        await beaten(stranger, 1)
        assert connection.heard > 0

    with_stranger(test)


def test_pings_among_other_frames_come_in_order() -> None:
    async def test(broker: Any, stranger: Stranger) -> None:
        await beaten(stranger, 1)
        ping = encode_control(Ping(1))
        await stranger.send(
            ping
            + encode_control(Subscribe(request=5, subscription=1, pattern="quotes.*"))
            + ping
            + encode_control(Unsubscribe(request=6, subscription=1))
            + ping[:5]
        )
        said = [await stranger.next() for _ in range(4)]
        assert [getattr(each, "request", None) for each in said] == [None, 5, None, 6]
        await stranger.send(ping[5:])  # the rest of one that was cut: not between frames, so not looked at
        assert isinstance(await stranger.next(), Pong)
        await beaten(stranger, 1)

    with_stranger(test)


def test_one_that_may_not_speak_is_not_heard() -> None:
    async def test(broker: Any, stranger: Stranger) -> None:
        await beaten(stranger, 1)
        connection = connection_of(broker)
        way = connection.channel.fast_path
        frame = encode_control(Ping(1))
        connection.channel.buffer[: len(frame)] = frame
        for what in ("paused", "blocked"):
            setattr(connection, what, True)
            assert not way(len(frame))
            setattr(connection, what, False)
        connection.open = False
        assert not way(len(frame))
        connection.open = True

    with_stranger(test)
