"""Which runs of layers fit in a stage, for all runs at once."""

from functools import cached_property

import numpy as np
import numpy.typing as npt

from nest_opt.cost.sharding import Sharding, sharded_pair
from nest_opt.cost.table import CostTable, Row
from nest_opt.problem import Configuration
from nest_opt.problem.profile import RECOMPUTE_MODES, Recompute

Array = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class StageMemory:
    """The memory (14) of every run of layers as a stage of one chunk.

    All arrays are of shape (n + 1, n + 1): first layer, and one past the last.
    """

    def __init__(
        self, table: CostTable, pair: tuple[int, Configuration], sharding: Sharding
    ) -> None:
        self._table = table
        self._pair = sharded_pair(table, pair, sharding)

    @property
    def modes(self) -> tuple[Recompute, ...]:
        """The recomputation modes of the pair, least time first."""
        return tuple(mode for mode in RECOMPUTE_MODES if mode in self._pair.stash_bytes)

    @cached_property
    def is_run(self) -> Mask:
        """Whether there is a layer between two cuts."""
        cuts = np.arange(self._table.layer_count + 1)
        return np.asarray(cuts[:, None] < cuts[None, :])

    def sums(self, row: Row) -> Array:
        """Return the sum over each run of what a row has for each kind of layers."""
        ends = np.cumsum([0, *(row[kind] for kind in self._table.layer_rows)], dtype=np.int64)
        return np.asarray(ends[None, :] - ends[:, None])

    @cached_property
    def _states(self) -> Array:
        states = self.sums(self._pair.states_bytes)
        whole = self._table.own_rows(0, self._table.layer_count)
        states[0, -1] = sum(self._pair.states_bytes[row] for row in whole)
        return states

    @cached_property
    def _stash(self) -> dict[Recompute, Array]:
        return {mode: self.sums(self._pair.stash_bytes[mode]) for mode in self.modes}

    @cached_property
    def _work(self) -> dict[Recompute, Array]:
        """Return the largest work of each run."""
        n = self._table.layer_count
        found = {}
        for mode in self.modes:
            rows = self._pair.work_bytes[mode]
            work = np.array([rows[kind] for kind in self._table.layer_rows], np.int64)
            largest = np.zeros((n + 1, n + 1), np.int64)
            for low in range(n):
                largest[low, low + 1 :] = np.maximum.accumulate(work[low:])
            found[mode] = largest
        return found

    def fits(self, mode: Recompute, in_flight: int) -> Mask:
        """Return which runs fit with so many microbatches in flight."""
        room = self._table.usable_bytes - self._table.reserve_bytes
        left = room - self._states - self._work[mode]
        # Divided, so that no product leaves the range of int64.
        return np.asarray(self.is_run & (self._stash[mode] <= left // in_flight))

    def mode(self, low: int, high: int, in_flight: int) -> Recompute | None:
        """Return the mode of least time that fits a run, None if none does."""
        room = self._table.usable_bytes - self._table.reserve_bytes - int(self._states[low, high])
        for mode in self.modes:
            used = in_flight * int(self._stash[mode][low, high]) + int(self._work[mode][low, high])
            if used <= room:
                return mode
        return None
