"""A batch: messages of one schema as rows of columns. Its bytes are the same in memory, on the wire and in the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch import directory, gather, graph
from milepost.batch.block import Block
from milepost.batch.columns import Bytes, Columns
from milepost.batch.conversion import converted
from milepost.batch.encoder import Encoder
from milepost.batch.format import BOXED, Format, format_of
from milepost.batch.header import HEADER, Buffer, Header, seal, unseal
from milepost.batch.ids import Ids, MessageId, ids_of_rows
from milepost.batch.layout import Layout, aligned
from milepost.batch.plain import plain
from milepost.batch.row import MessageHeader, row_class
from milepost.batch.row_codec import REFUSED
from milepost.batch.validator import Validator
from milepost.errors import InvalidValue, MalformedBatch
from milepost.schema.messagetype import MessageType
from milepost.schema.node import build
from milepost.schema.relax import known
from milepost.schema.types import Schema

if TYPE_CHECKING:
    import pyarrow as pa


class CaseGroup(NamedTuple):
    """The rows of one flat-tuple case: their columns, and their places in the batch (None: all rows, in order)."""

    code: int  # multi-choice code, or BOXED
    block: Block
    rows: npt.NDArray[np.intp] | None


_new: Final = tuple.__new__  # makes a named tuple without calling its constructor, which is a Python function


class Batch:
    """Rows of one schema. Immutable; `data` holds the bytes, and everything else is read from them.

    Made by `encode` from values, by `decode` from bytes, and by `take`, `slice`, `concat` and `replace` from
    other batches.
    """

    def __init__(self, form: Format, data: Buffer, rows: int, groups: tuple[CaseGroup, ...], ids: Ids | None) -> None:
        self._form = form
        self.data: Final = data  # as sent and stored; `bytes(batch)` copies it
        self.groups: Final = groups
        self.ids: Final = ids
        self._rows = rows

    @property
    def schema(self) -> Schema:
        """The schema of the rows."""
        return self._form.schema

    # Making

    @classmethod
    def encode(cls, schema: Schema, source: Any, ids: Ids | None = None, *, _depth: int = 0) -> Batch:
        """A batch from rows, columns or a frame.

        `source` is an iterable of rows (dicts, dataclasses, nodes of a message type, rows of other batches), a
        mapping of names to columns (NumPy arrays, lists, Arrow arrays), or an object with the Arrow interface: a
        record batch, a table, a pandas or Polars frame. A single message is a list of one row. Timestamps without a
        time zone are refused in rows, and are UTC in a frame.
        """
        schema = as_schema(schema)
        form = format_of(schema)
        if isinstance(source, Mapping) or hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
            from milepost.batch.from_arrow import record_batch

            return cls.from_arrow(schema, record_batch(schema, source), ids)
        rows = source if isinstance(source, list) else listed(source)
        limits.require("BATCH_ROWS", len(rows), "the rows of a batch")
        if len(rows) == 1 and form.row_codec is not None:
            try:
                body = form.row_codec.pack(rows[0])
                return cls._sealed(form, [body], len(body), 1, ids)
            except REFUSED:
                pass  # the encoding by columns takes it, or raises the right error
        if schema.message_type is not None:
            rows = graph.unlinked_rows(schema.message_type, rows)
        try:
            return cls._encoded(form, Encoder(form, _depth), rows, ids)
        except InvalidValue as error:
            if error.row is None and len(rows) > 1:
                _blame(form, _depth, rows)
            raise
        except RecursionError:
            if _depth:
                raise
            raise InvalidValue("values within values, deeper than Python's stack") from None

    @classmethod
    def _encoded(cls, form: Format, encoder: Encoder, rows: list[Any], ids: Ids | None) -> Batch:
        if not form.has_cases:
            return cls.assemble(form, len(rows), {0: (encoder.columns(form.layout(), rows), None)}, ids)
        codes = [] if form.always_boxed else [form.cases.code(row) for row in rows]
        if form.always_boxed or not rows or len(set(codes)) > limits.BATCH_GROUPS:
            return cls.assemble(form, len(rows), {BOXED: (encoder.columns(form.boxed, rows), None)}, ids)
        positions = np.array(codes, np.int64)
        groups = {}
        for code in sorted(set(codes)):
            mine = np.flatnonzero(positions == code)
            chosen = rows if len(mine) == len(rows) else [rows[position] for position in mine.tolist()]
            groups[code] = encoder.columns(form.layout(code), chosen), mine
        return cls.assemble(form, len(rows), groups, ids)

    @classmethod
    def from_arrow(cls, schema: Schema, table: pa.RecordBatch, ids: Ids | None = None) -> Batch:
        """A batch from an Arrow record batch whose columns are the schema's fields."""
        from milepost.batch.from_arrow import groups_of

        form = format_of(schema)
        limits.require("BATCH_ROWS", table.num_rows, "the rows of a batch")
        made = cls.assemble(form, table.num_rows, groups_of(form, table), ids)
        try:
            if form.has_cells:  # dynamic values are bytes from outside: check them
                return cls.decode(made.data, schema)
            graph.check(made)
        except MalformedBatch as error:
            raise InvalidValue(str(error)) from None
        return made

    @classmethod
    def from_flat(cls, schema: Schema, rows: list[Any], ids: Ids | None = None) -> Batch:
        """A batch from plain values of the compiled schema: of a message type, the lists of its nodes."""
        form = format_of(schema)
        made = cls._encoded(form, Encoder(form), rows, ids)
        try:
            graph.check(made)
        except MalformedBatch as error:
            raise InvalidValue(str(error)) from None
        return made

    @classmethod
    def assemble(
        cls,
        form: Format,
        rows: int,
        groups: Mapping[int, tuple[Columns, npt.NDArray[np.intp] | None]],
        ids: Ids | None,
        draft: bool = False,
    ) -> Batch:
        """A batch from the columns of each case that occurs, with the rows of each."""
        if not groups:  # no rows, so no case: the boxed form needs none
            groups = {BOXED: (Encoder(form).columns(form.boxed, []), None)}
        parts: list[Bytes] = (
            [directory.written(rows, {code: mine for code, (_, mine) in groups.items()})] if form.has_cases else []
        )
        position = HEADER.size + sum(len(part) for part in parts)
        for columns, _ in groups.values():
            padding = -position % 8
            parts.append(bytes(padding))
            position = columns.write(parts, position + padding)
        return cls._sealed(form, parts, position - HEADER.size, rows, ids, draft)

    @classmethod
    def _sealed(
        cls, form: Format, parts: list[Bytes], size: int, rows: int, ids: Ids | None, draft: bool = False
    ) -> Batch:
        """Header, groups and IDs as one batch; `size` is the size of the groups in bytes."""
        limits.require("BATCH_ROWS", rows, "the rows of a batch")
        if ids is not None:
            if len(ids) != rows:
                raise InvalidValue(f"{len(ids)} IDs for {rows} rows")
            packed = [bytes(-size % 8), *ids.pack()]
            parts = [*parts, *packed]
            size += sum(memoryview(part).nbytes for part in packed)
        limits.require("BATCH_BYTES", HEADER.size + size, "the bytes of a batch")
        data = seal(parts, rows, ids is not None, form.schema.fingerprint, draft)
        if form.has_cases:
            return cls.trusted(data, form.schema)
        return cls(form, data, rows, (CaseGroup(0, Block(form.layout(), data, HEADER.size, rows), None),), ids)

    @classmethod
    def lone(cls, form: Format, layout: Layout, data: bytes, ids: Ids) -> Batch:
        """A batch of one flat row that this process has just written, with its ID."""
        return cls(form, data, 1, (_new(CaseGroup, (0, Block(layout, data, HEADER.size, 1), None)),), ids)

    @classmethod
    def decode(cls, data: Buffer, schema: Schema, *, _depth: int = 0) -> Batch:
        """A batch from bytes of unknown origin, checked completely. Raises `MalformedBatch`."""
        if type(schema) is Schema and type(data) in (bytes, bytearray, memoryview):
            form = format_of(schema)
            codec = form.row_codec
            if codec is not None and type(data) is bytes and (at := codec.first(data)):
                group = _new(CaseGroup, (0, Block(codec.layout, data, HEADER.size, 1), None))
                return cls(form, data, 1, (group,), Ids.read_one(data, at))
            validator = form.flat_validator
            if validator is not None and (found := validator.check(data)) is not None:
                rows, end, at = found
                group = _new(CaseGroup, (0, Block(validator.layout, data, HEADER.size, rows, ((), (), end)), None))
                return cls(form, data, rows, (group,), Ids.read_run(data, at, rows))
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidValue(f"decode takes the bytes of a batch, not a {type(data).__name__}")
        schema = as_schema(schema)
        header = unseal(data, schema.fingerprint, schema.name)
        try:
            return cls._opened(format_of(schema), data, header, checked=True, depth=_depth)
        except RecursionError:
            if _depth:
                raise
            raise MalformedBatch("values within values, deeper than Python's stack") from None

    @classmethod
    def trusted(cls, data: Buffer, schema: Schema) -> Batch:
        """A batch from bytes that this process made or has checked before. Never from outside."""
        word = HEADER.unpack_from(data)[1]
        header = Header(word & limits.BATCH_ROWS, bool(word >> 28), schema.fingerprint)
        return cls._opened(format_of(schema), data, header, checked=False, depth=0)

    @classmethod
    def _opened(cls, form: Format, data: Buffer, header: Header, checked: bool, depth: int) -> Batch:
        rows = header.rows
        if rows == 1 and form.row_codec is not None and (end := form.row_codec.end(data, HEADER.size)) is not None:
            # The fast path for a single message; it leaves the rows that it cannot take to the general one.
            first = aligned(end)
            if not any(data[end:first]) if header.with_ids else end == len(data):
                ids = Ids.unpack(data, first, 1) if header.with_ids else None
                block = Block(form.layout(), data, HEADER.size, 1, ((), (), end))
                return cls(form, data, 1, (CaseGroup(0, block, None),), ids)
        found = directory.read(form, data, rows)
        reader = Validator(form, data, len(data), depth)
        groups = []
        position = found.end
        for code, mine in found.groups:
            layout = form.boxed if code == BOXED else form.layout(code)
            n = rows if mine is None else len(mine)
            if checked:
                reader.padding(position)
                block = reader.block(layout, aligned(position), n)
            else:
                block = Block(layout, data, aligned(position), n)
            groups.append(CaseGroup(code, block, mine))
            if checked or header.with_ids or len(found.groups) > 1:
                position = block.end
        ids = None
        if header.with_ids:
            reader.padding(position)
            ids = Ids.unpack(data, aligned(position), rows)
        if checked and ids is None and position != len(data):
            raise MalformedBatch(f"{len(data) - position} bytes follow the end of the batch at byte {position}")
        made = cls(form, data, rows, tuple(groups), ids)
        if checked:
            graph.check(made)
        return made

    # Reading

    def __len__(self) -> int:
        return self._rows

    @overload
    def __getitem__(self, row: int) -> Any: ...
    @overload
    def __getitem__(self, row: slice) -> Batch: ...
    def __getitem__(self, row: Any) -> Any:
        """One message, as a light view or as the root node of a message type's graph; or, for a slice, a batch."""
        if isinstance(row, slice):
            start, stop, step = row.indices(self._rows)
            return self.slice(start, stop) if step == 1 else self.take(np.arange(start, stop, step))
        if not isinstance(row, int | np.integer):
            raise TypeError(f"a batch is indexed by row number, not by a {type(row).__name__}; see column() and take()")
        if not -self._rows <= row < self._rows:
            raise IndexError(f"row {row} of {self._rows}")
        row %= self._rows
        if self.schema.message_type is not None:
            root = self.slice(row, row + 1).to_pylist()[0]
            return build(self.schema.message_type, root, header=self.header(int(row)))
        group, index = self._place(row)
        return row_class(self._form, group.block.layout)(group.block, self, index, int(row))

    def only(self) -> Any:
        """The message of a batch of one row: the same as `batch[0]`, with fewer calls."""
        block = self.groups[0].block
        made = block.layout.row_class
        if made is None or self._form.schema.message_type is not None:
            return self[0]
        return made(block, self, 0, 0)

    def header(self, row: int) -> MessageHeader:
        """The header of one message."""
        return MessageHeader(None if self.ids is None else self.ids[row])

    def __iter__(self) -> Iterator[Any]:
        return self.messages(range(self._rows))

    def messages(self, rows: Iterable[int]) -> Iterator[Any]:
        """Some rows in order, each as by indexing. Row numbers count from 0 and must be in the batch."""
        if self.schema.message_type is not None or self.groups[0].rows is not None:
            return map(self.__getitem__, rows)
        # The view's constructor is the only Python call per row: programs that read row by row spend their time here.
        block = self.groups[0].block
        return map(partial(row_class(self._form, block.layout), block, self), rows)

    def __bytes__(self) -> bytes:
        return bytes(self.data)

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch.trusted, (bytes(self.data), self.schema)  # pickles are made and read by the same program

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Batch) and bytes(self.data) == bytes(other.data)

    def __hash__(self) -> int:
        return hash(bytes(self.data))

    def __repr__(self) -> str:
        return f"<Batch of {self._rows} {self.schema.name}, {len(self.data)} bytes>"

    def _place(self, row: int) -> tuple[CaseGroup, int]:
        if self.groups[0].rows is None:
            return self.groups[0], row
        return self.groups[self._owner[row]], int(self._rank[row])

    @cached_property
    def _owner(self) -> npt.NDArray[np.uint8]:
        """The group of each row, for batches of several groups."""
        owner = np.zeros(self._rows, np.uint8)
        for number, group in enumerate(self.groups):
            owner[group.rows if group.rows is not None else slice(None)] = number
        return owner

    @cached_property
    def _rank(self) -> npt.NDArray[np.intp]:
        """The position of each row within its group."""
        rank = np.arange(self._rows)
        for group in self.groups:
            if group.rows is not None:
                rank[group.rows] = np.arange(len(group.rows))
        return rank

    def id(self, row: int) -> MessageId | None:
        """The message ID of one row."""
        return self.ids[row] if self.ids is not None else None

    def to_pylist(self) -> list[Any]:
        """All messages as plain values: dicts, or the dict graphs of a message type."""
        rows = self._flat_pylist()
        if self.schema.message_type is not None:
            return graph.linked_rows(self.schema.message_type, rows)
        return rows

    def _flat_pylist(self) -> list[Any]:
        values: list[Any] = [None] * self._rows
        for group in self.groups:
            made = plain(self._form, group.block, group.block.layout.root)
            if group.rows is None:
                return made
            for row, value in zip(group.rows.tolist(), made, strict=True):
                values[row] = value
        return values

    def to_arrow(self) -> pa.RecordBatch:
        """An Arrow record batch; fixed-width columns and text share this batch's bytes."""
        from milepost.batch.arrow import to_arrow

        return to_arrow(self)

    def to_pandas(self, **options: Any) -> Any:
        """A pandas DataFrame; `options` are those of `pyarrow.Table.to_pandas`. `MissingPackage` without pandas.

        By default an optional number is a float column with NaN where values are absent.
        """
        from milepost.batch.arrow import to_pandas

        return to_pandas(self, options)

    def to_polars(self) -> Any:
        """A Polars DataFrame, over this batch's bytes where Polars can. `MissingPackage` without Polars."""
        from milepost.batch.arrow import to_polars

        return to_polars(self)

    def column(self, path: str) -> npt.NDArray[Any]:
        """One field of every row as a NumPy array; masked where values are absent.

        Fixed-width numbers are views of the batch's bytes. Text, bytes and decimals become objects: `arrow` gives
        those without a copy. `lines[0].price` reads an element of a list in each row.
        """
        from milepost.batch.column import column

        return column(self, path)

    def arrow(self, path: str) -> pa.Array:
        """One field of every row as an Arrow array over the same bytes."""
        from milepost.batch.column import arrow

        return arrow(self, path)

    # New batches from this one

    def read_as(self, schema: Schema) -> Batch:
        """The rows as a reader of another version of the schema sees them.

        Fields that the reader does not know are left out. Fields that the writer did not know are absent, and optional
        in the result's schema. Raises `IncompatibleSchema` if a field that both versions have differs.
        """
        schema = as_schema(schema)
        if schema == self.schema:
            return self
        form, columns = converted(schema, self.schema)
        if form.schema == self.schema:
            return self  # already read as this version
        if columns is not None:
            return self.assemble(form, self._rows, {0: (columns.columns(self.groups[0].block), None)}, self.ids)
        if form.schema.recursive or self.schema.recursive:
            # Dynamic values are batches of their own, and a field may be stored as one in one version only.
            return self.from_flat(form.schema, [known(form.schema, row) for row in self._flat_pylist()], self.ids)
        from milepost.batch.from_arrow import groups_of

        return self.assemble(form, self._rows, groups_of(form, self.to_arrow(), lenient=True), self.ids)

    def take(self, rows: Sequence[int] | npt.NDArray[Any]) -> Batch:
        """The given rows, in the given order and with repetitions; or the rows where a mask is true."""
        index = np.asarray(rows)
        if index.dtype == np.bool_:
            if len(index) != self._rows:
                raise InvalidValue(f"a mask of {len(index)} for {self._rows} rows")
            index = np.flatnonzero(index)
        elif index.dtype.kind not in "iu" and len(index):
            raise InvalidValue(f"take() needs row numbers or a mask, not {index.dtype}")
        index = index.astype(np.intp, copy=False)
        if len(index) and (index.min() < -self._rows or index.max() >= self._rows):
            raise IndexError(f"rows beyond the {self._rows} of the batch")
        index = np.where(index < 0, index + self._rows, index)
        ids = self.ids.take(index) if self.ids is not None else None
        return self._gathered(index, len(index), ids)

    def slice(self, start: int = 0, stop: int | None = None) -> Batch:
        """The rows from `start` up to but not including `stop`."""
        start, stop, _ = slice(start, stop).indices(self._rows)
        stop = max(start, stop)
        ids = self.ids.take(np.arange(start, stop)) if self.ids is not None else None
        return self._gathered(slice(start, stop), stop - start, ids)

    def stamped(self, ids: Ids, start: int = 0, stop: int | None = None) -> Batch:
        """The rows from `start` up to but not including `stop`, with new IDs; written once."""
        start, stop, _ = slice(start, stop).indices(self._rows)
        stop = max(start, stop)
        if self.ids is None and stop - start == self._rows > 0:
            body = memoryview(self.data)[HEADER.size :]  # IDs follow the columns, which stay unchanged
            return Batch._sealed(self._form, [body], len(body), stop, ids)
        return self._gathered(slice(start, stop), stop - start, ids)

    def _gathered(self, rows: gather.Rows, count: int, ids: Ids | None) -> Batch:
        if self.groups[0].rows is None:
            only = self.groups[0]
            return Batch.assemble(self._form, count, {only.code: (gather.gather(only.block, rows), None)}, ids)
        owner, rank = self._owner[rows], self._rank[rows]
        chosen: dict[int, tuple[Columns, npt.NDArray[np.intp] | None]] = {}
        for number, group in enumerate(self.groups):
            here = np.flatnonzero(owner == number)
            if len(here):
                chosen[group.code] = gather.gather(group.block, rank[here]), here
        return Batch.assemble(self._form, count, chosen, ids)

    @classmethod
    def concat(cls, batches: Iterable[Batch]) -> Batch:
        """The rows of batches of one schema, one batch after the other."""
        parts = list(batches)
        if not parts:
            raise InvalidValue("concat needs at least one batch")
        form = parts[0]._form
        if any(part.schema != parts[0].schema for part in parts):
            raise InvalidValue("concat cannot join batches of different schemas")
        if len({part.ids is None for part in parts}) > 1:
            raise InvalidValue("concat cannot join batches with and without message IDs")
        parts = [part for part in parts if len(part)] or parts[:1]
        ids = Ids.concat(part.ids for part in parts if part.ids is not None) if parts[0].ids is not None else None
        rows = sum(len(part) for part in parts)
        limits.require("BATCH_ROWS", rows, "the rows of a batch")
        codes = {group.code for part in parts for group in part.groups}
        if (BOXED in codes and len(codes) > 1) or len(codes) > limits.BATCH_GROUPS:
            return cls.from_flat(form.schema, [row for part in parts for row in part._flat_pylist()], ids)
        starts = np.cumsum([0, *(len(part) for part in parts)])
        groups = {}
        for code in sorted(codes):
            found = [(start, group) for part, start in zip(parts, starts, strict=False) for group in part.groups]
            mine = [(start, group) for start, group in found if group.code == code]
            columns = gather.concat([group.block for _, group in mine])
            places = None
            if form.has_cases and code != BOXED:
                places = np.concatenate(
                    [start + (np.arange(group.block.n) if group.rows is None else group.rows) for start, group in mine]
                )
            groups[code] = columns, places
        return cls.assemble(form, rows, groups, ids)

    @classmethod
    def joined(cls, datas: Sequence[bytes], schema: Schema) -> Batch:
        """The rows of batches given as bytes, in order; this process must have checked the bytes before.

        The same as `concat` of `trusted` batches. Neighbours of one row are joined without making a `Batch` of each: a
        log of them is read several times as fast.
        """
        form = format_of(schema)
        if form.row_codec is None:
            return cls.concat([cls.trusted(data, schema) for data in datas])
        parts: list[Batch] = []
        for single, run in groupby(datas, form.row_codec.is_row):
            rows = list(run)
            ids = ids_of_rows(rows) if single and len(rows) > 1 else None
            if ids is None:
                parts += [cls.trusted(data, schema) for data in rows]
            else:
                columns = gather.concat_rows(form.layout(), rows, HEADER.size)
                parts.append(cls.assemble(form, len(rows), {0: (columns, None)}, ids))
        return parts[0] if len(parts) == 1 else cls.concat(parts)

    def replace(self, path: str, values: Any) -> Batch:
        """The same rows with one field of each changed; the other columns are copied as they are.

        `values` has a value for each row; a single value (no list or array) goes into every row. Rows where a part of
        the path is absent stay unchanged.
        """
        from milepost.batch.column import replace

        return replace(self, path, values)


def as_schema(schema: Any) -> Schema:
    """A schema, or the schema of a message type. Text is refused: parsing it at every call would be slow."""
    if isinstance(schema, Schema):
        return schema
    if isinstance(schema, MessageType):
        return schema.schema
    if isinstance(schema, str):
        raise InvalidValue("the schema is a text; parse it once, with parse_schema(text), and pass the result")
    raise InvalidValue(f"expected a schema first, got a {type(schema).__name__}")


def listed(source: Any) -> list[Any]:
    """The rows of an iterable as a list. Raises `InvalidValue` for other objects."""
    if isinstance(source, str | bytes):
        raise InvalidValue(f"expected rows, got {source!r:.60}")
    try:
        return list(source)
    except TypeError:
        what = type(source).__name__
        raise InvalidValue(
            f"a {what} is neither rows nor a frame; write [message] for one message, and collect a lazy frame first"
        ) from None


def _blame(form: Format, depth: int, rows: list[Any]) -> None:
    """Raise for the first row that cannot be encoded alone."""
    encoder = Encoder(form, depth)
    for number, row in enumerate(rows):
        try:
            Batch._encoded(form, encoder, [row], None)
        except InvalidValue as error:
            raise type(error)(str(error).removeprefix(f"{error.path}: "), error.path, number) from None
