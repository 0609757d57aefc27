"""Which reader the options ask for, without Spark; and that Milepost does without Spark until it is asked for it."""

import subprocess
import sys

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict
from pyspark.sql.types import StructType

from milepost.errors import ConfigError
from milepost.pipeline.source.datasource import KINDS, FilteringDataSource, MilepostDataSource

EMPTY = StructType().add("n", "long")


def source(**options):
    return MilepostDataSource(CaseInsensitiveDict(options))


def test_the_names_of_the_format():
    assert MilepostDataSource.name() == FilteringDataSource.name() == "milepost"
    assert "topic" in KINDS


def test_what_is_read_must_be_named():
    with pytest.raises(ConfigError, match=r"option .*'topic'.* is missing"):
        source(broker="milepost://127.0.0.1:1").schema()


def test_a_path_is_a_topic():
    assert source(path="events").options["topic"] == "events"


def test_options_of_one_way_to_read_are_not_those_of_the_other():
    with pytest.raises(ConfigError, match="option 'maxRowsPerTrigger': reading a topic with read has no such option"):
        source(topic="t", maxRowsPerTrigger="5").reader(EMPTY)
    with pytest.raises(ConfigError, match="option 'endingOffsets': reading a topic with readStream has no such option"):
        source(topic="t", endingOffsets="latest").streamReader(EMPTY)


def test_topics_are_only_added_to():
    with pytest.raises(ConfigError, match="only be appended to"):
        source(topic="t").writer(EMPTY, overwrite=True)
    with pytest.raises(ConfigError, match="only be appended to"):
        source(topic="t").streamWriter(EMPTY, overwrite=True)


def test_one_of_topic_and_routes():
    for given in ({}, {"topic": "t", "routes": '{"a": "t"}'}):
        with pytest.raises(ConfigError, match="option 'topic' or option 'routes'"):
            source(**given).streamWriter(EMPTY, overwrite=False)


def test_spark_is_imported_when_it_is_asked_for():
    program = "import sys, milepost.pipeline; assert 'pyspark' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
