import pytest

from milepost.errors import ConfigError
from milepost.transport import parse_address


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
