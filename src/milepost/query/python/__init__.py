"""The reference back end: one message at a time, in ordinary Python. Its results define the language.

It reads plain values, rows of batches and nodes. Other back ends are tested against it, so it is written to be obvious
rather than fast; still, a query becomes closures once, and a message costs one call.
"""

from milepost.query.python.compiler import compiled, evaluated
from milepost.query.python.moment import Moment
from milepost.query.python.selection import plain, rows

__all__ = ["Moment", "compiled", "evaluated", "plain", "rows"]
