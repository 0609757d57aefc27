import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.address import masked, parse_address, parse_broker
from milepost.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("milepost://127.0.0.1:7450", "milepost://127.0.0.1:7450"),
        ("milepost://broker", "milepost://broker:7450"),
        ("127.0.0.1:1234", "milepost://127.0.0.1:1234"),
        ("localhost", "milepost://localhost:7450"),
        ("milepost://[::1]:99", "milepost://[::1]:99"),
        ("inproc://here", "inproc://here"),
        ("milepost://h:0", "milepost://h:0"),
    ],
)
def test_addresses(text, shown):
    assert str(parse_address(text)) == shown


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("http://x:1", "no transport is called 'http'"),
        ("milepst://x", "did you mean 'milepost'"),
        ("milepost://x:99999", "no address"),
        ("milepost://x:y", "no address"),
        ("milepost://", "no host"),
        ("milepost://x/path", "more than a host"),
        ("", "no host"),
    ],
)
def test_what_is_no_address_says_why(text, why):
    with pytest.raises(ConfigError, match=why):
        parse_address(text)


SECRETS = [
    "postgresql://me:s3cret@host/db",
    "postgresql://me@host/db?password=s3cret",
    "postgresql://host/db?password=s3cret@x",
    "postgresql:/me:s3cret@host/db",
    "postgresql:me:s3cret@host/db",
    "postgres://me:s3cret@@host/db",
    "postgresql://me:@s3cret@host/db",
    "postgresql://me:a/s3cret?b#c@host:5432/db",
    "milepost://me:s3cret@host:7450",
    "milepost://me:x@s3cret@host:7450",
    "milepost://me:s3cret@host:port",
    "mysql://me:s3cret@host/db",
    "me:s3cret@host",
    "me:/s3cret@host",
]


@pytest.mark.parametrize("text", SECRETS)
def test_no_secret_is_shown(text):
    assert "s3cret" not in masked(text)
    try:
        shown = str(parse_address(text))
    except ConfigError as error:
        shown = str(error)
    assert "s3cret" not in shown


@given(st.text(min_size=1).map(lambda text: f"s3cret{text}"))
def test_no_secret_is_shown_whatever_it_consists_of(secret):
    shown = masked(f"postgresql://me:{secret}@host/db")
    assert shown == "postgresql://me:***@host/db"


@pytest.mark.parametrize("text", ["postgresql://me@host/db", "postgres://host/db", *SECRETS])
def test_a_broker_is_told_to_connect_to_brokers_only(text):
    with pytest.raises(ConfigError) as caught:
        parse_broker(text)
    assert "s3cret" not in str(caught.value)
    assert parse_broker("there:7450") == parse_address("milepost://there:7450")
