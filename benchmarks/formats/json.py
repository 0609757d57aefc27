"""JSON by orjson."""

from __future__ import annotations

import orjson

from benchmarks.formats.format import Parsed
from benchmarks.messages import Shape, Values


class Json(Parsed):
    """Objects in objects; an absent piece is left out, which is shorter and faster than null."""

    name = "orjson"

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape)
        self.names = {"parse": orjson.loads}

    def write(self, values: Values) -> bytes:
        return orjson.dumps(self.shape.nest(values))

    def expression(self, field: int) -> str:
        *above, name = self.shape.path(field)
        if self.shape.optional(field):
            *above, piece = above
            walk = "root" + "".join(f"[{step!r}]" for step in above)
            return f"(p[{name!r}] if (p := {walk}.get({piece!r})) is not None else None)"
        return "root" + "".join(f"[{step!r}]" for step in (*above, name))
