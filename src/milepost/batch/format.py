"""How the messages of one schema become bytes: everything that is derived from a schema, derived once."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property, lru_cache
from threading import Lock
from typing import Final

from milepost import limits
from milepost.batch.flat_validator import FlatValidator
from milepost.batch.header import HEADER
from milepost.batch.layout import Layout
from milepost.batch.row_codec import RowCodec
from milepost.schema.flat import SuperVariant, super_variant
from milepost.schema.types import Dynamic, Field, Ref, Schema, Tuple, Type, walk

BOXED: Final = -1  # in place of a multi-choice code: the batch is in boxed form
FORMATS: Final = 512  # formats kept; a broker with more schemas in use at once derives some again


class Format:
    """The layouts of a schema's cases, by multi-choice code, and where a batch's body starts."""

    def __init__(self, schema: Schema) -> None:
        self.schema: Final = schema
        self.cases: Final = super_variant(schema)
        self.has_cases: Final = self.cases.count > 1
        self.always_boxed: Final = self.cases.count > limits.CASE_CODES
        # The start of the first group when it is the only one: the place of every field follows from it.
        self.body: Final = HEADER.size + 8 * self.has_cases
        self._layouts: OrderedDict[int, Layout] = OrderedDict()
        self._refs: dict[str, Schema] = {}
        self._lock = Lock()

    def layout(self, code: int = 0) -> Layout:
        """The layout of one case; `code` must be below the number of cases."""
        with self._lock:
            if code in self._layouts:
                self._layouts.move_to_end(code)
                return self._layouts[code]
        layout = Layout(self.cases.flat(code))
        with self._lock:
            layout = self._layouts.setdefault(code, layout)
            while len(self._layouts) > limits.CASE_CACHE:
                self._layouts.popitem(last=False)
        return layout

    @cached_property
    def has_cells(self) -> bool:
        """Whether messages may hold values that are batches themselves."""
        types = (self.schema.type, *(item.type for item in self.schema.definitions))
        return bool(self.schema.recursive) or any(isinstance(part, Dynamic) for kind in types for part in walk(kind))

    def derived(self) -> int:
        """How many layouts of cases are held now."""
        return len(self._layouts)

    @cached_property
    def boxed(self) -> Layout:
        """The layout of the boxed form: all variants are boxed. For batches, or schemas, with too many cases."""
        return Layout(SuperVariant(self.schema.type, self.schema, distribute=False).flat(0))

    @cached_property
    def row_codec(self) -> RowCodec | None:
        """The codec of a single row, where the schema allows it."""
        if self.has_cases or self.schema.message_type is not None:
            return None
        return RowCodec.compile(self.layout(), self.schema.fingerprint)

    @cached_property
    def flat_validator(self) -> FlatValidator | None:
        """The fast check of several rows, where the schema allows it."""
        return None if self.row_codec is None else FlatValidator(self.layout(), self.schema.fingerprint)

    def referred(self, ref: Ref) -> Schema:
        """The schema of a value stored for a recursive reference; wrapped in a tuple unless it is one."""
        if ref.name not in self._refs:
            self._refs[ref.name] = self._referred(ref)
        return self._refs[ref.name]

    def _referred(self, ref: Ref) -> Schema:
        schema = self.schema
        kind = schema.resolve(ref)
        named = (Field(schema.name, schema.type), *schema.definitions)
        # The same schema for every reference to it: definitions by name, without a wrapper that this schema may have.
        named = tuple(sorted((item for item in named if item.type != _wrapped(kind)), key=lambda item: item.name))
        if isinstance(kind, Tuple):
            return Schema(ref.name, kind, tuple(item for item in named if item.name != ref.name))
        name = f"{ref.name[:200]}.{WRAPPED}"
        while any(item.name == name for item in named):
            name += "_"
        return Schema(name, _wrapped(kind), named)


def _wrapped(kind: Type) -> Tuple:
    return Tuple((Field(WRAPPED, kind),))


WRAPPED: Final = "value"  # the field that holds a recursive value that is not a tuple


@lru_cache(maxsize=FORMATS)
def format_of(schema: Schema) -> Format:
    """The format of a schema, from a bounded cache."""
    return Format(schema)
