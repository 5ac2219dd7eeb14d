"""The verbs on placement graphs; `nest_opt.api` calls them for problems of that kind."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.graph_table import GraphTable
from nest_opt.dp.graph import GraphSearchResult, obstacle, search
from nest_opt.errors import ConsistencyError, InstanceError
from nest_opt.plan.gap import relative_gap, value_of
from nest_opt.plan.graph_check import check_graph, check_graph_claim, check_graph_form
from nest_opt.plan.graph_evaluate import GraphEvaluation, evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement
from nest_opt.plan.graph_plan import GraphPlan, graph_plan_from_placement
from nest_opt.plan.violation import Violation
from nest_opt.problem import Problem

if TYPE_CHECKING:
    from nest_opt.milp.graph.result import GraphSearch

Progress = Callable[[int, int, int | None], None]


@dataclass(frozen=True)
class GraphSolveResult:
    """What `solve` returns of a placement graph.

    Attributes
    ----------
    status
        `optimal`: no contiguous split is better. `infeasible`: none is legal.
        `interrupted`: the best plan found so far, if any.
    plan, evaluation
        The plan and its independent evaluation.
    bound_ps
        No contiguous split has a lower objective; None if infeasible.
    blocks, downsets
        Sets of layers that share a stage in the search, and downsets of their
        order.
    obstacle
        Why no split is legal, in one sentence, when `infeasible`.
    wall_s
        Seconds.
    """

    problem: Problem
    status: Literal["optimal", "infeasible", "interrupted"]
    plan: GraphPlan | None
    evaluation: GraphEvaluation | None
    bound_ps: int | None
    blocks: int
    downsets: int
    obstacle: str | None
    wall_s: float

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        return relative_gap(value_of(self.evaluation), self.bound_ps)


@dataclass(frozen=True)
class GraphExactResult:
    """What `exact` returns of a placement graph.

    Attributes
    ----------
    family
        The family of placements that status and bound hold in: the problem's
        split.
    status
        `optimal`: no placement of the family is better (by more than the gap
        that was asked for). `infeasible`: it has no legal one. `feasible` and
        `no-solution`: the time limit came first, with or without a plan.
        `interrupted`: a KeyboardInterrupt did.
    plan, evaluation
        The best plan and its independent evaluation.
    contiguous_ps
        Value of the best contiguous split that the dynamic program found,
        the first incumbent; None where it found none, or there are too many
        downsets.
    bound_ps
        No placement of the family has a lower objective; None if infeasible.
    bound_vouched_by
        Who says so: `solver` (HiGHS, as soon as a program took part), or
        `closed form` (bounds alone).
    exact_units
        Whether the programs' coefficients were small integers, in which no
        tolerance of the solver can hide a unit. Otherwise its claims hold up
        to a relative tolerance of about 1e-6.
    cells, cells_pruned, cells_solved, nodes
        Orders of the kinds of devices along the stages, how many of them bounds
        settled, how many programs were run, and their branch-and-bound nodes.
    obstacle
        Why no split is legal, in one sentence, when `infeasible`.
    wall_s
        Seconds.
    """

    problem: Problem
    family: Literal["contiguous", "any"]
    status: Literal["optimal", "feasible", "infeasible", "no-solution", "interrupted"]
    plan: GraphPlan | None
    evaluation: GraphEvaluation | None
    contiguous_ps: int | None
    bound_ps: int | None
    bound_vouched_by: Literal["solver", "closed form"]
    exact_units: bool
    cells: int
    cells_pruned: int
    cells_solved: int
    nodes: int
    obstacle: str | None
    wall_s: float

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        return relative_gap(value_of(self.evaluation), self.bound_ps)


@dataclass(frozen=True)
class GraphVerifyResult:
    """What `verify` returns of a placement graph's plan.

    `evaluation` is None where the plan's form is broken. `claim_ps` is the
    value that the file claims.
    """

    plan: GraphPlan
    evaluation: GraphEvaluation | None
    violations: tuple[Violation, ...]
    claim_ps: int | None


def verify_graph(plan: GraphPlan) -> GraphVerifyResult:
    """Evaluate and check a plan of a placement graph, whoever made it.

    Raises
    ------
    InstanceError
        If the problem's numbers leave the range of the search.
    PlanError
        If the plan names a layer that its problem does not have.
    """
    table, placement = build_graph_table(plan.problem), plan.placement()
    claim = None if plan.objective is None else int(plan.objective.value_ps)
    broken = check_graph_form(table, placement)
    if broken:
        return GraphVerifyResult(plan, None, tuple(broken), claim)
    evaluation = evaluate_graph(table, placement)
    violations = check_graph(table, placement, evaluation)
    if plan.objective is not None:
        violations += check_graph_claim(evaluation, plan.objective.name, plan.objective.value_ps)
    return GraphVerifyResult(plan, evaluation, tuple(violations), claim)


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
    plan, evaluation = _confirmed(
        problem, table, "dynamic program", found.placement, found.value_ps
    )
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


def exact_graph(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
) -> GraphExactResult:
    """Find the best plan of a placement graph by integer programs.

    The best contiguous split, by the dynamic program over downsets where
    there are few enough of them, is the first incumbent of either split, and
    is held against what the programs find.

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
    SearchLimits(time_limit_s, None, gap)
    table = build_graph_table(problem)
    contiguous = search(replace(table, contiguous=True), progress, time_limit_s=time_limit_s)
    # Stopped here, the programs have no time left: they give bounds alone.
    spent_s = time.perf_counter() - begin
    left_s = None if time_limit_s is None else max(0.0, time_limit_s - spent_s)
    interrupted = contiguous.status == "interrupted" and not contiguous.out_of_time
    if interrupted:
        left_s = 0.0
    limits = SearchLimits(left_s, None, gap)
    # No cuts of an order are better than what the dynamic program found.
    orders = ORDERS if contiguous.status == "refused" else 0
    found = programs.search(table, limits, contiguous.placement, progress, orders)
    interrupted = interrupted or found.limit == "interrupt"
    _check_agreement(table, contiguous, found)
    plan, evaluation = _confirmed(
        problem, table, "integer program", found.placement, found.value_ps
    )
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


def _check_agreement(
    table: GraphTable, contiguous: GraphSearchResult, found: "GraphSearch"
) -> None:
    """Refuse a contiguous plan that the dynamic program says does not exist."""
    if not table.contiguous or found.value_ps is None or contiguous.status == "refused":
        return
    if contiguous.bound_ps is None or found.value_ps < contiguous.bound_ps:
        claim = "none exists"
        if contiguous.bound_ps is not None:
            claim = f"none is below {contiguous.bound_ps} ps"
        raise ConsistencyError(
            f"the integer program found {found.placement} at {found.value_ps} ps, of which the "
            f"dynamic program says that {claim}: please report this problem file"
        )


def _confirmed(
    problem: Problem,
    table: GraphTable,
    method: str,
    placement: GraphPlacement | None,
    value_ps: int | None,
) -> tuple[GraphPlan | None, GraphEvaluation | None]:
    """Evaluate and check what a method's search returned."""
    if placement is None or value_ps is None:
        return None, None
    broken = check_graph(table, placement)
    if broken:
        raise ConsistencyError(
            f"the {method} returned {placement}, which is illegal ({broken[0]}): "
            "please report this problem file"
        )
    evaluation = evaluate_graph(table, placement)
    if evaluation.value_ps != value_ps:
        raise ConsistencyError(
            f"the {method} values {placement} at {value_ps} ps, "
            f"the evaluator at {evaluation.value_ps} ps: please report this problem file"
        )
    return graph_plan_from_placement(problem, placement, evaluation.value_ps), evaluation
