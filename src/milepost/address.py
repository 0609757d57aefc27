"""Addresses of brokers: `milepost://host:port`, `inproc://name`; and of databases that are used without a broker."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from milepost.errors import ConfigError, did_you_mean

DEFAULT_PORT: Final = 7450
SCHEMES: Final = ("milepost", "inproc")
_SCHEME: Final = re.compile(r"((?:milepost|inproc|postgres(?:ql)?(?:\+\w+)?|sqlite(?:\+\w+)?):/+)?(.*)", re.DOTALL)
DATABASE: Final = "postgresql"  # the scheme of a database, whose queues are served in the client's own process


class Address(NamedTuple):
    """The address of a broker or a database."""

    scheme: str
    host: str  # for inproc, the name; for a database, its whole URL
    port: int = 0

    def __str__(self) -> str:
        if self.scheme == DATABASE:
            return masked(self.host)
        if self.scheme == "inproc":
            return f"inproc://{self.host}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}"


def masked(text: str) -> str:
    """A URL for people, logs and clients: without a password, and without the query, which may hold one.

    Also if it cannot be parsed: with an unescaped `@`, `/` or `?` in the password, or one slash instead of two.
    """
    scheme, text = _SCHEME.match(text).groups(default="")  # type: ignore[union-attr]  # it matches any text
    credentials, at, place = text.rpartition("@")
    user, colon, _ = credentials.partition(":")
    if at and not any(sign in user for sign in "/?#"):  # otherwise the @ belongs to the path or the query
        text = f"{user}{':***' if colon else ''}@{place}"
    return f"{scheme}{re.split('[?#]', text, maxsplit=1)[0]}"


def parse_broker(text: str) -> Address:
    """The address of a broker that another broker is told to connect to. Raises `ConfigError` for anything else.

    A broker must not open a database because a client says so.
    """
    found = parse_address(text)
    if found.scheme == DATABASE:
        raise ConfigError(f"{masked(text)!r} is not the address of a broker: write milepost://host:port")
    return found


def parse_address(text: str) -> Address:
    """The address in a text; `host:port` and `host` alone mean `milepost://`."""
    if text.isdigit():
        raise ConfigError(f"{text!r} is a port alone; write 127.0.0.1:{text}")
    if text.startswith((f"{DATABASE}://", "postgres://")):
        return Address(DATABASE, text)
    if text.partition(":")[0] in (DATABASE, "postgres"):
        raise ConfigError(f"{masked(text)!r} lacks '//' after the colon; write {DATABASE}://user@host/database")
    if "://" not in text:
        text = f"milepost://{text}"
    shown = masked(text)
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        # The error quotes the port, which is part of the password if that has an unescaped sign in it.
        why = "" if "@" in text else f": {error}"
        raise ConfigError(f"{shown!r} is no address{why}; write milepost://host:port") from None
    if parts.scheme not in SCHEMES:
        near = did_you_mean(parts.scheme, SCHEMES) or "; write milepost://host:port"
        raise ConfigError(f"{shown!r}: no transport is called {parts.scheme!r}{near}")
    if not parts.hostname:
        raise ConfigError(f"{shown!r} names no host; write milepost://host:port")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise ConfigError(f"{shown!r} has more than a host and a port; write milepost://host:port")
    if parts.scheme == "inproc":
        return Address("inproc", parts.netloc)
    return Address(parts.scheme, parts.hostname, DEFAULT_PORT if port is None else port)
