"""Messaging that can tell you where every message went.

The names below are what most programs need; what stands behind them is in the packages, in the order in which data
flows: `milepost.schema`, `milepost.batch`, `milepost.query`.
"""

from milepost import errors
from milepost.batch import Batch, Ids, MessageId, schema_of
from milepost.query import compile, decode, encode
from milepost.schema import MessageType, Registry, Schema
from milepost.schema import parse as parse_schema

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
    # Which messages
    "compile",
    # What can go wrong
    "errors",
]
