"""The subscription index: which of a million predicates does each row satisfy.

::

    index          predicates are added and removed             Index
    snapshot       matches a batch                              Snapshot
    matches        the result of a match                        Matches, Deliveries
    form, codes    a predicate as terms over columns of 64-bit codes; columns, texts
    access         the term by which a predicate is found
    delta, segment, group     subscriptions: the newest, the others, and the ones that share a predicate
    evaluation     predicates that terms cannot express; masks: all predicates, while there are no kernels
    decoder, probe, builder, assembly      the kernels (see `milepost.kernels`)
    scan           the parts that kernels share

Numba is imported by `kernels.warm`, or by the first `Index` if the kernels are in the cache.
"""

from milepost.match.index import Index, IndexStatistics
from milepost.match.masks import MaskSnapshot
from milepost.match.matches import Deliveries, Matches
from milepost.match.snapshot import Snapshot

__all__ = ["Deliveries", "Index", "IndexStatistics", "MaskSnapshot", "Matches", "Snapshot"]
