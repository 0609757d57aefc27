"""Finds topics for a source or a sink of Spark, and the version of the schema that a query reads or writes."""

from __future__ import annotations

from pyspark.sql.types import StructType

from milepost import query
from milepost.client import Client, TopicInfo
from milepost.errors import ConfigError, MilepostError, UnknownTopic, did_you_mean
from milepost.pipeline.source.types import METADATA, spark_schema
from milepost.schema import Schema


def found(client: Client, name: str, option: str = "topic") -> TopicInfo:
    """A durable topic. `ConfigError` names the option when it does not exist."""
    for each in client.topics(name):
        if each.name == name:
            if not each.durable:
                raise ConfigError(
                    f"option {option!r}: topic {name!r} is live and keeps no messages; declare a durable topic"
                )
            return each
    near = did_you_mean(name, [each.name for each in client.topics()])
    raise ConfigError(f"option {option!r}: there is no topic {name!r}{near}") from UnknownTopic(name)


def version_for(info: TopicInfo, struct: StructType) -> Schema:
    """The newest version of a topic's schema that has the columns of `struct`.

    A query keeps the schema with which it was planned, even if the topic gets a new version before the query starts.
    """
    wanted = {field.name: field.dataType for field in struct.fields if field.name not in METADATA.names}
    for version in reversed(info.versions):
        there = {field.name: field.dataType for field in spark_schema(version).fields}
        if there == wanted:
            return version
    return info.schema  # some of its columns, or something invalid: the converter reports it


def checked_where(where: str | None, schema: Schema) -> None:
    """Refuse an invalid predicate, with its place, before the broker does."""
    if where is None:
        return
    try:
        query.compile(where, schema)
    except MilepostError as error:
        raise ConfigError(f"option 'where': {error}") from None
