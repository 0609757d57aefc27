"""Messaging that can tell you where every message went.

The names below are what most programs need; what stands behind them is in the packages, in the order in which data
flows: `milepost.schema`, `milepost.batch`, `milepost.query`, `milepost.wire`, `milepost.transport`, `milepost.client`.
"""

from importlib import import_module
from typing import Any

from milepost import errors
from milepost.batch import Batch, DynamicValue, Ids, MessageId, projection, reader, schema_of
from milepost.client import (
    AsyncClient,
    Client,
    DurableSubscription,
    LogBatch,
    QueueInfo,
    QueueMessage,
    Receipt,
    Retention,
    Subscription,
    TopicInfo,
    Transaction,
)
from milepost.query import compile, decode, encode, expression, ordering, parse_query, parse_schema
from milepost.schema import MessageType, Registry, Schema

__all__ = [
    # What a message may contain
    "Schema",
    "MessageType",
    "Registry",
    "parse_schema",
    "schema_of",
    # Messages
    "Batch",
    "MessageId",
    "Ids",
    "encode",
    "decode",
    "DynamicValue",
    # One field, or several, out of a message that travels alone
    "reader",
    "projection",
    # Which messages, and what of them
    "compile",
    "expression",
    "ordering",
    "parse_query",
    # Talking to a broker
    "AsyncClient",
    "Client",
    "Subscription",
    "DurableSubscription",
    "LogBatch",
    "TopicInfo",
    "Retention",
    # Queues
    "Transaction",
    "QueueMessage",
    "QueueInfo",
    "Receipt",
    # What can go wrong
    "errors",
]


def __getattr__(name: str) -> Any:
    """What costs time, and most programs do not ask for."""
    if name == "__version__":
        return import_module("importlib.metadata").version("milepost")
    if name == "pipeline":  # Spark's side: `milepost.pipeline.register(spark)`
        return import_module("milepost.pipeline")
    raise AttributeError(f"module 'milepost' has no attribute {name!r}")
