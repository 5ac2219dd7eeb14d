"""Matrices of the default cost model for one (microbatch, configuration).

An interval is what is between two cuts: in the listed order a run of layers, in
any order the difference of two downsets.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import TypeAlias, overload

import numpy as np

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.cost.sharding import (
    CopyLevels,
    Sharding,
    exchange_time,
    round_times,
    sharded_pair,
    step_sync,
)
from nest_opt.cost.table import CLASSES, MAX_TOTAL, CostTable, ParameterClass, SyncCosts, row_times
from nest_opt.dp.chain import INFINITE, Array, extend_max, extend_sum, suffix_start
from nest_opt.dp.cuts import Cuts, Held, ListedCuts
from nest_opt.dp.levels import NO_HOP, Levels, LevelSet
from nest_opt.dp.rules import Restriction
from nest_opt.errors import InstanceError
from nest_opt.problem import Configuration
from nest_opt.problem.profile import RECOMPUTE_MODES, Recompute
from nest_opt.problem.zero import NOT_SHARDED

# Matrices kept of each sort and pair, by entries (8 bytes each); what was
# dropped is computed anew.
KEPT_ENTRIES = 2**21
MIN_KEPT = 8

NOTHING_SHARDED = Sharding(NOT_SHARDED, replicas=1, rounds=1)
# Levels of the copies of a stage without collectives over them in its rounds.
NO_ROUNDS: LevelSet = frozenset()

# Levels of groups and hops, microbatches in flight, layers held, and levels of the copies.
StageKey: TypeAlias = tuple[LevelSet, int, Held, LevelSet]


def copy_levels(member: Levels) -> tuple[CopyLevels, ...]:
    """Return the spreads of each class's copies, from those inside runs and between them."""
    inside, between = member[:2], member[2:] or (0, 0)
    return tuple(map(CopyLevels, inside, between))


class LazyMatrices(Sequence[Array]):
    """Matrices by position, made when asked for: a long pipeline has many."""

    def __init__(self, make: Callable[..., Array], keys: Sequence[tuple[object, ...]]) -> None:
        self._make = make
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    @overload
    def __getitem__(self, place: int) -> Array: ...

    @overload
    def __getitem__(self, place: slice) -> "LazyMatrices": ...

    def __getitem__(self, place: int | slice) -> "Array | LazyMatrices":
        if isinstance(place, slice):
            return LazyMatrices(self._make, self._keys[place])
        return self._make(*self._keys[place])


@dataclass
class Suffix:
    """The last stages of a pipeline: least max load and least sum of fills from each cut on.

    Cells whose level vectors end alike share these, through `longer`.
    """

    max_ps: Array
    sum_ps: Array
    longer: dict[tuple[StageKey, ObjectiveWeights | None], "Suffix"] = field(default_factory=dict)


class PairMatrices:
    """Interval costs of one (microbatch size, configuration).

    Parameters
    ----------
    table
        The coefficients, with a hop for each of the cuts.
    microbatch, configuration
        b and k.
    restriction
        What the constraints take away.
    sharding
        The ZeRO level with d and m; of level 0 one serves all d and m.
    cuts
        Where stages may end; in the listed order by default.
    """

    def __init__(
        self,
        table: CostTable,
        pair: tuple[int, Configuration],
        restriction: Restriction,
        sharding: Sharding = NOTHING_SHARDED,
        cuts: Cuts | None = None,
    ) -> None:
        self._table = table
        self._pair = pair
        self._sharding = sharding
        self._configuration = pair[1]
        self._costs = sharded_pair(table, pair, sharding)
        self._restriction = restriction
        self._rows = np.array(table.layer_rows)
        self.layers = len(self._rows)
        self._cuts = ListedCuts(self.layers) if cuts is None else cuts
        self._empty = self._cuts.forbidden(restriction)
        self.modes: list[Recompute] = [m for m in RECOMPUTE_MODES if m in self._costs.stash_bytes]
        # Matrices of one level, d and m are asked for by few cells, and there are many.
        kept = MIN_KEPT if sharding.zero else max(MIN_KEPT, KEPT_ENTRIES // len(self._cuts) ** 2)
        self._mode_times = lru_cache(kept)(self._compute_mode_times)
        self._kept_stage_time = lru_cache(kept)(self._compute_stage_time)
        # The stages between the ends of a pipeline mostly have one key.
        self._loads_and_fills = lru_cache(MIN_KEPT)(self._compute_loads_and_fills)
        self._kept_sync = lru_cache(kept)(self._compute_sync)
        # A stage is asked for as the first of its pipeline, and next as one of a longer.
        self._kept_memory = lru_cache(2)(self._compute_memory)
        self._kept_work = lru_cache(None)(self._compute_work)
        start = suffix_start(len(self._cuts) - 1)
        self.root = Suffix(start, start)

    def _prefix(self, values: tuple[int, ...]) -> Array:
        """Return, for each cut, the sum over the layers before it of a per-row value."""
        return self._cuts.sums(np.array(values, np.int64)[self._rows])

    @staticmethod
    def _intervals(prefix: Array) -> Array:
        """Return the sum over each interval, from running sums."""
        difference: Array = prefix[None, :] - prefix[:, None]
        return difference

    @cached_property
    def backward_prefix(self) -> Array:
        """Plain backward time of all layers before each cut."""
        return self._prefix(self._costs.backward_ps)

    def _own(self, values: tuple[int, ...]) -> Array:
        """Return the sum over each interval of what layers have of states or sync: (65)."""
        sums = self._intervals(self._prefix(values))
        # Tied parameters are there once where the first layer and the last are.
        sums[0, -1] = sum(values[row] for row in self._table.own_rows(0, self.layers))
        return sums

    @cached_property
    def states_prefix(self) -> Array:
        """States of all layers before each layer."""
        return self._prefix(self._costs.states_bytes)

    def stash_prefix(self, mode: Recompute) -> Array:
        """Stashes of all layers before each layer."""
        return self._prefix(self._costs.stash_bytes[mode])

    @cached_property
    def _states(self) -> Array:
        return self._own(self._costs.states_bytes)

    @property
    def reserve_bytes(self) -> int:
        """Memory that is kept free."""
        return self._table.reserve_bytes

    @property
    def free_bytes(self) -> int:
        """Memory for states, stashes and work."""
        return self._table.usable_bytes - self.reserve_bytes

    @cached_property
    def least_stages(self) -> int:
        """A lower bound on the stages that have memory for the states of all layers."""
        return -(-self.all_states_bytes // self.free_bytes)

    @property
    def all_states_bytes(self) -> int:
        """States of all layers together, tied parameters once."""
        return int(self._states[0, -1])

    @property
    def legal(self) -> Array:
        """0 for intervals that may be a stage, memory aside, and INFINITE for others."""
        return np.where(self._empty, INFINITE, 0)

    def work(self, mode: Recompute) -> Array:
        """Return the largest work bytes within each interval."""
        return self._kept_work(mode)

    def _compute_work(self, mode: Recompute) -> Array:
        return self._cuts.largest(np.array(self._costs.work_bytes[mode], np.int64)[self._rows])

    @cached_property
    def _most_in_flight(self) -> dict[Recompute, Array]:
        """Per mode, the most microbatches in flight that each interval has memory for.

        Below 1 where the interval is empty, forbidden or too large for any.
        """
        most = {}
        for mode in self.modes:
            free = self.free_bytes - self._states
            free -= self.work(mode)
            stash = self._intervals(self.stash_prefix(mode))
            fits = np.where(free >= 0, INFINITE, -1)
            most[mode] = np.where(stash > 0, free // np.maximum(stash, 1), fits)
            most[mode][self._empty] = -1
        return most

    def memory(self, in_flight: int) -> Array:
        """Return the least bytes, over modes, of each interval; INFINITE where forbidden."""
        return self._kept_memory(in_flight)

    def _compute_memory(self, in_flight: int) -> Array:
        least = np.full(self._empty.shape, INFINITE, np.int64)
        for mode in self.modes:
            stash = self._intervals(self.stash_prefix(mode))
            # Bytes that overflow are out of any device's reach.
            held = np.where(stash <= INFINITE // max(in_flight, 1), stash * in_flight, INFINITE)
            used = held + self._states + self.work(mode) + self._table.reserve_bytes
            np.minimum(least, used, out=least)
        return np.where(self._empty, INFINITE, least)

    def _compute_mode_times(self, levels: LevelSet) -> dict[Recompute, Array]:
        """Return F of each interval by mode, memory aside, at a set of levels."""
        members = [self._member_times(member) for member in levels]
        return {mode: np.maximum.reduce([times[mode] for times in members]) for mode in self.modes}

    def _member_times(self, member: Levels) -> dict[Recompute, Array]:
        """Return F without recomputation and under each mode, at one tuple of levels."""
        *group_levels, hop_in, hop_out = member
        prefixes = self.mode_prefixes(tuple(group_levels))
        if self.is_forbidden(member):
            return {mode: np.full(self._empty.shape, INFINITE, np.int64) for mode in prefixes}
        hops = np.zeros(self._empty.shape, np.int64)
        if hop_in != NO_HOP:
            hops += np.array(self._costs.hop_ps[hop_in], np.int64)[:, None]
        if hop_out != NO_HOP:
            hops += np.array(self._costs.hop_ps[hop_out], np.int64)[None, :]
        return {mode: self._intervals(prefix) + hops for mode, prefix in prefixes.items()}

    def mode_prefixes(self, group_levels: Levels) -> dict[Recompute, Array]:
        """Return running sums of F over layers, hops aside, at (tp, cp, ep) levels.

        Without recomputation and under each mode.
        """
        rows = row_times(self._costs, self._configuration, group_levels)
        return {mode: self._prefix(row) for mode, row in rows.items()}

    def inner_hops(self, level: int) -> Array:
        """Return the time of a hop over each cut: none before the first layer or after the last."""
        hops = np.array(self._costs.hop_ps[level], np.int64)
        hops[[0, -1]] = 0
        return hops

    def is_forbidden(self, member: Levels) -> bool:
        """Whether a tuple of levels has a tp group or a hop on a level above its limit."""
        tp, _, _, hop_in, hop_out = member
        return not self._restriction.allows_levels(tp, max(hop_in, hop_out))

    def stage_time(
        self,
        levels: LevelSet,
        in_flight: int,
        held: Held = None,
        shared: LevelSet = NO_ROUNDS,
    ) -> Array:
        """Return the least F of each interval that fits with `in_flight` stashes.

        `shared` are the levels of the copies as of `LevelVectors.sync_sets`,
        where rounds have collectives over them.
        """
        return self._cuts.holding(self._kept_stage_time(levels, in_flight, shared), held)

    def round_sync(self, levels: Levels) -> Array:
        """Return what each layer's collectives over its copies take in a round."""
        times = round_times(self._table, self._pair, self._sharding, copy_levels(levels))
        if times is None:
            return np.zeros(self.layers, np.int64)
        of_layers: Array = np.array(times, np.int64)[self._rows]
        return of_layers

    def round_prefix(self, levels: Levels) -> Array:
        """Return running sums over layers of what their collectives over copies take."""
        return self._cuts.sums(self.round_sync(levels))

    @property
    def has_rounds(self) -> bool:
        """Whether rounds have collectives over copies."""
        return self._sharding.has_rounds

    def _compute_stage_time(self, levels: LevelSet, in_flight: int, shared: LevelSet) -> Array:
        times = self._mode_times(levels)
        if shared:
            worst = np.maximum.reduce(
                [self._intervals(self.round_prefix(member)) for member in shared]
            )
            times = {mode: np.minimum(time + worst, INFINITE) for mode, time in times.items()}
        best: Array | int = INFINITE
        # Each mode repeats at least what those before it do: the first that fits is the least.
        for mode in reversed(self.modes):
            best = np.where(self._most_in_flight[mode] >= in_flight, times[mode], best)
        return np.asarray(best)

    def mode(self, in_flight: int, low: int, high: int) -> Recompute:
        """Return the mode of least F that fits what is between two cuts."""
        return next(
            mode for mode in self.modes if self._most_in_flight[mode][low, high] >= in_flight
        )

    def sync(self, replicas: int, levels: LevelSet, exchange_ps: int = 0) -> Array:
        """Return Y of each interval at a set of (dense, expert) group levels.

        `exchange_ps` is what an end of the pipeline pays for tied gradients.
        """
        kept = self._kept_sync(replicas, levels)
        return kept + exchange_ps if exchange_ps else kept

    def _compute_sync(self, replicas: int, levels: LevelSet) -> Array:
        total = np.zeros(self._empty.shape, np.int64)
        for member in levels:
            of_rank = np.zeros(self._empty.shape, np.int64)
            for parameter_class, each in zip(CLASSES, copy_levels(member), strict=True):
                of_rank += self._class_sync(parameter_class, replicas, each)
            np.maximum(total, of_rank, out=total)
        return total

    def _class_sync(self, name: ParameterClass, replicas: int, levels: CopyLevels) -> Array:
        cost = self._step_sync(name, replicas, levels)
        if cost is None:
            return np.zeros(self._empty.shape, np.int64)
        held = self._intervals(self._prefix(self._costs.parameters[name])) > 0
        return np.where(held, cost.fixed_ps + self._own(cost.row_ps), 0)

    def _step_sync(
        self, name: ParameterClass, replicas: int, levels: CopyLevels
    ) -> SyncCosts | None:
        sharding = self._sharding._replace(replicas=replicas)
        return step_sync(self._table, self._configuration, name, sharding, levels)

    def class_sync(
        self, name: ParameterClass, replicas: int, levels: CopyLevels
    ) -> tuple[Array, int, Array] | None:
        """Return a class's parameters and sync over layers, as running sums, with A_c between.

        None if it has one copy, or nothing to do once a batch.
        """
        cost = self._step_sync(name, replicas, levels)
        if cost is None:
            return None
        held = self._prefix(self._costs.parameters[name])
        return held, cost.fixed_ps, self._prefix(cost.row_ps)

    def exposed_sync(self, replicas: int, levels: LevelSet, exchange_ps: int = 0) -> Array:
        """Return X of each interval: Y less the backward time of all layers before."""
        hidden = self.backward_prefix[:, None]
        exposed: Array = np.maximum(self.sync(replicas, levels, exchange_ps) - hidden, 0)
        return exposed

    def exchange_ps(self, sharding: Sharding, level: int) -> int:
        """Return what an end of a pipeline of several stages pays for tied gradients: (66)."""
        return exchange_time(self._table, self._configuration, sharding, level)

    def has_sync(self, replicas: int) -> bool:
        """Whether any layer's parameters have several copies that sync once a batch."""
        sharding = self._sharding._replace(replicas=replicas)
        return any(
            any(self._costs.parameters[name])
            and (
                sharding.zero.runs(name) > 1
                or (
                    sharding.inside(self._configuration, name) > 1
                    and bool(sharding.step_operations(name))
                )
            )
            for name in CLASSES
        )

    def load(self, weights: ObjectiveWeights, key: StageKey) -> Array:
        """Return what the objective takes the largest of: F, or its load where that is another."""
        return (
            self._loads_and_fills(weights, key)[0] if weights.has_loads else self.stage_time(*key)
        )

    def fill(self, weights: ObjectiveWeights, key: StageKey) -> Array:
        """Return the fill (69) of each interval."""
        return (
            self._loads_and_fills(weights, key)[1] if weights.has_loads else self.stage_time(*key)
        )

    def _compute_loads_and_fills(
        self, weights: ObjectiveWeights, key: StageKey
    ) -> tuple[Array, Array]:
        time = self.stage_time(*key)
        self._refuse_long(time, weights)
        fits = time < INFINITE
        finite = np.where(fits, time, 0)
        fill = np.maximum(finite - weights.hidden_weight * self.weight_gradients, 0)
        load = weights.round_weight * finite + weights.fill_weight * fill
        return np.where(fits, load, INFINITE), np.where(fits, fill, INFINITE)

    @cached_property
    def weight_gradients(self) -> Array:
        """W of each interval."""
        return self._intervals(self._prefix(self._costs.weight_gradient_ps))

    def _refuse_long(self, time: Array, weights: ObjectiveWeights) -> None:
        """Refuse loads that leave the range of the search arrays."""
        longest = int(time.max(initial=0, where=time < INFINITE))
        rounds = weights.round_weight + max(0, weights.fill_weight)
        if longest * rounds >= MAX_TOTAL:
            raise InstanceError(
                f"search.schedule: found zb-h1 with {weights.round_weight:.3e} rounds of a stage "
                f"of up to {longest:.3e} ps, less than {MAX_TOTAL:.3e} ps in all is needed: lower "
                "job.global_batch, or leave zb-h1 out"
            )

    def longer(self, suffix: Suffix, weights: ObjectiveWeights, key: StageKey) -> Suffix:
        """Return a suffix with one more stage before it."""
        # Loads go with m and S; F does not.
        of = (key, weights if weights.has_loads else None)
        if of not in suffix.longer:
            suffix.longer[of] = Suffix(
                extend_max(self.load(weights, key), suffix.max_ps),
                extend_sum(self.fill(weights, key), suffix.sum_ps),
            )
        return suffix.longer[of]

    def least(self, keys: Sequence[StageKey], weights: ObjectiveWeights) -> tuple[int, int]:
        """Return (least max load, least sum of fills) of pipelines with these keys.

        The last stage comes first.
        """
        suffix = self.root
        for key in keys[:-1]:
            suffix = self.longer(suffix, weights, key)
        load, fill = self.load(weights, keys[-1])[:1], self.fill(weights, keys[-1])[:1]
        return int(extend_max(load, suffix.max_ps)[0]), int(extend_sum(fill, suffix.sum_ps)[0])
