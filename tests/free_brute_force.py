"""Brute force over the free family: every assignment of devices, for tiny problems.

It knows nothing of counts or slots. Ranks take innermost groups one by one
(devices inside one are interchangeable), in every way; groups and replicas
that are alike are not tried twice. What an assignment costs comes from the
evaluator, what is legal from the checker. Assignments under which every stage
sees the same levels cost the same, so each such sort is valued once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise, product

from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.cost.table import CLASSES
from nest_opt.network.pair_levels import PairLevels
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import (
    Costs,
    StageEvaluation,
    block_groups,
    copy_levels,
    evaluate,
    evaluate_stage,
    evaluated_objective,
    exchange_level,
    hop_ends,
    stages_value_ps,
    sync_group,
    with_backward_before,
)
from nest_opt.plan.placement import ListedMap, Placement, StagedCell
from nest_opt.problem import Configuration, Problem, Zero
from nest_opt.problem.profile import GROUPS
from nest_opt.problem.schedule import Schedule

# Microbatch, configuration of each stage, replicas, schedule and ZeRO level.
GroupKey = tuple[int, tuple[Configuration, ...], int, Schedule, Zero]


@dataclass(frozen=True)
class FreeBest:
    """The least value and a placement that has it; how many assignments were seen.

    `by_group` has the least value of every group with a plan, if they were asked for.
    """

    value_ps: int | None
    placement: Placement | None
    assignments: int
    by_group: dict[GroupKey, int]


def zeros(problem: Problem, replicas: int) -> Iterator[Zero]:
    """Yield what the search space says of ZeRO, where d replicas are h equal runs."""
    return (zero for zero in problem.zeros if replicas % zero.instances == 0)


Shape = tuple[int, tuple[Configuration, ...], int]


def schedules(problem: Problem, rounds: int, stages: int) -> Iterator[Schedule]:
    """Yield the schedules of one chunk that the search space has and that run m rounds."""
    for name in problem.search.schedule:
        assert name != "interleaved"
        if name != "zb-h1" or rounds >= stages:
            yield Schedule(name)


def shapes(costs: Costs) -> Iterator[Shape]:
    """Yield every (microbatch, configuration of each stage, replicas) of the search space."""
    problem = costs.problem
    devices, search = problem.cluster.device_count, problem.search
    for microbatch in sorted({b for b, _ in problem.candidates}):
        own = [k for b, k in problem.candidates if b == microbatch]
        for stages in range(1, len(problem.model.ids) + 1):
            if search.pp and stages not in search.pp:
                continue
            for chain in product(own, repeat=stages):
                ends_differ = problem.model.has_tied and chain[0].tp != chain[-1].tp
                if _may_follow(chain, search.per_stage) and not ends_differ:
                    for replicas in range(1, devices + 1):
                        if search.dp and replicas not in search.dp:
                            continue
                        if replicas * sum(k.block_size for k in chain) > devices:
                            continue
                        if rounds_per_batch(problem.job, microbatch, chain[0].ep, replicas):
                            yield microbatch, chain, replicas


def _may_follow(chain: tuple[Configuration, ...], per_stage: tuple[str, ...]) -> bool:
    for name in ("tp", "cp", "ep", "sp"):
        if name not in per_stage and len({getattr(k, name) for k in chain}) > 1:
            return False
    return all(max(a.tp, b.tp) % min(a.tp, b.tp) == 0 for a, b in pairwise(chain))


def assignments(
    costs: Costs, chain: tuple[Configuration, ...], replicas: int
) -> Iterator[ListedMap]:
    """Yield device maps: every way to put ranks into innermost groups, up to names of groups."""
    ranks = [
        (stage, replica)
        for replica in range(replicas)
        for stage, k in enumerate(chain)
        for _ in range(k.block_size)
    ]
    devices, inner = costs.problem.cluster.device_count, costs.network.group_sizes[0]
    rooms = [min(inner, devices - first) for first in range(0, devices, inner)]
    for groups in _chosen_groups(costs, rooms, len(ranks), [0] * len(rooms), []):
        free = [iter(range(g * inner, g * inner + room)) for g, room in enumerate(rooms)]
        blocks: dict[tuple[int, int], list[int]] = {}
        for rank, group in zip(ranks, groups, strict=True):
            blocks.setdefault(rank, []).append(next(free[group]))
        yield ListedMap(
            tuple(
                tuple(tuple(blocks[stage, replica]) for replica in range(replicas))
                for stage in range(len(chain))
            )
        )


def _chosen_groups(
    costs: Costs, rooms: list[int], ranks: int, used: list[int], chosen: list[int]
) -> Iterator[list[int]]:
    """Yield the innermost group of each rank; of unused groups that are alike, the first opens."""
    if len(chosen) == ranks:
        yield list(chosen)
        return
    tried: list[int] = []
    for group, room in enumerate(rooms):
        if used[group] == room or any(_alike(costs, rooms, used, group, g) for g in tried):
            continue
        tried.append(group)
        used[group] += 1
        yield from _chosen_groups(costs, rooms, ranks, used, [*chosen, group])
        used[group] -= 1


def _alike(costs: Costs, rooms: list[int], used: list[int], group: int, other: int) -> bool:
    """Whether two groups are unused and alike, and so are the outer groups that tell them apart."""
    if isinstance(costs.network, PairLevels):
        return False
    sizes, devices = costs.network.group_sizes, costs.problem.cluster.device_count
    inner = sizes[0]
    if used[group] or used[other] or rooms[group] != rooms[other]:
        return False
    for size in sizes:
        mine, its = (number * inner // size for number in (group, other))
        if mine == its:
            return True
        for outer in (mine, its):
            inside = range(outer * size // inner, min((outer + 1) * size // inner, len(rooms)))
            if any(used[g] for g in inside) or (outer + 1) * size > devices:
                return False
    return True


def level_key(costs: Costs, cell: StagedCell) -> tuple[object, ...]:
    """Return the levels of everything that costs time."""
    device_map, network = cell.device_map, costs.network
    replicas = range(device_map.replicas)
    key: list[object] = []
    if costs.problem.model.has_tied:
        key.append(exchange_level(network, device_map))
    for stage, k in enumerate(cell.configurations):
        rows = []
        for r in replicas:
            block = device_map.block(r, stage)
            row = [
                network.worst(map(network.level, block_groups(block, k, kind))) for kind in GROUPS
            ]
            for other in (stage - 1, stage + 1):
                if 0 <= other < device_map.stages:
                    ends = hop_ends(device_map, cell.configurations, r, stage, other)
                    row.append(network.worst(map(network.level, ends)))
            rows.append(tuple(row))
        key.append(frozenset(rows))
        key.append(
            frozenset(
                tuple(
                    copy_levels(
                        network, sync_group(device_map, k, c, stage, rank), cell.zero.runs(c)
                    )
                    for c in CLASSES
                )
                for rank in range(k.block_size)
            )
        )
    return tuple(key)


def free_brute_force(
    problem: Problem, most: int = 10**9, groups: bool = False, costs: Costs | None = None
) -> FreeBest | None:
    """Find the best plan of the free family; None if there are more assignments than `most`.

    With `groups`, the best of every group too; `costs` are the problem's own unless given.
    """
    costs = costs or Costs(problem)
    best: int | None = None
    winner: Placement | None = None
    by_group: dict[GroupKey, int] = {}
    seen = 0
    for microbatch, chain, replicas in shapes(costs):
        known: set[object] = set()
        for device_map in assignments(costs, chain, replicas):
            seen += 1
            if seen > most:
                return None
            rounds = rounds_per_batch(problem.job, microbatch, chain[0].ep, replicas)
            assert rounds is not None
            for schedule, zero in product(
                schedules(problem, rounds, len(chain)), zeros(problem, replicas)
            ):
                cell = StagedCell(microbatch, chain, rounds, device_map, zero, schedule)
                key = (level_key(costs, cell), _device_rules(costs, cell), schedule, zero)
                if key in known:
                    continue
                known.add(key)
                group = (microbatch, chain, replicas, schedule, zero)
                for placement, value in _plans(costs, cell):
                    limit = by_group.get(group) if groups else best
                    if (limit is None or value < limit) and not check(costs, placement):
                        assert evaluate(costs, placement).value_ps == value
                        by_group[group] = value
                        if best is None or value < best:
                            best, winner = value, placement
    return FreeBest(best, winner, seen, by_group if groups else {})


def _device_rules(costs: Costs, cell: StagedCell) -> tuple[bool, ...]:
    """Return which constraints on devices hold."""
    from nest_opt.plan.rules import CELL_RULES

    return tuple(
        not any(CELL_RULES[c.type](c, costs, cell))
        for c in costs.problem.constraints
        if c.type in CELL_RULES
    )


def _plans(costs: Costs, cell: StagedCell) -> Iterator[tuple[Placement, int]]:
    """Yield every placement of a device map that fits the memory, and its value."""
    stages, layers = cell.device_map.stages, len(costs.problem.model.ids)
    table, objective = costs.table, evaluated_objective(costs.problem)
    known: dict[tuple[int, int, int], list[StageEvaluation]] = {}
    for inner in combinations(range(1, layers), stages - 1):
        ends = (*inner, layers)
        choices = []
        for stage, (low, high) in enumerate(zip((0, *inner), ends, strict=True)):
            at = (stage, low, high)
            if at not in known:
                pair = table.pairs[cell.microbatch, cell.configurations[stage]]
                found = [
                    evaluate_stage(costs, cell, stage, ((low, high),), mode)
                    for mode in pair.stash_bytes
                ]
                known[at] = [s for s in found if s.memory_bytes <= s.usable_bytes]
            choices.append(known[at])
        for chosen in product(*choices):
            known_before = with_backward_before(chosen, cell.schedule)
            value = stages_value_ps(objective, cell, known_before)
            yield (
                Placement(
                    cell.microbatch,
                    cell.configurations,
                    cell.device_map.replicas,
                    "listed",
                    0,
                    ends,
                    tuple(s.recompute for s in chosen),
                    cell.device_map,
                    zero=cell.zero,
                    schedule=cell.schedule,
                ),
                value,
            )
