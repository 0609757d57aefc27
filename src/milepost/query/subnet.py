"""Networks for `in_subnet`. Addresses are parsed strictly, since lenient parsers differ between engines."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network

# Patterns of the texts that `address` accepts, for engines whose own parsers accept others.
V4_BYTE: Final = "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
V4: Final = rf"{V4_BYTE}(?:\.{V4_BYTE}){{3}}"
V6_GROUP: Final = "[0-9A-Fa-f]{1,4}"


def _v6() -> str:
    """A pattern for every text of an IPv6 address; `::` replaces at least one group."""
    group = f"{V6_GROUP}:"
    whole = [f"(?:{group}){{7}}{V6_GROUP}", f"(?:{group}){{6}}{V4}"]
    short = [f"(?:{group}){{1,7}}:", f"::(?:{group}){{0,6}}{V6_GROUP}", "::", f"::(?:{group}){{0,5}}{V4}"]
    short += [f"(?:{group}){{1,{7 - after}}}:(?:{group}){{{after - 1}}}{V6_GROUP}" for after in range(1, 7)]
    short += [f"(?:{group}){{1,{5 - before}}}:(?:{group}){{{before}}}{V4}" for before in range(5)]
    return "|".join((*whole, *short))


V6: Final = _v6()


def network(text: str) -> Network:
    """The network of a text in CIDR notation. Raises ValueError, with a message for the author of the query."""
    try:
        return ip_network(text)
    except ValueError:
        pass
    try:
        loose = ip_network(text, strict=False)
    except ValueError:
        raise ValueError(f"{text!r} is not a network: write one such as '10.0.0.0/8' or '2001:db8::/32'") from None
    raise ValueError(f"{text!r} has bits set behind its prefix; write '{loose}'")


def address(text: str) -> IPv4Address | IPv6Address | None:
    """The address in a text; None when it is not an address. A zone index is not allowed."""
    try:
        return None if "%" in text else ip_address(text)
    except (AddressValueError, ValueError):
        return None


def contains(within: Network, text: str) -> bool | None:
    """Whether the address in a text is in a network; None when it is not an address, false for the other IP version."""
    found = address(text)
    return None if found is None else found in within
