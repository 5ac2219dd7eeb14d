"""The default cost model's cells of the aligned family, with their bounds."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from operator import add
from typing import TypeAlias, TypeVar

import numpy as np

from nest_opt.cost.build import legal_replicas
from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import in_flight, rounds_per_batch
from nest_opt.cost.sharding import Sharding, round_times, sharded_pair
from nest_opt.cost.table import Row, row_times
from nest_opt.dp.capacity import Layers, room
from nest_opt.dp.chain import INFINITE, Array, Chain
from nest_opt.dp.cuts import EndsAndOrder, Held, cuts_of
from nest_opt.dp.levels import NO_HOP, Levels, LevelSet, LevelVectors
from nest_opt.dp.matrices import (
    NO_ROUNDS,
    NOTHING_SHARDED,
    LazyMatrices,
    PairMatrices,
    StageKey,
)
from nest_opt.dp.rules import restriction
from nest_opt.dp.source import Bundle, Group, MemoryCase
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import aligned_maps, count_maps
from nest_opt.plan.placement import Cell, DeviceMap
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import RECOMPUTE_MODES, Recompute
from nest_opt.problem.schedule import ONE_F_ONE_B

Key = TypeVar("Key")
Value = TypeVar("Value")
_Matrices: TypeAlias = dict[tuple[tuple[int, Configuration], Sharding], PairMatrices]

# Matrices that are kept of ZeRO levels above 0.
KEPT_SHARDED = 64


class DefaultSource:
    """Cells of the aligned family under the default cost model."""

    def __init__(self, costs: Costs) -> None:
        self._problem = costs.problem
        self._table = costs.search_table
        self._cuts = cuts_of(costs.graph, costs.table.layer_count)
        self._devices = costs.problem.cluster.device_count
        self._restriction = restriction(costs.problem)
        self._replicas = costs.table.replicas
        self._group_sizes = costs.network.group_sizes
        self._rows = np.array(costs.table.layer_rows)
        self._zero = sorted(costs.problem.search.zero)
        # By whether parameters are sharded: there are many such, and the oldest are dropped.
        self._matrices: tuple[_Matrices, _Matrices] = ({}, {})
        self._vectors: dict[Configuration, LevelVectors] = {}
        self._device_maps: dict[tuple[int, int, int], list[DeviceMap]] = {}
        self._with_maps: dict[tuple[Configuration, int, int], bool] = {}
        self._least: dict[
            tuple[tuple[int, Configuration], int, int, Sharding], tuple[int, int]
        ] = {}

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
        if any(self._zero):
            other._table = Costs(problem).search_table
        return other

    @property
    def layers(self) -> int:
        """n, the number of layers."""
        return self._table.layer_count

    @property
    def last_cut(self) -> int:
        """The cut after all layers."""
        return len(self._cuts) - 1

    def stages(self, path: Sequence[int]) -> EndsAndOrder:
        """Return ends and order of the stages that end at these cuts."""
        return self._cuts.stages(path)

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return a matrix that is `INFINITE` for stages without the layers to be held."""
        return self._cuts.holding(matrix, held)

    def matrices(
        self, pair: tuple[int, Configuration], sharding: Sharding = NOTHING_SHARDED
    ) -> PairMatrices:
        """Return the matrices of a pair and ZeRO level; those of level 0 are built once."""
        if not sharding.zero:
            sharding = NOTHING_SHARDED
        return _kept(
            self._matrices[bool(sharding.zero)],
            (pair, sharding),
            lambda: PairMatrices(self._table, pair, self._restriction, sharding, self._cuts),
            KEPT_SHARDED if sharding.zero else None,
        )

    def _matrices_of(self, cell: Cell) -> PairMatrices:
        return self.matrices(cell.pair, Sharding(cell.zero, cell.device_map.replicas, cell.rounds))

    def vectors(self, configuration: Configuration) -> LevelVectors:
        """Return the level vectors of a configuration, built once."""
        if configuration not in self._vectors:
            self._vectors[configuration] = LevelVectors(self._group_sizes, configuration)
        return self._vectors[configuration]

    def bundles(self) -> Iterator[Bundle]:
        """Yield the groups of each pair and d, with a bound in closed form, memory aside."""
        for pair in self._table.pairs:
            if self._restriction.allows_pair(*pair) and self.may_have_tp(pair[1]):
                for replicas in filter(self._restriction.allows_replicas, self._replicas[pair]):
                    yield self._bundle(pair, replicas)

    def may_have_tp(self, configuration: Configuration) -> bool:
        """Whether some device map keeps tp groups on the levels that they may use."""
        most = self._restriction.highest_tp_level
        return most is None or self.least_levels(configuration)[0] <= most

    def _bundle(self, pair: tuple[int, Configuration], replicas: int) -> Bundle:
        """Return the groups of a pair and d: sums over all layers, even shares, the largest layer.

        No stage is on lower levels than `least_levels`, every cut costs the
        hops of two stages, and the slowest stage has at least an even share
        of all time and the largest layer.
        """
        objective, rounds = self._problem.job.objective, self._rounds(pair, replicas)
        per_cut = 2 * self.matrices(pair).least_hop(self.least_levels(pair[1])[-1])
        choices = [
            stages
            for stages in range(1, self._most_stages(pair[1], replicas) + 1)
            if self.allows_stages(stages)
        ]
        stages = np.array(choices, np.float64)
        weights = [objective_weights(objective, count, rounds) for count in choices]
        sums = np.array([each.sum_weight for each in weights], np.float64)
        loads = np.array([each.max_weight for each in weights], np.float64)
        bounds = []
        for zero in self._zero:
            layers, largest = self._plain(pair, Sharding(zero, replicas, rounds))
            total = layers + (stages - 1) * per_cut
            bounds.append(sums * total + loads * np.maximum(largest, total / stages))

        def group(place: int) -> Group:
            level, number = divmod(place, len(choices))
            devices = pair[1].block_size * replicas * choices[number]
            return Group(0, devices, choices[number], replicas, *pair, rounds, self._zero[level])

        return Bundle(np.concatenate(bounds), group)

    def _rounds(self, pair: tuple[int, Configuration], replicas: int) -> int:
        rounds = rounds_per_batch(self._problem.job, pair[0], pair[1].ep, replicas)
        assert rounds is not None
        return rounds

    def _plain(self, pair: tuple[int, Configuration], sharding: Sharding) -> tuple[int, int]:
        """Return (sum, largest) of the layers' times with the least that rounds add to them."""
        times = self.layer_times(pair, sharding)
        return int(times.sum()), int(times.max())

    def layer_times(self, pair: tuple[int, Configuration], sharding: Sharding) -> Array:
        """Return the least time of each layer, hops and recomputation aside."""
        rows = np.array(self._least_times(pair, sharding)["none"], np.int64)
        layers: Array = rows[self._rows]
        return layers

    def _least_times(
        self, pair: tuple[int, Configuration], sharding: Sharding
    ) -> dict[Recompute, Row]:
        """Return each row's time by mode, hops aside, with all groups at their least levels."""
        inside = self.least_levels(pair[1])[:3]
        times = row_times(self._table.pairs[pair], pair[1], inside)
        least = self.least_sync_levels(pair[1], sharding.replicas)
        rounds = round_times(self._table, pair, sharding, least)
        if rounds is None:
            return times
        return {mode: tuple(map(add, row, rounds)) for mode, row in times.items()}

    def allows_stages(self, stages: int) -> bool:
        """Whether search space and constraints allow a number of stages."""
        asked = self._problem.search.pp
        return (not asked or stages in asked) and self._restriction.allows_stages(stages)

    def _most_stages(self, configuration: Configuration, replicas: int) -> int:
        return min(self._table.layer_count, self._devices // (configuration.block_size * replicas))

    def least_levels(self, configuration: Configuration) -> Levels:
        """Return the least (tp, cp, ep, hop) levels that any device map can have.

        Two stages are at least a block apart, so no hop is on a lower level
        than one by a block.
        """
        tp, cp, ep, _ = configuration
        spans = (tp - 1, tp * (cp - 1), tp * cp * (ep - 1), configuration.block_size)
        return tuple(map(self.vectors(configuration).level_of_span, spans))

    @property
    def refinements(self) -> int:
        """Two: room for layers, and the interval DP."""
        return 2

    def refined_bound_ps(self, group: Group, step: int) -> int | None:
        """Return a bound that knows memory and sync: by room for layers, or by the interval DP.

        Both are at the least levels.
        """
        sharding = _sharding_of(group)
        found = self._roomy(group) if step == 0 else self._relaxed(group)
        if found is None:
            return None
        slowest, total = found
        weights = objective_weights(self._problem.job.objective, group.stages, group.rounds)
        bound = weights.sum_weight * total + weights.max_weight * slowest
        if step and weights.sync:
            bound += self._least_sync(sharding, group.pair, group.stages)
        return bound

    def _roomy(self, group: Group) -> tuple[int, int] | None:
        """Return bounds on (max F, sum F) from room for layers; None if there is not enough."""
        sharding, stages = _sharding_of(group), group.stages
        costs = sharded_pair(self._table, group.pair, sharding)
        times = self._least_times(group.pair, sharding)
        plain = self.layer_times(group.pair, sharding)
        hop = self.matrices(group.pair).least_hop(self.least_levels(group.configuration)[-1])
        hops = np.full(stages, 2 * hop, np.int64)
        hops[[0, -1]] = hop if stages > 1 else 0
        flights = [in_flight(ONE_F_ONE_B, stage, stages, group.rounds) for stage in range(stages)]
        row, count = Counter(self._table.layer_rows).most_common(1)[0]
        modes = [mode for mode in RECOMPUTE_MODES if mode in costs.stash_bytes]
        layers = Layers(
            count,
            [times[mode][row] for mode in modes],
            costs.states_bytes[row],
            [costs.stash_bytes[mode][row] for mode in modes],
            [costs.work_bytes[mode][row] for mode in modes],
        )
        free = self._table.usable_bytes - self._table.reserve_bytes
        rooms = room(layers, free, np.array(flights, np.int64), hops)
        if not rooms.has_all():
            return None
        total = int(plain.sum()) + int(hops.sum()) + rooms.least_repeats()
        total += count * (layers.time_ps[0] - times["none"][row])
        largest = int(plain.max()) + int(hops.min())
        return rooms.least_slowest(max(largest, -(-total // stages))), total

    def _relaxed(self, group: Group) -> tuple[int, int] | None:
        """Return (least max F, least sum F) at the least levels; None if nothing fits.

        Ends of pipelines with the same stashes and pins are found once.
        """
        sharding, stages = _sharding_of(group), group.stages
        if stages < self.matrices(group.pair, sharding).least_stages:
            return None
        key = (
            group.pair, min(group.rounds, stages), stages,
            sharding if sharding.zero else NOTHING_SHARDED,
        )  # fmt: skip
        if key not in self._least:
            matrices = self.matrices(group.pair, sharding)
            shared = NO_ROUNDS
            if matrices.has_rounds:
                shared = frozenset({self.least_sync_levels(group.configuration, group.replicas)})
            *inside, hop = self.least_levels(group.configuration)
            keys: list[StageKey] = []
            for stage, held in enumerate(self.held_by(stages)):
                level_in = hop if stage else NO_HOP
                level_out = hop if stage < stages - 1 else NO_HOP
                levels = frozenset({(*inside, level_in, level_out)})
                flight = in_flight(ONE_F_ONE_B, stage, stages, group.rounds)
                keys.append((levels, flight, held, shared))
            self._least[key] = matrices.least(keys[::-1])
        return self._least[key] if self._least[key][1] < INFINITE else None

    def _least_sync(self, sharding: Sharding, pair: tuple[int, Configuration], stages: int) -> int:
        """Return a lower bound on max X or max Y at the least group levels possible.

        The first stage holds at least one that may be first and hides nothing; with
        one stage it holds all. Under `nest` some stage has the largest layer,
        and an even share of all layers' bytes at least.
        """
        matrices, replicas = self.matrices(pair, sharding), sharding.replicas
        if not matrices.has_sync(replicas):
            return 0
        sync = matrices.sync(replicas, frozenset({self.least_sync_levels(pair[1], replicas)}))
        if stages == 1:
            return int(sync[0, -1])
        if self._problem.job.objective == "fill-drain":
            return int(sync[0, self._cuts.first].min())
        return max(int(sync[self._cuts.alone].max()), -(-int(sync[0, -1]) // stages))

    def least_sync_levels(self, configuration: Configuration, replicas: int) -> Levels:
        """Return the least (dense, expert) levels of the copies of any device map."""
        tp, cp, ep, _ = configuration
        vectors = self.vectors(configuration)
        return (
            vectors.level_of_span((cp * ep * replicas - 1) * tp),
            vectors.level_of_span((replicas - 1) * tp * cp * ep + (cp - 1) * tp),
        )

    def cells(self, group: Group) -> list[Cell]:
        """Return the group's distinct device maps as cells, in the order of ties."""
        return [
            Cell(group.microbatch, group.configuration, group.rounds, device_map, group.zero)
            for device_map in self._maps(
                group.configuration.block_size, group.replicas, group.stages
            )
        ]

    def cell_count(self) -> int:
        """Return the number of cells of all groups."""
        shapes = Counter(
            (pair[1].block_size, replicas)
            for pair in self._table.pairs
            if self._restriction.allows_pair(*pair) and self.may_have_tp(pair[1])
            for replicas in filter(self._restriction.allows_replicas, self._replicas[pair])
        )
        maps = sum(count * self._map_count(*shape) for shape, count in shapes.items())
        return len(self._zero) * maps

    def _map_count(self, block_size: int, replicas: int) -> int:
        """Return the number of device maps of all S."""
        most = min(self._table.layer_count, self._devices // (block_size * replicas))
        stages = [count for count in range(1, most + 1) if self.allows_stages(count)]
        return sum(
            count_maps(
                self._group_sizes, self._devices, block_size, replicas, stages, self._problem.search
            )
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
        return objective_weights(self._problem.job.objective, cell.device_map.stages, cell.rounds)

    def _keys(self, cell: Cell) -> list[StageKey]:
        """Return what the time of each stage depends on, last stage first."""
        vectors = self.vectors(cell.configuration)
        sets = vectors.stage_sets(cell.device_map)
        count = len(sets)
        shared: list[LevelSet] = [NO_ROUNDS] * count
        if self._matrices_of(cell).has_rounds:
            shared = vectors.sync_sets(cell.device_map)
        keys = [
            (levels, in_flight(cell.schedule, stage, count, cell.rounds), held, copies)
            for stage, (levels, held, copies) in enumerate(
                zip(sets, self.held_by(count), shared, strict=True)
            )
        ]
        return keys[::-1]

    def held(self, stages: int) -> list[Held] | None:
        """Return the layers that each of S stages must hold; None if pins want more stages."""
        pins = self._restriction.pins
        return None if any(pin.least_stages > stages for pin in pins) else self.held_by(stages)

    @property
    def numbers_matter(self) -> bool:
        """Whether layers are pinned to stages."""
        return bool(self._restriction.pins)

    def held_by(self, stages: int) -> list[Held]:
        """Return the layers that each of S stages must hold, where pins want no more stages."""
        held: list[Held] = [None] * stages
        for pin in self._restriction.pins:
            stage = pin.stage_of(stages)
            assert stage is not None
            places = [self._problem.model.index[name] for name in pin.layers]
            places += held[stage] or ()
            held[stage] = tuple(sorted(set(places)))
        return held

    def bound_ps(self, cell: Cell) -> int | None:
        """Return the objective's terms in F, each at its least, plus the least sync."""
        if not self._restriction.allows_map(cell.device_map):
            return None
        slowest, total = self._matrices_of(cell).least(self._keys(cell))
        weights = self.weights(cell)
        if slowest >= INFINITE:
            return None
        bound = weights.sum_weight * total + weights.max_weight * slowest
        if weights.sync:
            device_map = cell.device_map
            sharding = Sharding(cell.zero, device_map.replicas, cell.rounds)
            bound += self._least_sync(sharding, cell.pair, device_map.stages)
        return bound

    def chain(self, cell: Cell) -> Chain:
        """Return a cell's matrices."""
        matrices = self._matrices_of(cell)
        replicas = cell.device_map.replicas
        time = LazyMatrices(matrices.stage_time, self._keys(cell))
        if not self.weights(cell).sync or not matrices.has_sync(replicas):
            return Chain(time, None)
        of_stage = (
            matrices.exposed_sync if self._problem.job.objective == "fill-drain" else matrices.sync
        )
        sets = self.vectors(cell.configuration).sync_sets(cell.device_map)
        keys = [(replicas, levels) for levels in reversed(sets)]
        return Chain(time, LazyMatrices(of_stage, keys))

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
        for pair, degrees in self._replicas.items():
            if not self._restriction.allows_pair(*pair):
                continue
            if self.every_map_allowed:
                degrees = self._fewest_replicas(pair)
            for replicas in filter(self._restriction.allows_replicas, degrees):
                rounds = rounds_per_batch(self._problem.job, pair[0], pair[1].ep, replicas)
                if rounds is None:
                    continue
                stages = self._devices // (pair[1].block_size * replicas)
                for zero in self._zero:
                    yield MemoryCase(
                        *pair, replicas, rounds, stages, self._table.usable_bytes, zero
                    )

    def _fewest_replicas(self, pair: tuple[int, Configuration]) -> tuple[int, ...]:
        """Return the fewest replicas for each number of rounds that limits the stashes."""
        if self._problem.search.dp:
            return tuple(sorted(self._problem.search.dp))
        streams = -(-self._problem.job.global_batch // (pair[0] * pair[1].ep))
        limited = (-(-streams // rounds) for rounds in range(1, self._table.layer_count))
        return tuple(sorted({1, *limited}))

    @property
    def every_map_allowed(self) -> bool:
        """Whether there is a legal device map for all degrees that the devices suffice for.

        Where dp is limited the fewest replicas cannot stand for more, nor can
        they where states are shared out over replicas, so that counts as a
        limit of maps.
        """
        always = {"tight", "spread"} & set(self._problem.search.pitch)
        taken = self._restriction
        limited = taken.limits_levels or taken.limits_replicas or taken.device_maps
        return bool(always) and not limited and not any(self._zero)

    def allows(self, case: MemoryCase, stages: int) -> bool:
        """Whether some legal device map with S stages exists, memory aside."""
        if not self.allows_stages(stages):
            return False
        if self.every_map_allowed:
            return True
        if not self._may_have_levels(case.configuration, stages):
            return False
        key = (case.configuration, case.replicas, stages)
        if key not in self._with_maps:
            self._with_maps[key] = any(
                self._allows_map(case.configuration, device_map)
                for device_map in self._maps(case.configuration.block_size, case.replicas, stages)
            )
        return self._with_maps[key]

    def _may_have_levels(self, configuration: Configuration, stages: int) -> bool:
        """Whether the levels that some map must have are among those allowed.

        Hops up to a level keep a whole pipeline inside one group of it.
        """
        if not self._restriction.limits_levels:
            return True
        tp, *_ = self.least_levels(configuration)
        pipeline = self.vectors(configuration).level_of_span(stages * configuration.block_size - 1)
        return self._restriction.allows_levels(tp, pipeline if stages > 1 else NO_HOP)

    def _allows_map(self, configuration: Configuration, device_map: DeviceMap) -> bool:
        """Whether a device map, levels included, is what the constraints leave."""
        if not self._restriction.allows_map(device_map):
            return False
        if not self._restriction.limits_levels:
            return True
        worst = self.vectors(configuration).worst_levels(device_map)
        return self._restriction.allows_levels(*worst)

    def memory_floor(self, case: MemoryCase) -> tuple[int, int]:
        """Return (bytes that the largest layer needs alone, bytes of all states)."""
        least = self._memory_of(case).memory(1)
        layers = least[self._cuts.alone]
        return (
            int(layers[layers < INFINITE].max(initial=0)),
            self._memory_of(case).all_states_bytes + self._table.reserve_bytes,
        )

    def _memory_of(self, case: MemoryCase) -> PairMatrices:
        """Return the matrices that have a case's memory."""
        sharding = Sharding(case.zero, case.replicas, case.rounds)
        return self.matrices((case.microbatch, case.configuration), sharding)

    def memory(self, case: MemoryCase, place: int) -> Array:
        """Return the least bytes of every interval as the last stage but place - 1."""
        return self._memory_of(case).memory(min(place, case.rounds))

    def memory_of(self, case: MemoryCase, stages: int) -> list[Array]:
        """Return the least bytes of every interval of S stages, last stage first."""
        held = reversed(self.held_by(stages))
        return [
            self.holding(self.memory(case, place), layers)
            for place, layers in enumerate(held, start=1)
        ]


def _sharding_of(group: Group) -> Sharding:
    return Sharding(group.zero, group.replicas, group.rounds)


def _kept(store: dict[Key, Value], key: Key, make: Callable[[], Value], most: int | None) -> Value:
    """Return what a store has for a key, made if need be; of more than `most` the oldest goes."""
    if key not in store:
        store[key] = make()
        if most is not None and len(store) > most:
            del store[next(iter(store))]
    return store[key]
