"""The schemas a process knows, by name and version and by fingerprint."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock

from milepost import limits
from milepost.errors import IncompatibleSchema, SchemaError, UnknownSchema, did_you_mean
from milepost.schema.types import Schema
from milepost.schema.versions import Versions


@dataclass(frozen=True, slots=True)
class RegistryStatistics:
    """How full a registry is."""

    names: int
    schemas: int  # every version counted
    maximum: int  # of schemas


class Registry:
    """Named, versioned schemas; any number of threads may use it at once.

    Versions of a name count from 1, in the order of registration; readers of any two can read each other's messages.
    Nothing is removed: a batch in a log may carry any fingerprint that was once registered.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._versions: dict[str, tuple[Schema, ...]] = {}
        self._families: dict[str, Versions] = {}  # the same, each before the versions that add to it
        self._by_fingerprint: dict[int, tuple[Schema, int]] = {}  # with its version

    def register(self, schema: Schema) -> int:
        """Register a schema and return its version: a new one, unless this very schema is registered already.

        Raises `IncompatibleSchema`, and changes nothing, if it would break readers of the other versions.
        """
        while True:
            with self._lock:
                if (known := self._registered(schema)) is not None:
                    return known
                before = self._versions.get(schema.name, ())
                family = self._families.get(schema.name)
            # Comparing may take long, so it runs without the lock, and again if another thread was faster.
            grown = Versions.of([schema]) if family is None else _grown(family, schema)
            with self._lock:
                if self._versions.get(schema.name, ()) is before and self._registered(schema) is None:
                    limits.require("REGISTRY_SCHEMAS", len(self._by_fingerprint) + 1, "schemas in the registry")
                    self._versions[schema.name] = (*before, schema)
                    self._families[schema.name] = grown
                    self._by_fingerprint[schema.fingerprint] = (schema, len(before) + 1)
                    return len(before) + 1

    def _registered(self, schema: Schema) -> int | None:
        known = self._by_fingerprint.get(schema.fingerprint)
        if known is not None and known[0].canonical != schema.canonical:
            raise SchemaError(
                f"{schema.name} has the same fingerprint as {known[0].name}, so that the two could not be told apart "
                "on the wire; change it a little, for example the order of its fields"
            )
        return None if known is None else known[1]

    def get(self, name: str, version: int | None = None) -> Schema:
        """The schema of a name, by default its newest version. Raises `UnknownSchema`.

        The newest is the last registered one that no other version adds to.
        """
        known = self.versions(name)
        if version is None:
            return self._families[name].schemas[-1]
        if not 1 <= version <= len(known):
            raise UnknownSchema(f"{name} has no version {version}, only 1 to {len(known)}")
        return known[version - 1]

    def versions(self, name: str) -> tuple[Schema, ...]:
        """Every version of a name, in order of registration: version 1 is at index 0."""
        try:
            return self._versions[name]
        except KeyError:
            near = did_you_mean(name, self.names())
            raise UnknownSchema(f"unknown schema {name!r}{near or '; register it first'}") from None

    def by_fingerprint(self, fingerprint: int) -> Schema:
        """The schema of a batch's fingerprint. Raises `UnknownSchema`."""
        try:
            return self._by_fingerprint[fingerprint][0]
        except KeyError:
            raise UnknownSchema(f"no schema has the fingerprint {fingerprint:#018x}; register it first") from None

    def names(self) -> tuple[str, ...]:
        """Every name, sorted."""
        with self._lock:
            return tuple(sorted(self._versions))

    def __contains__(self, name: str) -> bool:
        return name in self._versions

    def statistics(self) -> RegistryStatistics:
        """How full the registry is."""
        with self._lock:
            return RegistryStatistics(len(self._versions), len(self._by_fingerprint), limits.REGISTRY_SCHEMAS)


def _grown(family: Versions, new: Schema) -> Versions:
    if broken := family.misfits(new):
        shown = "".join(f"\n  {path}: {reason}" for path, reason in broken[:_SHOWN])
        more = f"\n  and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
        raise IncompatibleSchema(
            f"{new.name} would break its readers; add instead of changing, or choose a new name:{shown}{more}",
            paths=tuple(item.path for item in broken),
        )
    return family.joined(new)


_SHOWN = 10  # places that break, in one message
