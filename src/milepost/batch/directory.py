"""The directory of a batch: which cases occur, and which rows are in each. It follows the header.

`header` draws its bytes. A batch of a schema without variants has no directory.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from milepost import limits
from milepost.batch.format import BOXED, Format
from milepost.batch.header import HEADER, Buffer
from milepost.errors import MalformedBatch

Places = npt.NDArray[np.intp] | None
"""The rows of a group; None stands for all of them, in order."""


class Directory(NamedTuple):
    """The groups by code, with their rows, and the end of the directory; the first group follows, aligned."""

    groups: list[tuple[int, Places]]
    end: int


def written(rows: int, groups: Mapping[int, Places]) -> bytes:
    """The directory of a batch with these groups."""
    if BOXED in groups:
        return bytes(8)
    head = struct.pack(f"<I{len(groups)}I", len(groups), *groups)
    if len(groups) == 1:
        return head
    owner = np.zeros(rows, np.uint8)
    for number, mine in enumerate(groups.values()):
        owner[mine if mine is not None else slice(None)] = number
    return head + owner.tobytes()


def read(form: Format, data: Buffer, rows: int) -> Directory:
    """The directory of a batch, checked against its length and the schema's cases."""
    at = HEADER.size
    if not form.has_cases:
        return Directory([(0, None)], at)
    if len(data) < at + 8:
        raise MalformedBatch("the directory of cases is cut off")
    count, code = struct.unpack_from("<II", data, at)
    if count == 0:
        if code:
            raise MalformedBatch("the boxed form has code 0")
        return Directory([(BOXED, None)], at + 8)
    return _groups(form, data, rows, count)


def _groups(form: Format, data: Buffer, rows: int, count: int) -> Directory:
    at = HEADER.size + 4
    if count > limits.BATCH_GROUPS or form.always_boxed:
        most = 0 if form.always_boxed else limits.BATCH_GROUPS
        raise MalformedBatch(f"{count} groups in one batch, and at most {most} are allowed")
    if len(data) < at + 4 * count + (rows if count > 1 else 0):
        raise MalformedBatch("the directory of cases is cut off")
    codes = struct.unpack_from(f"<{count}I", data, at)
    if max(codes) >= form.cases.count or len(set(codes)) < count:
        raise MalformedBatch(f"case codes {codes[:8]} of {form.cases.count} cases")
    at += 4 * count
    if count == 1:
        return Directory([(codes[0], None)], at)
    owner = np.frombuffer(data, np.uint8, rows, at)
    sizes = np.bincount(owner, minlength=count)
    if len(sizes) > count:
        raise MalformedBatch(f"a row in group {len(sizes) - 1} of {count}")
    if not sizes.all():
        raise MalformedBatch(f"group {int(sizes.argmin())} has no rows")
    return Directory([(code, np.flatnonzero(owner == number)) for number, code in enumerate(codes)], at + rows)
