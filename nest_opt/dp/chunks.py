"""Equal chunks: all ways in which an interleaved schedule cuts the layers, looked at at once.

Chunks of one size leave few ways: the size of the first chunk and that of the
inner ones say all, about n^2 / (2 S v) of them. So there is no interval DP;
arrays have one row for each way to cut, in the lexicographic order of ends, and
one column for each stage.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.cost.table import CLASSES
from nest_opt.dp.chain import INFINITE, Array
from nest_opt.dp.levels import Levels, LevelSet
from nest_opt.dp.matrices import PairMatrices, copy_levels
from nest_opt.dp.rules import Restriction
from nest_opt.problem.profile import Recompute

# Level sets by stage, first stage first.
StageSets: TypeAlias = tuple[LevelSet, ...]

KEPT = 32


class EqualCuts:
    """The ways to cut n layers into S * v chunks that (70) and the constraints allow.

    Parameters
    ----------
    layers, stages, chunks
        n, S and v.
    restriction
        What the constraints take away.
    pinned
        (place of a layer, number of its stage) of all pinned layers.

    Attributes
    ----------
    edges
        Where chunks begin and end, shape (ways, S * v + 1): 0 first, n last.
    """

    def __init__(
        self,
        layers: int,
        stages: int,
        chunks: int,
        restriction: Restriction,
        pinned: Sequence[tuple[int, int]],
    ) -> None:
        self.stages, self._chunks = stages, chunks
        inner = stages * chunks - 2
        firsts, sizes = np.meshgrid(
            np.arange(1, max(1, layers - inner)), np.arange(1, layers), indexing="ij"
        )
        # The last chunk has a layer at least.
        room = firsts + inner * sizes < layers
        first, size = firsts[room][:, None], sizes[room][:, None]
        inside = first + size * np.arange(inner + 1)
        ends = np.broadcast_to([[0, layers]], (len(first), 2))
        edges: Array = np.hstack((ends[:, :1], inside, ends[:, 1:]))
        self.edges = edges[self._allowed(edges, restriction, pinned)]

    def _allowed(
        self, edges: Array, restriction: Restriction, pinned: Sequence[tuple[int, int]]
    ) -> npt.NDArray[np.bool_]:
        """Return which ways keep the constraints on stages."""
        cut = np.isin(edges[:, 1:-1], list(restriction.cuts))
        allowed: npt.NDArray[np.bool_] = ~np.asarray(cut.any(axis=1))

        def stage_of(place: int) -> Array:
            chunk: Array = (edges[:, 1:] <= place).sum(axis=1)
            return chunk % self.stages

        for first, *others in restriction.together:
            for other in others:
                allowed &= stage_of(first) == stage_of(other)
        for one, other in restriction.apart:
            allowed &= stage_of(one) != stage_of(other)
        for place, stage in pinned:
            allowed &= stage_of(place) == stage
        return allowed

    def ends(self, way: int) -> tuple[int, ...]:
        """Return the ends of the chunks of a way to cut."""
        return tuple(self.edges[way, 1:].tolist())

    def of_chunks(self, prefix: Array) -> Array:
        """Return the sum over each chunk, from running sums: shape (ways, v, S)."""
        return self.by_stage(prefix[self.edges[:, 1:]] - prefix[self.edges[:, :-1]])

    def by_stage(self, of_chunks: Array) -> Array:
        """Return what is of each chunk in the shape (ways, v, S)."""
        return of_chunks.reshape(-1, self._chunks, self.stages)

    def of_stages(self, prefix: Array) -> Array:
        """Return the sum over the layers of each stage, from running sums."""
        total: Array = self.of_chunks(prefix).sum(axis=1)
        return total


class ChunkPlan(NamedTuple):
    """The best plan of a cell: its value, the ends of its chunks and the modes of its stages."""

    value_ps: int
    ends: tuple[int, ...]
    modes: tuple[Recompute, ...]


class ChunkLevels(NamedTuple):
    """What a cell has in the way of levels, by stage.

    Attributes
    ----------
    stages
        Of groups and hops.
    shared
        Of the copies, where rounds have collectives over them; else empty.
    sync
        Of the copies, where the objective has a sync; else empty.
    exchange_ps
        What the ends of a pipeline pay for tied gradients: no level, but a time.
    """

    stages: StageSets
    shared: StageSets = ()
    sync: StageSets = ()
    exchange_ps: int = 0


class _Fitting(NamedTuple):
    """The ways to cut that fit in memory, and each stage's mode: its place among all modes."""

    ways: npt.NDArray[np.intp]
    modes: npt.NDArray[np.intp]


class ChunkMemory:
    """Memory of all ways to cut the layers of one (microbatch size, configuration)."""

    def __init__(self, matrices: PairMatrices, cuts: EqualCuts) -> None:
        self._matrices, self._cuts = matrices, cuts
        self._low, self._high = cuts.edges[:, :-1], cuts.edges[:, 1:]

    def of_stages(self, mode: Recompute) -> tuple[Array, Array]:
        """Return each stage's states and work in bytes, and the stash of its largest chunk."""
        matrices, cuts = self._matrices, self._cuts
        work = cuts.by_stage(matrices.work(mode)[self._low, self._high]).max(axis=1)
        stash = cuts.of_chunks(matrices.stash_prefix(mode)).max(axis=1)
        return cuts.of_stages(matrices.states_prefix) + work, stash

    def least(self, flights: tuple[int, ...]) -> tuple[int, tuple[int, ...]] | None:
        """Return the least bytes of the heaviest stage, and the ends of chunks that have it."""
        if not len(self._low):
            return None
        least = np.full((len(self._low), self._cuts.stages), INFINITE, np.int64)
        for mode in self._matrices.modes:
            held, stash = self.of_stages(mode)
            most = np.array(flights)
            # Bytes that overflow are out of any device's reach.
            stashes = np.where(stash <= INFINITE // most, stash * most, INFINITE)
            np.minimum(least, np.minimum(held + stashes, INFINITE), out=least)
        heaviest = least.max(axis=1)
        way = int(heaviest.argmin())
        reserve = self._matrices.reserve_bytes
        return int(heaviest[way]) + reserve, self._cuts.ends(way)


class ChunkCosts:
    """Costs of all ways to cut the layers of one (microbatch size, configuration)."""

    def __init__(self, matrices: PairMatrices, cuts: EqualCuts) -> None:
        self._matrices, self._cuts = matrices, cuts
        self._low, self._high = cuts.edges[:, :-1], cuts.edges[:, 1:]
        self._memory = ChunkMemory(matrices, cuts)
        self._fitting = lru_cache(KEPT)(self._compute_fitting)
        self._own_times = lru_cache(KEPT)(self._compute_own_times)
        self._hops = lru_cache(KEPT)(self._compute_hops)
        self._times = lru_cache(KEPT)(self._compute_times)
        self._class_sync = lru_cache(KEPT)(self._compute_class_sync)
        self._sync = lru_cache(KEPT)(self._compute_sync)
        self.best = lru_cache(KEPT)(self._compute_best)

    def _compute_fitting(self, flights: tuple[int, ...]) -> _Fitting:
        modes = self._matrices.modes
        found = np.full((len(self._low), self._cuts.stages), len(modes), np.intp)
        # Each mode repeats at least what those before it do: the first that fits is the least.
        for place in reversed(range(len(modes))):
            held, stash = self._memory.of_stages(modes[place])
            free = self._matrices.free_bytes - held
            found[(free >= 0) & (stash <= free // np.array(flights))] = place
        ways = np.flatnonzero((found < len(modes)).all(axis=1))
        return _Fitting(ways, found[ways])

    def _compute_own_times(self, flights: tuple[int, ...], inside: Levels) -> Array:
        """Return F of each stage under its mode, hops aside, of the ways that fit."""
        ways, modes = self._fitting(flights)
        prefixes = self._matrices.mode_prefixes(inside)
        time = np.zeros(modes.shape, np.int64)
        for place, mode in enumerate(self._matrices.modes):
            chosen = modes == place
            if chosen.any():
                time[chosen] = self._cuts.of_stages(prefixes[mode])[ways][chosen]
        return time

    def _compute_hops(self, level: int) -> tuple[Array, Array]:
        """Return what hops in, and hops out, on a level take in all chunks of a stage."""
        hops = self._matrices.inner_hops(level)
        return (
            self._cuts.by_stage(hops[self._low]).sum(axis=1),
            self._cuts.by_stage(hops[self._high]).sum(axis=1),
        )

    def _compute_times(
        self, flights: tuple[int, ...], levels: StageSets, shared: StageSets
    ) -> tuple[Array, Array]:
        """Return (sum F, max F) of each way that fits."""
        ways, modes = self._fitting(flights)
        time = np.empty(modes.shape, np.int64)
        for members, columns in _columns(levels):
            worst = [self._member_time(flights, member, columns) for member in members]
            time[:, columns] = np.maximum.reduce(worst)
        for members, columns in _columns(shared):
            worst = [
                self._cuts.of_stages(self._matrices.round_prefix(member))[ways][:, columns]
                for member in members
            ]
            time[:, columns] += np.maximum.reduce(worst)
        largest: Array = time.max(axis=1, initial=0)
        return np.where(largest < INFINITE, time.sum(axis=1), INFINITE), largest

    def _member_time(self, flights: tuple[int, ...], member: Levels, columns: list[int]) -> Array:
        ways, _ = self._fitting(flights)
        *inside, hop_in, hop_out = member
        if self._matrices.is_forbidden(member):
            return np.full((len(ways), len(columns)), INFINITE, np.int64)
        time = self._own_times(flights, tuple(inside))[:, columns]
        time = time + self._hops(hop_in)[0][ways][:, columns]
        return np.asarray(time + self._hops(hop_out)[1][ways][:, columns])

    def _compute_class_sync(self, replicas: int, member: Levels) -> Array:
        """Return Y of each stage over copies on one tuple of levels."""
        total = np.zeros((len(self._low), self._cuts.stages), np.int64)
        for name, levels in zip(CLASSES, copy_levels(member), strict=True):
            cost = self._matrices.class_sync(name, replicas, levels)
            if cost is not None:
                held, fixed_ps, prefix = cost
                time = fixed_ps + self._cuts.of_stages(prefix)
                total += np.where(self._cuts.of_stages(held) > 0, time, 0)
        return total

    def _compute_sync(
        self, replicas: int, sync: StageSets, exchange_ps: int, hidden: bool
    ) -> Array:
        """Return max Z of each way: of X if the drain hides sync, else of Y."""
        total = np.empty((len(self._low), self._cuts.stages), np.int64)
        for members, columns in _columns(sync):
            worst = [self._class_sync(replicas, member)[:, columns] for member in members]
            total[:, columns] = np.maximum.reduce(worst)
        total[:, [0, -1]] += exchange_ps
        if hidden:
            total -= self._matrices.backward_prefix[self._low[:, : self._cuts.stages]]
        largest: Array = total.max(axis=1, initial=0)
        return largest

    def _compute_best(
        self,
        flights: tuple[int, ...],
        weights: ObjectiveWeights,
        levels: ChunkLevels,
        replicas: int,
        hidden: bool,
    ) -> tuple[int, int] | None:
        """Return the least value and, of the ways that fit and have it, the first."""
        ways, _ = self._fitting(flights)
        total, largest = self._times(flights, levels.stages, levels.shared)
        places = np.flatnonzero(total < INFINITE)
        if not len(places):
            return None
        total, largest = total[places], largest[places]
        most = weights.sum_weight * int(total.max()) + weights.max_weight * int(largest.max())
        if most >= INFINITE:
            # Rounds times F leave the range of int64.
            total, largest = total.astype(object), largest.astype(object)
        scaled = weights.sum_weight * total + weights.max_weight * largest
        value: Array = -(-scaled // weights.chunks)
        if levels.sync:
            value = (
                value + self._sync(replicas, levels.sync, levels.exchange_ps, hidden)[ways[places]]
            )
        place = int(value.argmin())
        return int(value[place]), int(places[place])

    def plan(self, flights: tuple[int, ...], value_ps: int, place: int) -> ChunkPlan:
        """Return the plan of a way that fits, by its place among these."""
        ways, modes = self._fitting(flights)
        return ChunkPlan(
            value_ps,
            self._cuts.ends(int(ways[place])),
            tuple(self._matrices.modes[mode] for mode in modes[place]),
        )


def _columns(sets: StageSets) -> list[tuple[LevelSet, list[int]]]:
    """Return each level set with the stages that have it."""
    found: dict[LevelSet, list[int]] = {}
    for stage, members in enumerate(sets):
        found.setdefault(members, []).append(stage)
    return list(found.items())
