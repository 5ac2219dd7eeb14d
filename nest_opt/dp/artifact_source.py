"""The artifact's cost model as matrices over intervals of layers.

Its stages sit on consecutive devices from the last one on, so hop levels
depend on the position from the end alone: one level vector serves every
number of stages and of replicas.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from nest_opt.cost.artifact import ArtifactCosts
from nest_opt.cost.build import legal_replicas
from nest_opt.cost.objective import ObjectiveWeights, objective_weights
from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.cost.units import to_ps
from nest_opt.dp.chain import INFINITE, Array, Chain, extend_max, suffix_start
from nest_opt.dp.chunks import ChunkPlan
from nest_opt.dp.cuts import EndsAndOrder, Held
from nest_opt.dp.source import Bundle, Group, MemoryCase
from nest_opt.network import planned_levels
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell, DeviceMap
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.profile import Recompute


class PathMatrices:
    """Loads and memory of every interval for one configuration."""

    def __init__(self, costs: ArtifactCosts, configuration: Configuration) -> None:
        self._costs = costs
        self._layers = costs.layers[configuration]
        n = self.layers = len(self._layers.forward_ps)
        self._consumers: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        self._producers: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for producer, consumer, size in self._layers.edges:
            self._consumers[producer].append((consumer, size))
            self._producers[consumer].append((producer, size))
        self._forward: dict[int, Array] = {}
        self._backward: dict[int, tuple[Array, Array]] = {}
        self.parameters = self._prefix(self._layers.parameter_bytes)

    @staticmethod
    def _prefix(values: tuple[int, ...]) -> Array:
        return np.concatenate(([0], np.cumsum(np.array(values, np.int64))))

    @staticmethod
    def _intervals(prefix: Array) -> Array:
        difference: Array = prefix[None, :] - prefix[:, None]
        return difference

    def forward(self, level: int) -> Array:
        """Return the longest forward path of each interval, tensors in at `level`."""
        if level not in self._forward:
            n = self.layers
            paths = np.full((n + 1, n + 1), INFINITE, np.int64)
            for low in range(n):
                finish, longest = [0] * n, 0
                for layer in range(low, n):
                    start = 0
                    for producer, size in self._producers[layer]:
                        ready = (
                            finish[producer] if producer >= low else self._costs.hop_ps(size, level)
                        )
                        start = max(start, ready)
                    finish[layer] = start + self._layers.forward_ps[layer]
                    longest = max(longest, finish[layer])
                    paths[low, layer + 1] = longest
            self._forward[level] = paths
        return self._forward[level]

    def backward(self, level: int) -> tuple[Array, Array]:
        """Return the longest backward paths that start at a hop by `level`, and those inside."""
        if level not in self._backward:
            n = self.layers
            from_hop = np.full((n + 1, n + 1), -1, np.int64)
            inside = np.zeros((n + 1, n + 1), np.int64)
            for high in range(1, n + 1):
                after_hop, after_none = [-1] * n, [0] * n
                longest_hop, longest = -1, 0
                for layer in range(high - 1, -1, -1):
                    hop, none = -1, 0
                    for consumer, size in self._consumers[layer]:
                        if consumer >= high:
                            hop = max(hop, self._costs.hop_ps(size, level))
                        else:
                            hop = max(hop, after_hop[consumer])
                            none = max(none, after_none[consumer])
                    own = self._layers.backward_ps[layer]
                    after_hop[layer] = hop + own if hop >= 0 else -1
                    after_none[layer] = none + own
                    longest_hop = max(longest_hop, after_hop[layer])
                    longest = max(longest, after_none[layer])
                    from_hop[layer, high], inside[layer, high] = longest_hop, longest
            self._backward[level] = from_hop, inside
        return self._backward[level]

    def stage_time(self, stages_from_end: int, block_size: int) -> Array:
        """Return the load of each interval as the s-th stage from the end, INFINITE if too big."""
        s, a = stages_from_end, block_size
        level_out = self._costs.level((s - 2) * a, (s - 1) * a) if s > 1 else 0
        level_in = self._costs.level((s - 1) * a, s * a) if self._has_place(s * a) else 0
        from_hop, inside = self.backward(level_out)
        mode = self._costs.mode(s)
        backward = self._intervals(self._prefix(self._layers.backward_ps))
        repeat = backward if mode == "full" else 0
        load = self.forward(level_in) + np.maximum(from_hop, repeat + inside)
        fits = self.memory(s) <= self._costs.usable_bytes
        return np.where(fits, np.minimum(load, INFINITE), INFINITE)

    def _has_place(self, device: int) -> bool:
        """Whether a device exists: where not, no stage can come before this one."""
        return device < planned_levels(self._costs.problem.cluster).device_count

    def memory(self, stages_from_end: int) -> Array:
        """Return the bytes of each interval as the s-th stage from the end."""
        activations = self._intervals(self._prefix(self._layers.activation_bytes))
        stash = activations
        if self._costs.mode(stages_from_end) == "full":
            stash = self._incoming
        per_byte = int(self._costs.problem.job.bytes_per_parameter.total)
        used = per_byte * self._intervals(self.parameters) + activations
        used = used + (stages_from_end - 1) * stash
        ordered = np.arange(self.layers + 1)[:, None] < np.arange(self.layers + 1)[None, :]
        return np.where(ordered, used, INFINITE)

    @property
    def _incoming(self) -> Array:
        """Bytes of the tensors that enter each interval from before it."""
        n = self.layers
        enter = np.zeros((n + 1, n + 1), np.int64)
        for producer, consumer, size in self._layers.edges:
            enter[producer + 1 : consumer + 1, consumer + 1 :] += size
        return enter


class ArtifactSource:
    """Cells of the artifact's search space: one device map for each (t, S, d)."""

    def __init__(self, costs: Costs) -> None:
        self._problem = costs.problem
        self._artifact = costs.artifact
        self._replicas = legal_replicas(costs.problem)
        self._devices = costs.problem.cluster.device_count
        self._matrices: dict[Configuration, PathMatrices] = {}
        self._times: dict[Configuration, list[Array]] = {}
        self._all_reduce: dict[tuple[Configuration, int, int], Array] = {}

    def _of(self, configuration: Configuration) -> PathMatrices:
        if configuration not in self._matrices:
            self._matrices[configuration] = PathMatrices(self._artifact, configuration)
        return self._matrices[configuration]

    def _stage_times(self, configuration: Configuration, stages: int) -> list[Array]:
        """Return the loads at positions 1 to S from the end."""
        times = self._times.setdefault(configuration, [])
        while len(times) < stages:
            times.append(
                self._of(configuration).stage_time(len(times) + 1, configuration.block_size)
            )
        return times[:stages]

    def _first_sync(self, configuration: Configuration, replicas: int, pipeline: int) -> Array:
        """Return the all-reduce time of layers 0 to high - 1 as first stage, by high."""
        level = self._artifact.level(0, (replicas - 1) * pipeline)
        key = (configuration, replicas.bit_length(), level)
        if key not in self._all_reduce:
            fixed, per_byte = self._artifact.all_reduce_s(replicas, level)
            sizes = self._of(configuration).parameters.tolist()
            self._all_reduce[key] = np.array(
                [to_ps(fixed + per_byte * size) if replicas > 1 else 0 for size in sizes], np.int64
            )
        return self._all_reduce[key]

    def relaxed(self, problem: Problem) -> "ArtifactSource":
        """Return the cells with a padded batch: there are no constraints here."""
        return ArtifactSource(Costs(problem))

    @property
    def layers(self) -> int:
        """n, the number of layers."""
        return len(self._problem.model.ids)

    @property
    def last_cut(self) -> int:
        """The cut after all layers: n."""
        return self.layers

    def stages(self, path: Sequence[int]) -> EndsAndOrder:
        """Return ends and order of the stages that end at these cuts: the listed one."""
        return tuple(path), None

    def bundles(self, with_dominated: bool = True) -> Iterator[Bundle]:
        """Yield the groups of each b and t, with bounds that cannot be had better in short."""
        by_pair: dict[tuple[int, Configuration], list[Group]] = {}
        for group in self._groups():
            by_pair.setdefault(group.pair, []).append(group)
        for groups in by_pair.values():
            bounds = np.array([group.bound_ps for group in groups], np.float64)
            yield Bundle(bounds, groups.__getitem__)

    def _groups(self) -> list[Group]:
        """Return every (t, S, d) with its bound: the least bottleneck, one layer's all-reduce."""
        groups = []
        search = self._problem.search
        for (microbatch, configuration), degrees in self._replicas.items():
            a = configuration.block_size
            suffix = suffix_start(self._of(configuration).layers)
            for stages in range(1, min(len(suffix) - 1, self._devices // a) + 1):
                time = self._stage_times(configuration, stages)[-1]
                slowest = int(extend_max(time[:1], suffix)[0])
                suffix = extend_max(time, suffix)
                if slowest >= INFINITE or (search.pp and stages not in search.pp):
                    continue
                for replicas in degrees:
                    if replicas * stages * a > self._devices:
                        break
                    rounds = rounds_per_batch(
                        self._problem.job, microbatch, configuration.ep, replicas
                    )
                    assert rounds is not None
                    sync = self._first_sync(configuration, replicas, stages * a)
                    bound = (rounds + stages - 1) * slowest + int(sync[1])
                    groups.append(
                        Group(bound, replicas * stages * a, stages, replicas, microbatch,
                              configuration, rounds)
                    )  # fmt: skip
        return groups

    @property
    def refinements(self) -> int:
        """None: a bound cannot be had better without solving the cell."""
        return 0

    def refined(self, group: Group, step: int) -> list[Group]:
        """Return the group."""
        return [group]

    def cell_count(self) -> int:
        """Return the number of groups: each has one cell."""
        return len(self._groups())

    def cells(self, group: Group) -> list[Cell]:
        """Return the group's one cell."""
        a = group.configuration.block_size
        device_map = DeviceMap(
            a, group.replicas, group.stages, "pp-inner-reversed", group.stages * a
        )
        return [Cell(group.microbatch, group.configuration, group.rounds, device_map)]

    def weights(self, cell: Cell) -> ObjectiveWeights:
        """Return the artifact's objective: that of `nest`."""
        return objective_weights("nest", cell.device_map.stages, cell.rounds)

    def bound_ps(self, cell: Cell) -> int | None:
        """Return nothing better than the group's bound, which is the cell's."""
        return 0

    def chain(self, cell: Cell) -> Chain:
        """Return a cell's matrices; only the first stage has a sync."""
        stages, replicas = cell.device_map.stages, cell.device_map.replicas
        time = self._stage_times(cell.configuration, stages)
        first = self._first_sync(cell.configuration, replicas, cell.device_map.pitch)
        none = np.zeros_like(time[0])
        return Chain(time, [none] * (stages - 1) + [np.broadcast_to(first, none.shape)])

    def chunk_plan(self, cell: Cell) -> ChunkPlan | None:
        """Return None: the artifact knows 1F1B alone."""
        return None

    def chunk_memory(self, case: MemoryCase, stages: int) -> tuple[int, tuple[int, ...]] | None:
        """Return None: the artifact knows 1F1B alone."""
        return None

    def mode(self, cell: Cell, stage: int, low: int, high: int) -> Recompute:
        """Return the mode that the artifact gives a stage."""
        return self._artifact.mode(cell.device_map.stages - stage)

    def memory_cases(self) -> Iterator[MemoryCase]:
        """Yield one case for each configuration: rounds do not matter here."""
        for microbatch, configuration in self._replicas:
            yield MemoryCase(
                microbatch,
                configuration,
                1,
                self._problem.job.global_batch,
                self._devices // configuration.block_size,
                self._artifact.usable_bytes,
            )

    def stages_with_room(self, case: MemoryCase, usable_bytes: int) -> range:
        """Return all S: the artifact's memory has no room for layers to be counted in."""
        return range(1, self.layers + 1)

    def allows(self, case: MemoryCase, stages: int) -> bool:
        """Whether S is asked for: on enough devices there is a device map."""
        asked = self._problem.search.pp
        return not asked or stages in asked

    def memory_floor(self, case: MemoryCase) -> tuple[int, int]:
        """Return (bytes that the largest layer needs alone, bytes of all states)."""
        layers = self._of(case.configuration)
        per_byte = int(self._problem.job.bytes_per_parameter.total)
        alone = int(np.diagonal(layers.memory(1), 1).max())
        return alone, per_byte * int(layers.parameters[-1])

    def memory(self, case: MemoryCase, place: int) -> Array:
        """Return the bytes of every interval as the last stage but place - 1."""
        return self._of(case.configuration).memory(place)

    def held(self, stages: int) -> list[Held]:
        """Return nothing for each stage: there are no constraints here."""
        return [None] * stages

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return the matrix: no stage must hold any layer."""
        return matrix

    def places(self, case: MemoryCase, stages: int) -> list[int]:
        """Return each stage's number from the end, 1 being the last."""
        return list(range(stages, 0, -1))
