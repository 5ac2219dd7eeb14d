"""A cell as matrices, and the passes of the interval DP over them.

Stages are counted from the end: position 0 is the last stage. Matrices are
int64 of shape (n + 1, n + 1); entry [low, high] is the stage of layers low to
high - 1, `INFINITE` where it is empty, does not fit or is forbidden.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.int64]

# Two of these still add up inside int64; every finite total is below 2**60.
INFINITE = 2**61
UNLIMITED = INFINITE - 1


def suffix_start(layers: int) -> Array:
    """Return the values of "no stage": nothing left at layer n, impossible elsewhere."""
    start = np.full(layers + 1, INFINITE, np.int64)
    start[layers] = 0
    return start


def extend_max(cost: Array, suffix: Array) -> Array:
    """Return, for each low, the least over high of max(cost[low, high], suffix[high])."""
    best: Array = np.maximum(cost, suffix).min(axis=-1)
    return best


def extend_sum(cost: Array, suffix: Array) -> Array:
    """Return, for each low, the least over high of cost[low, high] + suffix[high]."""
    best: Array = np.minimum((cost + suffix).min(axis=-1), INFINITE)
    return best


@dataclass(frozen=True)
class Chain:
    """One cell: per position from the end, stage times and syncs.

    Attributes
    ----------
    time
        F of every interval at each position, shape (n + 1, n + 1) each. Where
        the schedule makes fills that are not F, the load L = m F - f or
        m F + (S - 1) f.
    sync
        Z (X or Y, as the objective says) likewise, or None where no stage
        of the cell has any.
    fill
        The fill f likewise, which sums are of; None where it is F.
    """

    time: Sequence[Array]
    sync: Sequence[Array] | None
    fill: Sequence[Array] | None = None

    @property
    def layers(self) -> int:
        """n, the number of layers."""
        return len(self.time[0]) - 1

    def _rows(self, position: int) -> slice:
        """Rows that matter: the first stage starts at layer 0."""
        return slice(0, 1) if position == len(self.time) - 1 else slice(None)

    def _allowed(self, position: int, most_time: int, most_sync: int) -> npt.NDArray[np.bool_]:
        rows = self._rows(position)
        allowed = self.time[position][rows] <= min(most_time, UNLIMITED)
        if self.sync is not None and most_sync < UNLIMITED:
            allowed &= self.sync[position][rows] <= most_sync
        return allowed

    def least_max_time(self, most_sync: int) -> int:
        """Return the least max F over plans with all Z at most `most_sync`."""
        suffix = suffix_start(self.layers)
        for position, time in enumerate(self.time):
            allowed = self._allowed(position, UNLIMITED, most_sync)
            cost = np.where(allowed, time[self._rows(position)], INFINITE)
            suffix = extend_max(cost, suffix)
        return int(suffix[0])

    def least_max_sync(self, most_time: int) -> int:
        """Return the least max Z over plans with all F at most `most_time`."""
        if self.sync is None:
            return 0 if self.least_max_time(UNLIMITED) <= most_time else INFINITE
        suffix = suffix_start(self.layers)
        for position, sync in enumerate(self.sync):
            allowed = self._allowed(position, most_time, UNLIMITED)
            cost = np.where(allowed, sync[self._rows(position)], INFINITE)
            suffix = extend_max(cost, suffix)
        return int(suffix[0])

    def sum_suffixes(
        self, most_time: int, most_sync: int, weight: int = 1
    ) -> list[tuple[Array, Array]]:
        """Return, per position, (masked costs, least sums) under two thresholds.

        With `weight` 0 every allowed stage costs 0: sums tell feasibility.
        """
        passes = []
        suffix = suffix_start(self.layers)
        for position, fill in enumerate(self.time if self.fill is None else self.fill):
            allowed = self._allowed(position, most_time, most_sync)
            cost = np.where(allowed, fill[self._rows(position)] if weight else 0, INFINITE)
            suffix = extend_sum(cost, suffix)
            passes.append((cost, suffix))
        return passes

    def least_sum_time(self, most_time: int, most_sync: int) -> tuple[int, tuple[int, ...]]:
        """Return the least sum F under two thresholds, and the ends of such stages.

        The sum is `INFINITE` (and there are no ends) if no plan keeps them.
        """
        passes = self.sum_suffixes(most_time, most_sync)
        total = int(passes[-1][1][0])
        return total, first_ends(passes, total) if total < INFINITE else ()

    def measure(self, ends: tuple[int, ...]) -> tuple[int, int]:
        """Return (max F, max Z) of the stages with these ends."""
        last = len(ends) - 1
        places = [
            (last - stage, low, high)
            for stage, (low, high) in enumerate(zip((0, *ends), ends, strict=False))
        ]
        time = max(int(self.time[p][low, high]) for p, low, high in places)
        if self.sync is None:
            return time, 0
        return time, max(int(self.sync[p][low, high]) for p, low, high in places)


def first_ends(passes: Sequence[tuple[Array, Array]], budget: int) -> tuple[int, ...]:
    """Return the lexicographically smallest stage ends whose sum is within a budget.

    `passes` is what `Chain.sum_suffixes` returned; the budget must be reachable.
    """
    ends, low = [], 0
    layers = passes[0][0].shape[1] - 1
    for position in range(len(passes) - 1, -1, -1):
        cost = passes[position][0][low]
        suffix = passes[position - 1][1] if position else suffix_start(layers)
        high = int(np.argmax(cost + suffix <= budget))
        budget -= int(cost[high])
        ends.append(high)
        low = high
    return tuple(ends)
