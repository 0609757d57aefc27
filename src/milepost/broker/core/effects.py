"""What the core wants done. The shell does it in this order, and answers with events."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from milepost.broker.core.connection import Connection
from milepost.wire import Control
from milepost.wire.payload import Buffer


class Say(NamedTuple):
    """Write a control frame."""

    connection: Connection
    message: Control


class Deliver(NamedTuple):
    """Write one DELIVER frame, in parts, to each of some connections; credit is spent already.

    Of a connection whose link does not take all of it, the shell tells by `Core.blocked`.
    """

    parts: tuple[Buffer, ...]
    connections: list[Connection]


class Close(NamedTuple):
    """Send what was said, then close; `Core.lost` has already been taken care of."""

    connection: Connection


Effect: TypeAlias = Say | Deliver | Close
