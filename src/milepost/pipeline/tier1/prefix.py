"""Addresses and networks as keys of equi-joins: a network contains an address when their first bits are equal."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f

from milepost.pipeline.tier1.columns import named
from milepost.query.spark.address import v4_number, v6_digits
from milepost.query.spark.value import STRING, Value
from milepost.query.subnet import Network

V4: Final = "#v4"  # the number of an IPv4 address, null for other texts
V6: Final = "#v6"  # the 32 hexadecimal digits of an IPv6 address, null for other texts
DIGIT_BITS: Final = 4
DIGITS: Final = 32


@dataclass(frozen=True)
class PrefixGroup:
    """The networks of one IP version and one prefix length."""

    version: int
    length: int
    key: Column  # the part of an event's address that must equal a network's key; over the columns V4 and V6
    keys: pa.Array
    rows: pa.Array  # the rows of the table with these networks


def address(name: str) -> tuple[Column, Column]:
    """The columns V4 and V6 of a column of text.

    The argument is a column, not an expression, because it is used several times here: Spark's way to compute an
    expression once runs outside its generated code.
    """
    given = Value(named(name), STRING, leaf=True)
    return v4_number(given).column, v6_digits(given).column


def groups(networks: Iterable[Network]) -> list[PrefixGroup]:
    """The longest prefixes first, so that the first match is the smallest network."""
    rows: dict[tuple[int, int], list[int]] = {}
    known = list(networks)
    for row, network in enumerate(known):
        rows.setdefault((network.version, network.prefixlen), []).append(row)
    made = []
    for version, length in sorted(rows, reverse=True):
        chosen = rows[version, length]
        starts = [int(known[row].network_address) for row in chosen]
        if version == 4:
            key = f.shiftright(named(V4), 32 - length) if length else f.when(named(V4).isNotNull(), f.lit(0))
            keys = pa.array([start >> (32 - length) for start in starts], pa.int64())
        else:
            key = _first_bits(length)
            keys = pa.array([_digits(start, length) for start in starts], pa.string())
        made.append(PrefixGroup(version, length, key, keys, pa.array(chosen, pa.int64())))
    return made


def _first_bits(length: int) -> Column:
    """The first bits of V6 as hexadecimal digits, with the bits behind the prefix cleared in the last digit."""
    whole, rest = divmod(length, DIGIT_BITS)
    first = f.substr(named(V6), f.lit(1), f.lit(whole))
    if not rest:
        return first
    digit = f.conv(f.substr(named(V6), f.lit(whole + 1), f.lit(1)), 16, 10).try_cast("int")
    mask = (0xF << (DIGIT_BITS - rest)) & 0xF
    return f.concat(first, f.lower(f.hex(digit.bitwiseAND(f.lit(mask)))))


def _digits(start: int, length: int) -> str:
    return f"{start:0{DIGITS}x}"[: -(-length // DIGIT_BITS)]
