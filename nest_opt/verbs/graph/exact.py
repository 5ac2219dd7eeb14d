"""Solve a placement graph by integer programs, held against the dynamic program."""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.graph_table import GraphTable
from nest_opt.dp.graph import GraphSearchResult, obstacle, search
from nest_opt.problem import Problem
from nest_opt.verbs.defects import check_bound
from nest_opt.verbs.graph.confirm import confirmed
from nest_opt.verbs.graph.result import GraphExactResult
from nest_opt.verbs.result import Progress

if TYPE_CHECKING:
    from nest_opt.milp.graph.result import GraphSearch


def exact_graph(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
    independent: bool = False,
) -> GraphExactResult:
    """Find the best plan of a placement graph, by integer programs where they are needed.

    The best contiguous split, by the dynamic program over downsets where
    there are few enough of them, is the first incumbent of either split. Where
    that is asked for, and proved, no program is run.

    Parameters
    ----------
    problem
        A placement graph.
    time_limit_s
        Seconds for all of it. The dynamic program comes first; its plan along
        the listed order is made come what may.
    gap
        Share of the value by which the plan may be above the bound.
    progress
        Called with (steps done, steps, best value in ps or None), first with
        downsets and then with cells.
    independent
        Whether to run the programs even so, and hold the two against each other.

    Raises
    ------
    InstanceError
        If the problem's numbers leave the range of the search.
    SolverError
        If a limit is out of range, HiGHS fails, or its answer does not stand
        up to checker and evaluator.
    ConsistencyError
        If evaluator or checker disagree with the search, or the two methods
        with each other: a defect.
    """
    from nest_opt.milp.graph import search as programs
    from nest_opt.milp.graph.heuristic import ORDERS
    from nest_opt.milp.limits import SearchLimits

    begin = time.perf_counter()
    limits = SearchLimits(time_limit_s, None, gap)
    table = build_graph_table(problem)
    contiguous = search(replace(table, contiguous=True), progress, time_limit_s=time_limit_s)
    settled = table.contiguous and contiguous.status in ("optimal", "infeasible")
    if settled and not independent:
        return _by_downsets(problem, table, contiguous, begin)
    # Stopped here, the programs have no time left: they give bounds alone.
    interrupted = contiguous.status == "interrupted" and not contiguous.out_of_time
    left_s = 0.0 if interrupted else limits.remaining_s(begin)
    # No cuts of an order are better than what the dynamic program found.
    orders = ORDERS if contiguous.status == "refused" else 0
    found = programs.search(
        table, SearchLimits(left_s, None, gap), contiguous.placement, progress, orders
    )
    interrupted = interrupted or found.limit == "interrupt"
    _check_agreement(table, contiguous, found)
    plan, evaluation = confirmed(problem, table, "integer program", found.placement, found.value_ps)
    status = "interrupted" if interrupted else found.status
    return GraphExactResult(
        problem=problem,
        family=problem.job.split,
        status=status,
        plan=plan,
        evaluation=evaluation,
        contiguous_ps=contiguous.value_ps,
        bound_ps=found.bound_ps,
        bound_vouched_by=found.bound_by,
        exact_units=found.exact_units,
        cells=found.cells,
        cells_pruned=found.cells_pruned,
        cells_solved=found.cells_solved,
        nodes=found.nodes,
        obstacle=obstacle(table) if status == "infeasible" else None,
        wall_s=time.perf_counter() - begin,
    )


def _by_downsets(
    problem: Problem, table: GraphTable, found: GraphSearchResult, begin: float
) -> GraphExactResult:
    """Return what the dynamic program has proved."""
    plan, evaluation = confirmed(problem, table, "dynamic program", found.placement, found.value_ps)
    infeasible = found.status == "infeasible"
    return GraphExactResult(
        problem=problem,
        family=problem.job.split,
        status="infeasible" if infeasible else "optimal",
        plan=plan,
        evaluation=evaluation,
        contiguous_ps=found.value_ps,
        bound_ps=found.bound_ps,
        bound_vouched_by="dynamic program",
        exact_units=True,
        cells=0,
        cells_pruned=0,
        cells_solved=0,
        nodes=0,
        obstacle=obstacle(table) if infeasible else None,
        wall_s=time.perf_counter() - begin,
    )


def _check_agreement(
    table: GraphTable, contiguous: GraphSearchResult, found: "GraphSearch"
) -> None:
    """Refuse a contiguous plan that the dynamic program says does not exist."""
    if not table.contiguous or found.value_ps is None or contiguous.status == "refused":
        return
    check_bound(found.placement, found.value_ps, contiguous.bound_ps)
