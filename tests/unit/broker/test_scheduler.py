"""Long work is done in slices, those who want something take turns, and what fails harms nobody else."""

import asyncio
import threading

import pytest

from milepost.broker.scheduler import Scheduler
from milepost.errors import BrokerError, QueryError

SAFE_S = 60  # no test waits for so long, unless something is broken


def scheduled(test):
    """Run a test with a scheduler and what its works come to, by name."""

    async def main():
        loop = asyncio.get_running_loop()
        scheduler = Scheduler("test", loop.call_soon_threadsafe)
        outcomes = {}
        changed = asyncio.Event()

        def done(name):
            def note(outcome):
                assert threading.current_thread() is threading.main_thread()
                outcomes[name] = outcome
                changed.set()

            return note

        async def until(*names):
            while not outcomes.keys() >= set(names):
                changed.clear()
                await changed.wait()

        try:
            async with asyncio.timeout(SAFE_S):
                await test(scheduler, done, until, outcomes)
        finally:
            scheduler.close()

    asyncio.run(main())


def returning(value, before=lambda: None):
    before()
    yield
    return value


def test_the_outcome_comes_to_the_event_loop():
    async def test(scheduler, done, until, outcomes):
        scheduler.give(1, returning("made"), done("a"))
        await until("a")
        assert outcomes == {"a": "made"}
        assert len(scheduler) == 0

    scheduled(test)


def test_a_short_work_does_not_wait_for_the_end_of_a_long_one():
    async def test(scheduler, done, until, outcomes):
        go_on = threading.Event()

        def long():
            while not go_on.is_set():
                yield
            return "long"

        scheduler.give(1, long(), done("long"))
        for number in range(5):
            scheduler.give(number + 2, returning(number), done(number))
        await until(*range(5))
        assert "long" not in outcomes
        go_on.set()
        await until("long")

    scheduled(test)


def test_works_of_one_key_are_done_in_order():
    async def test(scheduler, done, until, outcomes):
        seen = []

        def work(number):
            for _ in range(3 * (10 - number)):
                yield
            seen.append(number)

        for number in range(10):
            scheduler.give("key", work(number), done(number))
        await until(*range(10))
        assert seen == list(outcomes) == list(range(10))

    scheduled(test)


def test_what_fails_is_told_and_the_others_go_on(caplog):
    async def test(scheduler, done, until, outcomes):
        def failing(error):
            yield
            raise error

        scheduler.give(1, failing(QueryError("wrong")), done("wrong"))
        scheduler.give(1, failing(RuntimeError("odd")), done("odd"))
        scheduler.give(1, returning(3), done("right"))
        await until("right")
        assert isinstance(outcomes["wrong"], QueryError)
        assert isinstance(outcomes["odd"], BrokerError)
        assert "RuntimeError" in str(outcomes["odd"])

    scheduled(test)
    assert "odd" in caplog.text


def test_closing_does_not_wait_for_work_without_an_end():
    async def test(scheduler, done, until, outcomes):
        begun = threading.Event()

        def endless():
            while True:
                begun.set()
                yield

        def endless_piece():
            begun.set()
            while True:
                scheduler.pause()
            yield

        for work in (endless(), endless_piece()):
            begun.clear()
            scheduler.give(object(), work, done("never"))
            await asyncio.to_thread(begun.wait, SAFE_S)
        await asyncio.to_thread(scheduler.close)
        scheduler.give(1, returning(1), done("late"))  # nobody does it, and nobody waits
        await asyncio.sleep(0)
        assert "late" not in outcomes

    scheduled(test)


def test_a_thread_is_started_when_there_is_something_to_do():
    before = threading.active_count()
    Scheduler("test", pytest.fail).close()
    assert threading.active_count() == before
