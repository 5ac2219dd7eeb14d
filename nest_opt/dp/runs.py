"""A pipeline of the free family, relaxed: one replica's stages in runs that share a group.

Of a network level, count what one group of the level below can hold. A block
inside such a group, with the hop to the next stage below the level, has the
next block there too, so a run of such stages takes devices of one group; and a
stage whose copies sync below the level takes them for all its replicas.
`docs/bounds.md` has the claim and its proof, and these passes in full.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from nest_opt.dp.chain import INFINITE, UNLIMITED, Array, extend_max, extend_sum, suffix_start

# How a stage lies to the groups: its block inside one, without or with the copies of its ranks,
# or in several.
Lie: TypeAlias = Literal["apart", "together", "torn"]
# A stage of a path: its lie, whether hops in and out are far, and its layers.
PlacedStage: TypeAlias = tuple["Move", int, int]

# What comes before a suffix: a far hop, a near one from a torn block, or a near one from a
# block inside a group that has room for r more: entry NEAR + r - 1.
FAR, TORN, NEAR = 0, 1, 2


class Move(NamedTuple):
    """A stage in front of suffixes: how it lies, and which suffixes it makes of which.

    Attributes
    ----------
    lie
        How the stage lies.
    far_in, far_out
        Whether its hops are far; an end of the pipeline counts as far.
    before, after
        States of the longer suffix, and for each that of the shorter one.
    """

    lie: Lie
    far_in: bool
    far_out: bool
    before: slice
    after: slice


@dataclass(frozen=True)
class Counts:
    """What decides which stages may follow each other.

    Attributes
    ----------
    room
        Blocks that a group holds; 0 if every block is torn.
    together
        Blocks that a stage takes of a group if its copies are there too.
    can_tear
        Whether a block has several devices.
    """

    room: int
    together: int
    can_tear: bool

    @property
    def lies(self) -> dict[Lie, int]:
        """Return the lies that a stage may have, and the blocks that each takes of a group."""
        found: dict[Lie, int] = {}
        if 1 < self.together and self.room:
            found["apart"] = 1
        if self.together <= self.room:
            found["together"] = self.together
        if self.can_tear:
            found["torn"] = 0
        return found

    @property
    def states(self) -> int:
        """How many states there are."""
        return NEAR + self.room

    def moves(self) -> list[Move]:
        """Return all that a stage between two others may be."""
        found = []
        far = slice(FAR, FAR + 1)
        for lie, taken in self.lies.items():
            found.append(Move(lie, True, True, far, far))
            if lie == "torn":
                torn = slice(TORN, TORN + 1)
                found.append(Move(lie, True, False, far, torn))
                found.append(Move(lie, False, True, torn, far))
                found.append(Move(lie, False, False, torn, torn))
                continue
            found.append(Move(lie, False, True, slice(NEAR + taken - 1, self.states), far))
            left = self.room - taken
            if left:
                most = slice(NEAR + left - 1, NEAR + left)
                found.append(Move(lie, True, False, far, most))
                found.append(
                    Move(lie, False, False, slice(NEAR + taken, self.states), slice(NEAR, NEAR + left))
                )
        return found


class StageCosts(NamedTuple):
    """What a stage costs in one of its moves: load, fill and sync of every interval."""

    time: Array
    fill: Array
    sync: Array | None


class Runs:
    """The passes of a cell of the free family, relaxed at one level.

    Parameters
    ----------
    counts
        What may follow each other.
    stages
        S.
    costs
        Returns what stage i costs in a move; hops that an end of the pipeline has not are left
        out.
    layers
        The last cut.
    """

    def __init__(
        self,
        counts: Counts,
        stages: int,
        costs: Callable[[int, Move], StageCosts],
        last_cut: int,
    ) -> None:
        self._counts, self._stages, self._last_cut = counts, stages, last_cut
        self._costs = costs
        self._start = np.full((counts.states, last_cut + 1), INFINITE, np.int64)
        self._start[FAR] = suffix_start(last_cut)

    def _moves(self, stage: int) -> list[Move]:
        return [
            move
            for move in self._all_moves
            if (stage or move.far_in) and (stage < self._stages - 1 or move.far_out)
        ]

    @cached_property
    def _all_moves(self) -> list[Move]:
        return self._counts.moves()

    def least_max_time(self, most_sync: int) -> int:
        """Return the least max load with all syncs at most `most_sync`."""
        return int(self._sweep(extend_max, "time", UNLIMITED, most_sync)[-1][FAR, 0])

    def least_max_sync(self, most_time: int) -> int:
        """Return the least max sync with all loads at most `most_time`."""
        return int(self._sweep(extend_max, "sync", most_time, UNLIMITED)[-1][FAR, 0])

    def least_sum_time(self, most_time: int, most_sync: int) -> tuple[int, tuple[PlacedStage, ...]]:
        """Return the least sum of fills under two limits, and stages that have it."""
        suffixes = self._sweep(extend_sum, "fill", most_time, most_sync)
        total = int(suffixes[-1][FAR, 0])
        if total >= INFINITE:
            return total, ()
        return total, tuple(self._path(suffixes, most_time, most_sync))

    def measure(self, stages: Sequence[PlacedStage]) -> tuple[int, int]:
        """Return (max load, max sync) of such stages."""
        time, sync = 0, 0
        for stage, (move, low, high) in enumerate(stages):
            costs = self._costs(stage, move)
            time = max(time, int(costs.time[low, high]))
            sync = max(sync, 0 if costs.sync is None else int(costs.sync[low, high]))
        return time, sync

    def _cost(
        self, stage: int, move: Move, of: str, most_time: int, most_sync: int, rows: slice
    ) -> Array:
        """Return what a stage counts in a pass, `INFINITE` above a limit."""
        costs = self._costs(stage, move)
        allowed = costs.time[rows] <= min(most_time, UNLIMITED)
        if costs.sync is not None and most_sync < UNLIMITED:
            allowed &= costs.sync[rows] <= most_sync
        value: Array | int = 0 if (of == "sync" and costs.sync is None) else getattr(costs, of)[rows]
        return np.where(allowed, value, INFINITE)

    def _sweep(
        self,
        extend: Callable[[Array, Array], Array],
        of: str,
        most_time: int,
        most_sync: int,
    ) -> list[Array]:
        """Return the least value of the suffixes by state and cut: of none, of the last stage, ..."""
        found = [self._start]
        for stage in reversed(range(self._stages)):
            rows = slice(None) if stage else slice(0, 1)
            suffix = np.full_like(self._start, INFINITE)
            for move in self._moves(stage):
                shorter = found[-1][move.after]
                if shorter.min() >= INFINITE:
                    continue
                cost = self._cost(stage, move, of, most_time, most_sync, rows)
                longer = extend(cost[None], shorter[:, None, :])
                part = suffix[move.before, rows]
                np.minimum(part, longer, out=part)
            found.append(suffix)
        return found

    def _path(
        self, suffixes: Sequence[Array], most_time: int, most_sync: int
    ) -> list[PlacedStage]:
        """Return stages whose fills add up to the least sum, first stage first."""
        state, low, path = FAR, 0, []
        for stage in range(self._stages):
            shorter, left = suffixes[self._stages - 1 - stage], suffixes[self._stages - stage][state, low]
            rows = slice(low, low + 1)
            for move in self._moves(stage):
                if not move.before.start <= state < move.before.stop:
                    continue
                cost = self._cost(stage, move, "fill", most_time, most_sync, rows)[0]
                states = range(move.after.start, move.after.stop)
                after = states[min(state - move.before.start, len(states) - 1)]
                sums = cost + shorter[after]
                high = int(np.argmin(sums))
                if sums[high] == left:
                    path.append((move, low, high))
                    state, low = after, high
                    break
        return path
