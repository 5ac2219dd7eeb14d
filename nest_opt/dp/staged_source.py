"""Cells of the aligned family whose stages may differ in tp and sp, and their bounds.

Rank order and pitch fix where blocks are once it is known how many devices
the stages before use (`pp-inner`) or nothing more than the stage's number
(`dp-inner`). So a cell has b, cp, ep, d, S, order and pitch, for `pp-inner`
the devices u of a replica, and the dynamic program finds the configurations.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, reduce
from itertools import product
from math import gcd
from typing import TypeAlias

import numpy as np

from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import drains, in_flight, rounds_per_batch, runs
from nest_opt.cost.sharding import Sharding
from nest_opt.dp.chain import INFINITE, UNLIMITED, Array, suffix_start
from nest_opt.dp.cuts import Held, with_held
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.levels import NO_HOP, LevelSet
from nest_opt.dp.matrices import (
    MIN_KEPT,
    NO_ROUNDS,
    NOTHING_SHARDED,
    PairMatrices,
    StageKey,
)
from nest_opt.dp.rules import restriction
from nest_opt.dp.staged_chain import StagedChain, StagePath, Step, extend
from nest_opt.dp.thresholds import load_weight
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import replica_pitches, stage_pitches
from nest_opt.plan.placement import AlignedOrder, DeviceMap, ListedMap, Placement, uneven_map
from nest_opt.problem import Configuration
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule
from nest_opt.problem.zero import NOT_SHARDED, Zero

# By how much, relatively, a bound in floats may be too high: far more than it is.
_FLOAT_ERROR = 1e-9
# Parts into which the weight of max F is shared between stages and devices.
_SHARES = 4
# Matrices of bytes kept, by entries of 8 bytes.
KEPT_MEMORY_ENTRIES = 2**24


@dataclass(frozen=True)
class StageClass:
    """Configurations that stages of one plan may have, with its microbatch size.

    Attributes
    ----------
    microbatch, configurations
        b and each k.
    sizes
        Block sizes for which `dp-inner` makes pitches, those that constraints
        forbid included.
    """

    microbatch: int
    configurations: tuple[Configuration, ...]
    sizes: tuple[int, ...]

    @property
    def least(self) -> int:
        """The smallest block."""
        return min(k.block_size for k in self.configurations)

    @property
    def most(self) -> int:
        """The largest block."""
        return max(k.block_size for k in self.configurations)


@dataclass(frozen=True)
class StagedGroup:
    """Cells that share class, d, S, ZeRO level and schedule; `bound_ps` is a bound on all.

    With several `levels` it stands for the groups of that many ZeRO levels, and
    `zero` says nothing.
    """

    bound_ps: int
    stage_class: StageClass
    replicas: int
    stages: int
    rounds: int
    zero: Zero = NOT_SHARDED
    schedule: Schedule = ONE_F_ONE_B
    levels: int = 1

    @property
    def sharding(self) -> Sharding:
        """The ZeRO level with what costs depend on."""
        return Sharding(self.zero, self.replicas, self.rounds)

    @property
    def flights(self) -> list[int]:
        """The stashes in flight of each stage."""
        return [
            in_flight(self.schedule, stage, self.stages, self.rounds)
            for stage in range(self.stages)
        ]


@dataclass(frozen=True)
class ClassCell:
    """What the dynamic program of one device map is about.

    Attributes
    ----------
    group
        Class, d, S, ZeRO level and schedule.
    order, pitch
        The device map's.
    unit
        Devices of a replica in all (`pp-inner`); 0 for `dp-inner`.
    allowed
        For each stage, the configurations that it may have. With tied
        parameters, those of the ends have one tp.
    """

    group: StagedGroup
    order: AlignedOrder
    pitch: int
    unit: int
    allowed: tuple[tuple[Configuration, ...], ...]


# Devices used so far, and tp of the front stage and of the one to come; 0 for none.
_State: TypeAlias = tuple[int, int, int]


class StagedSource:
    """Cells of stages that may differ, under the default cost model."""

    def __init__(self, costs: Costs, uniform: DefaultSource) -> None:
        self._problem = costs.problem
        self._table = costs.table
        self._uniform = uniform
        self._schedules = costs.problem.search.schedules
        self._restriction = restriction(costs.problem)
        self._group_sizes = costs.network.group_sizes
        self._modulus = (1, *self._group_sizes)[-2]
        self._devices = costs.problem.cluster.device_count
        self._level_sets: dict[tuple[object, ...], LevelSet] = {}
        self._rows = np.array(costs.table.layer_rows)
        self._times: dict[tuple[StageClass, Sharding], Array] = {}
        self._gradients: dict[StageClass, Array] = {}
        self._relaxed: dict[object, _Relaxed] = {}
        # The degrees dp of a class ask for the same memory, one after the other.
        kept = KEPT_MEMORY_ENTRIES // (self.layers + 1) ** 2
        self._memory = lru_cache(max(MIN_KEPT, kept))(self._compute_memory)

    @cached_property
    def classes(self) -> list[StageClass]:
        """The classes of the search space, without those of one block that the others hold."""
        search = self._problem.search
        alike: dict[tuple[int, Configuration], list[Configuration]] = defaultdict(list)
        for b, k in self._table.pairs:
            alike[b, search.shared(k)].append(k)
        found = []
        for (b, _), every in alike.items():
            kept = tuple(
                k
                for k in sorted(every)
                if self._restriction.allows_pair(b, k) and self._uniform.may_have_tp(k)
            )
            if len(every) > 1 and kept:
                sizes = tuple(sorted({k.block_size for k in every}))
                found.append(StageClass(b, kept, sizes))
        return found

    def weights(self, group: StagedGroup) -> ObjectiveWeights:
        """Return the objective of a group."""
        return objective_weights(
            self._problem.job.objective, group.stages, group.rounds, group.schedule
        )

    def _matrices(self, group: StagedGroup, configuration: Configuration) -> PairMatrices:
        pair = group.stage_class.microbatch, configuration
        return self._uniform.matrices(pair, group.sharding)

    # Bounds

    def groups(self) -> Iterator[StagedGroup]:
        """Yield the groups, all ZeRO levels in one, with a bound in closed form, memory aside."""
        for every in self.classes:
            degrees = {replicas for k in every.configurations for replicas in self._legal(every, k)}
            for replicas in filter(self._restriction.allows_replicas, sorted(degrees)):
                of = replace(
                    every,
                    configurations=tuple(
                        k for k in every.configurations if replicas in self._legal(every, k)
                    ),
                )
                rounds = rounds_per_batch(
                    self._problem.job, of.microbatch, of.configurations[0].ep, replicas
                )
                assert rounds is not None
                most = min(self._table.layer_count, self._devices // (of.least * replicas))
                levels = len(self._uniform.zeros(replicas))
                for stages, schedule in product(range(2, most + 1), self._schedules):
                    group = StagedGroup(
                        0, of, replicas, stages, rounds, schedule=schedule, levels=levels
                    )
                    if self.allows(group) and not self._uniform.is_dominated(schedule, stages):
                        yield replace(group, bound_ps=self._closed_bound(group))

    def by_level(self, group: StagedGroup) -> list[StagedGroup]:
        """Return a group's own of each ZeRO level, with bounds that know it."""
        parts = [
            replace(group, zero=zero, levels=1) for zero in self._uniform.zeros(group.replicas)
        ]
        return [replace(part, bound_ps=self._closed_bound(part)) for part in parts]

    def _legal(self, of: StageClass, configuration: Configuration) -> tuple[int, ...]:
        return self._table.replicas[of.microbatch, configuration]

    def _layer_times(self, group: StagedGroup) -> Array:
        """Return the least F of each layer alone, one row for each configuration.

        Of several ZeRO levels it is that of a level without collectives over copies.
        """
        of, sharding = group.stage_class, group.sharding
        if group.levels > 1 or not sharding.has_rounds:
            sharding = NOTHING_SHARDED
        if (of, sharding) not in self._times:
            self._times[of, sharding] = np.stack(
                [
                    self._uniform.bounds.layer_times((of.microbatch, k), sharding)
                    for k in of.configurations
                ]
            )
        return self._times[of, sharding]

    def _layer_gradients(self, of: StageClass) -> Array:
        """Return W of each layer, one row for each configuration."""
        if of not in self._gradients:
            pairs = [self._table.pairs[of.microbatch, k] for k in of.configurations]
            rows = np.array([costs.weight_gradient_ps for costs in pairs], np.int64)
            self._gradients[of] = rows[:, self._rows]
        return self._gradients[of]

    def _layer_fills(self, group: StagedGroup, weights: ObjectiveWeights) -> Array:
        """Return F less what the fill of a stage hides, as `_layer_times`; it may be negative."""
        times = self._layer_times(group)
        if not weights.hidden_weight:
            return times
        return times - weights.hidden_weight * self._layer_gradients(group.stage_class)

    def _closed_bound(self, group: StagedGroup) -> int:
        """Return a bound from layers alone: stages are at most S, devices at most K / d.

        A stage of a devices does a F device-time. So max F is at least each
        mean of F over stages and over devices, and each layer's own choice of
        configuration at least the best for it under the weights. Loads are no
        less than 0 either, and fills no less than F - 2 W.
        """
        of, weights = group.stage_class, self.weights(group)
        times = self._layer_times(group).astype(np.float64)
        fills = self._layer_fills(group, weights).astype(np.float64)
        size = np.array([k.block_size for k in of.configurations], np.float64)
        most = min(self._devices // group.replicas, group.stages * int(size.max()))
        # A fill is between 0 and F.
        of_largest = weights.round_weight + (
            min(0, weights.fill_weight) if weights.hidden_weight else weights.fill_weight
        )
        best = of_largest * float(times.min(axis=0).max())
        best += weights.sum_weight * max(0.0, float(fills.min(axis=0).sum()))
        for part in range(_SHARES + 1):
            share = part / _SHARES
            mean = (share / group.stages + (1 - share) * size / most)[:, None]
            layers = mean * weights.round_weight * times
            layers += (weights.sum_weight + mean * weights.fill_weight) * fills
            best = max(best, float(layers.min(axis=0).sum()))
        return int(best * (1 - _FLOAT_ERROR))

    def unit_bounds(self, group: StagedGroup, limit: int) -> dict[int, int]:
        """Return, for each number of devices of a replica, a bound on plans within a limit."""
        weights, few = self.weights(group), _few_stages(group)
        key = replace(group, bound_ps=0, stages=few)
        if key not in self._relaxed:
            of_few = objective_weights(
                self._problem.job.objective, few, group.rounds, group.schedule
            )
            self._relaxed[key] = _Relaxed(
                self._uniform, key, of_few, self._devices, self._most_load(group, of_few, limit)
            )
        slowest, total = self._relaxed[key].least(group.stages)
        sync = self._least_sync(group) if weights.sync else 0
        found = {}
        for unit in np.flatnonzero(total < INFINITE).tolist():
            bound = weights.sum_weight * int(total[unit])
            bound += load_weight(weights) * int(slowest[unit])
            if bound + sync <= limit:
                found[unit * self._relaxed[key].step] = bound + sync
        return found

    def _most_load(self, group: StagedGroup, weights: ObjectiveWeights, limit: int) -> int:
        """Return the most that the load of a stage can be in any plan within a limit.

        It holds for all S that share the passes, whose weights these are.
        """
        layers = max(0, int(self._layer_fills(group, weights).min(axis=0).sum()))
        rest = limit - weights.sum_weight * layers
        weight = load_weight(weights)
        most = rest // weight if weight else limit
        return min(limit, most, UNLIMITED)

    def _least_sync(self, group: StagedGroup) -> int:
        """Return a lower bound on max X or max Y: that of the first, or the largest, layer."""
        found, of = [], group.stage_class
        span = (group.stages - 1) * of.least
        exchange = min(self._exchange_ps(group, k, span=span) for k in of.configurations)
        for k in of.configurations:
            matrices = self._matrices(group, k)
            if not matrices.has_sync(group.replicas):
                return exchange
            levels = self._uniform.least.of_copies(k, group.replicas, group.zero)
            found.append(np.diagonal(matrices.sync(group.replicas, frozenset({levels})), 1))
        layers = np.minimum.reduce(found)
        first = int(layers[0]) + exchange
        return first if self._hides_sync(group) else max(first, int(layers.max()))

    def _hides_sync(self, group: StagedGroup) -> bool:
        """Whether the drain of earlier stages hides sync."""
        return self._problem.job.objective == "fill-drain" and drains(group.schedule)

    def _exchange_ps(
        self, group: StagedGroup, k: Configuration, *, span: int = 0, level: int | None = None
    ) -> int:
        """Return what an end pays for tied gradients, at a level or at the least of a span."""
        if level is None:
            level = self._uniform.least.vectors(k).level_of_span(span)
        return self._matrices(group, k).exchange_ps(group.sharding, level)

    # Cells

    def cells(self, group: StagedGroup, limit: int) -> list[tuple[int, ClassCell]]:
        """Return the cells of a group that may hold a plan within a limit, by their bounds."""
        bounds = self.unit_bounds(group, limit)
        if not bounds:
            return []
        found = [
            (bound, cell) for unit, bound in bounds.items() for cell in self.rows_of(group, unit)
        ]
        found += [(min(bounds.values()), cell) for cell in self.columns_of(group)]
        return sorted(found, key=lambda entry: entry[0])

    def rows_of(self, group: StagedGroup, unit: int) -> Iterator[ClassCell]:
        """Yield the `pp-inner` cells of a group with so many devices in a replica."""
        every = (group.stage_class.configurations,) * group.stages
        for pitch in replica_pitches(
            self._group_sizes, self._devices, unit, group.replicas, self._problem.search
        ):
            # As far as constraints look, a replica is one block.
            row = DeviceMap(unit, group.replicas, 1, "pp-inner", pitch)
            if self._restriction.allows_map(row):
                yield from self._by_tied_tp(ClassCell(group, "pp-inner", pitch, unit, every))

    def columns_of(self, group: StagedGroup) -> Iterator[ClassCell]:
        """Yield the `dp-inner` cells of a group."""
        of = group.stage_class
        for pitch, widest in stage_pitches(
            self._group_sizes, self._devices, of.sizes, group.replicas, group.stages,
            self._problem.search,
        ):  # fmt: skip
            fitting = tuple(k for k in of.configurations if k.block_size <= widest)
            allowed = tuple(
                tuple(k for k in fitting if self._allows_row(group, pitch, stage, k.block_size))
                for stage in range(group.stages)
            )
            if all(allowed):
                yield from self._by_tied_tp(ClassCell(group, "dp-inner", pitch, 0, allowed))

    def _by_tied_tp(self, cell: ClassCell) -> Iterator[ClassCell]:
        """Yield a cell; with tied parameters, a part of it for each tp that both ends may have."""
        if self._table.tied is None:
            yield cell
            return
        first, *inner, last = cell.allowed
        for tp in sorted({k.tp for k in first} & {k.tp for k in last}):
            ends = [tuple(k for k in allowed if k.tp == tp) for allowed in (first, last)]
            yield replace(cell, allowed=(ends[0], *inner, ends[1]))

    def _exchange(self, cell: ClassCell) -> int:
        """Return what the ends of a cell's pipelines pay for tied gradients."""
        if self._table.tied is None:
            return 0
        group, k = cell.group, cell.allowed[0][0]
        replicas = np.arange(group.replicas, dtype=np.int64)
        if cell.order == "pp-inner":
            start = replicas * cell.pitch
            reach = cell.unit - 1
        else:
            start = replicas * k.block_size
            reach = (group.stages - 1) * cell.pitch + k.block_size - 1
        level = self._uniform.least.vectors(k).level_between(start, start + reach)
        return self._exchange_ps(group, k, level=level)

    def _allows_row(self, group: StagedGroup, pitch: int, stage: int, size: int) -> bool:
        """Whether the constraints on device maps allow a stage of `dp-inner` by itself."""
        if not self._restriction.device_maps:
            return True
        row = tuple(
            tuple(range(start, start + size))
            for start in range(stage * pitch, stage * pitch + group.replicas * size, size)
        )
        return self._restriction.allows_map(ListedMap((row,)))

    def allows_path(self, cell: ClassCell, configurations: Sequence[Configuration]) -> bool:
        """Whether the constraints on device maps allow a cell's map with these stages."""
        if not self._restriction.device_maps or cell.order == "pp-inner":
            return True
        sizes = [k.block_size for k in configurations]
        return self._restriction.allows_map(
            uneven_map(sizes, cell.group.replicas, cell.order, cell.pitch)
        )

    def chain(self, cell: ClassCell, *, memory: bool = False) -> StagedChain | None:
        """Return the dynamic program of a cell, None where stages cannot be so placed.

        With `memory`, bytes stand in the place of times, and there is no sync.
        """
        group = cell.group
        held = self._uniform.held_by(group.stages)
        left = self._sums(cell)
        exchange = 0 if memory else self._exchange(cell)
        streams = group.stage_class.configurations[0].cp * group.stage_class.configurations[0].ep
        # sp does not move devices, so states know of neighbours' tp alone.
        alike = [_by_tp(allowed) for allowed in cell.allowed]
        states: dict[_State, int] = {(0, 0, tp): n for n, tp in enumerate(alike[-1])}
        counts, steps, flights = [len(states)], [], group.flights
        for stage in reversed(range(group.stages)):
            after: dict[_State, int] = {}
            costs: dict[tuple[Configuration, LevelSet, LevelSet], dict[int, list[int]]] = {}
            for (used, behind, tp), number in states.items():
                total = used + tp * streams if cell.unit else 0
                if cell.unit and cell.unit - total not in left[stage]:
                    continue
                first = self._first(cell, stage, total)
                sync = self._sync_set(cell, first, alike[stage][tp][0])
                for before in [0] if stage == 0 else alike[stage - 1]:
                    if max(before, tp) % max(1, min(before, tp)):
                        continue
                    levels = self._stage_set(
                        cell, first, alike[stage][tp][0], before * streams, behind * streams
                    )
                    target = after.setdefault((total, tp, before), len(after))
                    for here in alike[stage][tp]:
                        moves = costs.setdefault((here, levels, sync), {})
                        moves.setdefault(target, []).append(number)
            steps.append(
                [
                    self._step(
                        cell,
                        here,
                        levels,
                        sync,
                        flights[stage],
                        held[stage],
                        moves,
                        memory,
                        exchange if stage in (0, group.stages - 1) else 0,
                    )
                    for (here, levels, sync), moves in costs.items()
                ]
            )
            if not after:
                return None
            states = after
            counts.append(len(states))
        return StagedChain(self._table.layer_count, steps, counts, hidden=self._hides_sync(group))

    @staticmethod
    def _sums(cell: ClassCell) -> list[set[int]]:
        """Return, for each number of stages, how many devices the first ones can use."""
        sums = [{0}]
        for allowed in cell.allowed:
            sizes = {k.block_size for k in allowed}
            sums.append({total + size for total, size in product(sums[-1], sizes)})
        return sums

    def _step(
        self, cell: ClassCell, here: Configuration, levels: LevelSet, sync: LevelSet,
        flight: int, held: Held, moves: dict[int, list[int]], memory: bool, exchange: int,
    ) -> Step:  # fmt: skip
        matrices, weights = self._matrices(cell.group, here), self.weights(cell.group)
        replicas = cell.group.replicas
        together: dict[tuple[int, ...], list[int]] = {}
        for target, sources in moves.items():
            together.setdefault(tuple(sources), []).append(target)
        shared = weights.sync and (matrices.has_sync(replicas) or exchange > 0)
        if memory:
            load = with_held(matrices.memory(flight), held)
            if any(map(matrices.is_forbidden, levels)):
                load = np.full_like(load, INFINITE)
            fill = load
        else:
            key: StageKey = levels, flight, held, sync if matrices.has_rounds else NO_ROUNDS
            load, fill = matrices.load(weights, key), matrices.fill(weights, key)
        return Step(
            here,
            load,
            fill,
            matrices.sync(replicas, sync, exchange) if shared and not memory else None,
            matrices.backward_prefix,
            tuple((sources, tuple(targets)) for sources, targets in together.items()),
        )

    def _stage_set(
        self, cell: ClassCell, first: int, here: Configuration, before: int, behind: int
    ) -> LevelSet:
        """Return the maximal levels of a stage, between blocks of so many devices (0: none).

        `first` is the place of its first replica; levels repeat with the
        largest proper group.
        """
        number, pitch, tp = cell.group.replicas, cell.pitch, here.tp
        key = (cell.order, pitch, number, first, before, behind, tp, here.cp, here.ep)
        if key not in self._level_sets:
            size = here.block_size
            if cell.order == "pp-inner":
                period = self._modulus // gcd(pitch, self._modulus)
                start = first + np.arange(min(number, period), dtype=np.int64) * pitch
                ahead, last = start - before, start + size + behind - 1
            else:
                replica = np.arange(number, dtype=np.int64)
                start = first + replica * size
                ahead = first - pitch + replica * before
                last = first + pitch + (replica + 1) * behind - 1
            self._level_sets[key] = self._uniform.least.vectors(here).stage_set(
                start, ahead if before else None, last if behind else None
            )
        return self._level_sets[key]

    def _first(self, cell: ClassCell, stage: int, total: int) -> int:
        """Return where a stage starts in replica 0, up to whole largest proper groups."""
        first = cell.unit - total if cell.order == "pp-inner" else stage * cell.pitch
        return first % self._modulus

    def _sync_set(self, cell: ClassCell, first: int, here: Configuration) -> LevelSet:
        """Return the maximal levels of a stage's copies."""
        step = cell.pitch if cell.order == "pp-inner" else here.block_size
        replicas, zero = cell.group.replicas, cell.group.zero
        # Without several runs of replicas the level makes no difference.
        of = zero if zero.instances > 1 else NOT_SHARDED
        key = (first, step, replicas, of, here.tp, here.cp, here.ep)
        if key not in self._level_sets:
            vectors = self._uniform.least.vectors(here)
            self._level_sets[key] = vectors.copy_set(first, step, replicas, of)
        return self._level_sets[key]

    # What a diagnosis asks

    @property
    def devices(self) -> int:
        """K, the number of devices."""
        return self._devices

    @property
    def usable_bytes(self) -> int:
        """What a stage may fill on a device."""
        return self._table.usable_bytes

    @property
    def layers(self) -> int:
        """n, the number of layers."""
        return self._table.layer_count

    @property
    def tied_tps(self) -> list[int] | None:
        """Each tp that both ends of a pipeline may have, None where they need not have one."""
        if self._table.tied is None:
            return None
        return sorted({k.tp for _, k in self._table.pairs})

    @property
    def any_map_will_do(self) -> bool:
        """Whether there is a legal device map wherever the devices suffice."""
        return self._uniform.every_map_allowed

    @property
    def replicas_in_a_row(self) -> bool:
        """Whether `pp-inner` is allowed."""
        return "pp-inner" in self._problem.search.order

    def allows(self, group: StagedGroup) -> bool:
        """Whether search space, constraints and schedule allow a group's number of stages."""
        return self._uniform.allows_stages(group.stages) and runs(
            group.schedule, group.stages, group.rounds
        )

    def memory_groups(self) -> Iterator[StagedGroup]:
        """Yield classes with each d, ZeRO level and schedule, for any number of stages.

        They are those of memory cases. No schedule holds fewer stashes than 1F1B, or runs
        where that does not.
        """
        cases = [
            case
            for case in self._uniform.memory_cases()
            if case.schedule == ONE_F_ONE_B or ONE_F_ONE_B not in self._schedules
        ]
        for of in self.classes:
            rounds: dict[tuple[int, Zero, Schedule], int] = {}
            having: dict[tuple[int, Zero, Schedule], set[Configuration]] = defaultdict(set)
            for case in cases:
                if case.microbatch == of.microbatch and case.configuration in of.configurations:
                    key = case.replicas, case.zero, case.schedule
                    rounds[key] = case.rounds
                    having[key].add(case.configuration)
            for key in sorted(rounds):
                # So many blocks of another configuration are more than the devices hold.
                kept = tuple(k for k in of.configurations if k in having[key])
                part = replace(of, configurations=kept)
                yield StagedGroup(0, part, key[0], 0, rounds[key], *key[1:])

    def memory(self, group: StagedGroup, configuration: Configuration, in_flight: int) -> Array:
        """Return the least bytes of every interval with so many stashes, pins aside."""
        sharding = group.sharding if group.zero else NOTHING_SHARDED
        return self._memory(group.stage_class.microbatch, configuration, sharding, in_flight)

    def _compute_memory(
        self, microbatch: int, configuration: Configuration, sharding: Sharding, flight: int
    ) -> Array:
        return self._uniform.matrices((microbatch, configuration), sharding).memory(flight)

    def held_by(self, stages: int) -> list[Held]:
        """Return the layers that each of S stages must hold."""
        return self._uniform.held_by(stages)

    def placement(self, cell: ClassCell, path: StagePath) -> Placement:
        """Return the placement of stages in a cell."""
        group = cell.group
        modes = tuple(
            self._matrices(group, step.configuration).mode(flight, low, high)
            for flight, (step, low, high) in zip(group.flights, path, strict=True)
        )
        return Placement(
            group.stage_class.microbatch,
            tuple(step.configuration for step, _, _ in path),
            group.replicas,
            cell.order,
            cell.pitch,
            tuple(high for _, _, high in path),
            modes,
            zero=group.zero,
            schedule=group.schedule,
        )


def _by_tp(configurations: Sequence[Configuration]) -> dict[int, list[Configuration]]:
    """Return configurations by their tp."""
    found: dict[int, list[Configuration]] = defaultdict(list)
    for k in configurations:
        found[k.tp].append(k)
    return found


def may_neighbour(first: Configuration, second: Configuration) -> bool:
    """Whether of the tps of two stages one divides the other."""
    return max(first.tp, second.tp) % min(first.tp, second.tp) == 0


def _few_stages(group: StagedGroup) -> int:
    """Return a number of stages, at most S, whose stashes and loads bound those of S.

    Under ZB-H1 they grow with S, by the end of a pipeline in no other case. So all S share
    passes there up to the double.
    """
    return 1 << group.stages.bit_length() - 1 if group.schedule.name == "zb-h1" else 2


class _Relaxed:
    """Least max load and least sum of fills by stages and devices, on the least levels possible.

    One pass from the last stage on serves all S from that of the group on. Configurations of
    neighbours do not matter here; loads above a limit are as good as none.
    """

    def __init__(
        self,
        uniform: DefaultSource,
        group: StagedGroup,
        weights: ObjectiveWeights,
        devices: int,
        most_load: int,
    ) -> None:
        of = group.stage_class
        self._uniform, self._group, self._weights = uniform, group, weights
        self._most_load = most_load
        self.step = reduce(gcd, (k.block_size for k in of.configurations))
        start = np.full((devices // group.replicas // self.step + 1, uniform.layers + 1), INFINITE)
        start[0] = suffix_start(uniform.layers)
        self._slowest, self._total = start, start.copy()
        self._found: list[tuple[Array, Array]] = []

    def least(self, stages: int) -> tuple[Array, Array]:
        """Return (least max load, least sum of fills) of S stages by devices in `step`s."""
        while len(self._found) < stages:
            self._extend(len(self._found) + 1)
        return self._found[stages - 1]

    def _extend(self, stages: int) -> None:
        """Add the first of so many stages, then the one before it."""
        whole = tuple(np.full(len(self._total), INFINITE) for _ in range(2))
        longer = tuple(np.full(self._total.shape, INFINITE) for _ in range(2))
        for k in self._group.stage_class.configurations:
            size = k.block_size // self.step
            for is_first in (True, False):
                costs = self._costs(k, stages, is_first)
                for new, last, cost, operation in (
                    (0, self._slowest, costs[0], np.maximum), (1, self._total, costs[1], np.add)
                ):  # fmt: skip
                    if size >= len(last):
                        continue
                    rows = np.flatnonzero((last[:-size] < INFINITE).any(axis=1))
                    if not len(rows):
                        continue
                    if is_first:
                        first = operation(cost[0], last[rows]).min(axis=1)
                        np.minimum.at(whole[new], rows + size, first)
                    else:
                        after = extend(cost, last[rows], operation)
                        longer[new][rows + size] = np.minimum(longer[new][rows + size], after)
        self._found.append((whole[0], whole[1]))
        self._slowest, self._total = longer

    def _costs(self, k: Configuration, count: int, is_first: bool) -> tuple[Array, Array]:
        """Return load and fill of every interval as the stage `count` from the end."""
        group = self._group
        matrices = self._uniform.matrices((group.stage_class.microbatch, k), group.sharding)
        *inside, hop = self._uniform.least.of_groups(k)
        levels = (*inside, NO_HOP if is_first else hop, NO_HOP if count == 1 else hop)
        stages = max(count, group.stages)
        copies = self._uniform.least.of_copies(k, group.replicas, group.zero)
        key: StageKey = (
            frozenset({levels}),
            in_flight(group.schedule, stages - count, stages, group.rounds),
            None,
            frozenset({copies}) if matrices.has_rounds else NO_ROUNDS,
        )
        load, fill = matrices.load(self._weights, key), matrices.fill(self._weights, key)
        useful = load <= self._most_load
        return np.where(useful, load, INFINITE), np.where(useful, fill, INFINITE)
