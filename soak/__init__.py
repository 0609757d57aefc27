"""Durable topics under load while everything is killed repeatedly. `python -m soak` runs it and prints a verdict.

A broker, four publishers and five consumers run as processes. At random moments one or several of them get a SIGKILL,
and are started again. All of them record what they do (`milepost.testing.ledger`). At the end the topics are drained,
and the ledger decides whether every acknowledged message arrived, once and in order. Then the same runs while the
broker's disk fails or is full; then transactions on queues (`soak.queues`), and a pipeline (`soak.pipeline`), while
everything is killed.
"""
