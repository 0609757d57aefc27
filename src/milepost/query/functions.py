"""The functions of the language, as data: the checker, the back ends and the documentation use this table.

A back end implements each function by name; a test compares the back ends with the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from milepost.query import kinds
from milepost.query.kinds import BOOLEAN, BYTES, DATE, DOUBLE, INTEGER, STRING, TIMESTAMP, Scalar

DECIMAL: Final = Scalar("decimal")  # as a parameter: a decimal of any digits


@dataclass(frozen=True, slots=True)
class NetworkLiteral:
    """A parameter that must be a string literal in CIDR notation, so that it is parsed once."""

    def __str__(self) -> str:
        return "network in CIDR notation"


NETWORK: Final = NetworkLiteral()

Parameter: TypeAlias = Scalar | NetworkLiteral
Result: TypeAlias = Scalar | Callable[[Scalar], Scalar]  # or a function of the kind of the first argument


@dataclass(frozen=True, slots=True)
class Signature:
    """One way to call a function."""

    parameters: tuple[Parameter, ...]
    result: Result


@dataclass(frozen=True, slots=True)
class Function:
    """A function by name, with the ways to call it and one line of documentation."""

    name: str
    signatures: tuple[Signature, ...]
    doc: str


def _same(kind: Scalar) -> Scalar:
    return kind


def _whole(kind: Scalar) -> Scalar:
    return kinds.decimal(kind.precision - kind.scale + 1, 0)


def _function(name: str, doc: str, *signatures: tuple[tuple[Parameter, ...], Result]) -> Function:
    return Function(name, tuple(Signature(*signature) for signature in signatures), doc)


_ROUNDING: Final = (((INTEGER,), INTEGER), ((DOUBLE,), DOUBLE), ((DECIMAL,), _whole))
_OF_DAY: Final = (((DATE,), INTEGER), ((TIMESTAMP,), INTEGER))
_OF_STRINGS: Final = ((STRING, STRING), BOOLEAN)

# `coalesce` takes any number of arguments of compatible kinds, and `case` a variant: the checker handles these two.
FUNCTIONS: Final[Mapping[str, Function]] = {
    function.name: function
    for function in (
        _function(
            "length", "code points of a string, bytes of a bytes value", ((STRING,), INTEGER), ((BYTES,), INTEGER)
        ),
        _function("lower", "with the letters A to Z in lower case", ((STRING,), STRING)),
        _function("upper", "with the letters a to z in upper case", ((STRING,), STRING)),
        _function("trim", "without spaces (U+0020) at both ends", ((STRING,), STRING)),
        _function("ltrim", "without spaces at the start", ((STRING,), STRING)),
        _function("rtrim", "without spaces at the end", ((STRING,), STRING)),
        _function(
            "substring",
            "from a position, counted from 1, to the end or so many code points; null for a negative length",
            ((STRING, INTEGER), STRING),
            ((STRING, INTEGER, INTEGER), STRING),
        ),
        _function("starts_with", "whether the second string is at the start of the first", _OF_STRINGS),
        _function("ends_with", "whether the second string is at the end of the first", _OF_STRINGS),
        _function("contains", "whether the second string is anywhere in the first", _OF_STRINGS),
        _function(
            "position", "where the second string first occurs in the first, from 1; else 0", ((STRING, STRING), INTEGER)
        ),
        _function(
            "abs", "without its sign", ((INTEGER,), INTEGER), ((DOUBLE,), DOUBLE), ((DECIMAL,), _same)
        ),
        _function("floor", "the largest whole number that is not larger", *_ROUNDING),
        _function("ceil", "the smallest whole number that is not smaller", *_ROUNDING),
        _function("round", "the nearest whole number, halves away from zero", *_ROUNDING),
        _function("year", "of a date or timestamp", *_OF_DAY),
        _function("month", "1 to 12", *_OF_DAY),
        _function("day", "1 to 31", *_OF_DAY),
        _function("weekday", "1 (Monday) to 7", *_OF_DAY),
        _function("hour", "0 to 23", ((TIMESTAMP,), INTEGER)),
        _function("minute", "0 to 59", ((TIMESTAMP,), INTEGER)),
        _function("second", "0 to 59, without the fraction", ((TIMESTAMP,), INTEGER)),
        _function("date", "the day of a timestamp, in UTC", ((TIMESTAMP,), DATE)),
        _function("days_between", "days from the first date to the second", ((DATE, DATE), INTEGER)),
        _function(
            "seconds_between", "seconds from the first timestamp to the second", ((TIMESTAMP, TIMESTAMP), DOUBLE)
        ),
        _function(
            "in_subnet",
            "whether an IP address is in a network, a literal; null when there is no address",
            ((STRING, NETWORK), BOOLEAN),
        ),
    )
}  # fmt: skip

AGGREGATES: Final[Mapping[str, str]] = {
    "any": "whether the predicate is true for an element",
    "all": "whether the predicate is true for every element",
    "count": "how many elements there are, or for how many the predicate is true",
    "sum": "the sum over the elements",
    "min": "the smallest over the elements",
    "max": "the largest over the elements",
    "avg": "the sum divided by the number of values",
}

SPECIAL: Final[Mapping[str, str]] = {
    "coalesce": "the first of its arguments that is not null",
    "case": "the name of the case a variant is in",
}


def matching(function: Function, arguments: tuple[Scalar, ...]) -> Scalar | None:
    """The kind of a call's result; None when the function does not take these arguments. A null fits everywhere."""
    for signature in function.signatures:
        if len(signature.parameters) == len(arguments) and all(
            _fits(parameter, kind) for parameter, kind in zip(signature.parameters, arguments, strict=True)
        ):
            return signature.result(arguments[0]) if callable(signature.result) else signature.result
    return None


def _fits(parameter: Parameter, kind: Scalar) -> bool:
    if isinstance(parameter, NetworkLiteral):
        return kind == STRING
    return kind in (parameter, kinds.NULL) or kind.name == parameter.name == "decimal"


def usage(function: Function) -> str:
    """How a function is called, for an error message: "length(string) or length(bytes)"."""
    return " or ".join(
        f"{function.name}({', '.join(str(parameter).partition('(')[0] for parameter in signature.parameters)})"
        for signature in function.signatures
    )
