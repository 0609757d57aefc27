"""IP addresses in Spark: text becomes a fixed number of hexadecimal digits, in the order of the addresses.

An address is defined as in the reference: four numbers up to 255 without leading zeros, or eight groups of one to four
hexadecimal digits. One run of one or more groups may be left out as `::`, and the last two groups may be written as an
IPv4 address.
"""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as f

from milepost.query.spark.value import BOOLEAN, LONG, STRING, Value
from milepost.query.subnet import V4, V4_BYTE, V6, V6_GROUP, Network

_GROUPS: Final = rf"{V6_GROUP}(?::{V6_GROUP})*"
_ONLY_V4: Final = rf"\A{V4}\z"
_ONLY_V6: Final = rf"\A(?:{V6})\z"
_MAYBE_V6: Final = rf"\A(?:(?:{_GROUPS})?::(?:{_GROUPS})?|{_GROUPS})\z"  # after an IPv4 address at its end was replaced
_V4_AT_END: Final = rf"(?<=:){V4}\z"
_V6_DIGITS: Final = 32
_GROUP_DIGITS: Final = 4


def _v4_texts(network: IPv4Network) -> str:
    """A pattern for every address of a network: fixed bytes, one in a range, and arbitrary ones."""
    fixed, bits = divmod(network.prefixlen, 8)
    own = list(network.network_address.packed)
    parts = [str(byte) for byte in own[:fixed]]
    if bits:
        first = own[fixed]
        parts.append(f"(?:{'|'.join(str(byte) for byte in range(first, first + (1 << (8 - bits))))})")
    parts += [V4_BYTE] * (4 - len(parts))
    return r"\A" + r"\.".join(parts) + r"\z"


def in_subnet(text: Value, network: Network) -> Value:
    """Whether an address is in a network; null when the text is not an address, false for the other version."""
    return text.once(lambda plain: Value(_in_subnet(plain.column, network), BOOLEAN))


def v4_number(text: Value) -> Value:
    """The number of an IPv4 address; null for other texts."""
    return text.once(lambda plain: Value(f.when(plain.column.rlike(_ONLY_V4), _v4(plain.column)), LONG))


def v6_digits(text: Value) -> Value:
    """The 32 hexadecimal digits of an IPv6 address, in lower case; null for other texts."""
    return text.once(lambda plain: _v6(plain.column))


def _in_subnet(text: Column, network: Network) -> Column:
    if isinstance(network, IPv4Network):
        # Patterns instead of numbers: a few calls. The code that calculates numbers is too long for Java to compile.
        inside = text.rlike(_v4_texts(network))
        outside = text.rlike(_ONLY_V4) | text.rlike(_ONLY_V6)
        return f.when(inside, f.lit(True)).when(outside, f.lit(False))
    first, last = int(network.network_address), int(network.broadcast_address)
    ends = f.lit(f"{first:032x}"), f.lit(f"{last:032x}")
    in_v6 = _v6(text).once(lambda digits: Value(digits.column.between(*ends), BOOLEAN))
    return f.when(text.rlike(_ONLY_V4), f.lit(False)).when(text.isNotNull(), in_v6.column)


def _v4(text: Column) -> Column:
    """The number of an IPv4 address; undefined for other texts."""
    parts = [f.split_part(text, f.lit("."), f.lit(place)).try_cast("bigint") for place in range(1, 5)]
    total = f.shiftleft(parts[0], 24)
    for part, bits in zip(parts[1:], (16, 8, 0), strict=True):
        total = total.bitwiseOR(f.shiftleft(part, bits))
    return total


def _v6(text: Column) -> Value:
    """The 32 digits of an IPv6 address; null for other texts."""
    return Value(_in_groups(text), STRING).once(_digits)


def _in_groups(text: Column) -> Column:
    """The text with an IPv4 address at its end replaced by two groups."""
    last = f.substring_index(text, ":", -1)
    before = f.substr(text, f.lit(1), f.length(text) - f.length(last))
    digits = f.lpad(f.hex(_v4(last)), 2 * _GROUP_DIGITS, "0")
    groups = f.concat(f.substr(digits, f.lit(1), f.lit(_GROUP_DIGITS)), f.lit(":"), f.substr(digits, f.lit(5)))
    return f.when(text.rlike(_V4_AT_END), f.concat(before, groups)).otherwise(text)


def _digits(groups: Value) -> Value:
    text = groups.column
    left = _padded(f.substring_index(text, "::", 1))
    right = _padded(f.substring_index(text, "::", -1))
    known = f.length(left) + f.length(right)
    short = f.when(
        known <= f.lit(_V6_DIGITS - _GROUP_DIGITS),
        f.concat(f.rpad(left, f.lit(_V6_DIGITS) - f.length(right), f.lit("0")), right),
    )
    whole = f.when(f.length(left) == f.lit(_V6_DIGITS), left)
    found = f.when(f.contains(text, f.lit("::")), short).otherwise(whole)
    return Value(f.when(text.rlike(_MAYBE_V6), found), STRING)


def _padded(groups: Column) -> Column:
    """Groups between colons as four digits each, without the colons."""
    padded = f.transform(f.split(f.lower(groups), ":"), lambda group: f.lpad(group, _GROUP_DIGITS, "0"))
    return f.when(groups == f.lit(""), f.lit("")).otherwise(f.array_join(padded, ""))
