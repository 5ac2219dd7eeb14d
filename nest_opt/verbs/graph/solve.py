"""Solve a placement graph by the dynamic program over downsets."""

import time

from nest_opt.cost.graph_build import build_graph_table
from nest_opt.dp.graph import obstacle, search
from nest_opt.errors import InstanceError
from nest_opt.problem import Problem
from nest_opt.verbs.graph.confirm import confirmed
from nest_opt.verbs.graph.result import GraphSolveResult
from nest_opt.verbs.result import Progress


def solve_graph(problem: Problem, progress: Progress | None = None) -> GraphSolveResult:
    """Find the best plan of a placement graph by the dynamic program over downsets.

    Parameters
    ----------
    problem
        A placement graph with a contiguous split.
    progress
        Called with (downsets done in this pass, downsets, best value in ps or
        None).

    Raises
    ------
    InstanceError
        If the split is `any`, there are too many downsets, or the problem's
        numbers leave the range of the search.
    ConsistencyError
        If evaluator or checker disagree with the search: a defect.
    """
    begin = time.perf_counter()
    table = build_graph_table(problem)
    found = search(table, progress)
    if found.status == "refused":
        raise InstanceError(found.refusal)
    plan, evaluation = confirmed(problem, table, "dynamic program", found.placement, found.value_ps)
    return GraphSolveResult(
        problem=problem,
        status=found.status,
        plan=plan,
        evaluation=evaluation,
        bound_ps=found.bound_ps,
        blocks=found.blocks,
        downsets=found.downsets,
        obstacle=obstacle(table) if found.status == "infeasible" else None,
        wall_s=time.perf_counter() - begin,
    )
