"""The default cost model as matrices over intervals of layers."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import in_flight_1f1b, rounds_per_batch
from nest_opt.cost.table import CLASSES, CostTable, ParameterClass, SyncKey, copies
from nest_opt.dp.chain import INFINITE, Array, Chain, extend_max, extend_sum, suffix_start
from nest_opt.dp.family import aligned_maps
from nest_opt.dp.levels import NO_HOP, Levels, LevelSet, LevelVectors
from nest_opt.dp.rules import restriction
from nest_opt.dp.source import Group, MemoryCase
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell
from nest_opt.problem import Configuration
from nest_opt.problem.profile import GROUPS, RECOMPUTE_MODES, Recompute


@dataclass
class Suffix:
    """The last stages of a pipeline: least max F and least sum F from each layer on.

    Cells whose level vectors end alike share these, through `longer`.
    """

    max_ps: Array
    sum_ps: Array
    longer: dict[tuple[LevelSet, int], "Suffix"] = field(default_factory=dict)


class PairMatrices:
    """Interval costs of one (microbatch size, configuration).

    Parameters
    ----------
    table
        The coefficients.
    microbatch, configuration
        b and k.
    forbidden_cuts, highest_hop_level
        What the constraints take away, see `nest_opt.dp.rules`.
    """

    def __init__(
        self,
        table: CostTable,
        pair: tuple[int, Configuration],
        forbidden_cuts: frozenset[int],
        highest_hop_level: int | None,
    ) -> None:
        self._table = table
        self._configuration = pair[1]
        self._costs = table.pairs[pair]
        self._highest_hop_level = highest_hop_level
        self._rows = np.array(table.layer_rows)
        n = self.layers = len(self._rows)
        cut = np.zeros(n + 1, np.bool_)
        cut[[c for c in forbidden_cuts if 0 < c < n]] = True
        ordered = np.arange(n + 1)[:, None] < np.arange(n + 1)[None, :]
        self._empty = ~ordered | cut[:, None] | cut[None, :]
        self.modes: list[Recompute] = [m for m in RECOMPUTE_MODES if m in self._costs.stash_bytes]
        self._times: dict[LevelSet, dict[Recompute, Array]] = {}
        self._stage_times: dict[tuple[LevelSet, int], Array] = {}
        self._syncs: dict[tuple[int, LevelSet], Array] = {}
        self._exposed: dict[tuple[int, LevelSet], Array] = {}
        self.root = Suffix(suffix_start(n), suffix_start(n))

    def _prefix(self, values: tuple[int, ...]) -> Array:
        """Return running sums over layers of a per-row value, n + 1 of them."""
        sums = np.zeros(self.layers + 1, np.int64)
        np.cumsum(np.array(values, np.int64)[self._rows], out=sums[1:])
        return sums

    @staticmethod
    def _intervals(prefix: Array) -> Array:
        """Return the sum over each interval, from running sums."""
        difference: Array = prefix[None, :] - prefix[:, None]
        return difference

    @cached_property
    def backward_prefix(self) -> Array:
        """Plain backward time of all layers before each layer."""
        return self._prefix(self._costs.backward_ps)

    @cached_property
    def _states(self) -> Array:
        return self._intervals(self._prefix(self._costs.states_bytes))

    def _work(self, mode: Recompute) -> Array:
        """Return the largest work bytes within each interval."""
        work = np.array(self._costs.work_bytes[mode], np.int64)[self._rows]
        largest = np.zeros((self.layers + 1, self.layers + 1), np.int64)
        ordered = np.arange(self.layers)[:, None] <= np.arange(self.layers)[None, :]
        largest[:-1, 1:] = np.where(ordered, work[None, :], 0)
        np.maximum.accumulate(largest, axis=1, out=largest)
        return largest

    @cached_property
    def _most_in_flight(self) -> dict[Recompute, Array]:
        """Per mode, the most microbatches in flight that each interval has memory for."""
        most = {}
        for mode in self.modes:
            free = self._table.usable_bytes - self._table.reserve_bytes - self._states
            free -= self._work(mode)
            stash = self._intervals(self._prefix(self._costs.stash_bytes[mode]))
            fits = np.where(free >= 0, INFINITE, -1)
            most[mode] = np.where(stash > 0, free // np.maximum(stash, 1), fits)
        return most

    def memory(self, in_flight: int) -> Array:
        """Return the least bytes, over modes, of each interval; INFINITE where forbidden."""
        least = np.full(self._empty.shape, INFINITE, np.int64)
        for mode in self.modes:
            stash = self._intervals(self._prefix(self._costs.stash_bytes[mode]))
            # Bytes that overflow are out of any device's reach.
            held = np.where(stash <= INFINITE // max(in_flight, 1), stash * in_flight, INFINITE)
            used = held + self._states + self._work(mode) + self._table.reserve_bytes
            np.minimum(least, used, out=least)
        return np.where(self._empty, INFINITE, least)

    def _mode_times(self, levels: LevelSet) -> dict[Recompute, Array]:
        """Return F of each interval by mode, memory aside, at a set of levels."""
        if levels not in self._times:
            members = [self._member_times(member) for member in levels]
            self._times[levels] = {
                "none": np.maximum.reduce([plain for plain, _ in members]),
                "full": np.maximum.reduce([repeated for _, repeated in members]),
            }
        return self._times[levels]

    def _member_times(self, member: Levels) -> tuple[Array, Array]:
        """Return F without and with full recomputation at one tuple of levels."""
        *group_levels, hop_in, hop_out = member
        costs = self._costs
        forward, backward = self._prefix(costs.forward_ps), self.backward_prefix.copy()
        for group, level in zip(GROUPS, group_levels, strict=True):
            if self._configuration.degree(group) > 1:
                forward += self._prefix(costs.forward_collective_ps[group][level])
                backward += self._prefix(costs.backward_collective_ps[group][level])
        plain = self._intervals(forward + backward)
        limit = self._highest_hop_level
        if limit is not None and max(hop_in, hop_out) > limit:
            plain = np.full_like(plain, INFINITE)
        else:
            if hop_in != NO_HOP:
                plain = plain + np.array(costs.hop_ps[hop_in], np.int64)[:, None]
            if hop_out != NO_HOP:
                plain = plain + np.array(costs.hop_ps[hop_out], np.int64)[None, :]
        return plain, np.minimum(plain + self._intervals(forward), INFINITE)

    def stage_time(self, levels: LevelSet, in_flight: int) -> Array:
        """Return the least F of each interval that fits with `in_flight` stashes."""
        key = (levels, in_flight)
        if key not in self._stage_times:
            times = self._mode_times(levels)
            best = np.full(self._empty.shape, INFINITE, np.int64)
            # `full` adds a pass to `none`, so the first mode that fits is the least.
            for mode in reversed(self.modes):
                fits = self._most_in_flight[mode] >= in_flight
                best = np.where(fits, times[mode], best)
            best[self._empty] = INFINITE
            self._stage_times[key] = best
        return self._stage_times[key]

    def mode(self, in_flight: int, low: int, high: int) -> Recompute:
        """Return the mode of least F that fits an interval."""
        return next(
            mode for mode in self.modes if self._most_in_flight[mode][low, high] >= in_flight
        )

    def sync(self, replicas: int, levels: LevelSet) -> Array:
        """Return Y of each interval at a set of (dense, expert) group levels."""
        key = (replicas, levels)
        if key not in self._syncs:
            total = np.zeros(self._empty.shape, np.int64)
            for member in levels:
                of_rank = np.zeros(self._empty.shape, np.int64)
                for parameter_class, level in zip(CLASSES, member, strict=True):
                    of_rank += self._class_sync(parameter_class, replicas, level)
                np.maximum(total, of_rank, out=total)
            self._syncs[key] = total
        return self._syncs[key]

    def _class_sync(self, name: ParameterClass, replicas: int, level: int) -> Array:
        ranks = copies(self._configuration, name, replicas)
        if ranks == 1:
            return np.zeros(self._empty.shape, np.int64)
        cost = self._table.sync[SyncKey(self._configuration, name, ranks, level)]
        held = self._intervals(self._prefix(self._costs.parameters[name])) > 0
        return np.where(held, cost.fixed_ps + self._intervals(self._prefix(cost.row_ps)), 0)

    def exposed_sync(self, replicas: int, levels: LevelSet) -> Array:
        """Return X of each interval: Y less the backward time of all layers before."""
        key = (replicas, levels)
        if key not in self._exposed:
            hidden = self.backward_prefix[:, None]
            self._exposed[key] = np.maximum(self.sync(replicas, levels) - hidden, 0)
        return self._exposed[key]

    def has_sync(self, replicas: int) -> bool:
        """Whether any layer's gradients are shared by several ranks."""
        return any(
            copies(self._configuration, name, replicas) > 1 and any(self._costs.parameters[name])
            for name in CLASSES
        )

    def suffix(self, keys: list[tuple[LevelSet, int]]) -> Suffix:
        """Return the suffix of the stages with these (levels, in flight), last stage first."""
        node = self.root
        for key in keys:
            longer = node.longer.get(key)
            if longer is None:
                time = self.stage_time(*key)
                longer = Suffix(extend_max(time, node.max_ps), extend_sum(time, node.sum_ps))
                node.longer[key] = longer
            node = longer
        return node

    def least(self, keys: list[tuple[LevelSet, int]]) -> tuple[int, int]:
        """Return (least max F, least sum F) of whole pipelines with these keys."""
        node = self.suffix(keys[:-1])
        first = self.stage_time(*keys[-1])[:1]
        return int(extend_max(first, node.max_ps)[0]), int(extend_sum(first, node.sum_ps)[0])


class DefaultSource:
    """Cells of the aligned family under the default cost model."""

    def __init__(self, costs: Costs) -> None:
        self._problem = costs.problem
        self._table = costs.table
        self._devices = costs.problem.cluster.device_count
        self._restriction = restriction(costs.problem)
        self._group_sizes = costs.network.group_sizes
        self._matrices: dict[tuple[int, Configuration], PairMatrices] = {}
        self._vectors: dict[Configuration, LevelVectors] = {}

    def matrices(self, pair: tuple[int, Configuration]) -> PairMatrices:
        """Return the matrices of a pair, built once."""
        if pair not in self._matrices:
            self._matrices[pair] = PairMatrices(
                self._table, pair, self._restriction.cuts, self._restriction.highest_hop_level
            )
        return self._matrices[pair]

    def vectors(self, configuration: Configuration) -> LevelVectors:
        """Return the level vectors of a configuration, built once."""
        if configuration not in self._vectors:
            self._vectors[configuration] = LevelVectors(self._group_sizes, configuration)
        return self._vectors[configuration]

    def groups(self) -> list[Group]:
        """Return every group with a bound from the best levels that it could have."""
        return [group for pair in self._table.pairs for group in self._groups_of(pair)]

    def _groups_of(self, pair: tuple[int, Configuration]) -> Iterator[Group]:
        microbatch, configuration = pair
        a = configuration.block_size
        relaxed: dict[int, list[tuple[int, int]]] = {}
        for replicas in self._table.replicas[pair]:
            rounds = rounds_per_batch(self._problem.job, microbatch, configuration.ep, replicas)
            assert rounds is not None
            most_stages = min(self._table.layer_count, self._devices // a)
            in_flight = min(rounds, most_stages)
            if in_flight not in relaxed:
                relaxed[in_flight] = self._relaxed(pair, in_flight, most_stages)
            for stages in range(1, min(most_stages, self._devices // (a * replicas)) + 1):
                if self._problem.search.pp and stages not in self._problem.search.pp:
                    continue
                slowest, total = relaxed[in_flight][stages - 1]
                if total >= INFINITE:
                    continue
                weights = objective_weights(self._problem.job.objective, stages, rounds)
                bound = weights.sum_weight * total + weights.max_weight * slowest
                if weights.sync:
                    bound += self._least_sync(pair, replicas, stages)
                yield Group(
                    bound, a * replicas * stages, stages, replicas, microbatch, configuration,
                    rounds,
                )  # fmt: skip

    def _relaxed(
        self, pair: tuple[int, Configuration], in_flight: int, most_stages: int
    ) -> list[tuple[int, int]]:
        """Return (least max F, least sum F) for S = 1, 2, ... at the least levels possible.

        Two stages are at least a block apart, so no hop is on a lower level
        than one by a block.
        """
        matrices, vectors = self.matrices(pair), self.vectors(pair[1])
        tp, cp, ep, _ = pair[1]
        inside = (
            vectors.level_of_span(tp - 1),
            vectors.level_of_span(tp * (cp - 1)),
            vectors.level_of_span(tp * cp * (ep - 1)),
        )
        hop = vectors.level_of_span(pair[1].block_size)
        keys: list[tuple[LevelSet, int]] = []
        least = []
        for stages in range(1, most_stages + 1):
            flight = min(stages, in_flight)
            out = NO_HOP if stages == 1 else hop
            least.append(matrices.least([*keys, (frozenset({(*inside, NO_HOP, out)}), flight)]))
            keys.append((frozenset({(*inside, hop, out)}), flight))
        return least

    def _least_sync(self, pair: tuple[int, Configuration], replicas: int, stages: int) -> int:
        """Return a lower bound on max X or max Y at the least group levels possible.

        The first stage holds at least the first layer and hides nothing; with
        one stage it holds all. Under `nest` some stage has the largest layer,
        and an even share of all layers' bytes at least.
        """
        matrices, vectors = self.matrices(pair), self.vectors(pair[1])
        if not matrices.has_sync(replicas):
            return 0
        tp, cp, ep, _ = pair[1]
        level = (
            vectors.level_of_span((cp * ep * replicas - 1) * tp),
            vectors.level_of_span((replicas - 1) * tp * cp * ep + (cp - 1) * tp),
        )
        sync = matrices.sync(replicas, frozenset({level}))
        if stages == 1:
            return int(sync[0, -1])
        if self._problem.job.objective == "fill-drain":
            return int(sync[0, 1])
        return max(int(np.diagonal(sync, 1).max()), -(-int(sync[0, -1]) // stages))

    def cells(self, group: Group) -> list[Cell]:
        """Return the group's distinct device maps as cells, in the order of ties."""
        return [
            Cell(group.microbatch, group.configuration, group.rounds, device_map)
            for device_map in aligned_maps(
                self._group_sizes,
                self._devices,
                group.configuration.block_size,
                group.replicas,
                group.stages,
                self._problem.search,
            )
        ]

    def weights(self, cell: Cell) -> ObjectiveWeights:
        """Return the objective of a cell."""
        return objective_weights(self._problem.job.objective, cell.device_map.stages, cell.rounds)

    def _keys(self, cell: Cell) -> list[tuple[LevelSet, int]]:
        """Return (levels, microbatches in flight) of each stage, last stage first."""
        sets = self.vectors(cell.configuration).stage_sets(cell.device_map)
        count = len(sets)
        keys = [
            (levels, in_flight_1f1b(stage, count, cell.rounds)) for stage, levels in enumerate(sets)
        ]
        return keys[::-1]

    def bound_ps(self, cell: Cell) -> int | None:
        """Return the objective's terms in F, each at its least, plus the least sync."""
        slowest, total = self.matrices(cell.pair).least(self._keys(cell))
        weights = self.weights(cell)
        if slowest >= INFINITE:
            return None
        bound = weights.sum_weight * total + weights.max_weight * slowest
        if weights.sync:
            device_map = cell.device_map
            bound += self._least_sync(cell.pair, device_map.replicas, device_map.stages)
        return bound

    def chain(self, cell: Cell) -> Chain:
        """Return a cell's matrices."""
        matrices = self.matrices(cell.pair)
        replicas = cell.device_map.replicas
        time = [matrices.stage_time(*key) for key in self._keys(cell)]
        if not self.weights(cell).sync or not matrices.has_sync(replicas):
            return Chain(time, None)
        of_stage = (
            matrices.exposed_sync if self._problem.job.objective == "fill-drain" else matrices.sync
        )
        sets = self.vectors(cell.configuration).sync_sets(cell.device_map)
        return Chain(time, [of_stage(replicas, levels) for levels in reversed(sets)])

    def mode(self, cell: Cell, stage: int, low: int, high: int) -> Recompute:
        """Return the mode of least F that fits a stage."""
        flight = in_flight_1f1b(stage, cell.device_map.stages, cell.rounds)
        return self.matrices(cell.pair).mode(flight, low, high)

    def memory_cases(self) -> Iterator[MemoryCase]:
        """Yield the cases that differ in memory: fewer rounds hold fewer stashes.

        Fewer replicas with the same stashes leave more devices for stages, so
        the first case stands for them, unless they differ in what is allowed.
        """
        for pair, degrees in self._table.replicas.items():
            seen = set()
            for replicas in degrees:
                rounds = rounds_per_batch(self._problem.job, pair[0], pair[1].ep, replicas)
                assert rounds is not None
                stashes = min(rounds, self._table.layer_count)
                if stashes in seen and self._every_map_allowed:
                    continue
                seen.add(stashes)
                yield MemoryCase(
                    *pair,
                    replicas,
                    rounds,
                    self._devices // (pair[1].block_size * replicas),
                    self._table.usable_bytes,
                )

    @property
    def _every_map_allowed(self) -> bool:
        """Whether there is a legal device map for all degrees that the devices suffice for."""
        always = {"tight", "spread"} & set(self._problem.search.pitch)
        return bool(always) and self._restriction.highest_hop_level is None

    def allows(self, case: MemoryCase, stages: int) -> bool:
        """Whether some device map with S stages exists, memory aside."""
        if self._every_map_allowed:
            return True
        limit = self._restriction.highest_hop_level
        vectors = self.vectors(case.configuration)
        return any(
            limit is None
            or all(max(member[3:]) <= limit for s in vectors.stage_sets(m) for member in s)
            for m in aligned_maps(
                self._group_sizes,
                self._devices,
                case.configuration.block_size,
                case.replicas,
                stages,
                self._problem.search,
            )
        )

    def memory(self, case: MemoryCase) -> Iterator[Array]:
        """Yield, per position from the end, the least bytes of every interval."""
        matrices = self.matrices((case.microbatch, case.configuration))
        used = None
        for place in range(1, self._table.layer_count + 1):
            if used is None or place <= case.rounds:
                used = matrices.memory(min(place, case.rounds))
            yield used
