"""The groups of the free family, and the numbers of each that `dual_rows` asks for."""

from collections.abc import Iterator
from dataclasses import dataclass

from nest_opt.certify.dual_rows import Choice, ClassCosts, Group, ModeCosts
from nest_opt.cost.objective import objective_weights
from nest_opt.cost.schedule import drains, in_flight, rounds_per_batch, runs
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
from nest_opt.cost.table import CLASSES, ParameterClass, Row, row_times
from nest_opt.network import planned_levels
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Configuration, Zero
from nest_opt.problem.constraints import Colocation, FailureDomains, ForbiddenBoundary
from nest_opt.problem.profile import GROUPS, RECOMPUTE_MODES
from nest_opt.problem.schedule import Schedule

_Pair = tuple[int, Configuration]


@dataclass(frozen=True)
class Degrees:
    """What a group of the free family fixes.

    Attributes
    ----------
    microbatch, choices
        b, and the configurations that each stage may choose among.
    rounds, replicas, stages
        m, d and S.
    schedule, zero
        The pipeline schedule, and what is sharded.
    """

    microbatch: int
    choices: tuple[Configuration, ...]
    rounds: int
    replicas: int
    stages: int
    schedule: Schedule
    zero: Zero

    @property
    def sharding(self) -> Sharding:
        """The ZeRO level with what its costs depend on."""
        return Sharding(self.zero, self.replicas, self.rounds)


def groups(costs: Costs) -> Iterator[Degrees]:
    """Yield every group of the free family: (44). Interleaved schedules are not of it."""
    problem, table = costs.problem, costs.table
    devices = problem.cluster.device_count
    alike: dict[_Pair, list[_Pair]] = {}
    for microbatch, k in table.replicas:
        alike.setdefault((microbatch, problem.search.shared(k)), []).append((microbatch, k))
    for (microbatch, shared), pairs in alike.items():
        for replicas in sorted({d for pair in pairs for d in table.replicas[pair]}):
            choices = tuple(k for b, k in pairs if replicas in table.replicas[b, k])
            rounds = rounds_per_batch(problem.job, microbatch, shared.ep, replicas)
            least = replicas * min(k.block_size for k in choices)
            for stages in range(1, min(table.layer_count, devices // least) + 1):
                if rounds is None or (problem.search.pp and stages not in problem.search.pp):
                    continue
                for schedule in problem.search.schedules:
                    if schedule.is_interleaved or not runs(schedule, stages, rounds):
                        continue
                    for zero in problem.zeros:
                        if fits_replicas(zero, replicas):
                            yield Degrees(
                                microbatch, choices, rounds, replicas, stages, schedule, zero
                            )


def group_numbers(costs: Costs, at: Degrees) -> Group | None:
    """Return the numbers of a group; None if it has fewer failure domains than replicas need.

    Of the constraints these are known here: colocation, forbidden boundaries and failure
    domains. All others are left out, which only makes bounds lower.
    """
    problem, table = costs.problem, costs.table
    devices, sizes = problem.cluster.device_count, costs.network.group_sizes
    top = sum(size < devices for size in sizes)
    weights = objective_weights(problem.job.objective, at.stages, at.rounds, at.schedule)
    place = {name: layer for layer, name in enumerate(problem.model.ids)}
    fixed: set[int] = set()
    least_spread = 0
    for rule in problem.constraints:
        if isinstance(rule, Colocation):
            layers = [place[name] for name in rule.layers]
            fixed |= set(range(min(layers) + 1, max(layers) + 1))
        elif isinstance(rule, ForbiddenBoundary):
            fixed |= {place[rule.after] + 1} - {len(place)}
        elif isinstance(rule, FailureDomains):
            level = planned_levels(problem.cluster).level_number(rule.level)
            size = sizes[level]
            domains = -(-devices // size)
            pipeline = at.stages * min(k.block_size for k in at.choices)
            if at.replicas * -(-pipeline // size) > domains * rule.at_most:
                return None
            if at.replicas > rule.at_most:
                least_spread = max(least_spread, min(top, level + 1))
    exchange = (exchange_time(table, k, at.sharding, 0) for k in at.choices)
    return Group(
        stages=at.stages,
        replicas=at.replicas,
        layers=table.layer_count,
        devices=devices,
        rooms=tuple(
            tuple(min(size, devices - first) for first in range(0, devices, size))
            for size in sizes[:top]
        ),
        choices=tuple(_choice(costs, at, k, top) for k in at.choices),
        in_flight=tuple(
            in_flight(at.schedule, stage, at.stages, at.rounds) for stage in range(at.stages)
        ),
        free_bytes=table.usable_bytes - table.reserve_bytes,
        sum_weight=weights.sum_weight,
        round_weight=weights.round_weight,
        fill_weight=weights.fill_weight,
        hidden_weight=weights.hidden_weight,
        syncs=weights.sync,
        drains=problem.job.objective == "fill-drain" and drains(at.schedule),
        exchange_ps=min(exchange),
        least_spread=least_spread,
        fixed_cuts=frozenset(fixed),
        one_run=at.zero.instances == 1,
    )


def _choice(costs: Costs, at: Degrees, k: Configuration, top: int) -> Choice:
    """Return what a stage takes in a configuration, at levels 0 to `top`."""
    table = costs.table
    pair = sharded_pair(table, (at.microbatch, k), at.sharding)
    rows = table.layer_rows
    # A single stage holds tied parameters once: (65).
    own = table.own_rows(0, table.layer_count) if at.stages == 1 else rows
    least = {kind: least_level(costs, k.degree(kind)) for kind in GROUPS}
    torn = max(least.values())

    def times(level: int) -> list[Row]:
        """Return the times of each mode where one kind of groups is at a level, the best of them.

        The worst group of a block is of some kind.
        """
        kinds = [kind for kind in GROUPS if k.degree(kind) > 1] if level > torn else []
        found = [
            row_times(pair, k, [max(least[g], level) if g == kind else least[g] for g in GROUPS])
            for kind in kinds or GROUPS[:1]
        ]
        return [
            _of_layers(rows, tuple(map(min, *(by_mode[mode] for by_mode in found), found[0][mode])))
            for mode in RECOMPUTE_MODES
            if mode in pair.stash_bytes
        ]

    modes = [mode for mode in RECOMPUTE_MODES if mode in pair.stash_bytes]
    by_level = list(zip(*(times(level) for level in range(top + 1)), strict=True))
    dense, expert = (_class_costs(costs, at, k, name, own, top) for name in CLASSES)
    return Choice(
        devices=k.block_size,
        torn=torn,
        spread=(
            least_level(costs, at.sharding.inside(k, "dense")),
            least_level(costs, at.sharding.inside(k, "expert")),
        ),
        modes=tuple(
            ModeCosts(
                levels,
                _of_layers(rows, pair.stash_bytes[mode]),
                _of_layers(rows, pair.work_bytes[mode]),
            )
            for mode, levels in zip(modes, by_level, strict=True)
        ),
        states_bytes=_of_layers(own, pair.states_bytes),
        hop_ps=pair.hop_ps[: top + 1],
        backward_ps=_of_layers(rows, pair.backward_ps),
        gradient_ps=_of_layers(rows, pair.weight_gradient_ps),
        dense=dense,
        expert=expert,
    )


def _class_costs(
    costs: Costs, at: Degrees, k: Configuration, name: ParameterClass, own: Row, top: int
) -> ClassCosts:
    """Return what a class takes over its copies in a run; between runs, at the least level."""
    table, sharding, best = costs.table, at.sharding, costs.network.spreads.best
    runs, copies = at.zero.runs(name), sharding.inside(k, name)
    between = best(runs, least_level(costs, runs))
    fixed, sync, rounds = [], [], []
    for level in range(top + 1):
        # How copies spread below their level is not in the programs: as well as they can.
        inside = best(copies, level)
        calls = [
            run_sync(table, k, name, sharding, inside),
            between_sync(table, k, name, sharding, between),
        ]
        found = [call for call in calls if call is not None]
        fixed.append(sum(call.fixed_ps for call in found))
        sync.append(tuple(sum(call.row_ps[row] for call in found) for row in own))
        levels = [CopyLevels(inside)] * len(CLASSES)
        times = round_times(table, (at.microbatch, k), sharding, levels, classes=[name])
        rounds.append(tuple(times[row] if times else 0 for row in table.layer_rows))
    parameters = table.pairs[at.microbatch, k].parameters[name]
    return ClassCosts(
        tuple(fixed), tuple(sync), tuple(rounds), tuple(parameters[row] > 0 for row in own)
    )


def least_level(costs: Costs, ranks: int) -> int:
    """Return the least level whose groups hold so many ranks."""
    sizes = costs.network.group_sizes
    return next(level for level, size in enumerate(sizes) if size >= ranks)


def _of_layers(rows: Row, row: Row) -> Row:
    return tuple(row[place] for place in rows)
