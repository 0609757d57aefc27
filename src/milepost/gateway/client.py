"""The client that a gateway is, to its broker."""

from __future__ import annotations

from typing import ClassVar

from milepost.client import AsyncClient


class GatewayClient(AsyncClient):
    """A client whose connections say that they speak for clients of another protocol."""

    _kind: ClassVar = "gateway"
