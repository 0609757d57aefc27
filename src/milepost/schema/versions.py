"""The versions of a schema that are in use at the same time, as those of a topic.

They form a tree, not a line: an old version may be declared after a new one, if the newer program started first, and
programs that extend one version independently read each other's messages.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from milepost.schema.evolution import Break, Effort, breaks, compatible, conflicts
from milepost.schema.merge import merged
from milepost.schema.types import Schema


class Versions(NamedTuple):
    """Versions, each before the versions that add to it, so that the last is the newest; and their merged schema."""

    schemas: tuple[Schema, ...]
    merged: Schema

    @classmethod
    def of(cls, schemas: Iterable[Schema]) -> Versions:
        """Versions in any order. At least one."""
        first, *others = schemas
        made = cls((first,), first)
        for schema in others:
            made = made.joined(schema)
        return made

    def misfits(self, schema: Schema) -> list[Break]:
        """Why a schema cannot be one more version; empty when it can.

        It has to agree with all versions, and to extend one of them or be extended by one: without the second rule, a
        renamed field would pass as an extension.
        """
        effort = Effort()  # one for all comparisons, since other threads wait for them
        if compatible(self.merged, schema, effort):
            return []
        broken = breaks(self.schemas[-1], schema, effort)
        if found := conflicts(self.merged, schema, effort):
            return broken if set(found) <= set(broken) else found
        for each in reversed(self.schemas):
            if compatible(each, schema, effort) or compatible(schema, each, effort):
                return []
        return broken

    def joined(self, schema: Schema) -> Versions:
        """The versions with one more that fits. Raises `IncompatibleSchema` if they cannot be merged."""
        made = merged(self.merged, schema)
        place = len(self.schemas)
        if made is not schema:
            effort = Effort()
            adds = (compatible(schema, each, effort) and not compatible(each, schema, effort) for each in self.schemas)
            place = next((at for at, later in enumerate(adds) if later), place)
        return Versions((*self.schemas[:place], schema, *self.schemas[place:]), made)
