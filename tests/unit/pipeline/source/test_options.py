"""Options: what they mean, and that an error names the one that is wrong."""

import pickle
from datetime import UTC, datetime

import pytest

from milepost.errors import ConfigError
from milepost.pipeline.source import options


def stream(**given):
    return options.checked({"topic": "events"} | given, options.STREAM, "reading a topic")


def test_defaults_bound_a_micro_batch():
    made = stream()
    assert (made.topic, made.startingOffsets, made.where) == ("events", "earliest", None)
    assert made.maxRowsPerTrigger == options.ROWS_PER_TRIGGER
    assert made.broker.startswith("milepost://")
    assert pickle.loads(pickle.dumps(made)).topic == "events"


def test_names_are_known_in_any_case():
    made = stream(maxrowspertrigger="10", INCLUDEMETADATA="True", failondataloss="false")
    assert (made.maxRowsPerTrigger, made.includeMetadata, made.failOnDataLoss) == (10, True, False)


def test_what_is_spark_s_own_is_let_pass():
    options.checked({"topic": "t", "checkpointlocation": "x"}, options.WRITING, "writing")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"maxRowsPerTriger": "1"}, r"option 'maxRowsPerTriger'.*did you mean 'maxRowsPerTrigger'"),
        ({"colour": "red"}, r"option 'colour': reading a topic has no such option; there are broker, "),
        ({"maxRowsPerTrigger": "many"}, r"option 'maxRowsPerTrigger' = 'many': takes a whole number of at least 1"),
        ({"maxRowsPerTrigger": "0"}, r"option 'maxRowsPerTrigger' = '0'"),
        ({"includeMetadata": "yes"}, r"option 'includeMetadata' = 'yes': takes true or false"),
        ({"timeout": "-1"}, r"option 'timeout' = '-1': takes a positive number of seconds"),
        ({"timeout": "inf"}, r"option 'timeout'"),
        ({"topic": "  "}, r"option 'topic' = '  ': is empty"),
        ({"startingOffsets": "newest"}, r"option 'startingOffsets' = 'newest': takes \"earliest\", \"latest\""),
        ({"startingOffsets": "2024-01-31T12:00:00"}, r"option 'startingOffsets'.*has no time zone"),
        ({"startingOffsets": '{"1": -1}'}, r"option 'startingOffsets'.*at least 0"),
        ({"startingOffsets": '{"1": true}'}, r"option 'startingOffsets'.*at least 0"),
        ({"startingOffsets": '{"one": 1}'}, r"option 'startingOffsets'.*takes \{\"log\": offset\}"),
        ({"startingOffsets": "{1}"}, r"option 'startingOffsets'"),
    ],
)
def test_an_error_names_the_option(given, said):
    with pytest.raises(ConfigError, match=said):
        stream(**given)


def test_what_is_required_is_missed():
    with pytest.raises(ConfigError, match="option 'topic' is missing"):
        options.checked({}, options.STREAM, "reading a topic")


def test_places():
    assert options.place("LATEST") == "latest"
    assert options.place(' {"1": 42, "2": 0}') == {1: 42, 2: 0}
    assert options.place("2024-01-31T12:00:00Z") == datetime(2024, 1, 31, 12, tzinfo=UTC)
    assert options.place("2024-01-31T13:00:00+01:00") == datetime(2024, 1, 31, 12, tzinfo=UTC)


def test_routes():
    assert options.routes('{"alert": "alerts", "event": "events"}') == {"alert": "alerts", "event": "events"}
    for wrong in ("alerts", "{}", "[1]", '{"alert": 1}', '{"alert": ""}'):
        with pytest.raises(ValueError, match="takes"):
            options.routes(wrong)
