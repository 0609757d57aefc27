"""Old names of commands and options."""

import pytest
from typer.testing import CliRunner

from milepost.cli import app


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["type", "define", "note: [n: int]"], "'create'"),
        (["type", "drop", "note"], "'delete'"),
        (["queue", "drop", "x"], "'delete'"),
        (["queue", "create", "x", "-t", "note", "--dead", "y"], "--dead-letter"),
        (["queue", "create", "x", "-t", "note", "--most-aborts=2"], "--max-deliveries"),
        (["queue", "get", "x", "--wait", "1"], "--timeout"),
        (["queue", "browse", "x", "--select", "n = 1"], "--where"),
    ],
)
def test_whoever_types_an_old_name_is_told_the_new_one(old, new):
    heard = CliRunner().invoke(app, old)
    assert heard.exit_code == 2
    assert f"it is called {new} now" in " ".join(heard.output.split())


def test_other_mistakes_are_told_as_ever():
    assert "No such option: --whree" in CliRunner().invoke(app, ["queue", "get", "x", "--whree", "y"]).output
    assert "No such command 'defin'" in CliRunner().invoke(app, ["type", "defin"]).output
