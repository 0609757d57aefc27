"""The `milepost` command as a process, and what it says."""

import os
import re
import select
import subprocess
import sys
import time

PATIENCE = 300  # seconds until something counts as hanging; the cores may be busy


def environment(**changes):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MILEPOST_BROKER"))}
    return kept | changes


def command(*arguments):
    return [sys.executable, "-m", "milepost.cli", *map(str, arguments)]


def started(*arguments, **options):
    return subprocess.Popen(command(*arguments), stdin=subprocess.DEVNULL, env=environment(), **options)


class Up:
    """`milepost up`, and its first five lines; `errors` is a file for its standard error."""

    def __init__(self, errors, *options):
        self.errors = errors
        with errors.open("ab") as stderr:
            self.process = started("up", *options, stdout=subprocess.PIPE, stderr=stderr)
        self.lines = [self.process.stdout.readline().decode() for _ in range(5)]
        found = re.search(r"listens on (milepost://\S+:\d+)[,;]", self.lines[0])
        self.address = found[1] if found else None  # None: it did not start

    def kill(self):
        """End it for good, and its pipe; nothing when it has ended."""
        self.process.kill()
        if not self.process.stdout.closed:
            self.process.communicate(timeout=PATIENCE)

    def stop(self):
        """A SIGTERM must end it in good order."""
        self.process.terminate()
        rest, _ = self.process.communicate(timeout=PATIENCE)
        assert self.process.returncode == 0, self.errors.read_text()
        assert rest == b""
        assert "Traceback" not in self.errors.read_text()


def pause():
    """Before the next look at a broker: looking all the time would take the core that others need to get there."""
    select.select([], [], [], 0.02)


def until(terminal, words):
    """What a terminal shows, up to some words; fails when they do not come."""
    seen = b""
    deadline = time.monotonic() + PATIENCE
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
        assert ready, seen
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # Linux says so when the other side has closed
            data = b""
        assert data, seen
        seen += data
    return seen


def refused(done, *words):
    assert done.returncode == 1, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
    return done.stderr
