"""A pipeline of the free family, relaxed at a level: runs of stages that share a group.

Of a network level, count what one group of the level below holds. A block
inside such a group, with a hop to the next stage below the level, has the next
block there too: a run of such stages takes devices of one group. A stage whose
copies sync below the level takes them for its other replicas as well.
`docs/bounds.md` has the claim, its proof, and these passes in full.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from nest_opt.dp.chain import INFINITE, UNLIMITED, Array, extend_max, extend_sum

# How a block lies to the groups: inside one, without the copies of its ranks or with them,
# or in several.
Lie: TypeAlias = Literal["apart", "together", "torn"]

# States of a suffix, by the hop into its first stage: far; near from a torn block; or near from a
# block in a group that has room for r blocks more, which is NEAR + r - 1.
FAR, TORN, NEAR = 0, 1, 2


class Move(NamedTuple):
    """A stage in front of a suffix.

    Attributes
    ----------
    lie
        How its block lies.
    far_in, far_out
        Whether its hops are far.
    before, after
        The states of what it makes, and for each of these that of the suffix: one for all, or
        as many.
    """

    lie: Lie
    far_in: bool
    far_out: bool
    before: range
    after: range


@dataclass(frozen=True)
class Counts:
    """What decides which stages may follow each other.

    Attributes
    ----------
    room
        Blocks that a group holds; 0 if it holds none, so that every block is torn.
    together
        Blocks that a stage takes of a group if its copies are there too.
    can_tear
        Whether a block has several devices.
    """

    room: int
    together: int
    can_tear: bool

    @property
    def states(self) -> int:
        """How many states a suffix may have."""
        return NEAR + self.room

    def moves(self) -> list[Move]:
        """Return all moves. Hops between a torn block and one that is not are far."""
        found: list[Move] = []
        if self.together > 1 and self.room:
            found += self._inside("apart", 1)
        if self.together <= self.room:
            found += self._inside("together", self.together)
        if self.can_tear:
            ends = ((True, _only(FAR)), (False, _only(TORN)))
            found += [
                Move("torn", far_in, far_out, before, after)
                for far_in, before in ends
                for far_out, after in ends
            ]
        return found

    def _inside(self, lie: Lie, taken: int) -> Iterator[Move]:
        """Yield the moves of a block inside a group of which its stage takes some blocks."""
        left = self.room - taken
        yield Move(lie, True, True, _only(FAR), _only(FAR))
        yield Move(lie, False, True, range(NEAR + taken - 1, self.states), _only(FAR))
        if left:
            yield Move(lie, True, False, _only(FAR), _only(NEAR + left - 1))
            yield Move(
                lie, False, False, range(NEAR + taken, self.states), range(NEAR, NEAR + left)
            )


def _only(state: int) -> range:
    return range(state, state + 1)


class Closing(NamedTuple):
    """What may come after the last stage, and what the whole pipeline is then.

    Attributes
    ----------
    after
        States in which a suffix may have no stage.
    whole
        State of the pipeline.
    """

    after: range
    whole: int


# The ends of a pipeline have nothing to do with each other.
OPEN = Closing(_only(FAR), FAR)


def joined(counts: Counts) -> list[Closing]:
    """Return the closings of pipelines of several runs whose last block is near the first.

    Both are torn, or in one group: if the first run has taken up to r blocks
    of it, what the last one leaves must be r at least.
    """
    torn = [Closing(_only(TORN), TORN)] if counts.can_tear else []
    return torn + [
        Closing(range(NEAR + first - 1, counts.states), NEAR + first - 1)
        for first in range(1, counts.room + 1)
    ]


class StageCosts(NamedTuple):
    """Load, fill and sync of a stage, for every interval; no sync where no stage has any."""

    load: Array
    fill: Array
    sync: Array | None


# A stage: its move, and the cuts before and after its layers.
PlacedStage: TypeAlias = tuple[Move, int, int]


@dataclass(frozen=True)
class Runs:
    """The passes of a pipeline: `nest_opt.dp.passes.Passes`.

    Attributes
    ----------
    moves
        What a stage may be.
    states
        How many states there are.
    closing
        How the pipeline ends.
    stages
        S.
    last_cut
        The cut after all layers.
    costs
        Returns what stage i costs in a move. Hops that the pipeline's ends do not have cost
        nothing, far or not.
    """

    moves: Sequence[Move]
    states: int
    closing: Closing
    stages: int
    last_cut: int
    costs: Callable[[int, Move], StageCosts]

    def least_max_time(self, most_sync: int) -> int:
        """Return the least max load with all syncs at most `most_sync`."""
        return self._least(extend_max, "load", UNLIMITED, most_sync)

    def least_max_sync(self, most_time: int) -> int:
        """Return the least max sync with all loads at most `most_time`."""
        return self._least(extend_max, "sync", most_time, UNLIMITED)

    def least_sum_time(self, most_time: int, most_sync: int) -> tuple[int, tuple[PlacedStage, ...]]:
        """Return the least sum of fills under two limits, and stages that have it."""
        suffixes = self._suffixes(extend_sum, "fill", most_time, most_sync)
        total = int(suffixes[-1][self.closing.whole, 0])
        if total >= INFINITE:
            return total, ()
        return total, tuple(self._path(suffixes, most_time, most_sync))

    def measure(self, stages: Sequence[PlacedStage]) -> tuple[int, int]:
        """Return (max load, max sync) of such stages."""
        load, sync = 0, 0
        for stage, (move, low, high) in enumerate(stages):
            costs = self.costs(stage, move)
            load = max(load, int(costs.load[low, high]))
            sync = max(sync, 0 if costs.sync is None else int(costs.sync[low, high]))
        return load, sync

    def _least(
        self, extend: Callable[[Array, Array], Array], what: str, most_time: int, most_sync: int
    ) -> int:
        return int(self._suffixes(extend, what, most_time, most_sync)[-1][self.closing.whole, 0])

    def _suffixes(
        self, extend: Callable[[Array, Array], Array], what: str, most_time: int, most_sync: int
    ) -> list[Array]:
        """Return the least value of each suffix, shape (states, cuts): of no stages first."""
        start = np.full((self.states, self.last_cut + 1), INFINITE, np.int64)
        start[self.closing.after, self.last_cut] = 0
        found = [start]
        for stage in reversed(range(self.stages)):
            rows = slice(None) if stage else slice(0, 1)
            longer = np.full_like(start, INFINITE)
            for move in self.moves:
                shorter = found[-1][move.after]
                if shorter.min() >= INFINITE or not (stage or self.closing.whole in move.before):
                    continue
                cost = self._masked(stage, move, what, most_time, most_sync, rows)
                part = longer[move.before.start : move.before.stop, rows]
                np.minimum(part, extend(cost, shorter[:, None, :]), out=part)
            found.append(longer)
        return found

    def _masked(
        self, stage: int, move: Move, what: str, most_time: int, most_sync: int, rows: slice
    ) -> Array:
        """Return what a stage counts, `INFINITE` above a limit."""
        costs = self.costs(stage, move)
        allowed = costs.load[rows] <= min(most_time, UNLIMITED)
        if costs.sync is not None and most_sync < UNLIMITED:
            allowed &= costs.sync[rows] <= most_sync
        values: Array | None = getattr(costs, what)
        return np.where(allowed, 0 if values is None else values[rows], INFINITE)

    def _path(
        self, suffixes: Sequence[Array], most_time: int, most_sync: int
    ) -> Iterator[PlacedStage]:
        """Yield stages whose fills add up to the least sum, first stage first."""
        state, low = self.closing.whole, 0
        for stage in range(self.stages):
            left = suffixes[self.stages - stage][state, low]
            shorter = suffixes[self.stages - stage - 1]
            for move in self.moves:
                if state not in move.before:
                    continue
                place = state - move.before.start if len(move.after) > 1 else 0
                rows = slice(low, low + 1)
                cost = self._masked(stage, move, "fill", most_time, most_sync, rows)[0]
                sums = cost + shorter[move.after[place]]
                high = int(np.argmin(sums))
                if sums[high] == left:
                    yield move, low, high
                    state, low = move.after[place], high
                    break
