"""A value whose schema is known only at run time: it travels as a batch of one row, with its own fingerprint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from milepost.batch.header import fingerprint_of
from milepost.errors import MalformedBatch, UnknownSchema
from milepost.schema.types import DYNAMIC, Schema, Type

Resolver = Callable[[int], Schema]
"""Finds a schema by fingerprint, as `Registry.by_fingerprint` does; raises `UnknownSchema`."""


class DynamicValue:
    """A value with its schema. Made from both, or, when read from a message, from bytes.

    The bytes of a value that was read are opaque until `decode` gets the schema or a way to look it up; they are
    forwarded unchanged. Two values are equal when their bytes are.
    """

    __slots__ = ("_data", "_schema", "_value")
    __schema_type__: ClassVar[Type] = DYNAMIC  # as the type of a dataclass's field, it means `dynamic`

    def __init__(self, schema: Schema, value: Any) -> None:
        self._schema: Schema | None = schema
        self._value = value
        self._data: bytes | None = None

    @classmethod
    def read(cls, data: bytes) -> DynamicValue:
        """A value from the bytes of its cell."""
        made = cls.__new__(cls)
        made._schema = None
        made._value = None
        made._data = data
        return made

    @property
    def data(self) -> bytes:
        """The value as a batch of one row."""
        return self.encoded(0)

    def encoded(self, depth: int) -> bytes:
        """The value as a batch of one row, nested in `depth` others."""
        if self._data is None:
            from milepost.batch.batch import Batch

            assert self._schema is not None
            self._data = bytes(Batch.encode(self._schema, [self._value], _depth=depth).data)
        return self._data

    @property
    def fingerprint(self) -> int:
        """The fingerprint of the value's schema."""
        return self._schema.fingerprint if self._schema is not None else fingerprint_of(self.data)

    def decode(self, schema: Schema | Resolver) -> Any:
        """The plain value; `schema` is the schema, or a function that finds it by fingerprint."""
        if self._schema is not None:
            return self._value
        from milepost.batch.batch import Batch

        if not isinstance(schema, Schema):
            schema = schema(self.fingerprint)
        if schema.fingerprint != self.fingerprint:
            raise UnknownSchema(f"the value is of schema {self.fingerprint:016x}, not of {schema.name}")
        batch = Batch.decode(self.data, schema)
        if len(batch) != 1:
            raise MalformedBatch(f"a dynamic value is one row, not {len(batch)}")
        return batch.to_pylist()[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DynamicValue) and self.data == other.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __repr__(self) -> str:
        if self._schema is not None:
            return f"DynamicValue({self._schema.name}, {self._value!r})"
        return f"DynamicValue.read(<{len(self.data)} bytes of schema {self.fingerprint:016x}>)"
