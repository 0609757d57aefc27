"""`milepost put`: messages from arguments, a pipe or a file into a topic."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.quantity import counted
from milepost.cli.session import DEFAULT_BROKER, Broker, connected, known_topics, topic_named
from milepost.cli.terminal import Console, echo
from milepost.errors import ConfigError, ConnectionLost, InvalidValue, StoreError, from_code

if TYPE_CHECKING:
    from milepost.batch import Batch
    from milepost.schema.types import Schema

EXAMPLES = """Examples:
  milepost put quotes symbol=IBM price=101.5 size=200
  milepost put quotes '{"symbol": "IBM", "price": 101.5, "size": 200}'
  tail -f quotes.jsonl | milepost put quotes -
  milepost put quotes --file quotes.parquet
"""

COLLECTION_OBJECTS = 1_000_000  # more than the rows of one read, far fewer than fit into memory
PATIENCE_SECONDS = 86_400.0  # for the broker to accept the last rows: a slow subscriber may throttle it for long


def run(
    topic: Annotated[str, typer.Argument(autocompletion=known_topics, help="the topic to put into; it must exist")],
    message: Annotated[
        list[str] | None,
        typer.Argument(metavar="FIELD=VALUE… | JSON… | -", help="one message as fields, messages as JSON, or a pipe"),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", exists=True, dir_okay=False, help="a .csv, .parquet or .jsonl file"),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="do not print how many rows were put")] = False,
    broker: Broker = DEFAULT_BROKER,
) -> None:
    """Put messages into a topic.

    The topic's schema gives the types of values. Times are written as in
    2026-03-02T14:30:00Z, bytes in base64, and lists, tuples and variants as
    JSON. Lines of JSON are put as they arrive; an invalid line ends the
    command, after the lines before it have been put. For a durable topic, the
    command ends when everything is stored and synced to disk. Rows from a pipe
    or a file wait for a broker that is away, until it is back; rows of a live
    topic that were under way may be lost, and the command reports that.
    """
    arguments = checked(message, file)
    started = time.monotonic()
    rows = 0
    with connected(broker, reconnect=not arguments) as client:
        known = topic_named(client, topic)
        schema = known.schema
        try:
            with _Bar(file) as bar, _few_collections():
                for batch in batches(schema, arguments, file, bar.read):
                    client.put_many(topic, batch)
                    rows += len(batch)
                    bar.put(rows)
            client.flush(PATIENCE_SECONDS)
        except (StoreError, ConnectionLost) as error:
            if not known.durable:
                raise
            # The outcome of this batch may be unknown: the store got it, but did not confirm it.
            raise from_code(error.code, f"{error} ({counted(rows, 'row')} before {_was(rows)} stored)") from None
        except KeyboardInterrupt:
            if not quiet:
                echo(f"{counted(rows, 'row')} {'stored in' if known.durable else 'put into'} {topic}", err=True)
            raise
        except InvalidValue as error:
            client.flush(PATIENCE_SECONDS)
            done = before_it(rows, "row", "stored" if known.durable else "put")
            raise InvalidValue(f"{error} ({done})") from None
    if not quiet:
        rate = rate_text(rows, time.monotonic() - started) if file is not None else ""
        echo(f"{counted(rows, 'row')} {'stored in' if known.durable else 'put into'} {topic}{rate}", err=True)


def checked(message: list[str] | None, file: Path | None) -> list[str]:
    """The messages among the arguments; none for a pipe or a file. Raises `BadParameter` unless there is one source."""
    arguments = message or []
    if file is not None and arguments:
        raise typer.BadParameter("give messages or a file, not both")
    if file is None and not arguments and (sys.stdin is None or sys.stdin.isatty()):
        raise typer.BadParameter("there is no message: give FIELD=VALUE pairs, JSON, --file FILE, or a pipe")
    return [] if arguments == ["-"] else arguments


def batches(
    schema: Schema, arguments: list[str], file: Path | None, progress: Callable[[int], None] = lambda read: None
) -> Iterator[Batch]:
    """The messages of the arguments, of a file, or of a pipe."""
    from milepost.cli import source

    if file is not None:
        return source.from_file(schema, file, progress)
    if not arguments:
        return source.from_lines(schema, sys.stdin.fileno(), "standard input")
    return source.from_arguments(schema, arguments)


def before_it(count: int, noun: str, done: str) -> str:
    """How many messages before an invalid one were put, for its error."""
    return f"{counted(count, noun)} before it {_was(count)} {done}" if count else f"nothing was {done}"


def rate_text(count: int, seconds: float) -> str:
    """How long it took to put the messages of a file, and how many there were a second."""
    return f" in {seconds:.1f} s, {count / seconds:,.0f} a second"


@contextmanager
def _few_collections() -> Iterator[None]:
    """Garbage collections rarely: millions of short-lived rows have no cycles, and searching takes longer than
    encoding.
    """
    before = gc.get_threshold()
    gc.set_threshold(COLLECTION_OBJECTS)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Bar:
    """A progress bar on a terminal: how much of the file is read, and rows with their rate. Elsewhere nothing."""

    def __init__(self, file: Path | None) -> None:
        self._file = file if sys.stderr.isatty() else None
        self._started = time.monotonic()

    def __enter__(self) -> _Bar:
        self._progress: Any = None
        if self._file is not None:
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

            self._progress = Progress(
                TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TextColumn("{task.fields[rows]}"),
                TimeRemainingColumn(), console=Console(stderr=True), transient=True,
            )  # fmt: skip
            self._task = self._progress.add_task(self._file.name, total=_length(self._file), rows="")
            self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def read(self, done: int) -> None:
        """The progress of the source: bytes, or rows of a Parquet file."""
        if self._progress is not None:
            self._progress.update(self._task, completed=done)

    def put(self, rows: int) -> None:
        """The total number of rows so far."""
        if self._progress is not None:
            rate = rows / max(1e-3, time.monotonic() - self._started)
            self._progress.update(self._task, rows=f"{rows:,} rows, {rate:,.0f}/s")


def _length(file: Path) -> int:
    """The length in the unit of the source: rows of a Parquet file, bytes of other files."""
    if file.suffix.lower() not in (".parquet", ".pq"):
        return file.stat().st_size
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return int(pq.read_metadata(file).num_rows)
    except (pa.ArrowException, OSError) as error:
        raise ConfigError(f"{file} cannot be read as Parquet: {error}") from None


def _was(rows: int) -> str:
    return "was" if rows == 1 else "were"
