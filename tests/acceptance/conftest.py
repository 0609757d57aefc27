import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from milepost import cli

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session", autouse=True)
def data_folder(tmp_path_factory):
    """Nothing here touches the user's data folder: brokers that are given no store keep one of the tests' own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("data")
        patch.setenv("XDG_DATA_HOME", str(folder))
        yield folder


@pytest.fixture
def root():
    return ROOT


@pytest.fixture(scope="session")
def run():
    """Run a command in the root of the project, as a user does: no terminal, nothing of pytest's or make's settings."""

    def command(*arguments, **changes):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MAKE"))}
        # Parallel workers share the cores with what is run here, so a limit is only there to end what hangs.
        return subprocess.run(
            arguments, cwd=ROOT, env=environment | changes, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip

    return command


@pytest.fixture(scope="session")
def demo(run):
    """`make demo`, played once for all tests about it; they are marked `@pytest.mark.xdist_group("demo")`."""
    return run("make", "demo")


@pytest.fixture
def milepost(run):
    """Run the `milepost` command."""

    def command(*arguments, **changes):
        return run(sys.executable, "-m", "milepost.cli", *map(str, arguments), **changes)

    return command


@pytest.fixture
def ask(broker, capfd, monkeypatch, tmp_path):
    """Run a command against the module's broker to its end: in this process, since hundreds would take minutes."""

    def run(*arguments, text="", **changes):
        stdin = tmp_path / "stdin"
        stdin.write_text(text)
        with stdin.open() as stream, monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", stream)
            patch.setattr(sys, "argv", ["milepost", *map(str, arguments)])
            for name, value in {"MILEPOST_BROKER": broker.address, "COLUMNS": "100", **changes}.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as ended:
                cli.main()
        out, errors = capfd.readouterr()
        return SimpleNamespace(returncode=ended.value.code, stdout=out, stderr=errors)

    return run
