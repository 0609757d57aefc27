"""Networks for `in_subnet`. Addresses are parsed strictly, since lenient parsers differ between engines."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network


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
