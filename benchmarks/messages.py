"""The six message schemas that the flat-tuple format has always been measured with, and random messages of them.

Sixteen fields, all ints or all strings. *flat*: side by side. *nested*: the same fields at the bottom of a hierarchy of
two parts, four sections, eight areas and sixteen pieces. *optNest*: nested, and every fourth piece is optional; here it
is absent in half the messages. Where these schemas were first measured a piece was optional by a variant of two cases,
one of them empty. Milepost has that, and optional pieces as such; it is measured with both.
"""

from __future__ import annotations

import random
import string
from dataclasses import dataclass
from typing import Any, Literal

FIELDS = 16
OPTIONAL_EVERY = 4  # the fourth, eighth, twelfth and sixteenth piece
TEXT = string.ascii_letters + string.digits  # nothing that JSON or XML would have to escape
TEXT_CHARS = (4, 16)

ABSENT, PRESENT = "none", "some"  # the cases of a variant that makes a piece optional

Values = list[Any]  # one per field, None where the field is absent


@dataclass(frozen=True)
class Shape:
    """One of the six schemas, in terms every format can build its own schema from."""

    name: str
    kind: Literal["int", "string"]
    nested: bool = False
    sparse: bool = False  # every fourth field optional

    def path(self, field: int) -> tuple[str, ...]:
        """The names from the root to a field, the field's own name last."""
        name = f"field{field:X}"
        if not self.nested:
            return (name,)
        letter = "ABCDEFGHIJKLMNOP"
        return (f"part{letter[field // 8]}", f"section{letter[field // 4]}", f"area{letter[field // 2]}",
                f"piece{letter[field]}", name)  # fmt: skip

    def optional(self, field: int) -> bool:
        """Whether the field's piece may be absent."""
        return self.sparse and field % OPTIONAL_EVERY == OPTIONAL_EVERY - 1

    def tree(self) -> dict[str, Any]:
        """The schema as nested dicts; a leaf is the number of its field."""
        root: dict[str, Any] = {}
        for field in range(FIELDS):
            *above, name = self.path(field)
            place = root
            for step in above:
                place = place.setdefault(step, {})
            place[name] = field
        return root

    def nest(self, values: Values, variants: bool = False) -> dict[str, Any]:
        """A message as nested dicts, without the pieces that are absent; or with the cases of their variants."""
        root: dict[str, Any] = {}
        for field, value in enumerate(values):
            varies = variants and self.optional(field)
            if value is not None or varies:
                *above, name = self.path(field)
                place = root
                for step in (*above, PRESENT if value is not None else ABSENT) if varies else above:
                    place = place.setdefault(step, {})
                if value is not None:
                    place[name] = value
        return root

    def text(self, variants: bool = False) -> str:
        """The schema in Milepost's notation; with variants in the place of optional pieces, if that is wanted."""

        def written(tree: dict[str, Any]) -> str:
            return f"[{', '.join(f'{name}: {of(item)}' for name, item in tree.items())}]"

        def of(item: Any) -> str:
            if isinstance(item, int):
                return self.kind
            leaf = next(iter(item.values()))
            if not isinstance(leaf, int) or not self.optional(leaf):
                return written(item)
            return f"{{{ABSENT}: [] | {PRESENT}: {written(item)}}}" if variants else written(item) + "?"

        return f"{self.name}: {written(self.tree())}"

    def messages(self, count: int, seed: int) -> list[Values]:
        """Random messages: 32-bit ints over their whole range, or short ASCII strings."""
        rng = random.Random(seed)

        def value(field: int) -> Any:
            if self.optional(field) and rng.random() < 0.5:
                return None
            if self.kind == "int":
                return rng.randrange(-(1 << 31), 1 << 31)
            return "".join(rng.choices(TEXT, k=rng.randint(*TEXT_CHARS)))

        return [[value(field) for field in range(FIELDS)] for _ in range(count)]


SHAPES = (
    Shape("flatInt", "int"),
    Shape("flatString", "string"),
    Shape("nestedInt", "int", nested=True),
    Shape("nestedString", "string", nested=True),
    Shape("optNestInt", "int", nested=True, sparse=True),
    Shape("optNestString", "string", nested=True, sparse=True),
)
