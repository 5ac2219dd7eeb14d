"""Solve a pipeline by the dynamic program."""

import time

from nest_opt.conflicts import find_conflict
from nest_opt.dp.rules import relaxed_constraints
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_infeasible import diagnose_all
from nest_opt.dp.staged_search import search_all
from nest_opt.errors import InstanceError
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.rules import require_checkers
from nest_opt.plan.violation import Violation
from nest_opt.problem import Problem
from nest_opt.verbs.pipeline.confirm import confirmed, ranked_plan
from nest_opt.verbs.pipeline.result import RankedPlan, SolveResult, Status
from nest_opt.verbs.result import Progress

MAX_TOP = 10_000


def solve_pipeline(
    problem: Problem, progress: Progress | None = None, *, top: int = 1
) -> SolveResult:
    """Find the best plan of the aligned family, or the best plans.

    Parameters
    ----------
    problem
        The problem.
    progress
        Called with (groups of cells done, groups, best value in ps or None);
        if there is no plan, with the steps of the diagnosis besides.
    top
        How many plans of different degrees or device maps to find, 1 to
        `MAX_TOP`: each is the best of its cell, and no other cell has a better.

    Raises
    ------
    InstanceError
        If the problem has no legal degrees, its numbers leave the range of
        the search, a constraint of a user is not registered, or it is a
        placement graph; or if `top` is out of range, or above 1 where stages
        may differ or the search leaves a constraint out.
    ConsistencyError
        If evaluator or checker disagree with the search: a defect.
    """
    start = time.perf_counter()
    require_checkers(problem)
    _check_top(problem, top)
    costs = Costs(problem)
    source = cell_source(costs)
    found = search_all(costs, source, progress, top)
    plans: tuple[RankedPlan, ...] = ()
    plan = evaluation = diagnosis = conflict = None
    status: Status = found.status
    broken: list[Violation] = []
    if found.placement is not None and found.value_ps is not None:
        plan, evaluation, broken = confirmed(costs, "search", found.placement, found.value_ps)
        if broken:
            status = "relaxed" if status == "optimal" else status
        if plan is not None and evaluation is not None:
            others = (ranked_plan(costs, *ranked) for ranked in found.ranking[1:])
            plans = (RankedPlan(plan, evaluation), *others)
    elif found.status == "infeasible":
        diagnosis = diagnose_all(costs, source, progress)
        # After Ctrl-C nothing more is begun.
        conflict = find_conflict(costs, source, progress) if diagnosis.complete else None
    return SolveResult(
        problem=problem,
        status=status,
        plan=plan,
        evaluation=evaluation,
        bound_ps=found.bound_ps,
        diagnosis=diagnosis,
        relaxed=relaxed_constraints(problem),
        cells=found.cells,
        cells_pruned=found.cells_pruned,
        wall_s=time.perf_counter() - start,
        broken=tuple(broken),
        conflict=conflict,
        plans=plans,
        rest_bound_ps=found.rest_bound_ps,
    )


def _check_top(problem: Problem, top: int) -> None:
    """Refuse a number of plans that the search cannot rank."""
    if not 1 <= top <= MAX_TOP:
        raise InstanceError(f"top: found {top}, 1 to {MAX_TOP:,} plans are possible: change it")
    if top == 1:
        return
    if problem.search.per_stage:
        raise InstanceError(
            f"top: found {top} with search.per_stage {', '.join(problem.search.per_stage)}, only "
            "plans with one configuration for all stages are ranked: leave one of the two out"
        )
    left_out = relaxed_constraints(problem)
    if left_out:
        raise InstanceError(
            f"top: found {top} with constraint {left_out[0]}, which has no rule in the search: "
            "give it one (docs/adding_a_constraint.md), or ask for 1 plan"
        )
