"""Messages as rows of columns: encode, view, take, concat, Arrow.

`Batch` is the noun; `layout` draws the bytes of a level, `header` those of the whole.
"""

from milepost.batch.batch import Batch, Group
from milepost.batch.collector import Collector
from milepost.batch.copier import Copier
from milepost.batch.draft import Draft
from milepost.batch.dynamic import DynamicValue
from milepost.batch.ids import Ids, MessageId, Run, Stamper
from milepost.batch.inference import schema_of
from milepost.batch.reader import projection, reader
from milepost.batch.row import ListView, Row, TupleView, VariantView

__all__ = [
    "Batch",
    "Collector",
    "Copier",
    "Draft",
    "DynamicValue",
    "Group",
    "Ids",
    "ListView",
    "MessageId",
    "Row",
    "Run",
    "Stamper",
    "TupleView",
    "VariantView",
    "projection",
    "reader",
    "schema_of",
]
