"""The sources of messages for `milepost put`: arguments, lines of JSON, CSV and Parquet files.

Each source yields whole batches of the rows that it reads at once, so memory does not grow with the input. An invalid
row is found when its batch cannot be made: only then the rows are tried one by one, the rows before it are yielded, and
the error names the line.
"""

from __future__ import annotations

import codecs
import csv
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from milepost import query
from milepost.batch import Batch
from milepost.cli import values
from milepost.errors import CheckFailed, ConfigError, InvalidValue, LimitExceeded, MilepostError
from milepost.gateway.values import Convert, converter
from milepost.schema.types import Atom, Optional, Schema, Tuple, Type

if TYPE_CHECKING:
    import pyarrow as pa

READ_BYTES: Final = 1 << 20  # read at once from lines: thousands of rows, with little delay
LINE_BYTES: Final = 64 << 20  # of one line of JSON; longer input is not JSON lines
FILE_ROWS: Final = 16_384  # read at once from a Parquet file
SLOW_ROWS: Final = 1_024  # made at once, where rows are made one by one

Progress = Callable[[int], None]
"""Called with the progress of the source: bytes of the input."""


def from_arguments(schema: Schema, arguments: list[str]) -> Iterator[Batch]:
    """One message from `field=value` pairs, or one from each argument that is JSON."""
    if arguments[0].lstrip().startswith("{"):
        convert = converter(schema)
        yield query.encode(schema, [convert(values.decoded(text)) for text in arguments])
    else:
        yield query.encode(schema, [values.from_pairs(schema, arguments)])


def from_lines(schema: Schema, stream: int, name: str, progress: Progress = lambda read: None) -> Iterator[Batch]:
    """Lines of JSON from a file descriptor, as they arrive, without waiting for more."""
    number = 1  # of the first line that is not processed
    quick = converter(schema, quick=True)
    rest = b""
    read = 0
    while True:
        data = os.read(stream, READ_BYTES)
        read += len(data)
        end = data.rfind(b"\n") + 1
        if data and not end:
            rest += data
            if len(rest) > LINE_BYTES:
                raise InvalidValue(f"{name}, line {number}: longer than {LINE_BYTES >> 20} MB; is this JSON lines?")
            continue
        lines, rest = (rest + data[:end], data[end:]) if data else (rest, b"")
        if number == 1:
            lines = lines.removeprefix(codecs.BOM_UTF8)  # some editors write it
        if lines.strip():
            yield from _of_lines(schema, quick, lines, number, name)
        number += lines.count(b"\n")
        progress(read)
        if not data:
            return


def _of_lines(schema: Schema, quick: Convert, lines: bytes, number: int, name: str) -> Iterator[Batch]:
    try:
        yield query.encode(schema, list(map(quick, values.decoded_lines(lines))))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, InvalidValue, CheckFailed):
        convert = converter(schema)
        numbered = ((at, line) for at, line in enumerate(lines.split(b"\n"), number) if line.strip())
        yield from _one_by_one(schema, numbered, lambda line: convert(values.decoded(line)), name)


def from_csv(schema: Schema, file: Path, progress: Progress = lambda read: None) -> Iterator[Batch]:
    """A CSV file whose first line names the fields.

    Arrow reads it when all fields are numbers, times or text. Where Arrow cannot, Python reads one row at a time from
    there, and errors name the line.
    """
    done = 0
    fields = _fields(schema)
    if fields and all(_in_arrow_csv(item.type) for item in fields):
        import pyarrow as pa

        try:
            for table, at in _arrow_csv(schema, file):
                batch = query.encode(schema, table)
                progress(at)
                yield batch
                done += len(batch)
        except (pa.ArrowException, InvalidValue, CheckFailed, UnicodeDecodeError):
            pass  # the slow path finds the error again, with its line
        else:
            return
    yield from _slow_csv(schema, file, done, progress)


def _arrow_csv(schema: Schema, file: Path) -> Iterator[tuple[pa.RecordBatch, int]]:
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv as arrow_csv

    types = {item.name: item.type for item in Batch.encode(schema, []).to_arrow().schema}
    required = [item.name for item in _fields(schema) if str(item.type) == "string"]
    with file.open("rb") as stream:
        if os.fstat(stream.fileno()).st_size == 0:
            return
        options = arrow_csv.ConvertOptions(
            column_types=types, null_values=[""], strings_can_be_null=True, true_values=["true"], false_values=["false"]
        )
        parse = arrow_csv.ParseOptions(newlines_in_values=True)
        reader = arrow_csv.open_csv(
            stream,
            read_options=arrow_csv.ReadOptions(block_size=READ_BYTES),
            parse_options=parse,
            convert_options=options,
        )
        for table in reader:
            for name in required:  # an empty cell is an empty text in these columns, and absent in others
                index = table.schema.get_field_index(name)
                if index >= 0 and table.column(index).null_count:
                    table = table.set_column(index, name, pc.fill_null(table.column(index), pa.scalar("")))
            yield table, stream.tell()


def _slow_csv(schema: Schema, file: Path, skip: int, progress: Progress) -> Iterator[Batch]:
    with file.open(newline="", encoding="utf-8-sig") as stream:
        reader = csv.reader(stream, strict=True)
        try:
            names = next(reader, None)
            if names is None:
                return
            converters = [(name, values.from_text(schema, name)) for name in names]
        except (csv.Error, UnicodeDecodeError, InvalidValue) as error:
            raise InvalidValue(f"{file}, line 1: {error}; the first line of a CSV file names the fields") from None

        def cells() -> Iterator[tuple[int, list[str]]]:
            seen = 0
            while True:
                at = reader.line_num + 1
                try:
                    found = next(reader, None)
                except (csv.Error, UnicodeDecodeError) as error:
                    raise InvalidValue(f"{file}, line {at}: {error}") from None
                if found is None:
                    return
                if found:
                    seen += 1
                    if seen > skip:
                        yield at, found

        def row(found: list[str]) -> dict[str, Any]:
            if len(found) != len(names):
                raise InvalidValue(f"{len(found)} values for {len(names)} fields")
            return {name: convert(text) for (name, convert), text in zip(converters, found, strict=True)}

        yield from _one_by_one(schema, cells(), row, str(file))
        progress(file.stat().st_size)


def from_parquet(schema: Schema, file: Path, progress: Progress = lambda read: None) -> Iterator[Batch]:
    """A Parquet file whose columns have the names of the fields. `progress` gets rows instead of bytes."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    done = 0
    try:
        with pq.ParquetFile(file) as reader:
            for table in reader.iter_batches(FILE_ROWS):
                yield query.encode(schema, table)
                done += table.num_rows
                progress(done)
    except (InvalidValue, CheckFailed) as error:
        row = error.rows[0] if isinstance(error, CheckFailed) and error.rows else getattr(error, "row", None)
        where = f"row {done + row + 1}" if row is not None else f"rows from {done + 1}"
        raise InvalidValue(f"{file}, {where}: {_words(error)}") from None
    except (pa.ArrowException, OSError) as error:
        raise InvalidValue(f"{file} cannot be read as Parquet: {error}") from None


def from_file(schema: Schema, file: Path, progress: Progress) -> Iterator[Batch]:
    """A file, by the extension of its name."""
    match file.suffix.lower():
        case ".csv":
            return from_csv(schema, file, progress)
        case ".parquet" | ".pq":
            return from_parquet(schema, file, progress)
        case ".jsonl" | ".ndjson" | ".json":
            return _json_file(schema, file, progress)
    raise ConfigError(f"{file}: the name of a file to put ends in .csv, .parquet or .jsonl")


def _json_file(schema: Schema, file: Path, progress: Progress) -> Iterator[Batch]:
    with file.open("rb") as stream:
        yield from from_lines(schema, stream.fileno(), str(file), progress)


def _one_by_one(
    schema: Schema, found: Iterable[tuple[int, Any]], make: Callable[[Any], Any], name: str
) -> Iterator[Batch]:
    """The rows before the first invalid one, then its error with its line; all rows when none is invalid."""
    batches: list[Batch] = []
    for at, text in found:
        try:
            batches.append(query.encode(schema, [make(text)]))
        except LimitExceeded:
            raise
        except (InvalidValue, CheckFailed) as error:
            if batches:
                yield Batch.concat(batches)
            raise InvalidValue(f"{name}, line {at}: {_words(error)}") from None
        if len(batches) >= SLOW_ROWS:
            yield Batch.concat(batches)
            batches.clear()
    if batches:
        yield Batch.concat(batches)


def _words(error: MilepostError) -> str:
    """The text of an error without its own row number, because the line is more useful."""
    if isinstance(error, CheckFailed):
        return f"it breaks the rule {error.rule}"
    row = getattr(error, "row", None)
    return str(error).removeprefix(f"row {row}, ") if row is not None else str(error)


def _fields(schema: Schema) -> tuple[Any, ...]:
    return schema.type.fields if isinstance(schema.type, Tuple) and schema.message_type is None else ()


def _in_arrow_csv(kind: Type) -> bool:
    inner = kind.type if isinstance(kind, Optional) else kind
    return isinstance(inner, Atom) and inner.kind not in ("bytes", "uuid", "ident")
