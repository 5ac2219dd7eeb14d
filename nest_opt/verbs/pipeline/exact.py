"""Solve a pipeline by integer programs, held against the dynamic program."""

import time
from typing import TYPE_CHECKING, Literal

from nest_opt.conflicts import find_exact_conflict
from nest_opt.dp.sources import cell_source
from nest_opt.errors import ConsistencyError
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem
from nest_opt.problem.networks import GraphKind
from nest_opt.verbs.deadline import Deadline
from nest_opt.verbs.defects import check_bound, illegal
from nest_opt.verbs.pipeline.confirm import confirmed
from nest_opt.verbs.pipeline.result import ExactResult, Family, SolveResult
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.result import Progress

if TYPE_CHECKING:
    from nest_opt.milp.result import ExactSearch, Watch


def exact_pipeline(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
    watch: "Watch | None" = None,
    family: Family = "aligned",
    start: SolveResult | None = None,
    by_pairs: bool = False,
) -> ExactResult:
    """Find the best plan of a family by integer programs, and hold `solve` against it.

    Parameters
    ----------
    problem
        The problem.
    time_limit_s
        Seconds for all of it. Of the dynamic program and of the closed-form
        bounds of the cells, which come first, some hundred steps are made come
        what may.
    gap
        Share of the value by which the plan may be above the bound.
    progress
        Called with (steps done, steps, best value in ps or None), first with
        the dynamic program's groups of cells, then with cells that are bounded,
        then with cells that are settled.
    watch
        Called with a `ProgramProgress` about once a second while HiGHS runs.
    family
        `aligned`, the family of `solve`, or `free`: any distinct devices for
        the ranks of all blocks. No plan that `solve` finds is better than the
        best free one.
    start
        What `solve` found for the problem, if that is known.
    by_pairs
        Whether the costs of the free family on a network that is a graph are those
        of its pairs, and not of its levels: see `nest_opt.verbs.pipeline.exact_pairs`.

    Raises
    ------
    InstanceError
        If the problem has no legal degrees, or its numbers leave the range
        of the search.
    ModelError
        If the problem asks for the artifact's cost model, the free family has
        too many devices, a constraint has no rows, or coefficients are too far
        apart.
    SolverError
        If a limit is out of range, HiGHS fails, or its answer does not stand
        up to checker and evaluator.
    ConsistencyError
        If the two methods disagree: a defect.
    """
    from nest_opt.milp import exact as programs
    from nest_opt.milp.limits import SearchLimits

    begin = time.perf_counter()
    start = start and start.by_levels
    if by_pairs and family == "free" and isinstance(problem.cluster.network, GraphKind):
        from nest_opt.verbs.pipeline.exact_pairs import exact_on_graph

        network = problem.cluster.network
        return exact_on_graph(problem, network, time_limit_s, gap, progress, watch, start)
    costs = Costs(problem)
    programs.check_request(costs, time_limit_s, gap, family)
    limits = SearchLimits(time_limit_s, None, gap)
    deadline = Deadline(progress, lambda: limits.remaining_s(begin))
    start = start or solve_pipeline(problem, deadline)
    if start.cut_short:
        return without_programs(start, family, deadline.passed)
    placement = start.plan.placement() if start.plan else None
    try:
        found = programs.exact(
            problem,
            start=placement,
            time_limit_s=limits.remaining_s(begin),
            gap=gap,
            progress=progress,
            watch=watch,
            family=family,
        )
    except KeyboardInterrupt:
        return without_programs(start, family, False)
    _check_agreement(start, found)
    plan = evaluation = None
    if found.placement is not None and found.value_ps is not None:
        plan, evaluation, broken = confirmed(
            costs, "integer program", found.placement, found.value_ps
        )
        if broken:
            raise illegal("integer program", found.placement, broken[0])
    conflict, status = None, found.status
    # What the search has no rule for takes plans away, and adds none.
    settled = family == "aligned" and start.status == "infeasible" and found.limit is not None
    if settled:
        status, conflict = "infeasible", start.conflict
    elif found.status == "infeasible":
        conflict = start.conflict if family == "aligned" else None
    if status == "infeasible" and conflict is None:
        # The search has no rule for some constraint, or speaks of the aligned family alone.
        left_s = limits.remaining_s(begin)
        conflict = find_exact_conflict(costs, cell_source(costs), left_s, family, progress)
    # Stopped before all cells had a bound, the programs say nothing.
    by_search = settled or (family == "aligned" and found.bound_ps == 0 and status == "feasible")
    return ExactResult(
        problem=problem,
        family=found.family,
        status="interrupted" if found.limit == "interrupt" and not settled else status,
        plan=plan,
        evaluation=evaluation,
        bound_ps=start.bound_ps if by_search else found.bound_ps,
        bound_vouched_by="dynamic program" if by_search else found.bound_by,
        exact_units=settled or found.exact_units,
        start=start,
        cells=found.cells,
        cells_pruned=found.cells_pruned,
        cells_solved=found.cells_solved,
        nodes=found.nodes,
        wall_s=time.perf_counter() - begin,
        conflict=conflict,
    )


def without_programs(start: SolveResult, family: Family, out_of_time: bool) -> ExactResult:
    """Return what the dynamic program found, when the integer programs had no turn.

    Its bound, and that there is no plan, hold in the aligned family alone.
    """
    is_aligned = family == "aligned"
    infeasible = is_aligned and start.status == "infeasible"
    status: Literal["feasible", "no-solution", "interrupted"] = "interrupted"
    if out_of_time:
        status = "no-solution" if start.plan is None else "feasible"
    return ExactResult(
        problem=start.problem,
        family=family,
        status="infeasible" if infeasible else status,
        plan=start.plan,
        evaluation=start.evaluation,
        bound_ps=start.bound_ps if is_aligned else 0,
        bound_vouched_by="dynamic program" if is_aligned else "closed form",
        exact_units=True,
        start=start,
        cells=start.cells,
        cells_pruned=start.cells_pruned,
        cells_solved=0,
        nodes=0,
        wall_s=start.wall_s,
        conflict=start.conflict if infeasible else None,
    )


def _check_agreement(start: SolveResult, found: "ExactSearch") -> None:
    """Refuse a plan that the dynamic program says does not exist.

    Or the claim that there is no better one than a plan that it found. In the
    free family a better plan than the dynamic program's is no contradiction.
    """
    if found.family == "free":
        best = None if start.evaluation is None else start.evaluation.value_ps
        if best is not None and (found.bound_ps is None or found.bound_ps > best):
            raise ConsistencyError(
                f"the integer program of the free family claims a bound of {found.bound_ps} ps, "
                f"the dynamic program has a plan of {best} ps: please report this problem file"
            )
        return
    if found.value_ps is not None:
        check_bound(found.placement, found.value_ps, start.bound_ps)
