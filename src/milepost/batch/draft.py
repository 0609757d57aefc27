"""Rows without IDs yet: checked, as columns, and not yet written as a batch.

A put of many rows waits for its turn after the check, and gets its IDs just before it is written. As a batch it would
be written twice, a megabyte for ten thousand rows each time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch.batch import Batch, as_schema, listed
from milepost.batch.columns import Columns
from milepost.batch.encoder import Encoder
from milepost.batch.format import Format, format_of
from milepost.batch.ids import Ids
from milepost.errors import InvalidValue
from milepost.schema.types import Schema


class Draft:
    """Rows of a put. They use the memory of the source, which must not change before they are stamped."""

    __slots__ = ("_batch", "_form", "_groups", "_rows", "_size", "schema")

    def __init__(
        self, form: Format, rows: int, groups: Mapping[int, tuple[Columns, npt.NDArray[np.intp] | None]], size: int
    ) -> None:
        self.schema: Schema = form.schema
        self._form = form
        self._rows = rows
        self._size = size
        self._groups = groups
        self._batch: Batch | None = None

    @classmethod
    def of(cls, schema: Schema, source: Any) -> Draft | Batch:
        """Rows from any source of `Batch.encode`, checked; a batch where the schema does not allow a draft."""
        schema = as_schema(schema)
        form = format_of(schema)
        columns = isinstance(source, Mapping)
        if not columns and not hasattr(source, "__arrow_c_stream__") and not hasattr(source, "__arrow_c_array__"):
            return cls._of_rows(form, source)
        if form.has_cells or schema.message_type is not None or schema.checks:
            return Batch.encode(schema, source)  # their values can be checked only in a batch
        from milepost.batch.from_arrow import groups_of, record_batch

        table = record_batch(schema, source)
        limits.require("BATCH_ROWS", table.num_rows, "the rows of a batch")
        return cls(form, table.num_rows, groups_of(form, table), table.nbytes)

    @classmethod
    def _of_rows(cls, form: Format, source: Any) -> Draft | Batch:
        """Flat rows as columns. `Batch.encode` takes all other rows, and raises the errors of wrong ones."""
        schema = form.schema
        rows = source if isinstance(source, list) else listed(source)
        if len(rows) < 2 or form.has_cases or form.has_cells or schema.message_type is not None or schema.checks:
            return Batch.encode(schema, rows)
        layout = form.layout()
        if layout.flat.lists or layout.flat.boxes:
            return Batch.encode(schema, rows)
        limits.require("BATCH_ROWS", len(rows), "the rows of a batch")
        try:
            columns = Encoder(form).columns(layout, rows)
        except InvalidValue:
            return Batch.encode(schema, rows)
        size = layout.data_at(len(rows)) + sum(len(data) for _, data in columns.var)
        return cls(form, len(rows), {0: (columns, None)}, size)

    @staticmethod
    def bytes_of(rows: Draft | Batch) -> int:
        """The size of rows in bytes, as a batch with IDs; an estimate for a draft."""
        return (rows._size if isinstance(rows, Draft) else len(rows.data)) + 8 * len(rows)

    def __len__(self) -> int:
        return self._rows

    def stamped(self, ids: Ids, start: int = 0, stop: int | None = None) -> Batch:
        """The rows from `start` up to but not including `stop`, with IDs. Each row is written once."""
        start, stop, _ = slice(start, stop).indices(self._rows)
        if stop - start == self._rows and self._batch is None:
            return Batch.assemble(self._form, self._rows, self._groups, ids)
        if self._batch is None:
            self._batch = Batch.assemble(self._form, self._rows, self._groups, None, draft=True)
        return self._batch.stamped(ids, start, stop)
