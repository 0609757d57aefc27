"""Python dataclasses as a notation for schemas: read into the model, and made or printed from it.

A nested dataclass is a tuple inside the message; `list[T]` is a list, `T | None` optional, a union of dataclasses a
variant, `Any` dynamic; `milepost.schema.annotation` has the rest. A class that contains itself becomes a
definition. Class variables hold the rest of a schema:

- `__schema__`: the name of the schema, where it differs from the class name; makes a nested class a definition, too.
- `__checks__`: the rules, a tuple of predicates in the query language.
- `__indexes__`: the paths, with dots, that a queue's tables have an index on, as a tuple.
- `__definitions__`: named types that no field uses, or that must come in this order, as `{name: annotation}`.
- `__schema_type__`: the type of a class that is no dataclass, as `dynamic` for `DynamicValue`.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from operator import or_
from typing import Annotated, Any, Final

from milepost import limits
from milepost.errors import SchemaError
from milepost.schema.annotation import ANNOTATED, UNANNOTATED, Case, Named, annotated
from milepost.schema.components import circular
from milepost.schema.python import PYTHON_TYPES, GlobalNames, class_name, require_attribute
from milepost.schema.types import Atom, Dynamic, Field, List, Optional, Ref, Schema, Tuple, Type, Variant, walk

_ANNOTATION: Final = "milepost.schema.annotation"
_UNIONS: Final = (typing.Union, types.UnionType)
_NOTHING: Final[Mapping[Any, Any]] = {}


def from_dataclass(cls: type) -> Schema:
    """The schema of a dataclass. Raises `SchemaError` for a field whose annotation fits no type."""
    if not _is_dataclass(cls):
        raise SchemaError(f"{cls!r} is not a dataclass; put @dataclass before the class")
    return _Reader(cls).schema()


class _Reader:
    """Reads a dataclass, and the dataclasses inside it, into the model."""

    def __init__(self, main: type) -> None:
        self.main = main
        self.defined: dict[str, Any] = dict(vars(main).get("__definitions__", {}))  # annotations by name
        self.order = list(self.defined)
        self.hints: dict[type, dict[str, Any]] = {}
        self._find(main)
        self.names = self._definition_names()
        self.met = 0

    def schema(self) -> Schema:
        kind = self._tuple(self.main)
        definitions = []
        for name in self.order:  # grows during the loop: each may add more
            hint = self.defined[name]
            definitions.append(Field(name, self._tuple(hint) if _is_dataclass(hint) else self._type(hint, name)))
        said = vars(self.main)
        checks, indexes = tuple(said.get("__checks__", ())), tuple(said.get("__indexes__", ()))
        return Schema(self.names[self.main], kind, tuple(definitions), checks, indexes=indexes)

    def _find(self, main: type) -> None:
        """Collect the hints of every dataclass that can be reached."""
        todo = [main, *_dataclasses(self.defined.values())]
        while todo:
            cls = todo.pop(0)
            if cls not in self.hints:
                self.hints[cls] = _hints(cls)
                todo += _dataclasses(self.hints[cls].values())

    def _definition_names(self) -> dict[type, str]:
        """The classes that become definitions; the others are written out where they are used."""
        names = {self.main: _name(self.main)}
        names |= {cls: name for name, cls in self.defined.items() if _is_dataclass(cls)}
        names |= {cls: _name(cls) for cls in self.hints if "__schema__" in vars(cls) and cls not in names}
        edges = {
            cls: [target for target in _dataclasses(hints.values()) if target not in names]
            for cls, hints in self.hints.items()
            if cls not in names
        }
        recursive = circular(edges)
        names |= {cls: _name(cls) for cls in self.hints if cls in recursive}
        if len(set(names.values())) < len(names):
            twice = next(name for name in names.values() if list(names.values()).count(name) > 1)
            raise SchemaError(f"two classes have the name {twice!r}; give one of them another name in __schema__")
        return names

    def _tuple(self, cls: type) -> Tuple:
        hints = self.hints[cls]
        fields = (field.name for field in dataclasses.fields(cls))
        return Tuple(tuple(Field(name, self._type(hints[name], f"{cls.__name__}.{name}")) for name in fields))

    def _type(self, hint: Any, path: str) -> Type:
        self.met += 1
        limits.require("SCHEMA_NODES", self.met, f"{self.main.__name__}: number of types")
        if _is_dataclass(hint):
            return self._class(hint)
        if isinstance(made := getattr(hint, "__schema_type__", None), Type):
            return made
        if typing.get_origin(hint) is Annotated:
            return self._annotated(hint, path)
        if typing.get_origin(hint) in _UNIONS:
            return self._union(typing.get_args(hint), path)
        if typing.get_origin(hint) is list and (items := typing.get_args(hint)):
            return List(self._type(items[0], f"{path}[]"))
        try:
            return UNANNOTATED[hint]
        except (KeyError, TypeError):  # TypeError: not even hashable
            raise SchemaError(
                f"{path}: no type of a message fits {hint!r}; use bool, int, float, str, bytes, Decimal, date, "
                "datetime, UUID, list[T], T | None, dataclasses and their unions, Any, and milepost.schema.annotation"
            ) from None

    def _class(self, cls: type) -> Type:
        return self._refer(self.names[cls], cls) if cls in self.names else self._tuple(cls)

    def _refer(self, name: str, hint: Any) -> Ref:
        if name not in self.defined and name != self.names[self.main]:
            self.defined[name] = hint
            self.order.append(name)
        return Ref(name)

    def _annotated(self, hint: Any, path: str) -> Type:
        """The annotated type with its marks applied in order: Python joins nested `Annotated`s into one."""
        inner, *marks = typing.get_args(hint)
        kind: Type | None = None
        for position, mark in enumerate(marks):
            match mark:
                case Atom():
                    kind = mark
                case Named(name):
                    kind = self._refer(name, annotated(inner, *marks[:position]))
                case Case(name):
                    kind = Variant((Field(name, kind or self._type(inner, path)),))
        return kind or self._type(inner, path)

    def _union(self, hints: tuple[Any, ...], path: str) -> Type:
        present = [hint for hint in hints if hint is not types.NoneType]
        kind = self._type(present[0], path) if len(present) == 1 else self._variant(present, path)
        return Optional(kind) if len(present) < len(hints) else kind

    def _variant(self, hints: list[Any], path: str) -> Variant:
        cases = []
        for hint in hints:
            if _is_dataclass(hint):
                cases.append(Field(hint.__name__, self._class(hint)))
            elif typing.get_origin(hint) is Annotated and isinstance(typing.get_args(hint)[-1], Case):
                variant = self._annotated(hint, path)
                assert isinstance(variant, Variant)
                cases += variant.cases
            else:
                shown = hint.__name__ if isinstance(hint, type) else hint
                raise SchemaError(f"{path}: a case needs a name; write Annotated[{shown}, Case('...')]")
        return Variant(tuple(cases))


def to_dataclass(schema: Schema) -> type:
    """A dataclass of the schema: `from_dataclass` gives the schema back.

    Raises `SchemaError` for names that Python reserves, and for message types: `milepost.schema.generate` makes the
    classes of their nodes.
    """
    return _Builder(schema).main


class _Builder:
    """The classes of a schema. Definitions get an empty class first, since they may refer to each other."""

    def __init__(self, schema: Schema) -> None:
        if schema.message_type is not None:
            raise SchemaError(f"{schema.name} is a message type; milepost.schema.generate makes classes for its nodes")
        # A class must not have a field's name either: the field would hide the class from the annotations around it.
        every = (schema.type, *(item.type for item in schema.definitions))
        self.taken = {
            field.name for top in every for kind in walk(top) if isinstance(kind, Tuple) for field in kind.fields
        }
        self.classes: list[type] = []  # in the order they were filled: the message is last
        self.definitions: dict[str, Any] = {}
        self.main = self._empty(class_name(schema.name), __schema__=schema.name)
        self.named = {schema.name: self.main}
        for item in schema.definitions:
            if isinstance(item.type, Tuple):
                self.named[item.name] = self._empty(class_name(item.name), __schema__=item.name)
        for item in schema.definitions:
            if isinstance(item.type, Tuple):
                self.definitions[item.name] = self._fill(self.named[item.name], item.type)
            else:
                self.definitions[item.name] = self._hint(item.type, class_name(item.name))
        rest = {"__definitions__": self.definitions, "__checks__": schema.checks, "__indexes__": schema.indexes}
        for name, value in rest.items():
            if value:
                type.__setattr__(self.main, name, value)
        assert isinstance(schema.type, Tuple)
        self._fill(self.main, schema.type)

    def _empty(self, name: str, **variables: Any) -> type:
        """An empty class with a unique name."""
        number = 1
        unique = name
        while unique in self.taken:
            number += 1
            unique = f"{name}{number}"
        self.taken.add(unique)
        return type(unique, (), variables)

    def _fill(self, cls: type, kind: Tuple) -> type:
        hints = {}
        for item in kind.fields:
            require_attribute(item.name, cls.__name__)
            hints[item.name] = self._hint(item.type, f"{cls.__name__}{class_name(item.name)}")
            if isinstance(item.type, Optional):
                setattr(cls, item.name, None)
        cls.__annotations__ = hints
        self.classes.append(cls)
        return dataclasses.dataclass(kw_only=True)(cls)

    def _hint(self, kind: Type, name: str) -> Any:
        """The annotation for a type; `name` is for the class of a tuple in it."""
        match kind:
            case Tuple():
                return self._fill(self._empty(name), kind)
            case List(item):
                return types.GenericAlias(list, (self._hint(item, name),))
            case Optional(inner):
                return self._hint(inner, name) | None
            case Variant(cases):
                return reduce(or_, (self._case(item, name, len(cases) == 1) for item in cases))
            case Ref(target):
                # A definition that is not made yet, as a recursive one, is annotated by its name.
                known = self.definitions.get(target, Any)
                return self.named[target] if target in self.named else annotated(known, Named(target))
            case Dynamic():
                return Any
            case Atom():
                python = PYTHON_TYPES[kind.kind]
                return python if UNANNOTATED[python] == kind else annotated(python, kind)

    def _case(self, case: Field, name: str, alone: bool) -> Any:
        require_attribute(case.name, name)
        if isinstance(case.type, Tuple) and not alone and case.name not in self.taken:
            return self._fill(self._empty(case.name), case.type)
        return annotated(self._hint(case.type, f"{name}{class_name(case.name)}"), Case(case.name))


def dataclass_source(schema: Schema) -> str:
    """Python source of the dataclasses that `to_dataclass` makes."""
    return _Printer(_Builder(schema)).module()


class _Printer:
    """Prints classes as source."""

    def __init__(self, built: _Builder) -> None:
        self.built = built
        self.scope = GlobalNames(built.taken)

    def module(self) -> str:
        classes = ["\n".join(self._class(cls)) for cls in self.built.classes]
        head = [
            f'"""The schema {_name(self.built.main)} as dataclasses."""',
            "from __future__ import annotations",
            "\n".join(self.scope.imports()),
        ]
        return "\n\n".join(head) + "\n\n\n" + "\n\n\n".join(classes) + "\n"

    def _class(self, cls: type) -> Iterator[str]:
        yield f"@{self.scope.imported('dataclasses', 'dataclass')}(kw_only=True)"
        yield f"class {cls.__name__}:"
        variables = vars(cls)
        if "__schema__" in variables:
            yield f'    __schema__ = "{variables["__schema__"]}"'
        if "__checks__" in variables:
            yield f"    __checks__ = {variables['__checks__']!r}"
        if "__indexes__" in variables:
            yield f"    __indexes__ = {variables['__indexes__']!r}"
        if "__definitions__" in variables:
            yield "    __definitions__ = {"
            # Evaluated inside the class of the message, whose own name is not bound yet.
            known = {self.built.main: annotated(Any, Named(_name(self.built.main)))}
            yield from (
                f'        "{name}": {self._hint(hint, known)},' for name, hint in self.built.definitions.items()
            )
            yield "    }"
        fields = dataclasses.fields(cls)
        for field in fields:
            yield f"    {field.name}: {self._hint(field.type)}" + (" = None" if field.default is None else "")
        if not fields and not variables.keys() & {"__schema__", "__checks__", "__indexes__", "__definitions__"}:
            yield "    pass"

    def _hint(self, hint: Any, instead: Mapping[Any, Any] = _NOTHING) -> str:
        """An annotation; a type that is a key of `instead` is replaced."""
        if hint is types.NoneType:
            return "None"
        if hint is Any:
            return self.scope.imported("typing", "Any")
        inner = typing.get_args(hint)
        origin = typing.get_origin(hint)
        if origin in _UNIONS:
            return " | ".join(self._hint(item, instead) for item in inner)
        if origin is list:
            return f"{self.scope.type(list)}[{self._hint(inner[0], instead)}]"
        if origin is Annotated:
            return self._annotated(inner[0], inner[1:], instead)
        if hint in instead:
            return self._hint(instead[hint])
        return str(hint.__name__) if hint in self.built.classes else self.scope.type(hint)

    def _annotated(self, inner: Any, marks: tuple[Any, ...], instead: Mapping[Any, Any]) -> str:
        if marks[0] in ANNOTATED:
            shown, marks = self.scope.imported(_ANNOTATION, ANNOTATED[marks[0]]), marks[1:]
        else:
            shown = self._hint(inner, instead)
        if not marks:
            return shown
        return f"{self.scope.imported('typing', 'Annotated')}[{', '.join((shown, *map(self._mark, marks)))}]"

    def _mark(self, mark: Atom | Case | Named) -> str:
        if isinstance(mark, Atom):
            return f"{self.scope.imported(_ANNOTATION, 'DecimalOf')}({mark.precision}, {mark.scale})"
        return f'{self.scope.imported(_ANNOTATION, type(mark).__name__)}("{mark.name}")'


def _is_dataclass(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def _name(cls: type) -> str:
    return str(vars(cls).get("__schema__", cls.__name__))


def _hints(cls: type) -> dict[str, Any]:
    try:
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except NameError:  # a class inside a function may still mention itself
            hints = typing.get_type_hints(cls, localns={cls.__name__: cls}, include_extras=True)
        fields = {item.name for item in dataclasses.fields(cls)}
        return {name: hint for name, hint in hints.items() if name in fields}  # class variables are not fields
    except Exception as error:
        raise SchemaError(f"{cls.__name__}: cannot read its annotations: {error}") from error


def _dataclasses(hints: Iterable[Any]) -> list[type]:
    """The dataclasses mentioned in some annotations, in order."""
    found: dict[type, None] = {}
    todo = list(hints)
    while todo:
        hint = todo.pop(0)
        if _is_dataclass(hint):
            found[hint] = None
        else:
            todo = [*typing.get_args(hint), *todo]
    return list(found)
