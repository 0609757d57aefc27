"""Checks of a request about a durable subscription that need no knowledge of existing topics or subscriptions."""

from __future__ import annotations

from typing import Final

from milepost import limits
from milepost.broker.core.topics.pattern import is_pattern
from milepost.errors import BrokerError
from milepost.wire import Subscribe

TOKEN_BYTES: Final = 16


def require_terms(request: Subscribe) -> None:
    """Refuse an invalid request for a durable subscription."""
    if is_pattern(request.pattern):
        raise BrokerError(f"a durable subscription is to one topic; {request.pattern!r} is a pattern")
    if not 0 <= request.subscription <= limits.SUBSCRIPTION_NUMBER:
        raise BrokerError(f"{request.subscription} is no number of a subscription: it takes 32 bits")
    limits.require("WHERE_CHARS", len(request.where or ""), "the characters of a subscription's predicate")
    require_subscription_name(request.name)
    if not 1 <= request.prefetch <= limits.PREFETCH_ROWS:
        raise BrokerError(f"prefetch = {request.prefetch}: takes 1 to {limits.PREFETCH_ROWS} rows")
    require_token(request.token)
    limits.require("DELIVERIES", request.max_deliveries, "max_deliveries")
    if request.max_deliveries < 0 or bool(request.max_deliveries) != bool(request.dead_letter):
        raise BrokerError("dead_letter takes messages that were delivered max_deliveries times: give both or neither")
    if request.where is not None and "\0" in request.where:
        raise BrokerError("a predicate cannot hold the character 0, which no database stores")


def require_subscription_name(name: str) -> None:
    """Refuse an invalid name of a durable subscription or hold."""
    limits.require("NAME_CHARS", len(name), "the characters of a subscription's name")
    if not name.isprintable():
        raise BrokerError("a subscription's name is shown to people: it takes printable characters only")


def require_token(token: bytes) -> None:
    """Refuse an invalid token; an empty one means that the request has none."""
    if token and len(token) != TOKEN_BYTES:
        raise BrokerError(f"a token has {TOKEN_BYTES} bytes")
