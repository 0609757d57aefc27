"""IP addresses: whole columns tested against a network."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import IPv4Network
from typing import Final

import numpy as np
import pyarrow as pa

from milepost.query import subnet
from milepost.query.mask.text import raw
from milepost.query.mask.vector import Array, Bools, Index, Vector, both

PARSE_STEPS: Final = 1_000  # steps that parsing one text counts for


def in_subnet(texts: pa.Array, known: Bools | None, network: subnet.Network, spend: Callable[[int], None]) -> Vector:
    """Which addresses are in a network; null for texts that are not an address."""
    numbers, is_v4 = _dotted(texts)
    if isinstance(network, IPv4Network):
        inside = (numbers & int(network.netmask)) == int(network.network_address)
    else:
        inside = np.zeros(len(texts), np.bool_)
    inside &= is_v4
    others = np.flatnonzero(~is_v4)
    address = is_v4
    if len(others):
        address = is_v4.copy()
        _one_by_one(texts, others, network, inside, address, spend)
    return Vector(inside, both(known, None if address.all() else address))


def _one_by_one(
    texts: pa.Array, rows: Index, network: subnet.Network, inside: Bools, address: Bools, spend: Callable[[int], None]
) -> None:
    # IPv6 addresses have too many notations to be parsed in columns. Equal texts are parsed once.
    distinct = texts.take(pa.array(rows)).dictionary_encode()
    spend(len(distinct.dictionary) * PARSE_STEPS)
    answers = [subnet.contains(network, text) for text in distinct.dictionary.to_pylist()]
    codes = distinct.indices.to_numpy()
    inside[rows] = np.array([answer is True for answer in answers], np.bool_)[codes]
    address[rows] = np.array([answer is not None for answer in answers], np.bool_)[codes]


def _dotted(texts: pa.Array) -> tuple[Array, Bools]:
    """The numbers of IPv4 addresses, and which texts are one: four numbers up to 255 without leading zeros.

    There is no loop over texts. One pass over the bytes of the column finds all dots; if a text has three, its four
    numbers end just before them and at its end.
    """
    offsets, data = raw(texts)
    numbers = np.zeros(len(texts), np.int64)
    good = np.zeros(len(texts), np.bool_)
    if not len(texts):
        return numbers, good
    borders = offsets - offsets[0]
    digits = data[offsets[0] : offsets[-1]] - np.uint8(ord("0"))  # wraps around: values above 9 are not digits
    is_dot = digits == _DOT
    dots_before = np.zeros(len(digits) + 1, np.int32)
    np.cumsum(is_dot, out=dots_before[1:])
    dots_before = dots_before[borders]
    rows = np.flatnonzero(np.diff(dots_before) == 3)
    if not len(rows):
        return numbers, good
    dots = np.flatnonzero(is_dot).astype(np.int32)
    first = dots_before[rows]
    ends = [dots[first], dots[first + 1], dots[first + 2], borders[rows + 1]]
    fine = np.ones(len(rows), np.bool_)
    total = np.zeros(len(rows), np.int64)
    start = borders[rows]
    for end in ends:
        part, valid = _number(digits, start, end)
        total = total << 8 | part
        fine &= valid
        start = end + 1
    good[rows] = fine
    numbers[rows] = total
    return numbers, good


_DOT: Final = (ord(".") - ord("0")) % 256


def _number(digits: Array, start: Array, end: Array) -> tuple[Array, Bools]:
    """The numbers between positions of the column, and which are valid: one to three digits."""
    size = end - start
    ones = digits.take(end - 1, mode="clip")
    tens = digits.take(end - 2, mode="clip")
    hundreds = digits.take(end - 3, mode="clip")
    two, three = size >= 2, size == 3
    value = ones + two * (np.int16(10) * tens) + three * (np.int16(100) * hundreds)
    # The highest digit may be zero only if it is the only one.
    written = (ones < 10) & (~two | (tens < 10)) & (~three | ((hundreds < 10) & (hundreds > 0)))
    written &= (size >= 1) & (size <= 3) & ((size != 2) | (tens > 0))
    return value, written & (value < 256)
