"""Mishaps around queues: too much of something at once, clocks that jump, callers that err and go on."""

from __future__ import annotations

import psycopg

from milepost.storage.pipeline import PREPARED, Pipeline
from tests.unit.queues.conftest import Queues


def test_more_statements_at_once_than_are_kept_prepared(shared: Queues) -> None:
    with psycopg.connect(shared.url, autocommit=True) as connection:
        pipeline = Pipeline(connection)
        for _ in range(2):
            answers = pipeline.run([(f"SELECT {number}", ()) for number in range(PREPARED + 10)])
            assert [answer.fetchone() for answer in answers] == [(number,) for number in range(PREPARED + 10)]
        pipeline.run([("SELECT 1", ())])
        found = connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone()
        assert found == (PREPARED + 1,)  # and the last one, which was among those that went
