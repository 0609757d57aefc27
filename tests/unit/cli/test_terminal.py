"""Nothing that comes from outside is obeyed by a terminal."""

import ast
import io
import json
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from rich.text import Text

import milepost
from milepost.cli import values
from milepost.cli.printer import printer
from milepost.cli.terminal import Console, Formatter, echo, escaped

TITLE = "\x1b]0;owned\x07"
ATTACKS = [TITLE, "\x1b[2J", "\x9b31m", "\r", "\x08", "\x7f", "\u202etxt", "a\x00b", "\ud800"]
FOLDER = Path(milepost.__file__).parent / "cli"


def dangerous(text):
    return [sign for sign in text if sign not in "\n\t" and not sign.isprintable()]


@given(st.text())
def test_escaped_text_has_nothing_to_obey(text):
    assert not [sign for sign in escaped(text) if ord(sign) < 32 and sign not in "\n\t"]
    assert escaped(escaped(text)) == escaped(text)
    if text.isprintable():
        assert escaped(text) == text


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("terminal", [True, False])
def test_a_console_obeys_only_itself(attack, terminal):
    out = io.StringIO()
    console = Console(file=out, force_terminal=terminal, width=80, color_system=None)
    table = Table()
    table.add_column(Text(f"head{attack}"))
    table.add_row(Text(f"cell{attack}"))
    console.print(table)
    console.print(f"line{attack}", markup=False)
    assert not dangerous(out.getvalue())


def test_colours_of_a_console_stay():
    out = io.StringIO()
    Console(file=out, force_terminal=True, color_system="standard").print(Text(f"a{TITLE}", "red"), end="\r")
    assert "\x1b[31ma" in out.getvalue()
    assert out.getvalue().endswith("\r")
    assert "\x1b]" not in out.getvalue()


@pytest.mark.parametrize("attack", ATTACKS)
def test_echo_and_log_lines(attack, capsys):
    echo(f"topic {attack} is gone")
    echo(f"topic {attack} is gone", err=True)
    out, errors = capsys.readouterr()
    assert not dangerous(out)
    assert not dangerous(errors)
    record = logging.LogRecord("milepost", logging.WARNING, "", 0, "queue %s failed", (attack,), None)
    assert not dangerous(Formatter().format(record))


@pytest.mark.parametrize("attack", [each for each in ATTACKS if each != "\ud800"])  # which is not text on the wire
def test_values_of_messages(attack):
    schema = milepost.parse_schema("note: [text: string]")
    batch = milepost.encode(schema, [{"text": attack}])
    for form in ("json", "csv", "table"):
        printed = printer(form, True, True)(f"topic{attack}", batch).decode()
        assert not dangerous(printed.replace("\x1b[2m", "").replace("\x1b[0m", ""))  # its own, of the header
    line = values.to_json({"text": attack})
    assert not dangerous(line.decode())
    assert json.loads(line) == {"text": attack}
    assert attack in printer("csv", False, False)("topic", batch).decode()  # into a pipe goes what was sent


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_commands_print_in_no_other_way(path):
    if path.name == "terminal.py":
        return
    tree = ast.parse(path.read_text())
    called = {each.func.id for each in ast.walk(tree) if isinstance(each, ast.Call) and isinstance(each.func, ast.Name)}
    assert "print" not in called
    imported = [each for each in ast.walk(tree) if isinstance(each, ast.ImportFrom) and each.module == "rich.console"]
    assert "Console" not in {name.name for each in imported for name in each.names}
    assert "StreamHandler" not in path.read_text()
