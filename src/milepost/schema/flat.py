"""The flat-tuple transformation: from the schema people read to columns at fixed positions.

Gryphon's three rules, applied to one flat-tuple *case* at a time:

- associative: tuples inside tuples dissolve into one, variants inside variants into one;
- list/tuple: a list of tuples becomes a tuple of lists of the same length, which here share one offsets column
  and form a flat-tuple of their own, one *level* down. This comes before distribution, so that fields beside a
  variant under a list escape its box;
- distributive: a tuple with a variant becomes one flat-tuple for each case of the variant. All distributed
  variants together make the *super-variant*; the number of a case in it is the *multi-choice code*.

A variant under a list cannot be distributed: it becomes a *box*, transformed as if it were the root of a schema
of its own. A recursive reference becomes a dynamic value. An optional part is a validity bit and no case; only an
optional *variant* counts absence among its cases, since it has cases anyway.

A schema may have thousands of cases and use five. `SuperVariant.flat` derives one on demand, and `batch.format`
caches the ones in use.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from milepost.errors import InvalidValue
from milepost.schema.types import Atom, Dynamic, Field, List, Optional, Ref, Schema, Tuple, Type, Variant

# Bytes of one value; strings, bytes and dynamic values have none, a bool is a bit.
WIDTHS: Final[Mapping[str, int]] = {
    "uuid": 16, "decimal": 16,
    "long": 8, "uint64": 8, "double": 8, "timestamp": 8, "ident": 8,
    "int": 4, "uint32": 4, "float": 4, "date": 4,
    "int16": 2, "uint16": 2,
    "int8": 1, "uint8": 1,
}  # fmt: skip

BOX_TAGS: Final = 255  # a box's tag is one byte, and 0 means absent


@dataclass(eq=False, slots=True)
class AtomShape:
    """A leaf. `slot` counts among the columns of its sort: fixed, bits (bool) or var (string, bytes, dynamic)."""

    path: str
    type: Atom | Dynamic | Ref
    slot: int = -1
    valid: int | None = None  # slot of its validity bit, when optional


@dataclass(eq=False, slots=True)
class TupleShape:
    """A dissolved tuple: only its names, and its validity bit when optional, remain."""

    path: str
    fields: dict[str, Shape]
    valid: int | None = None
    view: type[Any] | None = None  # the class of its views: made by `batch.row`, kept here


@dataclass(eq=False, slots=True)
class ListShape:
    """A list: offsets at this level, elements in the flat-tuple one level down."""

    path: str
    item: FlatTuple
    slot: int = -1  # among the lists of its level
    valid: int | None = None


@dataclass(eq=False, slots=True)
class ChoiceShape:
    """A distributed variant, decided by the flat-tuple case it stands in. `case` is None when it is absent."""

    path: str
    variant: Variant
    case: str | None
    shape: Shape | None
    optional: bool = False


@dataclass(eq=False, slots=True)
class BoxShape:
    """A variant under a list, or boxed: a tag per element, and one flat-tuple level for each tag in use.

    Tag 0 is absence; tag k + 1 is case k of the variant's own super-variant, so that `case(tag).root` is always a
    `ChoiceShape`. When that has more than `BOX_TAGS` cases, variants inside are boxed again.
    """

    path: str
    variant: Variant
    optional: bool
    slot: int = -1  # its tags, among the fixed columns
    index: int = -1  # among the boxes of its level
    cases: SuperVariant = field(init=False)

    def case(self, tag: int) -> FlatTuple:
        """The columns of the elements that carry `tag`."""
        return self.cases.flat(tag - 1)


Shape: TypeAlias = AtomShape | TupleShape | ListShape | ChoiceShape | BoxShape


@dataclass(eq=False, slots=True)
class FlatTuple:
    """One case of a super-variant, or one level under a list: columns by sort, and the shape that names them."""

    root: Shape = field(init=False)
    fixed: list[AtomShape | BoxShape] = field(default_factory=list)  # by width, widest first
    bits: list[str] = field(default_factory=list)  # paths: bool values and validity, in order of appearance
    var: list[AtomShape] = field(default_factory=list)  # strings first, so that one check of UTF-8 covers them all
    strings: int = 0  # how many of `var` are strings
    lists: list[ListShape] = field(default_factory=list)
    boxes: list[BoxShape] = field(default_factory=list)


def width(shape: AtomShape | BoxShape) -> int:
    """Bytes per element of a fixed column."""
    return 1 if isinstance(shape, BoxShape) else WIDTHS[shape.type.kind]  # type: ignore[union-attr]


class SuperVariant:
    """All flat-tuple cases of a type, numbered by multi-choice code and derived on demand."""

    def __init__(
        self, kind: Type, schema: Schema, path: str = "", *, distribute: bool = True, box: bool = False
    ) -> None:
        self.kind = kind
        self._box = box  # `kind` is a box's variant, which is decided by the code in any case
        self.schema = schema
        self.path = path
        self._distribute = distribute
        self._counts: dict[int, int] = {}
        self.count: Final = self._count(kind)

    def flat(self, code: int) -> FlatTuple:
        """The flat-tuple of one case, derived at each call: callers cache it. `code` must be below `count`."""
        return _Flattener(self).flatten(code)

    def code(self, value: Any) -> int:
        """The multi-choice code of a plain value. Looks only at variants; the rest is checked when encoded."""
        return self._code(self.kind, value, self.path)

    def inline(self, kind: Type) -> Type:
        """The target of a reference, unless it is recursive. An optional reference to an optional is one optional."""
        while isinstance(kind, Ref) and kind.name not in self.schema.recursive:
            kind = self.schema.resolve(kind)
        if isinstance(kind, Optional):
            inner = self.inline(kind.type)
            return inner if isinstance(inner, Optional) else Optional(inner)
        return kind

    def distributes(self, variant: Variant) -> bool:
        """Whether a variant is decided by the code; else it is boxed."""
        return self._distribute or (self._box and variant is self.kind)

    def count_of(self, kind: Type) -> int:
        """How many cases a type inside this one has."""
        return self._counts.get(id(kind)) or self._count(kind)

    def _count(self, kind: Type) -> int:
        match self.inline(kind):
            case Tuple(fields):
                total = 1
                for item in fields:
                    total *= self._count(item.type)
            case Variant(cases) as variant:
                total = sum(self._count(item.type) for item in cases) if self.distributes(variant) else 1
            case Optional(Variant() as variant):
                total = 1 + self._count(variant) if self.distributes(variant) else 1
            case Optional(inner):
                total = self._count(inner)
            case _:
                total = 1
        self._counts[id(kind)] = total
        return total

    def _code(self, kind: Type, value: Any, path: str) -> int:
        if self.count_of(kind) == 1:
            return 0
        match self.inline(kind):
            case Optional(Variant() as inner):
                return 0 if value is None else 1 + self._code(inner, value, path)
            case Optional(inner):
                return self._code(inner, value, path)
            case Tuple(fields):
                code = 0
                for item in fields:
                    count = self.count_of(item.type)
                    if count > 1:
                        named = isinstance(value, Mapping)
                        part = field_of(value, item.name) if named else getattr(value, item.name, None)
                        code = code * count + self._code(item.type, part, f"{path}.{item.name}" if path else item.name)
                return code
            case Variant(cases) as variant:
                if value is None:
                    return 0  # inside an absent tuple any case is right; elsewhere the encoder refuses it
                name, inner = case_of(variant, value, path)
                base = 0
                for item in cases:
                    if item.name == name:
                        return base + self._code(item.type, inner, f"{path}.{name}")
                    base += self.count_of(item.type)
        raise AssertionError(kind)  # every kind with several cases is handled above


def field_of(value: Mapping[str, Any], name: str) -> Any:
    """A field of a tuple given as a mapping; None where it is missing."""
    return value[name] if name in value else None  # noqa: SIM401 - a view may have a field that is called `get`


def case_of(variant: Variant, value: Any, path: str) -> tuple[str, Any]:
    """The case a plain value is in, and what it holds there.

    A variant is written as a mapping with one key, the case, or as an object whose class has the name of a case.
    """
    if isinstance(value, Mapping):
        if len(value) == 1:
            name = next(iter(value))
            inner = value[name]
            if any(item.name == name for item in variant.cases):
                return name, inner
    elif any(item.name == type(value).__name__ for item in variant.cases):
        return type(value).__name__, value
    names = ", ".join(item.name for item in variant.cases)
    text = repr(value)
    shown = text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}..."
    raise InvalidValue(f"a variant is written {{case: value}} with one of {names}; got {shown}", path)


_SHOWN_CHARS: Final = 60  # of a wrong value in an error's message


class _Flattener:
    """Derives one flat-tuple. Collects columns by sort, then assigns slots."""

    def __init__(self, cases: SuperVariant) -> None:
        self.cases = cases
        self.schema = cases.schema
        self.flat = FlatTuple()

    def flatten(self, code: int) -> FlatTuple:
        flat = self.flat
        flat.root = self._shape(self.cases.kind, self.cases.path, code)
        flat.fixed.sort(key=width, reverse=True)  # stable: declaration order within a width
        flat.var.sort(key=lambda shape: shape.type != Atom("string"))
        flat.strings = sum(shape.type == Atom("string") for shape in flat.var)
        for group in (flat.fixed, flat.var, flat.lists):
            for slot, shape in enumerate(group):
                shape.slot = slot
        for index, box in enumerate(flat.boxes):
            box.index = index
        return flat

    def _shape(self, kind: Type, path: str, code: int) -> Shape:
        kind = self.cases.inline(kind)
        match kind:
            case Atom() | Dynamic() | Ref():
                return self._atom(kind, path)
            case Tuple(fields):
                return TupleShape(path, self._fields(fields, path, code))
            case List(item):
                shape = ListShape(path, SuperVariant(item, self.schema, f"{path}[]", distribute=False).flat(0))
                self.flat.lists.append(shape)
                return shape
            case Variant():
                return self._choice(kind, path, code) if self.cases.distributes(kind) else self._box(kind, path, False)
            case Optional(inner):
                return self._optional(inner, path, code)

    def _optional(self, kind: Type, path: str, code: int) -> Shape:
        if isinstance(kind, Variant):
            if not self.cases.distributes(kind):
                return self._box(kind, path, True)
            if not code:
                return ChoiceShape(path, kind, None, None, True)
            chosen = self._choice(kind, path, code - 1)
            chosen.optional = True
            return chosen
        valid = len(self.flat.bits)
        self.flat.bits.append(f"{path}?")
        shape = self._shape(kind, path, code)
        assert isinstance(shape, AtomShape | TupleShape | ListShape)
        shape.valid = valid
        return shape

    def _atom(self, kind: Atom | Dynamic | Ref, path: str) -> AtomShape:
        shape = AtomShape(path, kind)
        match kind:
            case Atom("bool"):
                shape.slot = len(self.flat.bits)
                self.flat.bits.append(path)
            case Atom(name) if name in WIDTHS:
                self.flat.fixed.append(shape)
            case _:
                self.flat.var.append(shape)
        return shape

    def _fields(self, fields: tuple[Field, ...], path: str, code: int) -> dict[str, Shape]:
        digits = []
        for item in reversed(fields):
            code, digit = divmod(code, self.cases.count_of(item.type))
            digits.append(digit)
        return {
            item.name: self._shape(item.type, f"{path}.{item.name}" if path else item.name, digit)
            for item, digit in zip(fields, reversed(digits), strict=True)
        }

    def _choice(self, kind: Variant, path: str, code: int) -> ChoiceShape:
        for item in kind.cases:
            count = self.cases.count_of(item.type)
            if code < count:
                return ChoiceShape(path, kind, item.name, self._shape(item.type, f"{path}.{item.name}", code))
            code -= count
        raise AssertionError("a code beyond the count of cases")

    def _box(self, kind: Variant, path: str, optional: bool) -> BoxShape:
        shape = BoxShape(path, kind, optional)
        shape.cases = SuperVariant(kind, self.schema, path, box=True)
        if shape.cases.count > BOX_TAGS:
            shape.cases = SuperVariant(kind, self.schema, path, distribute=False, box=True)
        self.flat.fixed.append(shape)
        self.flat.boxes.append(shape)
        return shape


def super_variant(schema: Schema) -> SuperVariant:
    """The distributed cases of a whole schema."""
    return SuperVariant(schema.type, schema)
