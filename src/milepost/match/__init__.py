"""The subscription index: which of a million predicates does each row satisfy.

::

    index          predicates come and go                       Index
    snapshot       what is asked, for a batch                   Snapshot
    matches        what it answers                              Matches, Deliveries
    form, codes    a predicate as terms over columns of 64-bit codes; columns, texts
    access, ways   the term that a predicate is found by
    delta, segment, group     how subscriptions are held: the newest, the others, and those that share a predicate
    evaluation     predicates that no term says; masks, all of them while there are no kernels
    decoder, probe, builder, assembly      the kernels (`milepost.kernels` says what those are)
    scan           the parts that kernels share

Numba is imported when kernels are needed and are there: by `kernels.warm`, or by the first `Index` if they are kept.
"""

from milepost.match.index import Index, IndexStatistics
from milepost.match.masks import MaskSnapshot
from milepost.match.matches import Deliveries, Matches
from milepost.match.snapshot import Snapshot

__all__ = ["Deliveries", "Index", "IndexStatistics", "MaskSnapshot", "Matches", "Snapshot"]
