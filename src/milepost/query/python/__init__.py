"""The plain back end: one message at a time, in ordinary Python. What it answers is what the language means.

It reads plain values, rows of batches and nodes alike. Other back ends are tested against it, so it prefers being
obvious to being fast; still, a query becomes closures once, and a message costs one call.
"""

from milepost.query.python.compiler import compiled, evaluated
from milepost.query.python.moment import Moment
from milepost.query.python.selection import plain, rows

__all__ = ["Moment", "compiled", "evaluated", "plain", "rows"]
