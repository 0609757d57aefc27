"""Windows over panes: rows are folded once, into intervals of time that no edge of a window cuts.

Windows start every `slide` and have the length `size`. Their edges, starts and ends, cut time into panes, at most two
in each slide; with r = size mod slide::

        |  2q  |   2q+1    | 2q+2 |   2q+3    |      window q has `span` panes from 2q on
        ^      ^
     q * slide  q * slide + r: where an earlier window ends (when r is 0, there are no even panes)

So the state of a window with a slide of 999 ms and a size of 1 s holds two partials a second for each key, not a
thousand as with panes of the greatest common divisor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from milepost.pipeline.tier2.columns import Ints, ranges


@dataclass(frozen=True)
class Grid:
    """Windows [n * slide + offset, n * slide + offset + size), for all whole n; microseconds."""

    size: int
    slide: int
    offset: int = 0

    @property
    def span(self) -> int:
        """Panes in a window."""
        return 2 * (self.size // self.slide) + (self.size % self.slide > 0)

    def pane(self, times: Ints) -> Ints:
        since = times - self.offset
        slides = since // self.slide
        return 2 * slides + (since - slides * self.slide >= self.size % self.slide)

    def start(self, windows: Ints) -> Ints:
        return windows * self.slide + self.offset

    def closed(self, watermark: int) -> int:
        """The last window that can get no more rows."""
        return (watermark + 1 - self.size - self.offset) // self.slide

    def done(self, closed: int) -> int:
        """The first pane that a window after `closed` needs."""
        return 2 * (closed + 1)

    def windows(self, panes: Ints, after: int | None, until: int) -> Ints:
        """The windows with any of these ascending panes, after `after` and up to `until`."""
        panes = panes[np.r_[True, panes[1:] != panes[:-1]][: len(panes)]]
        starts, stops = (panes - self.span) // 2 + 1, np.minimum((panes >> 1) + 1, until + 1)
        if after is not None:
            starts = np.maximum(starts, after + 1)
        # Neighbouring panes share windows. Each adds the windows that the panes before it have not added.
        starts[1:] = np.maximum(starts[1:], stops[:-1])
        some = stops > starts
        starts, stops = starts[some], stops[some]
        return ranges(starts, stops)

    def rows(self, panes: Ints, windows: Ints) -> tuple[Ints, Ints]:
        """For rows sorted by pane, where each window starts and stops."""
        return np.searchsorted(panes, 2 * windows), np.searchsorted(panes, 2 * windows + self.span)
