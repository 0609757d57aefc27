"""The settings of a broker: one frozen object. Defaults, with units and reasons, are in `defaults.toml`."""

from __future__ import annotations

import tomllib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from milepost import limits
from milepost.errors import ConfigError, did_you_mean


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Each field is explained in `defaults.toml`."""

    name: str
    listen: str
    http: str
    zmq: str
    zmq_curve: str
    store: str
    cut_through: bool
    input_queues: int
    put_window: int
    queue_bytes: int
    delivery_window: int
    frame_bytes: int
    join_bytes: int
    memory_bytes: int
    connections_per_address: int
    remember_s: float
    staged_s: float
    lease_s: float
    queue_lease_s: float
    heartbeat_s: float
    handshake_s: float
    frame_s: float

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= limits.NAME_CHARS:
            raise ValueError(f"name has {len(self.name)} characters, and takes 1 to {limits.NAME_CHARS}")
        for name in ("put_window", "queue_bytes", "delivery_window", "frame_bytes", "join_bytes"):
            if not MINIMUM_BYTES <= getattr(self, name) <= limits.BATCH_BYTES:
                raise ValueError(f"{name} = {getattr(self, name)}: takes {MINIMUM_BYTES} to {limits.BATCH_BYTES} bytes")
        if not MINIMUM_FRAME <= self.frame_bytes <= limits.FRAME_BYTES:
            raise ValueError(f"frame_bytes = {self.frame_bytes}: takes {MINIMUM_FRAME} to {limits.FRAME_BYTES} bytes")
        if not MINIMUM_MEMORY <= self.memory_bytes <= 1 << 50:
            raise ValueError(f"memory_bytes = {self.memory_bytes}: takes {MINIMUM_MEMORY} bytes or more")
        if not 0 <= self.connections_per_address <= 1 << 30:
            raise ValueError(f"connections_per_address = {self.connections_per_address}: takes 1 or more, or 0")
        for name in ("heartbeat_s", "handshake_s", "frame_s", "lease_s", "queue_lease_s"):
            if not 0 < getattr(self, name) <= 86_400:
                raise ValueError(f"{name} = {getattr(self, name)}: takes more than 0 and at most 86,400 seconds")
        for name in ("remember_s", "staged_s"):
            if not 0 < getattr(self, name) <= limits.REMEMBERED_S:
                raise ValueError(
                    f"{name} = {getattr(self, name)}: takes more than 0 and at most {limits.REMEMBERED_S} seconds"
                )
        if not 0 <= self.input_queues <= 64:
            raise ValueError(f"input_queues = {self.input_queues}: takes 0 to 64")


MINIMUM_FRAME = 65_536  # bytes: clients gather rows of some hundred bytes into a frame without measuring each
MINIMUM_MEMORY = 1 << 20  # bytes for all connections: enough for answers when everything else is in use
MINIMUM_BYTES = 1024  # of a window: a smaller one would stop all traffic


def settings(file: Path | None = None, **changes: Any) -> Settings:
    """The defaults, changed by a file and then by name. A change that is None leaves the setting unchanged.

    Raises `ConfigError` that names the wrong setting.
    """
    values = dict(_defaults())
    if file is not None:
        values |= _read(file)
    values |= {name: value for name, value in changes.items() if value is not None}
    for name in values:
        if name not in Settings.__struct_fields__:
            raise ConfigError(f"unknown setting {name!r}{did_you_mean(name, Settings.__struct_fields__)}")
    try:
        return msgspec.convert(values, Settings)
    except msgspec.ValidationError as error:
        raise ConfigError(f"settings: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file} is not TOML: {error}") from None
    broker = found.pop("broker", {})
    if found or not isinstance(broker, dict):
        raise ConfigError(f"{file}: put all settings under [broker], and remove everything else")
    return broker


@cache
def _defaults() -> dict[str, Any]:
    broker: dict[str, Any] = tomllib.loads(files("milepost").joinpath("defaults.toml").read_text("utf-8"))["broker"]
    return broker
