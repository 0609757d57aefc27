"""How a posting is found: always, by the value of a column, or by an interval of a column's values."""

from typing import Final

ALWAYS: Final = 0
EQUAL: Final = 1
RANGE: Final = 2
