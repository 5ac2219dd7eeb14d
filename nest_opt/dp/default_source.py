"""The default cost model's cells of the aligned family, with their bounds."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import lru_cache
from itertools import product
from math import isqrt
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from nest_opt.cost.build import legal_replicas, with_replicas
from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import drains, in_flight, rounds_per_batch, runs
from nest_opt.cost.sharding import Sharding, fits_replicas
from nest_opt.dp.chain import INFINITE, Array, Chain, extend_max, suffix_start
from nest_opt.dp.chunks import ChunkCosts, ChunkLevels, ChunkMemory, ChunkPlan, EqualCuts, StageSets
from nest_opt.dp.cuts import EndsAndOrder, Held, cuts_of
from nest_opt.dp.group_bounds import GroupBounds, sharding_of
from nest_opt.dp.least_levels import LeastLevels
from nest_opt.dp.levels import NO_HOP, LevelSet
from nest_opt.dp.matrices import (
    MIN_KEPT,
    NO_ROUNDS,
    NOTHING_SHARDED,
    LazyMatrices,
    PairMatrices,
    StageKey,
)
from nest_opt.dp.rules import restriction
from nest_opt.dp.source import Bundle, Group, MemoryCase
from nest_opt.dp.thresholds import load_weight
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import aligned_maps, count_maps
from nest_opt.plan.placement import Cell, DeviceMap
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule
from nest_opt.problem.zero import NOT_SHARDED, Zero

Key = TypeVar("Key")
Value = TypeVar("Value")
_Matrices: TypeAlias = dict[tuple[tuple[int, Configuration], Sharding], PairMatrices]

# Matrices that are kept of ZeRO levels above 0.
KEPT_SHARDED = 64
# Costs of equal chunks that are kept, times n^2: their arrays have about n^2 entries each.
KEPT_CHUNKS = 2**20


class DefaultSource:
    """Cells of the aligned family under the default cost model."""

    def __init__(self, costs: Costs) -> None:
        self._problem = costs.problem
        self._table = costs.search_table
        self._boundaries = cuts_of(costs.graph, costs.table.layer_count)
        self._devices = costs.problem.cluster.device_count
        self._restriction = restriction(costs.problem)
        self._replicas = costs.table.replicas
        self._group_sizes = costs.network.group_sizes
        self._rows = np.array(costs.table.layer_rows)
        self._zero = costs.problem.zeros
        self._schedules = costs.problem.search.schedules
        self.least = LeastLevels(costs.network.spreads)
        self.bounds = GroupBounds(costs.search_table, costs.problem.job.objective, self.least)
        # By whether parameters are sharded: there are many such, and the oldest are dropped.
        self._matrices: tuple[_Matrices, _Matrices] = ({}, {})
        self._device_maps: dict[tuple[int, int, int], list[DeviceMap]] = {}
        self._with_maps: dict[tuple[Configuration, int, int, bool], bool] = {}
        self._map_counts: dict[tuple[int, int], list[tuple[int, int]]] = {}
        self._cuts: dict[tuple[int, int], EqualCuts] = {}
        self._chunk_costs: dict[object, ChunkCosts] = {}
        self._least: dict[object, tuple[int, int]] = {}
        # Whether there is any way to cut the layers, by chunks and stages.
        self._possible: dict[tuple[int, int], bool] = {}

    def relaxed(self, problem: Problem) -> "DefaultSource":
        """Return the cells under fewer constraints, or with a padded batch: for `fits` alone.

        Memory, levels and device maps are shared; gradients' syncs of degrees
        that only a padded batch allows are not known. ZeRO shares out states
        over copies, so that there the memory of other degrees is another.
        """
        other = copy(self)
        other._problem, other._restriction = problem, restriction(problem)
        other._replicas = legal_replicas(problem)
        other._matrices, other._least, other._with_maps = ({}, {}), {}, {}
        other._cuts, other._chunk_costs, other._map_counts = {}, {}, {}
        other._possible = {}
        if any(self._zero) and other._replicas != self._replicas:
            other._replicas = other._widest_replicas()
            other._table = with_replicas(problem, self._table, other._replicas)
            other.bounds = GroupBounds(other._table, problem.job.objective, self.least)
        return other

    def _widest_replicas(self) -> dict[tuple[int, Configuration], tuple[int, ...]]:
        """Return legal d of which one fits if any does, where the batch may be padded.

        Of all d with which a schedule runs on S stages, the largest that leaves
        room for these shares out states best, and runs the fewest rounds.
        """
        every = self._every_map_allowed(NOT_SHARDED) and not self._problem.search.dp
        in_runs = any(zero.instances > 1 for zero in self._zero)
        if not (self._problem.job.pad and every) or in_runs or ONE_F_ONE_B not in self._schedules:
            return dict(self._replicas)
        interleaved = [schedule for schedule in self._schedules if schedule.is_interleaved]
        widest = {}
        for pair in self._replicas:
            kept = set()
            for stages in range(1, self.layers + 1):
                most = self._devices // (pair[1].block_size * stages)
                kept.add(most)
                kept |= {self._widest(pair, schedule, stages, most) for schedule in interleaved}
            widest[pair] = tuple(sorted(kept - {0}))
        return widest

    def _widest(
        self, pair: tuple[int, Configuration], schedule: Schedule, stages: int, most: int
    ) -> int:
        """Return the largest d, up to a number, with which a schedule runs; 0 if there is none."""
        if not self._runs(schedule, stages, stages):
            return 0
        degrees = range(most, 0, -1)
        return next((d for d in degrees if runs(schedule, stages, self._rounds(pair, d))), 0)

    @property
    def layers(self) -> int:
        """n, the number of layers."""
        return self._table.layer_count

    @property
    def last_cut(self) -> int:
        """The cut after all layers."""
        return len(self._boundaries) - 1

    def stages(self, path: Sequence[int]) -> EndsAndOrder:
        """Return ends and order of the stages that end at these cuts."""
        return self._boundaries.stages(path)

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return a matrix that is `INFINITE` for stages without the layers to be held."""
        return self._boundaries.holding(matrix, held)

    def matrices(
        self, pair: tuple[int, Configuration], sharding: Sharding = NOTHING_SHARDED
    ) -> PairMatrices:
        """Return the matrices of a pair and ZeRO level; those of level 0 are built once."""
        if not sharding.zero:
            sharding = NOTHING_SHARDED
        return _kept(
            self._matrices[bool(sharding.zero)],
            (pair, sharding),
            lambda: PairMatrices(self._table, pair, self._restriction, sharding, self._boundaries),
            KEPT_SHARDED if sharding.zero else None,
        )

    def _matrices_of(self, cell: Cell) -> PairMatrices:
        return self.matrices(cell.pair, Sharding(cell.zero, cell.device_map.replicas, cell.rounds))

    def bundles(self, with_dominated: bool = True) -> Iterator[Bundle]:
        """Yield the groups of each pair, d and schedule, with bounds in closed form.

        Memory and ZeRO levels aside.
        """
        for pair in self._table.pairs:
            if self._restriction.allows_pair(*pair) and self.may_have_tp(pair[1]):
                for replicas in filter(self._restriction.allows_replicas, self._replicas[pair]):
                    for schedule in self._schedules:
                        yield self._bundle(pair, replicas, schedule, with_dominated)

    def may_have_tp(self, configuration: Configuration) -> bool:
        """Whether some device map keeps tp groups on the levels that they may use."""
        most = self._restriction.highest_tp_level
        return most is None or self.least.of_groups(configuration)[0] <= most

    def _bundle(
        self,
        pair: tuple[int, Configuration],
        replicas: int,
        schedule: Schedule,
        with_dominated: bool,
    ) -> Bundle:
        """Return the groups of a pair, d and schedule, all ZeRO levels in one."""
        rounds, levels = self._rounds(pair, replicas), len(self.zeros(replicas))
        choices = [
            stages
            for stages in self._stage_counts(pair[1].block_size, replicas)
            if self._runs(schedule, stages, rounds)
            and (with_dominated or not self.is_dominated(schedule, stages))
        ]

        def group(place: int) -> Group:
            stages = choices[place]
            devices = pair[1].block_size * replicas * stages
            return Group(
                0, devices, stages, replicas, *pair, rounds, schedule=schedule, levels=levels
            )

        def fitting() -> npt.NDArray[np.bool_]:
            usable = self._table.usable_bytes
            case = MemoryCase(*pair, replicas, rounds, 0, usable, schedule=schedule)
            fits = self.bounds.have_room(case, self.zeros(replicas), usable)
            of_choices: npt.NDArray[np.bool_] = fits[np.array(choices, np.intp) - 1]
            return of_choices

        bounds = self.bounds.closed_forms(pair, rounds, schedule, choices)
        return Bundle(bounds, group, levels, fitting)

    def zeros(self, replicas: int) -> list[Zero]:
        """Return the ZeRO levels that so many replicas can have."""
        return [zero for zero in self._zero if fits_replicas(zero, replicas)]

    def _stage_counts(self, block_size: int, replicas: int) -> list[int]:
        """Return the numbers of stages that devices and constraints allow."""
        most = min(self._table.layer_count, self._devices // (block_size * replicas))
        return [count for count in range(1, most + 1) if self.allows_stages(count)]

    def _rounds(self, pair: tuple[int, Configuration], replicas: int) -> int:
        rounds = rounds_per_batch(self._problem.job, pair[0], pair[1].ep, replicas)
        assert rounds is not None
        return rounds

    def is_dominated(self, schedule: Schedule, stages: int) -> bool:
        """Whether 1F1B takes no more time and memory with every placement: it wins the tie.

        GPipe holds more stashes. ZB-H1 does so too, and is faster only in the fill.
        """
        if ONE_F_ONE_B not in self._schedules:
            return False
        fills = stages > 1 and self._problem.job.objective != "bottleneck"
        return schedule.name == "gpipe" or (schedule.name == "zb-h1" and not fills)

    def _runs(self, schedule: Schedule, stages: int, rounds: int) -> bool:
        """Whether a schedule has plans of S stages and m rounds: each chunk has a layer."""
        enough = stages * schedule.chunks <= self._table.layer_count
        return enough and runs(schedule, stages, rounds) and self._can_cut(schedule, stages)

    def _can_cut(self, schedule: Schedule, stages: int) -> bool:
        """Whether the constraints leave some way to cut the layers, memory aside."""
        if not self._restriction.limits_cuts:
            return True
        key = schedule.chunks, stages
        if key not in self._possible:
            pins = self._restriction.pins
            self._possible[key] = all(pin.least_stages <= stages for pin in pins) and (
                len(self._equal_cuts(stages, schedule.chunks).edges) > 0
                if schedule.is_interleaved
                else self._can_cut_into(stages)
            )
        return self._possible[key]

    def _can_cut_into(self, stages: int) -> bool:
        """Whether there are S stages that hold what they must, and nothing that they may not."""
        legal = self.matrices(next(iter(self._table.pairs))).legal
        suffix = suffix_start(self.last_cut)
        for held in reversed(self.held_by(stages)):
            suffix = extend_max(self.holding(legal, held), suffix)
        return bool(suffix[0] < INFINITE)

    def allows_stages(self, stages: int) -> bool:
        """Whether search space and constraints allow a number of stages."""
        asked = self._problem.search.pp
        return (not asked or stages in asked) and self._restriction.allows_stages(stages)

    @property
    def refinements(self) -> int:
        """Three: room under any ZeRO level, under each, and the interval DP or all equal chunks."""
        return 3

    def refined(self, group: Group, step: int) -> list[Group]:
        """Return the groups that a group is made of, with bounds that know memory and more."""
        if step == 0:
            return self._by_level(group)
        bound = self.bounds.with_room_ps(group, [group.zero]) if step == 1 else self._solved(group)
        return [] if bound is None else [replace(group, bound_ps=bound)]

    def _by_level(self, group: Group) -> list[Group]:
        """Return a group's own of each ZeRO level, unless there is too little room under all."""
        zeros = self.zeros(group.replicas)
        bound = self.bounds.with_room_ps(group, zeros) if len(zeros) > 1 else group.bound_ps
        if bound is None:
            return []
        parts = [replace(group, zero=zero, levels=1) for zero in zeros]
        return [
            replace(part, bound_ps=max(bound, self.bounds.closed_form_ps(part))) for part in parts
        ]

    def _solved(self, group: Group) -> int | None:
        """Return a bound with memory and sync, from the interval DP or all equal chunks."""
        if group.schedule.is_interleaved:
            return self._least_chunked(group)
        found = self._relaxed(group)
        if found is None:
            return None
        slowest, total = found
        weights = self.group_weights(group)
        bound = weights.sum_weight * total + load_weight(weights) * slowest
        if weights.sync:
            bound += self._least_sync(sharding_of(group), group.pair, group.stages, group.schedule)
        return bound

    def group_weights(self, group: Group) -> ObjectiveWeights:
        """Return the objective of a group's cells."""
        return objective_weights(
            self._problem.job.objective, group.stages, group.rounds, group.schedule
        )

    def _least_chunked(self, group: Group) -> int | None:
        """Return the best plan's value with equal chunks, at the least levels possible."""
        if group.stages < self.matrices(group.pair, sharding_of(group)).least_stages:
            return None
        *inside, hop = self.least.of_groups(group.configuration)
        stages, around = group.stages, self.least.around(group.configuration, group.stages)
        levels = tuple(
            frozenset(
                {
                    (
                        *inside,
                        hop if stage else around,
                        hop if stage < stages - 1 else around,
                    )
                }
            )
            for stage in range(stages)
        )
        copies = frozenset({self.least.of_copies(group.configuration, group.replicas, group.zero)})
        best = self._best_chunks(
            sharding_of(group),
            group.pair,
            group.schedule,
            levels,
            (copies,) * stages,
            self.least_exchange(group.pair, sharding_of(group), stages),
        )
        return None if best is None else best[0]

    def _best_chunks(
        self,
        sharding: Sharding,
        pair: tuple[int, Configuration],
        schedule: Schedule,
        levels: StageSets,
        copies: StageSets,
        exchange_ps: int,
    ) -> tuple[int, int] | None:
        """Return the least value of equal chunks at some levels, and its place among the ways."""
        matrices, stages = self.matrices(pair, sharding), len(levels)
        objective = self._problem.job.objective
        weights = objective_weights(objective, stages, sharding.rounds, schedule)
        of_cell = ChunkLevels(
            levels,
            copies if matrices.has_rounds else (),
            copies
            if weights.sync and (matrices.has_sync(sharding.replicas) or exchange_ps)
            else (),
            exchange_ps,
        )
        return self._chunks(pair, sharding, schedule, stages).best(
            _flights(schedule, stages, sharding.rounds),
            weights,
            of_cell,
            sharding.replicas,
            self._hides_sync(schedule),
        )

    def _chunks(
        self, pair: tuple[int, Configuration], sharding: Sharding, schedule: Schedule, stages: int
    ) -> ChunkCosts:
        """Return the costs of all ways to cut into equal chunks; the oldest are dropped."""
        cuts = self._equal_cuts(stages, schedule.chunks)
        of = sharding if sharding.zero else NOTHING_SHARDED
        return _kept(
            self._chunk_costs,
            (pair, of, stages, schedule.chunks),
            lambda: ChunkCosts(self.matrices(pair, of), cuts),
            max(MIN_KEPT, KEPT_CHUNKS // self.layers**2),
        )

    def _equal_cuts(self, stages: int, chunks: int) -> EqualCuts:
        """Return all ways to cut the layers, listed once."""
        key = (stages, chunks)
        if key not in self._cuts:
            pinned = [
                (place, stage)
                for stage, places in enumerate(self._pinned(stages))
                for place in places
            ]
            self._cuts[key] = EqualCuts(self.layers, *key, self._restriction, pinned)
        return self._cuts[key]

    def chunk_plan(self, cell: Cell) -> ChunkPlan | None:
        """Return the best plan of an interleaved cell."""
        best = self._best_of(cell)
        if best is None:
            return None
        sharding = Sharding(cell.zero, cell.device_map.replicas, cell.rounds)
        stages = cell.device_map.stages
        flights = _flights(cell.schedule, stages, cell.rounds)
        return self._chunks(cell.pair, sharding, cell.schedule, stages).plan(flights, *best)

    def _best_of(self, cell: Cell) -> tuple[int, int] | None:
        vectors, device_map = self.least.vectors(cell.configuration), cell.device_map
        return self._best_chunks(
            Sharding(cell.zero, device_map.replicas, cell.rounds),
            cell.pair,
            cell.schedule,
            tuple(vectors.stage_sets(device_map, goes_round=True)),
            tuple(vectors.sync_sets(device_map, cell.zero)),
            self._exchange(cell),
        )

    def chunk_memory(self, case: MemoryCase, stages: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the least bytes of the heaviest stage of equal chunks, and their ends."""
        if stages == 1:
            return None
        cuts = self._equal_cuts(stages, case.schedule.chunks)
        flights = _flights(case.schedule, stages, case.rounds)
        return ChunkMemory(self._memory_of(case), cuts).least(flights)

    def _relaxed(self, group: Group) -> tuple[int, int] | None:
        """Return (least max load, least sum of fills) at the least levels; None if nothing fits.

        Ends of pipelines with the same stashes and pins are found once.
        """
        sharding, stages = sharding_of(group), group.stages
        if stages < self.matrices(group.pair, sharding).least_stages:
            return None
        weights = self.group_weights(group)
        flights = _flights(group.schedule, stages, group.rounds)
        key = (
            group.pair, tuple(flights), weights if weights.has_loads else None,
            sharding if sharding.zero else NOTHING_SHARDED,
        )  # fmt: skip
        if key not in self._least:
            matrices = self.matrices(group.pair, sharding)
            shared = NO_ROUNDS
            if matrices.has_rounds:
                shared = frozenset(
                    {self.least.of_copies(group.configuration, group.replicas, group.zero)}
                )
            *inside, hop = self.least.of_groups(group.configuration)
            keys: list[StageKey] = []
            for stage, (flight, held) in enumerate(zip(flights, self.held_by(stages), strict=True)):
                level_in = hop if stage else NO_HOP
                level_out = hop if stage < stages - 1 else NO_HOP
                levels = frozenset({(*inside, level_in, level_out)})
                keys.append((levels, flight, held, shared))
            self._least[key] = matrices.least(keys[::-1], weights)
        return self._least[key] if self._least[key][1] < INFINITE else None

    def _least_sync(
        self,
        sharding: Sharding,
        pair: tuple[int, Configuration],
        stages: int,
        schedule: Schedule,
    ) -> int:
        """Return a lower bound on max X or max Y at the least group levels possible.

        The first stage holds at least one that may be first and hides nothing; with
        one stage it holds all. Where nothing hides sync, some stage has the
        largest layer, and an even share of all layers' bytes at least.
        """
        matrices, replicas = self.matrices(pair, sharding), sharding.replicas
        exchange = self.least_exchange(pair, sharding, stages)
        if not matrices.has_sync(replicas):
            return exchange
        least = self.least.of_copies(pair[1], replicas, sharding.zero)
        sync = matrices.sync(replicas, frozenset({least}))
        if stages == 1:
            return int(sync[0, -1])
        if self._hides_sync(schedule):
            return int(sync[0, self._boundaries.first].min()) + exchange
        return max(
            int(sync[self._boundaries.alone].max()),
            int(sync[0, self._boundaries.first].min()) + exchange,
            *([int(sync[-2, -1]) + exchange] if exchange else []),
            -(-int(sync[0, -1]) // stages),
        )

    def least_exchange(
        self, pair: tuple[int, Configuration], sharding: Sharding, stages: int
    ) -> int:
        """Return what the ends of any device map pay at least for tied gradients."""
        if stages == 1:
            return 0
        span = (stages - 1) * pair[1].block_size
        level = self.least.vectors(pair[1]).level_of_span(span)
        return self.matrices(pair, sharding).exchange_ps(sharding, level)

    def _hides_sync(self, schedule: Schedule) -> bool:
        """Whether the drain of earlier stages hides sync."""
        return self._problem.job.objective == "fill-drain" and drains(schedule)

    def cells(self, group: Group) -> list[Cell]:
        """Return the group's distinct device maps as cells, in the order of ties."""
        b, k, m = group.microbatch, group.configuration, group.rounds
        return [
            Cell(b, k, m, device_map, group.zero, group.schedule)
            for device_map in self._maps(k.block_size, group.replicas, group.stages)
        ]

    def cell_count(self) -> int:
        """Return the number of cells of all groups."""
        shapes = Counter(
            (pair[1].block_size, replicas, self._rounds(pair, replicas))
            for pair in self._table.pairs
            if self._restriction.allows_pair(*pair) and self.may_have_tp(pair[1])
            for replicas in filter(self._restriction.allows_replicas, self._replicas[pair])
        )
        return sum(
            count * len(self.zeros(shape[1])) * self._map_count(*shape)
            for shape, count in shapes.items()
        )

    def _map_count(self, block_size: int, replicas: int, rounds: int) -> int:
        """Return the number of device maps of all S, as often as a schedule runs there."""
        shape = block_size, replicas
        if shape not in self._map_counts:
            stages = self._stage_counts(*shape)
            counts = count_maps(
                self._group_sizes, self._devices, *shape, stages, self._problem.search
            )
            self._map_counts[shape] = list(zip(stages, counts, strict=True))
        return sum(
            maps * sum(self._runs(schedule, stages, rounds) for schedule in self._schedules)
            for stages, maps in self._map_counts[shape]
        )

    def _maps(self, block_size: int, replicas: int, stages: int) -> list[DeviceMap]:
        key = (block_size, replicas, stages)
        if key not in self._device_maps:
            self._device_maps[key] = aligned_maps(
                self._group_sizes, self._devices, *key, self._problem.search
            )
        return self._device_maps[key]

    def weights(self, cell: Cell) -> ObjectiveWeights:
        """Return the objective of a cell."""
        return objective_weights(
            self._problem.job.objective, cell.device_map.stages, cell.rounds, cell.schedule
        )

    def _keys(self, cell: Cell) -> list[StageKey]:
        """Return what the time of each stage depends on, last stage first."""
        vectors = self.least.vectors(cell.configuration)
        sets = vectors.stage_sets(cell.device_map)
        count = len(sets)
        shared: list[LevelSet] = [NO_ROUNDS] * count
        if self._matrices_of(cell).has_rounds:
            shared = vectors.sync_sets(cell.device_map, cell.zero)
        flights = _flights(cell.schedule, count, cell.rounds)
        keys = list(zip(sets, flights, self.held_by(count), shared, strict=True))
        return keys[::-1]

    def held(self, stages: int) -> list[Held] | None:
        """Return the layers that each of S stages must hold; None if pins want more stages."""
        pins = self._restriction.pins
        return None if any(pin.least_stages > stages for pin in pins) else self.held_by(stages)

    def held_by(self, stages: int) -> list[Held]:
        """Return the layers that each of S stages must hold, where pins want no more stages."""
        return [tuple(sorted(set(places))) if places else None for places in self._pinned(stages)]

    def _pinned(self, stages: int) -> list[list[int]]:
        """Return the places of the layers that pins want in each of S stages."""
        pinned: list[list[int]] = [[] for _ in range(stages)]
        for pin in self._restriction.pins:
            stage = pin.stage_of(stages)
            assert stage is not None
            pinned[stage] += [self._problem.model.index[name] for name in pin.layers]
        return pinned

    def bound_ps(self, cell: Cell) -> int | None:
        """Return the objective's terms in F, each at its least, plus the least sync."""
        if not self._restriction.allows_map(cell.device_map):
            return None
        if cell.schedule.is_interleaved:
            # What chunks are best is as soon found as a bound.
            best = self._best_of(cell)
            return None if best is None else best[0]
        weights = self.weights(cell)
        slowest, total = self._matrices_of(cell).least(self._keys(cell), weights)
        if slowest >= INFINITE:
            return None
        bound = weights.sum_weight * total + load_weight(weights) * slowest
        if weights.sync:
            device_map = cell.device_map
            sharding = Sharding(cell.zero, device_map.replicas, cell.rounds)
            bound += self._least_sync(sharding, cell.pair, device_map.stages, cell.schedule)
        return bound

    def chain(self, cell: Cell) -> Chain:
        """Return a cell's matrices."""
        matrices = self._matrices_of(cell)
        replicas = cell.device_map.replicas
        weights = self.weights(cell)
        of_stages = [(weights, key) for key in self._keys(cell)]
        time = LazyMatrices(matrices.load, of_stages)
        fill = LazyMatrices(matrices.fill, of_stages) if weights.has_loads else None
        exchange = self._exchange(cell)
        if not weights.sync or not (matrices.has_sync(replicas) or exchange):
            return Chain(time, None, fill)
        of_stage = matrices.exposed_sync if self._hides_sync(cell.schedule) else matrices.sync
        sets = self.least.vectors(cell.configuration).sync_sets(cell.device_map, cell.zero)
        ends = (0, len(sets) - 1)
        keys = [
            (replicas, levels, exchange if stage in ends else 0)
            for stage, levels in enumerate(sets)
        ]
        return Chain(time, LazyMatrices(of_stage, keys[::-1]), fill)

    def _exchange(self, cell: Cell) -> int:
        """Return what the ends of a cell's pipelines pay for tied gradients."""
        device_map = cell.device_map
        if device_map.stages == 1:
            return 0
        level = self.least.vectors(cell.configuration).exchange_level(device_map)
        sharding = Sharding(cell.zero, device_map.replicas, cell.rounds)
        return self._matrices_of(cell).exchange_ps(sharding, level)

    def mode(self, cell: Cell, stage: int, low: int, high: int) -> Recompute:
        """Return the mode of least F that fits a stage."""
        flight = in_flight(cell.schedule, stage, cell.device_map.stages, cell.rounds)
        return self._matrices_of(cell).mode(flight, low, high)

    def memory_cases(self) -> Iterator[MemoryCase]:
        """Yield the cases that differ in memory: fewer rounds hold fewer stashes.

        Of replicas with the same stashes the fewest leave most devices for
        stages, so they stand for all, unless these differ in what is allowed.
        More replicas than the devices hold are looked at too: they tell how
        many devices would do.
        """
        for pair in filter(lambda pair: self._restriction.allows_pair(*pair), self._replicas):
            for schedule, zero in product(self._schedules_of_least_memory(), self._zero):
                if self._every_map_allowed(zero):
                    degrees = self._fewest_replicas(pair, schedule)
                else:
                    degrees = self._replicas[pair]
                for replicas in filter(self._restriction.allows_replicas, degrees):
                    rounds = rounds_per_batch(self._problem.job, pair[0], pair[1].ep, replicas)
                    if rounds is None or not fits_replicas(zero, replicas):
                        continue
                    stages = self._devices // (pair[1].block_size * replicas)
                    yield MemoryCase(
                        *pair, replicas, rounds, stages, self._table.usable_bytes, zero, schedule
                    )

    def _schedules_of_least_memory(self) -> list[Schedule]:
        """Return the schedules but those that hold more than 1F1B would, stage by stage."""
        if ONE_F_ONE_B not in self._schedules:
            return list(self._schedules)
        return [s for s in self._schedules if s == ONE_F_ONE_B or s.is_interleaved]

    def _fewest_replicas(
        self, pair: tuple[int, Configuration], schedule: Schedule
    ) -> tuple[int, ...]:
        """Return the fewest replicas for each number of rounds that makes a difference.

        Under 1F1B it limits the stashes if it is below that of stages; others
        hold as many as there are rounds, or run some numbers of rounds alone.
        """
        if self._problem.search.dp:
            return tuple(sorted(self._problem.search.dp))
        streams = -(-self._problem.job.global_batch // (pair[0] * pair[1].ep))
        if schedule == ONE_F_ONE_B:
            limited = {-(-streams // rounds) for rounds in range(1, self._table.layer_count)}
            return tuple(sorted({1, *limited}))
        # As many replicas as rounds, and as few, make every quotient between them.
        few = range(1, isqrt(streams) + 2)
        return tuple(sorted({*few, *(-(-streams // rounds) for rounds in few)}))

    @property
    def every_map_allowed(self) -> bool:
        """Whether there is a legal device map for all degrees that the devices suffice for.

        Under every ZeRO level.
        """
        return all(map(self._every_map_allowed, self._zero))

    def _every_map_allowed(self, zero: Zero) -> bool:
        """Whether there is one under a ZeRO level.

        Where dp is limited the fewest replicas cannot stand for more, nor can
        they where states are shared out over replicas, so that counts as a
        limit of maps.
        """
        always = {"tight", "spread"} & set(self._problem.search.pitch)
        taken = self._restriction
        limited = taken.limits_levels or taken.limits_replicas or taken.device_maps
        return bool(always) and not limited and not zero

    def stages_with_room(self, case: MemoryCase, usable_bytes: int) -> list[int]:
        """Return the S that have room for the most frequent layers, and a way to cut them."""
        fits = self.bounds.have_room(case, [case.zero], usable_bytes)
        return [
            stages
            for stages, fit in enumerate(fits.tolist(), start=1)
            if fit and self._runs(case.schedule, stages, case.rounds)
        ]

    def allows(self, case: MemoryCase, stages: int) -> bool:
        """Whether some legal device map with S stages exists, memory aside."""
        if not self.allows_stages(stages) or not self._runs(case.schedule, stages, case.rounds):
            return False
        if self._every_map_allowed(case.zero):
            return True
        if not self._may_have_levels(case.configuration, stages):
            return False
        around = case.schedule.is_interleaved
        key = (case.configuration, case.replicas, stages, around)
        if key not in self._with_maps:
            self._with_maps[key] = any(
                self._allows_map(case.configuration, device_map, around)
                for device_map in self._maps(case.configuration.block_size, case.replicas, stages)
            )
        return self._with_maps[key]

    def _may_have_levels(self, configuration: Configuration, stages: int) -> bool:
        """Whether the levels that some map must have are among those allowed.

        Hops up to a level keep a whole pipeline inside one group of it.
        """
        if not self._restriction.limits_levels:
            return True
        tp, *_ = self.least.of_groups(configuration)
        pipeline = self.least.vectors(configuration).level_of_span(
            stages * configuration.block_size - 1
        )
        return self._restriction.allows_levels(tp, pipeline if stages > 1 else NO_HOP)

    def _allows_map(
        self, configuration: Configuration, device_map: DeviceMap, goes_round: bool
    ) -> bool:
        """Whether a device map, levels included, is what the constraints leave."""
        if not self._restriction.allows_map(device_map):
            return False
        if not self._restriction.limits_levels:
            return True
        worst = self.least.vectors(configuration).worst_levels(device_map, goes_round)
        return self._restriction.allows_levels(*worst)

    def memory_floor(self, case: MemoryCase) -> tuple[int, int]:
        """Return (bytes that the largest layer needs alone, bytes of all states)."""
        return self.bounds.memory_floor(case)

    def _memory_of(self, case: MemoryCase) -> PairMatrices:
        """Return the matrices that have a case's memory."""
        sharding = Sharding(case.zero, case.replicas, case.rounds)
        return self.matrices((case.microbatch, case.configuration), sharding)

    def places(self, case: MemoryCase, stages: int) -> Sequence[int]:
        """Return the stashes in flight of each stage."""
        return _flights(case.schedule, stages, case.rounds)

    def memory(self, case: MemoryCase, place: int) -> Array:
        """Return the least bytes of every interval with so many stashes in flight."""
        return self._memory_of(case).memory(place)


@lru_cache(2**12)
def _flights(schedule: Schedule, stages: int, rounds: int) -> tuple[int, ...]:
    """Return the stashes in flight of each stage."""
    return tuple(in_flight(schedule, stage, stages, rounds) for stage in range(stages))


def _kept(store: dict[Key, Value], key: Key, make: Callable[[], Value], most: int | None) -> Value:
    """Return what a store has for a key, made if need be; of more than `most` the oldest goes."""
    if key not in store:
        store[key] = make()
        if most is not None and len(store) > most:
            del store[next(iter(store))]
    return store[key]
