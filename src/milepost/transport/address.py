"""Addresses of brokers: `milepost://host:port`, `inproc://name`; and of databases that are worked on without one."""

from __future__ import annotations

from typing import Final, NamedTuple
from urllib.parse import urlsplit

from milepost.errors import ConfigError, did_you_mean

DEFAULT_PORT: Final = 7450
SCHEMES: Final = ("milepost", "inproc")
DATABASE: Final = "postgresql"  # the scheme of a database: its queues, in the client's own process


class Address(NamedTuple):
    """Where a broker is."""

    scheme: str
    host: str  # of inproc, the name; of a database, all of its URL
    port: int = 0

    def __str__(self) -> str:
        if self.scheme == DATABASE:
            parts = urlsplit(self.host)  # without the password, which may also stand behind the question mark
            named = f"{parts.username}@" if parts.username else ""
            return f"{DATABASE}://{named}{parts.netloc.rpartition('@')[2]}{parts.path}"
        if self.scheme == "inproc":
            return f"inproc://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def parse_address(text: str) -> Address:
    """The address that a text names; `host:port` and `host` alone mean `milepost://`."""
    if text.isdigit():
        raise ConfigError(f"{text!r} is a port alone; write 127.0.0.1:{text}")
    if text.startswith((f"{DATABASE}://", "postgres://")):
        return Address(DATABASE, text)
    if "://" not in text:
        text = f"milepost://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise ConfigError(f"{text!r} is no address: {error}; write milepost://host:port") from None
    if parts.scheme not in SCHEMES:
        near = did_you_mean(parts.scheme, SCHEMES) or "; write milepost://host:port"
        raise ConfigError(f"{text!r}: no transport is called {parts.scheme!r}{near}")
    if not parts.hostname:
        raise ConfigError(f"{text!r} names no host; write milepost://host:port")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise ConfigError(f"{text!r} has more than a host and a port; write milepost://host:port")
    if parts.scheme == "inproc":
        return Address("inproc", parts.netloc)
    return Address(parts.scheme, parts.hostname, DEFAULT_PORT if port is None else port)
