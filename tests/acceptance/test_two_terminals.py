"""The README's two terminals, and its program, run as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from milepost import Client

from .conftest import ROOT

PATIENCE = 60  # seconds; only there to end what hangs


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    store = tmp_path_factory.mktemp("store") / "milepost.db"
    options = ["--listen", "127.0.0.1:0", "--http", "", "--zmq", "", "--store", str(store)]
    process = subprocess.Popen(
        [sys.executable, "-m", "milepost.cli", "up", *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    address = re.search(r"milepost://\S+:\d+", process.stdout.readline())[0]
    yield address
    process.terminate()
    process.communicate(timeout=PATIENCE)


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


def test_the_commands_print_what_the_readme_shows(broker):
    first, second = blocks("console")
    assert "$ milepost up" in first
    environment = os.environ | {
        "MILEPOST_BROKER": broker,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "COLUMNS": "200",
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
            with Client(broker) as client:
                while not client.status()["subscriptions_total"]:
                    pass
            continue
        done = subprocess.run(
            text, shell=True, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
        shown += (done.stdout + done.stderr).splitlines()
        if background is not None and "price=101.5" in text:
            shown += background.communicate(timeout=PATIENCE)[0].splitlines()
            background = None
    assert shown == [line for line in second.splitlines() if "activate" not in line]


def test_the_program_runs(broker):
    program = next(block for block in blocks("python") if "asyncio.run(main())" in block)
    code = program.replace("milepost://127.0.0.1:7450", broker)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert re.fullmatch(r"IBM 101\.5 [0-9a-f]{32}\n", done.stdout), done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_examples_run(broker, path):
    done = subprocess.run(
        [sys.executable, str(path)],
        env=os.environ | {"MILEPOST_BROKER": broker},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "6000" in done.stdout
