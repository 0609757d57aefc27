"""The README's ten minutes, the commands and programs of docs/tour.md, and the examples, run as they stand there."""

import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost import Client
from soak.processes import free_port

from .conftest import ROOT
from .process import PATIENCE, Up

README, TOUR = ROOT / "README.md", ROOT / "docs" / "tour.md"


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "milepost.db"
    up = Up(
        store.with_name("stderr"), "--listen", "127.0.0.1:0", "--http", "", "--zmq", "127.0.0.1:0", "--store", store
    )
    assert up.address, (up.lines, up.errors.read_text())
    yield SimpleNamespace(address=up.address, zmq=re.search(r"tcp://[^;]+", up.lines[0])[0])
    up.stop()


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def typed(block):
    """Its lines as a terminal shows them, without the activation of the environment."""
    return [line for line in block.splitlines() if "activate" not in line]


def shown(block, address, folder):
    """The commands of a block and what they print; a command with `&` prints after the put that it waits for."""
    environment = os.environ | {
        "MILEPOST_BROKER": address,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "200",
        "XDG_DATA_HOME": str(folder),
    }
    lines, background = [], None
    for line in typed(block):
        if not line.startswith("$ "):
            continue
        lines.append(line)
        text = line.removeprefix("$ ")
        if text.endswith("&"):
            background = subprocess.Popen(
                f"exec {text.removesuffix('&')}", shell=True, env=environment, stdout=subprocess.PIPE, text=True
            )
            with Client(address) as client:
                while not client.status()["subscriptions_total"]:
                    pass
            continue
        done = subprocess.run(
            text, shell=True, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        lines += [each.rstrip() for each in (done.stdout + done.stderr).splitlines()]
        if background is not None and "price=101.5" in text:
            lines += background.communicate(timeout=PATIENCE)[0].splitlines()
            background = None
    return lines


def test_the_ten_minutes_of_the_readme_print_what_it_shows(tmp_path):
    """The first terminal's blocks start, kill and restart the broker; the others are typed in the second terminal."""
    listen = ["--listen", f"127.0.0.1:{free_port()}", "--http", "", "--zmq", "", "--store", tmp_path / "milepost.db"]
    up, kills = None, 0
    with contextlib.ExitStack() as stack:
        for block in blocks(README, "console"):
            if "$ milepost up &" not in block:
                assert shown(block, up.address, tmp_path) == typed(block)
                continue
            for line in typed(block):
                if line == "$ kill -9 %1":
                    up.kill()
                    kills += 1
                else:
                    assert line == "$ milepost up &"
                    up = Up(tmp_path / "stderr", *listen)
                    stack.callback(up.kill)
                    assert up.address, (up.lines, up.errors.read_text())
        assert kills == 1
        up.stop()


@pytest.mark.parametrize("number", range(1, len(blocks(TOUR, "console"))))
def test_the_commands_of_the_tour_print_what_it_shows(broker, number, tmp_path):
    assert "$ milepost up" in blocks(TOUR, "console")[0]
    block = blocks(TOUR, "console")[number]
    assert shown(block, broker.address, tmp_path) == typed(block)


@pytest.mark.parametrize(
    ("page", "topic", "printed"),
    [
        (README, "sales", r"[0-9a-f]{32} 1 25\.0\n"),
        (TOUR, "quotes", r"IBM 101\.5 [0-9a-f]{32}\n"),
        (TOUR, "prints", r"Jones 6\.0\n"),
    ],
    ids=["sales", "quotes", "prints"],
)
def test_the_program_runs(broker, page, topic, printed):
    programs = [block for block in blocks(page, "python") if "asyncio.run(main())" in block]
    (program,) = [block for block in programs if f'"{topic}"' in block]
    code = program.replace("milepost://127.0.0.1:7450", broker.address)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert re.fullmatch(printed, done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(broker, path):
    done = subprocess.run(
        [sys.executable, str(path)],
        env=os.environ | {"MILEPOST_BROKER": broker.address, "MILEPOST_ZMQ": broker.zmq},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = {"quotes.py": "6000", "zeromq_req.py": "1 hello", "orders.py": "Smith 3 3 items, the first is paper"}
    assert said[path.name] in done.stdout
