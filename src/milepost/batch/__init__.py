"""Messages as rows of columns: encode, view, take, concat, Arrow.

Begin with `batch`. `layout` draws the bytes of a level, `header` the bytes of a whole batch.
"""

from milepost.batch.batch import Batch, CaseGroup
from milepost.batch.collector import Collector
from milepost.batch.copier import Copier
from milepost.batch.draft import Draft
from milepost.batch.dynamic import DynamicValue
from milepost.batch.ids import IdRun, Ids, MessageId, Stamper
from milepost.batch.inference import schema_of
from milepost.batch.reader import projection, reader
from milepost.batch.row import ListView, Row, TupleView, VariantView

__all__ = [
    "Batch",
    "Collector",
    "Copier",
    "Draft",
    "DynamicValue",
    "CaseGroup",
    "Ids",
    "ListView",
    "MessageId",
    "Row",
    "IdRun",
    "Stamper",
    "TupleView",
    "VariantView",
    "projection",
    "reader",
    "schema_of",
]
