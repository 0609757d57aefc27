"""The operations in PostgreSQL: plain expressions, none of which raises for any row.

Integers and decimals that could overflow are calculated as numerics, which are exact, and bounded afterwards. Doubles
raise an error where IEEE 754 has infinity or zero, so operations on very large and very small ones are tested with
scaled operands first. Scaling by powers of two is exact, and so is the test.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from milepost.errors import QueryError
from milepost.limits import DECIMAL_DIGITS
from milepost.query.kinds import BOOLEAN, BYTES, DECIMAL_BOUND, DOUBLE, INTEGER, UUID, Scalar
from milepost.query.like import Pattern
from milepost.query.sql.functions import pattern_text
from milepost.query.sql.operations import Operations, exact_result
from milepost.query.sql.value import BIAS, Value, bound_of, has_units
from milepost.query.subnet import V4, V6
from milepost.query.typed import MIRRORED

_TYPES: Final = {
    "boolean": "boolean", "double": "double precision", "string": "text", "bytes": "bytea", "uuid": "bytea",
    "date": "integer", "timestamp": "bigint", "ident": "bigint", "integer": "bigint", "decimal": "numeric",
    "null": "text",  # of count(select null …): any type will do
}  # fmt: skip
# PostgreSQL's own type accepts more texts, and raises for the rest.
_ADDRESS: Final = rf"\A(?:{V4}|{V6})\Z"
_INFINITY: Final = "CAST('Infinity' AS double precision)"
_NAN: Final = "CAST('NaN' AS double precision)"
_POSITION_MOST: Final = (1 << 31) - 1  # of a string's characters
_WHOLE_MOST: Final = 2.0**65  # larger than every integer of the language
_SMALL: Final = 2.0**900  # millions of doubles below can be added without overflow
_PLAIN_TEXT: Final = {
    "lower": 'lower({} COLLATE "C")', "upper": 'upper({} COLLATE "C")', "trim": "btrim({}, ' ')",
    "ltrim": "ltrim({}, ' ')", "rtrim": "rtrim({}, ' ')", "||": "({} || {})", "position": "strpos({}, {})",
    "contains": "(strpos({}, {}) > 0)", "starts_with": "starts_with({}, {})",
}  # fmt: skip


class Postgresql(Operations):
    """The SQL of PostgreSQL."""

    ordered_sums = True
    fence = " OFFSET 0"

    def typed(self, text: str, kind: Scalar, form: str) -> str:
        made = f"CAST({text} AS {'numeric' if form == 'num' else _TYPES[kind.name]})"
        return f'({made} COLLATE "C")' if kind.name == "string" else made

    # Numbers

    def number(self, value: Value) -> str:
        """An exact number as a numeric."""
        if value.form == "num":
            return value.text
        whole = f"CAST({value.text} AS numeric)"
        return f"({whole} + {BIAS})" if value.form == "biased" else whole

    def double(self, value: Value) -> Value:
        if value.kind == DOUBLE:
            return value
        text = value.text if value.form != "biased" else self.number(value)
        return Value(f"CAST({text} AS double precision)", DOUBLE, leaf=value.leaf, null=value.null, tame=True)

    def arithmetic(self, sign: str, left: Value, right: Value, result: Scalar) -> Value:
        if result == DOUBLE:
            return self._of_doubles(sign, self.double(left), self.double(right))
        *_, bound = exact_result(sign, left, right, result)
        small = max(bound, left.bound, right.bound) < BIAS
        if result == INTEGER and left.form == right.form == "int" and small:
            a, b = f"CAST({left.text} AS bigint)", f"CAST({right.text} AS bigint)"
            return Value(_calculated(sign, a, b), result, "int", bound)
        text = _calculated(sign, self.number(left), self.number(right))
        return self._bounded(text, result, bound)

    def _bounded(self, text: str, kind: Scalar, bound: int) -> Value:
        """A numeric, null when it does not fit its kind. LEAST and GREATEST ignore nulls, and return the bound."""
        most = bound_of(kind)
        if bound > most or (kind == INTEGER and bound >= BIAS):
            low, high = (-BIAS - 1, BIAS) if kind == INTEGER else (-(10 ** (DECIMAL_DIGITS - kind.scale)),) * 2
            high = abs(high)
            text = f"nullif(greatest(nullif(least({text}, {high}), {high}), {low}), {low})"
        return Value(text, kind, "num", min(bound, most))

    def _of_doubles(self, sign: str, left: Value, right: Value) -> Value:
        if sign == "%":
            raise QueryError("PostgreSQL has no % of doubles: calculate it with integers or decimals")
        if left.tame and right.tame:
            a, b = left.text, right.text
            return Value(f"({a} / nullif({b}, 0))" if sign == "/" else f"({a} {sign} {b})", DOUBLE)
        if sign in "+-" and (left.tame or right.tame):
            return Value(f"({left.text} {sign} {right.text})", DOUBLE)
        make = {"+": _added, "-": lambda a, b: _added(a, b, "-"), "*": _multiplied, "/": _divided}[sign]
        text = self.writer.once((left, right), lambda a, b: make(a.text, b.text))
        return Value(f"nullif({text}, {_NAN})", DOUBLE)

    def negated(self, value: Value) -> Value:
        if value.kind == DOUBLE:
            return Value(f"(-{value.text})", DOUBLE, tame=value.tame)
        if value.form == "int" and value.bound < BIAS:
            return Value(f"(-CAST({value.text} AS bigint))", value.kind, "int", value.bound)
        return self._bounded(f"(-{self.number(value)})", value.kind, value.bound)

    def converted(self, value: Value, kind: Scalar) -> Value:
        if kind == DOUBLE:
            return self.double(value)
        return self._bounded(self.number(value), kind, value.bound * 10 ** (kind.scale - value.kind.scale))

    def compared(self, sign: str, left: Value, right: Value) -> str:
        kinds = (left.kind, right.kind)
        if has_units(left.kind) and has_units(right.kind):
            if left.form == right.form:
                return f"({left.text} {sign} {right.text})"
            return f"({self.number(left)} {sign} {self.number(right)})"
        if DOUBLE in kinds and kinds != (DOUBLE, DOUBLE):
            if "decimal" in (left.kind.name, right.kind.name):
                return f"({self.double(left).text} {sign} {self.double(right).text})"
            if left.kind == DOUBLE:
                left, right, sign = right, left, MIRRORED[sign]
            return self.writer.once((left, right), lambda a, b: self._exactly(sign, a, b.text))
        return f"({left.text} {sign} {right.text})"

    def _exactly(self, sign: str, whole: Value, d: str) -> str:
        """A comparison of an integer with a double, which is rounded in the direction that cannot change the result."""
        number = self.number(whole)
        null = f"WHEN {whole.text} IS NULL OR {d} IS NULL THEN NULL"
        if sign in ("=", "<>"):
            other = "FALSE" if sign == "=" else "TRUE"
            far = f"WHEN abs({d}) > {_WHOLE_MOST!r} THEN {other} WHEN floor({d}) <> {d} THEN {other}"
            return f"(CASE {null} {far} ELSE {number} {sign} {_whole(d)} END)"
        up = f"{'ceil' if sign in ('<', '>=') else 'floor'}({d})"
        above, below = ("TRUE", "FALSE") if sign in ("<", "<=") else ("FALSE", "TRUE")
        far = f"WHEN {d} > {_WHOLE_MOST!r} THEN {above} WHEN {d} < {-_WHOLE_MOST!r} THEN {below}"
        return f"(CASE {null} {far} ELSE {number} {sign} {_whole(up)} END)"

    def alike(self, values: Sequence[Value]) -> list[Value]:
        forms = {value.form for value in values}
        if forms == {"int"}:
            return [Value(f"CAST({value.text} AS bigint)", value.kind, "int", value.bound) for value in values]
        if len(forms) == 1:
            return list(values)
        return [Value(self.number(value), value.kind, "num", value.bound) for value in values]

    # Strings

    def bounded(self, text: str, lengths: Sequence[str], most: int) -> str:
        size = " * ".join(f"CAST(octet_length({each}) AS bigint)" for each in lengths)
        never = f"octet_length({text}) - octet_length({text})"
        return f"(CASE WHEN {size} > {most} THEN CASE WHEN 1 / ({never}) = 0 THEN {text} END ELSE {text} END)"

    def text_function(self, name: str, arguments: tuple[Value, ...], constants: tuple[Any, ...]) -> str:
        texts = [value.text for value in arguments]
        match name:
            case "length":
                return f"{'octet_length' if arguments[0].kind == BYTES else 'char_length'}({texts[0]})"
            case "ends_with":
                return self.writer.once(
                    (arguments[1],), lambda end: f"(right({texts[0]}, char_length({end.text})) = {end.text})"
                )
            case "substring":
                return self._substring(arguments, constants)
            case "in_subnet":
                return self.writer.once(arguments[:1], lambda text: self._in_subnet(text.text, constants[1]))
        return _PLAIN_TEXT[name].format(*texts)

    def _substring(self, arguments: tuple[Value, ...], constants: tuple[Any, ...]) -> str:
        text, start, *length = arguments
        places = constants[1:]
        if None not in places and all(abs(place) <= _POSITION_MOST // 2 for place in places):
            if len(places) == 2 and places[1] < 0:
                return self.typed("NULL", text.kind, "plain")
            return f"substr({', '.join((text.text, *(f'CAST({place} AS integer)' for place in places)))})"

        def cut(s: Value, begin: Value, size: Value | None = None) -> str:
            # Without a length, the last position is far after the end of every string.
            first = f"greatest({self.number(begin)}, 1)"
            end = f"({self.number(begin)} + {self.number(size)})" if size else str(_POSITION_MOST)
            null = " OR ".join(f"{value.text} IS NULL" for value in (s, begin, size) if value is not None)
            negative = f" OR {self.number(size)} < 0" if size else ""
            part = f"least({end}, {_POSITION_MOST}) - {first}"
            return (
                f"(CASE WHEN {null}{negative} THEN NULL WHEN {end} <= {first} OR {first} > {_POSITION_MOST} THEN '' "
                f"ELSE substr({s.text}, CAST({first} AS integer), CAST({part} AS integer)) END)"
            )

        return self.writer.once((text, start, *length), cut)

    def _in_subnet(self, text: str, network: str) -> str:
        is_address = f"{text} ~ {self.writer.bind(_ADDRESS)}"
        inside = f"CAST({text} AS inet) <<= CAST({self.writer.bind(network)} AS inet)"
        return f"(CASE WHEN {is_address} THEN {inside} END)"

    def matches(self, value: Value, pattern: Pattern) -> str:
        # PostgreSQL's matcher stops when the text ends after a `%`, so it takes at most length times length steps.
        return f"({value.text} LIKE {self.writer.bind(pattern_text(pattern))})"

    # Functions of numbers and times

    def rounded(self, name: str, value: Value, result: Scalar) -> Value:
        if value.kind == DOUBLE:
            if name != "round":
                return Value(f"{name}({value.text})", DOUBLE, tame=name == "abs" and value.tame)
            return Value(self.writer.once((value,), lambda x: _rounded(x.text)), DOUBLE)
        if name == "abs":
            if value.form == "int" and value.bound < BIAS:
                return Value(f"abs(CAST({value.text} AS bigint))", result, "int", value.bound)
            return self._bounded(f"abs({self.number(value)})", result, value.bound)
        if value.form == "int":
            return value
        return self._bounded(f"{name}({self.number(value)})", result, value.bound // 10**value.kind.scale + 1)

    def part_of_day(self, name: str, days: str) -> str:
        return f"CAST(extract({name} FROM CAST('1970-01-01' AS date) + CAST({days} AS integer)) AS bigint)"

    def modulo(self, text: str, by: int) -> str:
        return f"mod({text}, {by})"

    # Aggregates

    def extreme(self, name: str, value: Value) -> str:
        x = value.text
        if value.kind == BOOLEAN:
            return f"{'bool_and' if name == 'min' else 'bool_or'}({x})"
        if value.kind in (BYTES, UUID):  # PostgreSQL has no min of these
            direction = "ASC" if name == "min" else "DESC"
            return f"(array_agg({x} ORDER BY {x} {direction}) FILTER (WHERE {x} IS NOT NULL))[1]"
        return f"{name}({x})"

    def sum(self, value: Value, result: Scalar) -> Value:
        if value.kind == DOUBLE:
            return Value(_sum_of_doubles(value.text), DOUBLE)
        return self._bounded(f"sum({self.number(value)})", result, 10 * DECIMAL_BOUND)


def _calculated(sign: str, a: str, b: str) -> str:
    return f"mod({a}, nullif({b}, 0))" if sign == "%" else f"({a} {sign} {b})"


def _whole(d: str) -> str:
    """A whole double as a numeric: PostgreSQL's own cast would keep 15 digits."""
    upper = f"floor({d} / 4294967296)"
    return f"(CAST(CAST({upper} AS bigint) AS numeric) * 4294967296 + CAST({d} - {upper} * 4294967296 AS bigint))"


def _added(a: str, b: str, sign: str = "+") -> str:
    large = f"abs({a}) > {2.0**960!r} AND abs({b}) > {2.0**960!r}"
    half = f"{a} * 0.5 {sign} {b} * 0.5"
    over = f"CASE WHEN abs({half}) >= {2.0**1023!r} THEN sign({half}) * {_INFINITY} ELSE {a} {sign} {b} END"
    return f"(CASE WHEN {large} THEN {over} ELSE {a} {sign} {b} END)"


def _multiplied(a: str, b: str) -> str:
    over = f"abs(({a} * {2.0**-512!r}) * ({b} * {2.0**-512!r})) >= 1"
    under = f"abs(({a} * {2.0**537!r}) * ({b} * {2.0**538!r})) <= 1"
    return (
        f"(CASE WHEN abs({a}) >= 1 AND abs({b}) >= 1 THEN "
        f"CASE WHEN {over} THEN sign({a}) * sign({b}) * {_INFINITY} ELSE {a} * {b} END "
        f"WHEN abs({a}) < 1 AND abs({b}) < 1 AND (abs({a}) < {2.0**-500!r} OR abs({b}) < {2.0**-500!r}) THEN "
        f"CASE WHEN {under} THEN 0 ELSE {a} * {b} END ELSE {a} * {b} END)"
    )


def _divided(a: str, b: str) -> str:
    infinite = f"sign({a}) * sign({b}) * {_INFINITY}"
    over = f"abs(({a} * {2.0**-600!r}) / ({b} * {2.0**474!r})) >= {2.0**-50!r}"
    over_small = f"abs({a} / ({b} * {2.0**100!r})) >= {2.0**924!r}"
    under = f"abs(({a} * {2.0**600!r}) / ({b} * {2.0**-475!r})) <= 1"
    return (
        f"(CASE WHEN {b} = 0 THEN NULL WHEN abs({b}) < 1 AND abs({a}) >= 1 THEN "
        f"CASE WHEN {over} THEN {infinite} ELSE {a} / {b} END "
        f"WHEN abs({b}) < 1 AND abs({a}) >= {2.0**-60!r} THEN "
        f"CASE WHEN {over_small} THEN {infinite} ELSE {a} / {b} END "
        f"WHEN abs({b}) >= 1 AND (abs({a}) < {2.0**-60!r} OR (abs({a}) < 1 AND abs({b}) > {2.0**900!r})) THEN "
        f"CASE WHEN {under} THEN 0 ELSE {a} / {b} END ELSE {a} / {b} END)"
    )


def _rounded(x: str) -> str:
    """Rounded, halves away from zero: PostgreSQL's own `round` of a double rounds halves to even."""
    return f"(CASE WHEN abs({x} - trunc({x})) >= 0.5 THEN trunc({x}) + sign({x}) ELSE trunc({x}) END)"


def _sum_of_doubles(x: str) -> str:
    """The sum in the order of the elements. If one of them is very large, all are scaled down first.

    Then only a final sum that is too large is infinite, not one with a large intermediate sum.
    """
    scaled = f"sum(CASE WHEN abs({x}) >= {_SMALL**-1!r} THEN {x} * {2.0**-64!r} WHEN {x} IS NOT NULL THEN 0 END)"
    large = f"CASE WHEN abs({scaled}) >= {2.0**960!r} THEN sign({scaled}) * {_INFINITY} ELSE {scaled} * {2.0**64!r} END"
    small = f"sum(CASE WHEN abs({x}) < {_SMALL!r} THEN {x} END)"
    return f"nullif(CASE WHEN max(abs({x})) < {_SMALL!r} THEN {small} ELSE {large} END, {_NAN})"
