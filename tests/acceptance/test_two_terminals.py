"""The README's two terminals, and its program, run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost import Client

from .conftest import ROOT
from .process import PATIENCE, Up, pause


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "milepost.db"
    up = Up(
        store.with_name("stderr"), "--listen", "127.0.0.1:0", "--http", "", "--zmq", "127.0.0.1:0", "--store", store
    )
    assert up.address, (up.lines, up.errors.read_text())
    yield SimpleNamespace(address=up.address, zmq=re.search(r"tcp://[^;]+", up.lines[0])[0])
    up.stop()


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("number", range(1, len(blocks("console"))))
def test_the_commands_print_what_the_readme_shows(broker, number, tmp_path):
    first, second = blocks("console")[0], blocks("console")[number]
    assert "$ milepost up" in first
    environment = os.environ | {
        "MILEPOST_BROKER": broker.address,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "200",
        "XDG_DATA_HOME": str(tmp_path),
    }
    shown, background = [], None
    for line in second.splitlines():
        if not line.startswith("$ ") or "activate" in line:
            continue
        shown.append(line)
        text = line.removeprefix("$ ")
        if text.endswith("&"):
            background = subprocess.Popen(
                f"exec {text.removesuffix('&')}", shell=True, env=environment, stdout=subprocess.PIPE, text=True
            )
            with Client(broker.address) as client:
                while not client.status()["subscriptions_total"]:
                    pause()
            continue
        done = subprocess.run(
            text, shell=True, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        shown += (done.stdout + done.stderr).splitlines()
        if background is not None and "price=101.5" in text:
            shown += background.communicate(timeout=PATIENCE)[0].splitlines()
            background = None
    assert shown == [line for line in second.splitlines() if "activate" not in line]


@pytest.mark.parametrize(
    ("topic", "printed"),
    [("quotes", r"IBM 101\.5 [0-9a-f]{32}\n"), ("sales", r"[0-9a-f]{32} 1 25\.0\n"), ("prints", r"Jones 6\.0\n")],
)
def test_the_program_runs(broker, topic, printed):
    program = next(block for block in blocks("python") if "asyncio.run(main())" in block and f'"{topic}"' in block)
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
