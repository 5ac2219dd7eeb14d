"""The evaluator: what a placement costs, from the devices it really uses.

It knows nothing of levels found by arithmetic: each group's and each hop's
level comes from the set of devices. Every plan that leaves the program goes
through it, whatever found the plan.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, product

from nest_opt.cost.artifact import ArtifactCosts
from nest_opt.cost.build import build_cost_table
from nest_opt.cost.cuts import GraphCuts, graph_cuts, table_in_order, table_of_cuts
from nest_opt.cost.objective import batch_time_ps
from nest_opt.cost.schedule import drains, in_flight, rounds_per_batch
from nest_opt.cost.sharding import (
    CopyLevels,
    Sharding,
    between_sync,
    exchange_time,
    fits_replicas,
    round_times,
    run_sync,
    sharded_pair,
)
from nest_opt.cost.table import CLASSES, CostTable, ParameterClass, SyncOperation
from nest_opt.errors import PlanError
from nest_opt.network import Network, build_network
from nest_opt.plan.placement import (
    AnyCell,
    Blocks,
    Cell,
    DeviceMap,
    Interval,
    Placement,
    StagedCell,
)
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.job import Objective
from nest_opt.problem.profile import GROUPS, Group, Recompute
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule

# The term of Y that is no collective over copies.
TIED = "tied gradients"
# Names of the terms of F that are collectives over copies.
GATHERED = "gathered weights"
ROUND_TERMS: dict[SyncOperation, str] = {
    "all-gather": GATHERED,
    "reduce-scatter": "scattered gradients",
}


@dataclass(frozen=True)
class StageEvaluation:
    """Cost and memory of one stage, term by term.

    Attributes
    ----------
    intervals
        Places of the first layer and one past the last, in the order of layers, of each
        chunk: of one, unless the schedule is interleaved.
    recompute
        Recomputation mode.
    time_terms_ps
        Terms of F, of the replica where F is largest; their sum is `time_ps`.
    sync_terms_ps
        Terms of Y, of the rank where Y is largest.
    weight_gradient_ps
        W: the part of the plain backward time that makes gradients of weights.
    backward_before_ps
        Plain backward time of all layers before the stage, which hides its
        sync; 0 under a schedule that fills that time.
    in_flight
        Microbatches (of each a chunk) whose stash is held at the peak.
    memory_terms_bytes
        Terms of the memory used; their sum must not exceed `usable_bytes`.
    levels
        Network level by group, hop and sync term, of the replica of
        `time_terms_ps` and the rank of `sync_terms_ps`.
    """

    intervals: tuple[Interval, ...]
    recompute: Recompute
    time_terms_ps: dict[str, int]
    sync_terms_ps: dict[str, int]
    weight_gradient_ps: int
    backward_before_ps: int
    in_flight: int
    memory_terms_bytes: dict[str, int]
    usable_bytes: int
    levels: dict[str, int]

    @property
    def layers(self) -> tuple[int, ...]:
        """The stage's layers, by their places in the order of layers."""
        return tuple(layer for low, high in self.intervals for layer in range(low, high))

    @cached_property
    def time_ps(self) -> int:
        """F: the stage's time per microbatch."""
        return sum(self.time_terms_ps.values())

    @cached_property
    def sync_ps(self) -> int:
        """Y: the stage's gradient synchronisation per batch."""
        return sum(self.sync_terms_ps.values())

    @property
    def exposed_sync_ps(self) -> int:
        """X: what of Y is left after the drain of the stages before."""
        return max(0, self.sync_ps - self.backward_before_ps)

    @cached_property
    def memory_bytes(self) -> int:
        """Bytes used on each device of the stage."""
        return sum(self.memory_terms_bytes.values())


@dataclass(frozen=True)
class Evaluation:
    """A placement's value and where it comes from."""

    objective: Objective
    rounds: int
    stages: tuple[StageEvaluation, ...]
    value_ps: int
    schedule: Schedule = ONE_F_ONE_B


@dataclass(frozen=True)
class Costs:
    """A problem with its network and the coefficients of its cost model, built once.

    Attributes
    ----------
    problem
        The problem.
    layer_order
        The order of layers of `table`, by places in the listed one; None is that itself.
    listed
        The costs in the listed order, of costs in another; None otherwise.
    given_network
        What times between devices come from, where it is not the cluster's levels.
    """

    problem: Problem
    layer_order: tuple[int, ...] | None = None
    listed: "Costs | None" = None
    given_network: Network | None = None

    @cached_property
    def network(self) -> Network:
        """The network."""
        if self.listed is not None:
            return self.listed.network
        return self.given_network or build_network(self.problem.cluster)

    @cached_property
    def table(self) -> CostTable:
        """Coefficients of the default cost model, layers and cuts in `layer_order`."""
        if self.listed is None or self.layer_order is None:
            return build_cost_table(self.problem, self.network)
        return table_in_order(self.problem, self.network, self.listed.table, self.layer_order)

    @cached_property
    def graph(self) -> GraphCuts | None:
        """Every cut that the search space allows; None where those of the listed order are all."""
        return graph_cuts(self.problem)

    @cached_property
    def search_table(self) -> CostTable:
        """The table with layers in the listed order, and with every cut of the search space."""
        if self.graph is None:
            return self.table
        return table_of_cuts(self.problem, self.network, self.table, self.graph.cuts)

    def ordered(self, layer_order: tuple[int, ...] | None) -> "Costs":
        """Return the costs with layers and cuts in an order, built once."""
        listed = self.listed or self
        if layer_order is None:
            return listed
        if layer_order not in listed._orders:
            listed._orders[layer_order] = Costs(self.problem, layer_order, listed)
        return listed._orders[layer_order]

    @cached_property
    def _orders(self) -> dict[tuple[int, ...], "Costs"]:
        return {}

    @cached_property
    def artifact(self) -> ArtifactCosts:
        """Coefficients of the artifact's cost model."""
        return ArtifactCosts(self.problem)

    @property
    def is_artifact(self) -> bool:
        """Whether the problem asks for the artifact's cost model."""
        return self.problem.job.cost_model == "artifact"


def evaluate(costs: Costs, placement: Placement) -> Evaluation:
    """Evaluate a placement.

    Raises
    ------
    PlanError
        If the problem has no costs for the placement's degrees: a degree
        without profiles, or data streams that do not divide the batch.
    """
    cell = placement_cell(costs.problem, placement)
    costs = costs.ordered(placement.layer_order)
    stages = tuple(
        evaluate_stage(costs, cell, stage, intervals, mode)
        for stage, (intervals, mode) in enumerate(
            zip(placement.intervals, placement.recompute, strict=True)
        )
    )
    if not placement.is_uniform:
        stages = with_backward_before(stages, cell.schedule)
    objective = evaluated_objective(costs.problem)
    value = stages_value_ps(objective, cell, stages)
    return Evaluation(objective, cell.rounds, stages, value, cell.schedule)


def stages_value_ps(objective: Objective, cell: AnyCell, stages: Sequence[StageEvaluation]) -> int:
    """Return the objective's value for the stages of a cell."""
    return batch_time_ps(
        objective,
        cell.rounds,
        [stage.time_ps for stage in stages],
        [stage.sync_ps for stage in stages],
        [stage.backward_before_ps for stage in stages],
        cell.schedule,
        [stage.weight_gradient_ps for stage in stages],
    )


def with_backward_before(
    stages: Sequence[StageEvaluation], schedule: Schedule
) -> tuple[StageEvaluation, ...]:
    """Return stages that know the backward times of those before in their own configurations."""
    own = [stage.time_terms_ps["backward"] if drains(schedule) else 0 for stage in stages]
    return tuple(
        replace(stage, backward_before_ps=before)
        for stage, before in zip(stages, accumulate(own, initial=0), strict=False)
    )


def evaluated_objective(problem: Problem) -> Objective:
    """Return the objective that a problem's plans are valued by.

    The artifact's own is `nest` with the all-reduce of the first stage as
    the only sync.
    """
    return "nest" if problem.job.cost_model == "artifact" else problem.job.objective


def placement_cell(problem: Problem, placement: Placement) -> AnyCell:
    """Return the cell of a placement, or raise PlanError where the batch is not divided."""
    microbatch, ep = placement.microbatch, placement.ep
    rounds = rounds_per_batch(problem.job, microbatch, ep, placement.replicas)
    if rounds is None:
        raise PlanError(
            f"microbatch * ep * dp: found {microbatch} * {ep} * {placement.replicas}, "
            f"which does not divide job.global_batch ({problem.job.global_batch}): "
            "change a degree, or set job.pad"
        )
    device_map = placement.device_map
    if placement.is_uniform and isinstance(device_map, DeviceMap):
        return Cell(
            microbatch,
            placement.configurations[0],
            rounds,
            device_map,
            placement.zero,
            placement.schedule,
        )
    return StagedCell(
        microbatch,
        placement.configurations,
        rounds,
        device_map,
        placement.zero,
        placement.schedule,
    )


def evaluate_stage(
    costs: Costs, cell: AnyCell, stage: int, intervals: Sequence[Interval], mode: Recompute
) -> StageEvaluation:
    """Evaluate some layers as stage number `stage` of a cell: v intervals of them, one a chunk.

    Layers are counted in the order of the costs.

    A stage alone does not know the configurations before it: its
    `backward_before_ps` is that of all layers before in its own one.
    """
    if costs.is_artifact:
        ((low, high),) = intervals
        return _artifact_stage(costs, cell, stage, low, high, mode)
    table, configuration = costs.table, cell.configurations[stage]
    key = cell.microbatch, configuration
    pair = table.pairs.get(key)
    if pair is None or mode not in pair.stash_bytes:
        raise PlanError(
            f"stages[{stage}]: the problem has no profiles for microbatch={cell.microbatch} "
            f"{configuration} with recompute={mode} in its search space: "
            "use degrees that problem.search and the profiles have"
        )
    if cell.device_map.replicas not in table.replicas[key]:
        raise PlanError(
            f"dp: found {cell.device_map.replicas}, the problem allows "
            f"{', '.join(map(str, table.replicas[key])) or 'none'} for "
            f"microbatch={cell.microbatch} {configuration}: change dp, or widen problem.search"
        )
    if cell.zero not in table.zero:
        raise PlanError(
            f"zero: found {cell.zero}, the problem allows {', '.join(map(str, table.zero))}: "
            "change it, or widen problem.search"
        )
    if not fits_replicas(cell.zero, cell.device_map.replicas):
        raise PlanError(
            f"zero.instances: found {cell.zero.instances}, a divisor of dp "
            f"({cell.device_map.replicas}) is needed: change one of the two"
        )
    sharding = Sharding(cell.zero, cell.device_map.replicas, cell.rounds)
    memory = sharded_pair(table, key, sharding)
    chunks = [table.layer_rows[low:high] for low, high in intervals]
    rows = tuple(row for chunk in chunks for row in chunk)
    shared, shared_levels = _round_terms(costs, cell, stage, rows)
    own_rows = rows if len(chunks) > 1 else table.own_rows(*intervals[0])
    sync_terms, sync_levels = _sync_terms(costs, cell, stage, own_rows)
    exchange_terms, exchange_levels = _exchange_terms(costs, cell, stage)
    flight = in_flight(cell.schedule, stage, cell.device_map.stages, cell.rounds)
    stash = pair.stash_bytes[mode]
    time_terms, levels = max(
        (
            _time_terms(costs, cell, replica, stage, intervals, mode)
            for replica in range(cell.device_map.replicas)
        ),
        key=lambda found: sum(found[0].values()),
    )
    return StageEvaluation(
        intervals=tuple(intervals),
        recompute=mode,
        time_terms_ps={**time_terms, **shared},
        sync_terms_ps={**sync_terms, **exchange_terms},
        weight_gradient_ps=sum(pair.weight_gradient_ps[row] for row in rows),
        backward_before_ps=sum(
            pair.backward_ps[row]
            for row in table.layer_rows[: intervals[0][0]]
            if drains(cell.schedule)
        ),
        in_flight=flight,
        memory_terms_bytes={
            "states": sum(memory.states_bytes[row] for row in own_rows),
            # Which chunks the stashes in flight are of changes all the time.
            "stash": flight * max(sum(stash[row] for row in chunk) for chunk in chunks),
            "work": max(memory.work_bytes[mode][row] for row in rows),
            "reserve": table.reserve_bytes,
        },
        usable_bytes=table.usable_bytes,
        levels={**levels, **shared_levels, **sync_levels, **exchange_levels},
    )


def _time_terms(
    costs: Costs,
    cell: AnyCell,
    replica: int,
    stage: int,
    intervals: Sequence[Interval],
    mode: Recompute,
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the terms of F for one replica, and the levels that they come from."""
    table, network = costs.table, costs.network
    configuration, device_map = cell.configurations[stage], cell.device_map
    pair = table.pairs[cell.microbatch, configuration]
    rows = [row for low, high in intervals for row in table.layer_rows[low:high]]
    block = device_map.block(replica, stage)
    levels: dict[str, int] = {}
    forward = sum(pair.forward_ps[row] for row in rows)
    terms = {"forward": forward, "backward": sum(pair.backward_ps[row] for row in rows)}
    if mode == "full":
        terms["recomputed forward"] = forward
    elif mode == "selective":
        terms["recomputed forward"] = sum(pair.repeated_forward_ps[row] for row in rows)
    for group in GROUPS:
        if configuration.degree(group) > 1:
            level = network.worst(
                network.level(g) for g in block_groups(block, configuration, group)
            )
            levels[group] = level
            forward = sum(pair.forward_collective_ps[group][level][row] for row in rows)
            backward = sum(pair.backward_collective_ps[group][level][row] for row in rows)
            terms[f"{group} collectives"] = forward + backward
            if mode == "full":
                terms[f"recomputed {group} collectives"] = forward
    # The chunks of a pipeline go round it: what follows the last stage is the first one's next.
    last = len(table.layer_rows)
    for name, step, cuts in (
        ("hop in", -1, [low for low, _ in intervals if low > 0]),
        ("hop out", 1, [high for _, high in intervals if high < last]),
    ):
        if cuts:
            neighbour = (stage + step) % device_map.stages
            levels[name] = network.worst(
                network.level(ends)
                for ends in hop_ends(device_map, cell.configurations, replica, stage, neighbour)
            )
            terms[name] = sum(pair.hop_ps[levels[name]][cut] for cut in cuts)
    return terms, levels


def hop_ends(
    device_map: Blocks,
    configurations: tuple[Configuration, ...],
    replica: int,
    stage: int,
    neighbour: int,
) -> Iterator[tuple[int, int]]:
    """Yield (device of the stage, device of its neighbour) for ranks that pass tensors on.

    Equal ranks do. Where tp differs, the rank of the wider block that holds a
    part of what a rank of the other one does; where sp differs, one side has
    whole tensors and the other slices, and all tp ranks of both pass to each
    other. cp and ep ranks keep to their equals.
    """
    block, other = device_map.block(replica, stage), device_map.block(replica, neighbour)
    here, there = configurations[stage], configurations[neighbour]
    if here == there:
        yield from zip(block, other, strict=True)
        return
    for outer in range(here.cp * here.ep):
        for t, u in product(range(here.tp), range(there.tp)):
            if here.sp != there.sp or _shares_overlap(t, here.tp, u, there.tp):
                yield block[outer * here.tp + t], other[outer * there.tp + u]


def _shares_overlap(t: int, tp: int, u: int, other_tp: int) -> bool:
    """Whether share t of tp equal shares has a part of share u of other_tp ones."""
    return t * other_tp < (u + 1) * tp and u * tp < (t + 1) * other_tp


def block_groups(
    block: Sequence[int], configuration: Configuration, group: Group
) -> Iterator[tuple[int, ...]]:
    """Yield the rank groups of one kind inside a block (tp fastest, then cp, then ep)."""
    tp, cp, ep, _ = configuration
    stride = {"tp": 1, "cp": tp, "ep": tp * cp}[group]
    degree = configuration.degree(group)
    for rank in range(tp * cp * ep):
        if rank // stride % degree == 0:
            yield tuple(block[rank + stride * member] for member in range(degree))


def _sync_terms(
    costs: Costs, cell: AnyCell, stage: int, rows: tuple[int, ...]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the terms of Y for the worst rank of a stage, and the levels that they come from."""
    table, configuration, device_map = costs.table, cell.configurations[stage], cell.device_map
    parameters = table.pairs[cell.microbatch, configuration].parameters
    sharding = Sharding(cell.zero, device_map.replicas, cell.rounds)
    held = [name for name in CLASSES if any(parameters[name][row] for row in rows)]
    found: list[tuple[dict[str, int], dict[str, int]]] = []
    for rank in _shards(configuration):
        terms, levels = {}, {}
        for name in held:
            runs = cell.zero.runs(name)
            group = sync_group(device_map, configuration, name, stage, rank)
            inside, between = copy_levels(costs.network, group, runs)
            # Above level 0 weights are gathered beside, or instead.
            within = f"{name} {'parameters' if cell.zero.level(name) else 'gradients'}"
            for term, spread, cost in (
                (within, inside, run_sync(table, configuration, name, sharding, inside)),
                (
                    f"{name} gradients between runs",
                    between,
                    between_sync(table, configuration, name, sharding, between),
                ),
            ):
                if cost is not None:
                    terms[term] = cost.fixed_ps + sum(cost.row_ps[row] for row in rows)
                    levels[term] = costs.network.spreads.level(spread)
        found.append((terms, levels))
    return max(found, key=lambda rank: sum(rank[0].values()))


def _exchange_terms(
    costs: Costs, cell: AnyCell, stage: int
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the term of Y for tied parameters at the ends of a pipeline, and its level: (66)."""
    table, device_map = costs.table, cell.device_map
    last = device_map.stages - 1
    if table.tied is None or last == 0 or stage not in (0, last):
        return {}, {}
    ends = [cell.configurations[0].tp, cell.configurations[last].tp]
    if ends[0] != ends[1]:
        raise PlanError(
            f"tp: found {ends[0]} in the first stage and {ends[1]} in the last, whose layers share "
            "tied parameters, one tp is needed for both: change one of the two"
        )
    level = exchange_level(costs.network, device_map)
    sharding = Sharding(cell.zero, device_map.replicas, cell.rounds)
    return {TIED: exchange_time(table, cell.configurations[stage], sharding, level)}, {TIED: level}


def exchange_level(network: Network, device_map: Blocks) -> int:
    """Return the highest level of equal ranks of a pipeline's first and last block."""
    return network.worst(
        network.level(pair)
        for replica in range(device_map.replicas)
        for pair in zip(
            device_map.block(replica, 0),
            device_map.block(replica, device_map.stages - 1),
            strict=True,
        )
    )


def _round_terms(
    costs: Costs, cell: AnyCell, stage: int, rows: tuple[int, ...]
) -> tuple[dict[str, int], dict[str, int]]:
    """Return the terms of F that are over the copies of a stage's worst rank, and their levels."""
    configuration, network = cell.configurations[stage], costs.network
    pair = cell.microbatch, configuration
    sharding = Sharding(cell.zero, cell.device_map.replicas, cell.rounds)
    if not sharding.has_rounds:
        return {}, {}
    found: list[tuple[dict[str, int], dict[str, int]]] = []
    for rank in _shards(configuration):
        levels = [
            copy_levels(
                network,
                sync_group(cell.device_map, configuration, name, stage, rank),
                cell.zero.runs(name),
            )
            for name in CLASSES
        ]
        terms = {}
        for operation, term in ROUND_TERMS.items():
            times = round_times(costs.table, pair, sharding, levels, operation)
            if times is not None:
                terms[term] = sum(times[row] for row in rows)
        sharing = [
            network.spreads.level(level.inside)
            for name, level in zip(CLASSES, levels, strict=True)
            if sharding.round_operations(name)
        ]
        found.append((terms, dict.fromkeys(terms, network.worst(sharing))))
    return max(found, key=lambda rank: sum(rank[0].values()))


def _shards(configuration: Configuration) -> Iterator[int]:
    """Yield one rank of each shard: context-parallel ranks hold the same parameters."""
    tp, cp, ep, _ = configuration
    yield from (t + tp * cp * e for e in range(ep) for t in range(tp))


def sync_ranks(configuration: Configuration, parameter_class: ParameterClass) -> Iterator[int]:
    """Yield one rank of each group that holds the same parameters of a class."""
    tp, cp, ep, _ = configuration
    outer = ep if parameter_class == "expert" else 1
    yield from (t + tp * cp * e for e in range(outer) for t in range(tp))


def sync_group(
    device_map: Blocks,
    configuration: Configuration,
    parameter_class: ParameterClass,
    stage: int,
    rank: int,
) -> list[int]:
    """Return the devices that hold the same parameters as one rank of a stage.

    Dense parameters are sharded over tp alone, experts over ep as well.
    """
    tp, cp, ep, _ = configuration
    first = rank % tp
    if parameter_class == "expert":
        first += rank // (tp * cp) * (tp * cp)
    copies_in_block = cp * ep if parameter_class == "dense" else cp
    return [
        device_map.block(replica, stage)[first + tp * copy]
        for replica in range(device_map.replicas)
        for copy in range(copies_in_block)
    ]


def copy_levels(network: Network, group: Sequence[int], runs: int) -> CopyLevels:
    """Return the spreads of a parameter's copies in h equal runs of replicas.

    A collective between runs waits for those inside all of them, and one
    inside a run for those between at all its places: so the worst run counts,
    and the worst place.
    """
    inside, worst = len(group) // runs, network.worst_spread
    return CopyLevels(
        worst(network.spread(group[run * inside : (run + 1) * inside]) for run in range(runs)),
        worst(network.spread(group[place::inside]) for place in range(inside)) if runs > 1 else 0,
    )


def _artifact_stage(
    costs: Costs, any_cell: AnyCell, stage: int, low: int, high: int, mode: Recompute
) -> StageEvaluation:
    """Evaluate a stage as the artifact does: replica 0 speaks for all."""
    artifact = costs.artifact
    cell = _artifact_cell(artifact, any_cell, stage, mode)
    device_map, configuration = cell.device_map, cell.configuration
    level_in = level_out = None
    start = device_map.block_start(0, stage)
    if stage > 0:
        level_in = artifact.level(start, device_map.block_start(0, stage - 1))
    if stage + 1 < device_map.stages:
        level_out = artifact.level(device_map.block_start(0, stage + 1), start)
    sync = {}
    if stage == 0 and device_map.replicas > 1:
        sync["first stage gradients"] = artifact.all_reduce_ps(
            configuration, low, high, device_map.replicas, device_map.stages * device_map.block_size
        )
    return StageEvaluation(
        intervals=((low, high),),
        recompute=mode,
        time_terms_ps=artifact.stage_terms_ps(configuration, low, high, level_in, level_out, mode),
        sync_terms_ps=sync,
        weight_gradient_ps=0,
        backward_before_ps=0,
        in_flight=device_map.stages - stage - 1,
        memory_terms_bytes=artifact.memory_terms_bytes(
            configuration, low, high, device_map.stages - stage, mode
        ),
        usable_bytes=artifact.usable_bytes,
        levels={
            name: level
            for name, level in (("hop in", level_in), ("hop out", level_out))
            if level is not None
        },
    )


def _artifact_cell(artifact: ArtifactCosts, cell: AnyCell, stage: int, mode: Recompute) -> Cell:
    """Return a cell, or refuse what the artifact's model has no costs for."""
    if not isinstance(cell, Cell):
        raise PlanError(
            "order: found stages that differ in tp or sp, or devices that are listed, cost_model "
            "artifact knows neither: use one configuration and order pp-inner-reversed"
        )
    if cell.pair not in artifact.problem.candidates:
        raise PlanError(
            f"microbatch={cell.microbatch} {cell.configuration}: the problem has no profiles for "
            "it in its search space: use degrees that problem.search has"
        )
    device_map = cell.device_map
    pipeline = device_map.stages * device_map.block_size
    if device_map.order != "pp-inner-reversed" or device_map.pitch != pipeline:
        raise PlanError(
            f"order and pitch: found {device_map.order} and {device_map.pitch}, cost_model "
            f"artifact knows pp-inner-reversed and {pipeline} (stages * tp * cp * ep) alone: "
            "use these"
        )
    allowed = artifact.mode(device_map.stages - stage)
    if mode != allowed:
        raise PlanError(
            f"stages[{stage}].recompute: found {mode}, cost_model artifact knows {allowed} alone "
            "for this stage: use that"
        )
    return cell
