"""The operations in SQLite: plain SQL where 64 bits suffice, and `functions` for the rest.

A sum, difference or product that exceeds 64 bits silently becomes a double, so plain SQL is used only where that cannot
happen. Doubles are safe: NaN is null in SQLite, and so is a division by zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from milepost.limits import DECIMAL_DIGITS
from milepost.query.kinds import BOOLEAN, DOUBLE, INTEGER, Scalar, decimal
from milepost.query.like import Pattern
from milepost.query.sql import functions
from milepost.query.sql.operations import Operations, exact_result
from milepost.query.sql.value import BIAS, Form, Value, bound_of, form_of, has_units

_EXACT_DOUBLE: Final = 1 << 53  # integers up to here are exact doubles
_EXACT_PLACES: Final = 22  # powers of ten up to here are exact doubles
_ELEMENTS: Final = 1 << 24  # more than a message has: a sum of so many must fit
_SUBSTRING_END: Final = 1 << 30  # positions up to here are passed to SQLite's `substr`
_PARTS: Final = {"year": "%Y", "month": "%m", "day": "%d"}
_PLAIN_TEXT: Final = {"lower": "lower({})", "upper": "upper({})", "trim": "trim({}, ' ')", "ltrim": "ltrim({}, ' ')",
                      "rtrim": "rtrim({}, ' ')", "length": "length({})", "||": "({} || {})",
                      "position": "instr({}, {})", "contains": "(instr({}, {}) > 0)"}  # fmt: skip


class Sqlite(Operations):
    """The SQL of SQLite."""

    ordered_sums = False  # SQLite visits the tables of a fold in the order in which they are written
    fence = ""

    def typed(self, text: str, kind: Scalar, form: str) -> str:
        return text

    def ask(self, name: str, arguments: tuple[Value, ...], kind: Scalar, form: Form | None = None) -> Value:
        """A call of the reference through `functions`."""
        result = Value("", kind, form or form_of(kind, "sqlite"), bound_of(kind) if has_units(kind) else 0)
        what = self.writer.bind(functions.specification(name, arguments, result))
        text = f"{functions.CALL}({', '.join((what, *(value.text for value in arguments)))})"
        return Value(text, kind, result.form, result.bound)

    # Numbers

    def double(self, value: Value) -> Value:
        if value.kind == DOUBLE:
            return value
        if value.form == "int" and value.kind.scale == 0:
            return Value(f"CAST({value.text} AS REAL)", DOUBLE, leaf=value.leaf, null=value.null, tame=True)
        if value.form == "int" and value.bound <= _EXACT_DOUBLE and value.kind.scale <= _EXACT_PLACES:
            text = f"(CAST({value.text} AS REAL) / 1e{value.kind.scale})"
            return Value(text, DOUBLE, leaf=value.leaf, null=value.null, tame=True)
        return self.ask("convert", (value,), DOUBLE)

    def arithmetic(self, sign: str, left: Value, right: Value, result: Scalar) -> Value:
        if result == DOUBLE:
            if sign == "%":
                return self.ask(sign, (left, right), DOUBLE)
            return Value(f"({self.double(left).text} {sign} {self.double(right).text})", DOUBLE)
        up_left, up_right, bound = exact_result(sign, left, right, result)
        highest = max(bound, left.bound * 10**up_left, right.bound * 10**up_right)
        if left.form == right.form == "int" and highest < BIAS:
            return Value(f"({_up(left, up_left)} {sign} {_up(right, up_right)})", result, "int", bound)
        return self.ask(sign, (left, right), result)

    def negated(self, value: Value) -> Value:
        if value.kind == DOUBLE or (value.form == "int" and value.bound < BIAS):
            return Value(f"(-{value.text})", value.kind, value.form, value.bound, tame=value.tame)
        return self.ask("negate", (value,), value.kind)

    def converted(self, value: Value, kind: Scalar) -> Value:
        if kind == DOUBLE:
            return self.double(value)
        up = kind.scale - value.kind.scale
        if value.form == "int" and value.bound * 10**up < BIAS:
            return Value(_up(value, up), kind, "int", value.bound * 10**up, value.leaf and up == 0, value.null)
        return self.ask("convert", (value,), kind, "wide")

    def compared(self, sign: str, left: Value, right: Value) -> str:
        kinds = (left.kind, right.kind)
        if has_units(left.kind) and has_units(right.kind):
            scale = max(kind.scale for kind in kinds)
            if left.form == right.form and left.kind.scale == right.kind.scale:
                return f"({left.text} {sign} {right.text})"
            up_left, up_right = scale - left.kind.scale, scale - right.kind.scale
            fits = left.bound * 10**up_left < BIAS and right.bound * 10**up_right < BIAS
            if left.form == right.form == "int" and fits:
                return f"({_up(left, up_left)} {sign} {_up(right, up_right)})"
            return f"({self.ask('compare', (left, right), INTEGER).text} {sign} 0)"
        if DOUBLE in kinds and kinds != (DOUBLE, DOUBLE):
            if "decimal" in (left.kind.name, right.kind.name):
                left, right = self.double(left), self.double(right)
            elif "biased" in (left.form, right.form) or "wide" in (left.form, right.form):
                return f"({self.ask('compare', (left, right), INTEGER).text} {sign} 0)"
        return f"({left.text} {sign} {right.text})"

    def alike(self, values: Sequence[Value]) -> list[Value]:
        if len({(value.form, value.kind.scale) for value in values}) == 1:
            return list(values)
        widest = decimal(DECIMAL_DIGITS, max(value.kind.scale for value in values))
        made = [self.ask("convert", (value,), widest, "wide") for value in values]
        kind = next(value.kind for value in values if value.kind.scale == widest.scale)
        return [Value(value.text, kind, "wide", value.bound) for value in made]

    # Strings

    def bounded(self, text: str, lengths: Sequence[str], most: int) -> str:
        size = " * ".join(f"length({each})" for each in lengths)
        return f"(CASE WHEN {size} > {most} THEN abs({-BIAS} + 0 * length({text})) ELSE {text} END)"

    def text_function(self, name: str, arguments: tuple[Value, ...], constants: tuple[Any, ...]) -> str:
        if name == "substring" and _ordinary(constants[1:]):
            return f"substr({', '.join(value.text for value in arguments)})"
        if name in _PLAIN_TEXT:
            return _PLAIN_TEXT[name].format(*(value.text for value in arguments))
        kind = BOOLEAN if name in ("starts_with", "ends_with", "in_subnet") else arguments[0].kind
        return self.ask(name, arguments, kind).text

    def matches(self, value: Value, pattern: Pattern) -> str:
        pieces = pattern.pieces
        if pieces is not None and value.leaf and len(pieces) == 3 and not pieces[0] and not pieces[2]:
            return f"(instr({value.text}, {self.writer.bind(pieces[1])}) > 0)"
        text = self.constant(functions.pattern_text(pattern), value.kind)
        return self.ask("like", (value, text), BOOLEAN).text

    # Functions of numbers and times

    def rounded(self, name: str, value: Value, result: Scalar) -> Value:
        if value.form == "int" and value.bound < BIAS:
            if name == "abs":
                return Value(f"abs({value.text})", result, "int", value.bound)
            if value.kind.scale == 0:
                return Value(value.text, result, "int", value.bound, value.leaf, value.null)
        if name == "abs" and value.kind == DOUBLE:
            return Value(f"abs({value.text})", DOUBLE, tame=value.tame)
        return self.ask(name, (value,), result)

    def part_of_day(self, name: str, days: str) -> str:
        return f"CAST(strftime('{_PARTS[name]}', {days} * 86400, 'unixepoch') AS INTEGER)"

    def modulo(self, text: str, by: int) -> str:
        return f"({text}) % {by}"

    # Aggregates

    def extreme(self, name: str, value: Value) -> str:
        return f"{name}({value.text})"

    def summed(self, value: Value, result: Scalar, source: str) -> Value:
        if value.form == "int" and result == INTEGER and value.bound * _ELEMENTS >= BIAS:
            return Value(_sum_of_halves(value.text, source, self.writer.alias("l")), result, "int", BIAS)
        return super().summed(value, result, source)

    def sum(self, value: Value, result: Scalar) -> Value:
        if value.kind == DOUBLE:
            return Value(f"sum({value.text})", DOUBLE)
        if value.form == "int" and value.bound * _ELEMENTS < BIAS:
            return Value(f"sum({value.text})", result, "int", value.bound * _ELEMENTS)
        made = Value("", result, "int" if result == INTEGER else "wide", bound_of(result))
        what = self.writer.bind(functions.specification("sum", (value,), made))
        return Value(f"{functions.SUM}({what}, {value.text})", result, made.form, made.bound)


def _up(value: Value, places: int) -> str:
    return f"({value.text} * {10**places})" if places else value.text


def _ordinary(places: tuple[Any, ...]) -> bool:
    """Whether SQLite's `substr` means the same for this start, and length."""
    if None in places or not 1 <= places[0] <= _SUBSTRING_END:
        return False
    return len(places) == 1 or 0 <= places[1] <= _SUBSTRING_END


def _sum_of_halves(x: str, source: str, alias: str) -> str:
    """A sum of 64-bit numbers, null when it does not fit. Upper and lower halves are summed apart, without overflow."""
    carried = f"({alias}.h + ({alias}.o >> 32))"
    whole = f"(({carried} << 32) | ({alias}.o & 4294967295))"
    halves = f"SELECT sum({x} >> 32) AS h, sum({x} & 4294967295) AS o FROM {source}"
    return f"(SELECT CASE WHEN {carried} BETWEEN -2147483648 AND 2147483647 THEN {whole} END FROM ({halves}) {alias})"
