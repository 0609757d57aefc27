"""The client by which a gateway connects to its broker."""

from __future__ import annotations

from typing import ClassVar

from milepost.client import AsyncClient


class GatewayClient(AsyncClient):
    """A client whose connections declare that they act for clients of another protocol."""

    _kind: ClassVar = "gateway"
