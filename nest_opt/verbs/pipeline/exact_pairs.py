"""The free family on a graph: programs under the costs of its pairs, not of its levels."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from nest_opt.milp.limits import SearchLimits
from nest_opt.network.pair_levels import PairLevels
from nest_opt.network.planned import PlannedPairs, device_vertices, routed
from nest_opt.placing import SHORT, improve_placement, place_on_graph
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.pairwise import on_devices, pairwise_costs
from nest_opt.plan.placement import Placement
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.problem import Problem
from nest_opt.problem.networks import GraphKind
from nest_opt.verbs.deadline import Deadline
from nest_opt.verbs.pipeline.exact import without_programs
from nest_opt.verbs.pipeline.result import ExactResult, SolveResult
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.result import Progress

if TYPE_CHECKING:
    from nest_opt.milp.result import Watch


def exact_on_graph(
    problem: Problem,
    network: GraphKind,
    time_limit_s: float | None,
    gap: float,
    progress: Progress | None,
    watch: "Watch | None",
    start: SolveResult | None,
) -> ExactResult:
    """Find the best plan on any devices of a graph, with each transfer alone: (90) and (91).

    The dynamic program's plan, which is for derived levels, and what a local
    search makes of it and of others, come first; of the time that the program leaves, the
    search has half at most. Values are those of pairs,
    never above those of levels; `solve` and `verify` value plans by levels, so the
    plan claims no value. Parameters are those of `exact_pipeline`.

    Raises
    ------
    InstanceError
        If a constraint names levels, and as `exact_pipeline`.
    ModelError, SolverError
        As `exact_pipeline`.
    """
    from nest_opt.milp.families import check_family, check_free_devices
    from nest_opt.milp.on_pairs import exact_on_pairs

    begin = time.perf_counter()
    limits = SearchLimits(time_limit_s, None, gap)
    check_free_devices(problem.cluster.device_count)
    pairs = PairLevels.of(PlannedPairs(problem.cluster, network))
    costs = pairwise_costs(problem, pairs)
    check_family(costs, "free")
    deadline = Deadline(progress, lambda: limits.remaining_s(begin))
    start = start or solve_pipeline(problem, deadline)
    if start.cut_short:
        return _unproved(costs, start, _listed(start), deadline.passed)
    local_begin, left_s = time.perf_counter(), limits.remaining_s(begin)
    half = SearchLimits(None if left_s is None else left_s / 2)
    turn = Deadline(progress, lambda: half.remaining_s(local_begin))
    placement, interrupted = _start(costs, network, start, turn)
    if interrupted and not turn.passed:
        return _unproved(costs, start, placement, False)
    found = exact_on_pairs(
        problem,
        pairs,
        start=placement,
        limits=replace(limits, time_limit_s=limits.remaining_s(begin)),
        progress=progress,
        watch=watch,
    )
    plan, evaluation = _without_levels(problem, found.placement, found.evaluation)
    return ExactResult(
        problem=problem,
        family="free",
        status="interrupted" if found.limit == "interrupt" else found.status,
        plan=plan,
        evaluation=evaluation,
        bound_ps=found.bound_ps,
        bound_vouched_by=found.bound_by,
        exact_units=found.exact_units,
        start=start,
        cells=found.cells,
        cells_pruned=found.cells_pruned,
        cells_solved=found.cells_solved,
        nodes=found.nodes,
        wall_s=time.perf_counter() - begin,
    )


def _listed(start: SolveResult) -> Placement | None:
    """Return the dynamic program's placement, its plan device numbers written out."""
    if start.plan is None:
        return None
    return on_devices(start.plan.placement(), range(start.problem.cluster.device_count))


def _start(
    costs: Costs, network: GraphKind, start: SolveResult, progress: Progress
) -> tuple[Placement | None, bool]:
    """Return a plan to begin with, on plan device numbers, and whether the search was ended."""
    listed = _listed(start)
    if listed is None:
        return None, False
    cluster = costs.problem.cluster
    # Other degrees win more than a long search does, so they have their turn first.
    best = improve_placement(costs, listed, evaluations=SHORT, progress=progress)
    if not best.interrupted and cluster.device_count == network.device_count:
        try:
            placed = place_on_graph(costs.problem, routed(network), progress=progress)
        except KeyboardInterrupt:
            return best.placement, True
        if placed.found.value_ps < best.value_ps:
            number_of = {vertex: number for number, vertex in enumerate(device_vertices(cluster))}
            # A device of the graph is the plan's device of its number.
            order = [number_of[vertex] for vertex in range(cluster.device_count)]
            best = replace(placed.found, placement=on_devices(placed.found.placement, order))
        best = replace(best, interrupted=placed.interrupted)
    if best.interrupted:
        return best.placement, True
    found = improve_placement(costs, listed, progress=progress)
    return min((best, found), key=lambda one: one.value_ps).placement, found.interrupted


def _unproved(
    costs: Costs, start: SolveResult, placement: Placement | None, out_of_time: bool
) -> ExactResult:
    """Return the best plan that there is, valued by pairs, when the programs had no turn."""
    evaluation = None if placement is None else evaluate(costs, placement)
    plan, evaluation = _without_levels(costs.problem, placement, evaluation)
    result = without_programs(start, "free", out_of_time)
    return replace(result, plan=plan, evaluation=evaluation)


def _without_levels(
    problem: Problem, placement: Placement | None, evaluation: Evaluation | None
) -> tuple[Plan | None, Evaluation | None]:
    """Return the plan, which claims no value, and its evaluation, whose levels have no names."""
    if placement is None or evaluation is None:
        return None, None
    plan = plan_from_placement(
        problem, placement, evaluation.objective, evaluation.value_ps
    ).model_copy(update={"objective": None})
    stages = tuple(replace(stage, levels={}) for stage in evaluation.stages)
    return plan, replace(evaluation, stages=stages)
