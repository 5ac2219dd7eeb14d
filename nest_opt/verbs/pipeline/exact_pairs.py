"""The free family on a graph: programs under the costs of its pairs, not of its levels."""

import time
from dataclasses import replace

from nest_opt.milp.limits import SearchLimits
from nest_opt.milp.result import ExactSearch
from nest_opt.network.pair_levels import PairLevels
from nest_opt.network.planned import PlannedPairs, device_vertices, routed
from nest_opt.placing import improve_placement, place_on_graph
from nest_opt.plan.evaluate import Costs, Evaluation
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


def exact_on_graph(
    problem: Problem,
    network: GraphKind,
    time_limit_s: float | None,
    gap: float,
    progress: Progress | None,
    start: SolveResult | None,
) -> ExactResult:
    """Find the best plan on any devices of a graph, with each transfer alone: (90) and (91).

    The dynamic program's plan, which is for derived levels, and what a local
    search makes of it and of others, come first. Values are those of pairs,
    never above those of levels; `solve` and `verify` value plans by levels, so the
    plan claims no value. Parameters are those of `exact_pipeline`.

    Raises
    ------
    InstanceError
        If a constraint names levels, and as `exact_pipeline`.
    ModelError, SolverError
        As `exact_pipeline`.
    """
    from nest_opt.milp.families import check_family
    from nest_opt.milp.on_pairs import exact_on_pairs

    begin = time.perf_counter()
    limits = SearchLimits(time_limit_s, None, gap)
    pairs = PairLevels.of(PlannedPairs(problem.cluster, network))
    costs = pairwise_costs(problem, pairs)
    check_family(costs, "free")
    deadline = Deadline(progress, lambda: limits.remaining_s(begin))
    start = start or solve_pipeline(problem, deadline)
    if start.cut_short:
        return without_programs(start, "free", deadline.passed)
    placement, interrupted = _start(costs, network, start)
    if interrupted:
        return without_programs(start, "free", False)
    found = exact_on_pairs(
        problem,
        pairs,
        start=placement,
        limits=replace(limits, time_limit_s=limits.remaining_s(begin)),
    )
    plan, evaluation = _without_levels(problem, found)
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


def _start(costs: Costs, network: GraphKind, start: SolveResult) -> tuple[Placement | None, bool]:
    """Return a plan to begin with, on plan device numbers, and whether Ctrl-C ended the search."""
    if start.plan is None:
        return None, False
    cluster = costs.problem.cluster
    numbers = range(cluster.device_count)
    found = improve_placement(costs, on_devices(start.plan.placement(), numbers))
    if found.interrupted or cluster.device_count < network.device_count:
        return found.placement, found.interrupted
    placed = place_on_graph(costs.problem, routed(network))
    if found.value_ps <= placed.found.value_ps:
        return found.placement, placed.interrupted
    number_of = {vertex: number for number, vertex in enumerate(device_vertices(cluster))}
    # A device of the graph is the plan's device of its number.
    order = [number_of[vertex] for vertex in numbers]
    return on_devices(placed.found.placement, order), placed.interrupted


def _without_levels(problem: Problem, found: ExactSearch) -> tuple[Plan | None, Evaluation | None]:
    """Return the plan, which claims no value, and its evaluation, whose levels have no names."""
    if found.placement is None or found.evaluation is None:
        return None, None
    evaluation = found.evaluation
    plan = plan_from_placement(
        problem, found.placement, evaluation.objective, evaluation.value_ps
    ).model_copy(update={"objective": None})
    stages = tuple(replace(stage, levels={}) for stage in evaluation.stages)
    return plan, replace(evaluation, stages=stages)
