"""IP addresses: whole columns of them against a network."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Final

import numpy as np
import pyarrow as pa

from milepost.query import subnet
from milepost.query.mask.text import raw
from milepost.query.mask.vector import Array, Bools, Index, Vector, both

_LONGEST: Final = len("255.255.255.255")
_SHORTEST: Final = len("0.0.0.0")


def in_subnet(texts: pa.Array, known: Bools | None, network: subnet.Network) -> Vector:
    """Which addresses are in a network; texts that are no address are not known."""
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
        _one_by_one(texts, others, network, inside, address)
    return Vector(inside, both(known, None if address.all() else address))


def _one_by_one(texts: pa.Array, rows: Index, network: subnet.Network, inside: Bools, address: Bools) -> None:
    # IPv6 has too many ways to write an address to parse it in columns. Equal texts are parsed once.
    distinct = texts.take(pa.array(rows)).dictionary_encode()
    answers = [subnet.contains(network, text) for text in distinct.dictionary.to_pylist()]
    codes = distinct.indices.to_numpy()
    inside[rows] = np.array([answer is True for answer in answers], np.bool_)[codes]
    address[rows] = np.array([answer is not None for answer in answers], np.bool_)[codes]


def _dotted(texts: pa.Array) -> tuple[Array, Bools]:
    """The numbers of IPv4 addresses, and which texts are such: four numbers up to 255 without leading zeros.

    All texts of a fitting length stand in a matrix, one byte a column, and one pass over the columns runs the automaton
    of the notation for all of them at once.
    """
    offsets, data = raw(texts)
    n = len(texts)
    sizes = offsets[1:] - offsets[:-1]
    good = (sizes >= _SHORTEST) & (sizes <= _LONGEST)
    total = np.zeros(n, np.int64)
    part = np.zeros(n, np.int64)  # the number being read
    digits = np.zeros(n, np.int8)  # how many digits of it were read
    dots = np.zeros(n, np.int8)
    if not good.any():
        return total, good
    last = max(len(data) - 1, 0)
    starts = offsets[:-1]
    for column in range(int(sizes[good].max())):
        reading = good & (column < sizes)
        byte = data[np.minimum(starts + column, last)]
        digit = (byte - np.uint8(ord("0"))).astype(np.int64)
        is_digit = digit < 10
        is_dot = byte == ord(".")
        # A second digit after a leading zero, or a fourth digit, is as wrong as any other character.
        wrong = ~np.where(is_digit, (digits < 3) & ~((digits == 1) & (part == 0)), is_dot & (digits > 0))
        good &= ~(reading & wrong)
        add, close = reading & is_digit, reading & is_dot
        good &= ~(close & (part > 255))
        total = np.where(close, (total << 8) | (part & 255), total)
        part = np.where(close, 0, np.where(add, part * 10 + digit, part))
        digits = np.where(close, 0, digits + add).astype(np.int8)
        dots += close
    good &= (dots == 3) & (digits > 0) & (part <= 255)
    return (total << 8) | (part & 255), good
