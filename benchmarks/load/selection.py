"""The workload of the selector run: events with a symbol and a price, and selectors of one equality and one range."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

SYMBOLS = 1_000
HIGHEST = 100  # prices are whole cents below this many units, evenly spread; so are the bounds, in whole units
SCHEMA = "event: [symbol: string, price: double, number: long]"

Wanted = npt.NDArray[np.int64]


class Selection:
    """`count` selectors, and as many events as are asked for; the same ones for every broker, by the seed."""

    def __init__(self, count: int) -> None:
        rng = np.random.default_rng(10)
        self.symbols = rng.integers(0, SYMBOLS, count)
        self.bounds = rng.integers(0, HIGHEST, count)

    def texts(self) -> list[str]:
        """The selectors, in a text that ActiveMQ and Milepost read alike: without a decimal point after the bound,
        ActiveMQ would read a whole number out of the price, which is text in STOMP, fail, and match nothing.
        """
        pairs = zip(self.symbols.tolist(), self.bounds.tolist(), strict=True)
        return [f"symbol = 'S{symbol}' and price > {bound}.0" for symbol, bound in pairs]

    def events(self, count: int) -> dict[str, Any]:
        """Symbol numbers and prices; a longer list begins with the shorter one."""
        rng = np.random.default_rng(11)
        drawn = rng.integers(0, (SYMBOLS, 100 * HIGHEST), (count, 2))
        return {"symbol": drawn[:, 0], "price": drawn[:, 1] / 100}

    def matches(self, count: int) -> int:
        """The number of pairs of an event and a selector that it satisfies, among the first events."""
        events = self.events(count)
        bounds = [np.sort(self.bounds[self.symbols == symbol]) for symbol in range(SYMBOLS)]
        return sum(
            int(np.searchsorted(bounds[symbol], price, side="left"))
            for symbol, price in zip(events["symbol"].tolist(), events["price"].tolist(), strict=True)
        )
