"""The verbs: solve a problem, by one method or by two, and verify a plan."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

from nest_opt.conflicts import Conflict, find_conflict, find_exact_conflict
from nest_opt.dp.infeasible import Diagnosis
from nest_opt.dp.rules import relaxed_constraints
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_infeasible import diagnose_all
from nest_opt.dp.staged_search import search_all
from nest_opt.errors import ConsistencyError, InstanceError
from nest_opt.graph_api import (
    GraphExactResult,
    GraphSolveResult,
    GraphVerifyResult,
    exact_graph,
    solve_graph,
    verify_graph,
)
from nest_opt.plan.check import check, check_claim, check_form
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.family import outside_aligned, outside_free
from nest_opt.plan.gap import relative_gap, value_of
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.placement import Placement
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.plan.rules import require_checkers
from nest_opt.plan.violation import Violation
from nest_opt.problem import Problem

Status = Literal["optimal", "relaxed", "infeasible", "interrupted"]
if TYPE_CHECKING:
    from nest_opt.milp.exact import Watch
    from nest_opt.milp.result import ExactSearch

Progress = Callable[[int, int, int | None], None]
Family = Literal["aligned", "free"]

MAX_TOP = 10_000


@dataclass(frozen=True)
class RankedPlan:
    """One of the best plans of a problem, each of other degrees or on other devices.

    Attributes
    ----------
    plan, evaluation
        The plan, the best of its cell, and its independent evaluation.
    """

    plan: Plan
    evaluation: Evaluation

    @property
    def peak_bytes(self) -> int:
        """Memory of the stage that needs the most, the reserve included."""
        return max(stage.memory_bytes for stage in self.evaluation.stages)

    @property
    def free_bytes(self) -> int:
        """What is left of the usable memory on the devices of the fullest stage."""
        return min(stage.usable_bytes - stage.memory_bytes for stage in self.evaluation.stages)


@dataclass(frozen=True)
class SolveResult:
    """What `solve` returns.

    Attributes
    ----------
    status
        `optimal`: the plan is the best of the aligned family. `relaxed`: the
        best plan without the constraints of `relaxed` breaks some of them,
        so that there is a bound and no plan. `infeasible`: the family has no
        legal plan. `interrupted`: the best plan found so far, if any.
    plan, evaluation
        The plan and its independent evaluation.
    bound_ps
        No plan of the family has a lower objective.
    diagnosis, conflict
        Why there is no plan, when `infeasible`: the closest placement and what
        would make it fit; and a minimal set of requirements that no plan keeps.
    relaxed
        Constraints that the search had no rule for. An `optimal` plan keeps
        them: no plan is better even without them.
    broken
        What the best plan without them breaks.
    cells, cells_pruned, wall_s
        Size of the search, how much of it bounds settled, and its seconds.
        Where stages may differ, the device maps of one class of
        configurations, d and S are one more cell.
    plans
        The best plans, best first, in the order of ties where values are
        equal, one for each choice of degrees and device map: as many as were
        asked for (1 unless `top` is given), fewer if there are no more.
    rest_bound_ps
        No plan of other degrees and device maps than those of `plans` has a
        lower objective; None if there is none.
    """

    problem: Problem
    status: Status
    plan: Plan | None
    evaluation: Evaluation | None
    bound_ps: int | None
    diagnosis: Diagnosis | None
    relaxed: tuple[str, ...]
    cells: int
    cells_pruned: int
    wall_s: float
    broken: tuple[Violation, ...] = ()
    conflict: Conflict | None = None
    plans: tuple[RankedPlan, ...] = ()
    rest_bound_ps: int | None = None

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        return relative_gap(value_of(self.evaluation), self.bound_ps)


@dataclass(frozen=True)
class ExactResult:
    """What `exact` returns.

    Attributes
    ----------
    family
        The family of placements that status and bound hold in.
    status
        `optimal`: no plan of the family is better (by more than the gap that
        was asked for). `infeasible`: the family has no legal plan.
        `feasible` and `no-solution`: the time limit came first, with or
        without a plan. `interrupted`: a KeyboardInterrupt did.
    plan, evaluation
        The best plan and its independent evaluation.
    bound_ps
        No plan of the family has a lower objective; None if infeasible.
    bound_vouched_by
        Who says so: `solver` (HiGHS, as soon as the program of some cell took
        part), `closed form` (bounds alone settled every cell), or `dynamic
        program` (the search was interrupted before the programs' turn).
    exact_units
        Whether the programs' coefficients were small integers, in which no
        tolerance of the solver can hide a unit. Otherwise its claims hold up
        to a relative tolerance of about 1e-6.
    start
        What the dynamic program found first; its plan is the first incumbent.
    conflict
        A minimal set of requirements that no plan keeps, when `infeasible`;
        None if the time limit or an interrupt came before it was found.
    cells, cells_pruned, cells_solved, nodes
        Cells of the family, how many of them a closed-form bound settled, for
        how many programs were run, and their branch-and-bound nodes.
    wall_s
        Seconds, those of the dynamic program included.
    """

    problem: Problem
    family: Family
    status: Literal["optimal", "feasible", "infeasible", "no-solution", "interrupted"]
    plan: Plan | None
    evaluation: Evaluation | None
    bound_ps: int | None
    bound_vouched_by: Literal["solver", "closed form", "dynamic program"]
    exact_units: bool
    start: SolveResult
    cells: int
    cells_pruned: int
    cells_solved: int
    nodes: int
    wall_s: float
    conflict: Conflict | None = None

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        return relative_gap(value_of(self.evaluation), self.bound_ps)


@dataclass(frozen=True)
class VerifyResult:
    """What `verify` returns: an independent evaluation and all violations.

    `evaluation` is None where the plan's form is broken. `claim_ps` is the
    value that the file claims.
    """

    plan: Plan
    evaluation: Evaluation | None
    violations: tuple[Violation, ...]
    claim_ps: int | None


def solve(
    problem: Problem, progress: Progress | None = None, *, top: int = 1
) -> SolveResult | GraphSolveResult:
    """Find the best plan, or the best plans, by a dynamic program.

    Parameters and errors are those of `solve_pipeline`, or for a placement
    graph, which has no `top`, those of `nest_opt.graph_api.solve_graph`.
    """
    if problem.is_placement_graph:
        if top != 1:
            raise InstanceError(
                f"top: found {top} for a placement graph, whose search finds 1 split: leave it out"
            )
        return solve_graph(problem, progress)
    return solve_pipeline(problem, progress, top=top)


def solve_pipeline(
    problem: Problem, progress: Progress | None = None, *, top: int = 1
) -> SolveResult:
    """Find the best plan of the aligned family, or the best plans.

    Parameters
    ----------
    problem
        The problem.
    progress
        Called with (groups of cells done, groups, best value in ps or None).
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
        plan, evaluation, broken = _confirmed(costs, found.placement, found.value_ps)
        if broken:
            status = "relaxed" if status == "optimal" else status
        if plan is not None and evaluation is not None:
            others = (ranked_plan(costs, *ranked) for ranked in found.ranking[1:])
            plans = (RankedPlan(plan, evaluation), *others)
    elif found.status == "infeasible":
        diagnosis, conflict = diagnose_all(costs, source), find_conflict(costs, source)
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


def ranked_plan(costs: Costs, placement: Placement, value_ps: int) -> RankedPlan:
    """Return what a search found that left no constraint out.

    Raises
    ------
    ConsistencyError
        If evaluator or checker disagree with the search: a defect.
    """
    plan, evaluation, broken = _confirmed(costs, placement, value_ps)
    if plan is None or evaluation is None:
        raise ConsistencyError(
            f"the search returned {placement}, which is illegal ({broken[0]}): "
            "please report this problem file"
        )
    return RankedPlan(plan, evaluation)


def _confirmed(
    costs: Costs, placement: Placement, value_ps: int
) -> tuple[Plan | None, Evaluation | None, list[Violation]]:
    """Evaluate and check what a search returned.

    A plan that breaks what the search has no rule for does not leave: then
    there are violations in its place.
    """
    evaluation = evaluate(costs, placement)
    if evaluation.value_ps != value_ps:
        raise ConsistencyError(
            f"the search values {placement} at {value_ps} ps, "
            f"the evaluator at {evaluation.value_ps} ps: please report this problem file"
        )
    broken = check(costs, placement, evaluation)
    relaxed = relaxed_constraints(costs.problem)
    defects = [violation for violation in broken if violation.rule not in relaxed]
    if defects:
        raise ConsistencyError(
            f"the search returned {placement}, which is illegal ({defects[0]}): "
            "please report this problem file"
        )
    if broken:
        return None, None, broken
    plan = plan_from_placement(costs.problem, placement, evaluation.objective, value_ps)
    return plan, evaluation, []


def exact(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
    watch: "Watch | None" = None,
    family: Family = "aligned",
    start: SolveResult | None = None,
) -> ExactResult | GraphExactResult:
    """Find the best plan by integer programs.

    Parameters and errors are those of `exact_pipeline`, or for a placement
    graph those of `nest_opt.graph_api.exact_graph`: `family`, `start` and
    `watch` are of pipelines alone.
    """
    if problem.is_placement_graph:
        return exact_graph(problem, time_limit_s=time_limit_s, gap=gap, progress=progress)
    return exact_pipeline(
        problem,
        time_limit_s=time_limit_s,
        gap=gap,
        progress=progress,
        watch=watch,
        family=family,
        start=start,
    )


def exact_pipeline(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
    watch: "Watch | None" = None,
    family: Family = "aligned",
    start: SolveResult | None = None,
) -> ExactResult:
    """Find the best plan of a family by integer programs, and hold `solve` against it.

    Parameters
    ----------
    problem
        The problem.
    time_limit_s
        Seconds for all of it. The dynamic program and the closed-form bounds
        of the cells, which come first, are counted but not cut short.
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

    Raises
    ------
    InstanceError
        If the problem has no legal degrees, or its numbers leave the range
        of the search.
    ModelError
        If the problem asks for the artifact's cost model, a constraint has no
        rows, or coefficients are too far apart.
    SolverError
        If a limit is out of range, HiGHS fails, or its answer does not stand
        up to checker and evaluator.
    ConsistencyError
        If the two methods disagree: a defect.
    """
    from nest_opt.milp import exact as programs

    begin = time.perf_counter()
    costs = Costs(problem)
    programs.check_request(costs, time_limit_s, gap)
    start = start or solve_pipeline(problem, progress)
    if start.status == "interrupted":
        return _interrupted(start, family)
    spent_s = time.perf_counter() - begin
    left_s = None if time_limit_s is None else max(0.0, time_limit_s - spent_s)
    placement = start.plan.placement() if start.plan else None
    try:
        found = programs.exact(
            problem,
            start=placement,
            time_limit_s=left_s,
            gap=gap,
            progress=progress,
            watch=watch,
            family=family,
        )
    except KeyboardInterrupt:
        return _interrupted(start, family)
    _check_agreement(start, found)
    plan = evaluation = None
    if found.placement is not None and found.value_ps is not None:
        plan, evaluation, broken = _confirmed(costs, found.placement, found.value_ps)
        if broken:
            raise ConsistencyError(
                f"the integer program returned {found.placement}, which is illegal ({broken[0]}): "
                "please report this problem file"
            )
    conflict = None
    if found.status == "infeasible":
        conflict = start.conflict if family == "aligned" else None
    if found.status == "infeasible" and conflict is None:
        # The search has no rule for some constraint, or speaks of the aligned family alone.
        spent_s = time.perf_counter() - begin
        left_s = None if time_limit_s is None else max(0.0, time_limit_s - spent_s)
        conflict = find_exact_conflict(costs, cell_source(costs), left_s, family, progress)
    return ExactResult(
        problem=problem,
        family=found.family,
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
        conflict=conflict,
    )


def _interrupted(start: SolveResult, family: Family) -> ExactResult:
    """Return what the dynamic program found, when the integer programs had no turn.

    Its bound is one of the aligned family alone.
    """
    is_aligned = family == "aligned"
    return ExactResult(
        problem=start.problem,
        family=family,
        status="interrupted",
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
    if found.value_ps is None:
        return
    if start.bound_ps is None or found.value_ps < start.bound_ps:
        claim = "none exists" if start.bound_ps is None else f"none is below {start.bound_ps} ps"
        raise ConsistencyError(
            f"the integer program found {found.placement} at {found.value_ps} ps, of which the "
            f"dynamic program says that {claim}: please report this problem file"
        )


def outside_family(verified: VerifyResult, optimum: ExactResult) -> str | None:
    """Return what puts a legal plan outside the family that was searched; None for a member.

    Raises
    ------
    ConsistencyError
        If a member is better than the bound of the family: a defect.
    """
    plan, evaluation = verified.plan, verified.evaluation
    outside = outside_free if optimum.family == "free" else outside_aligned
    found = outside(Costs(plan.problem), plan.placement())
    if found is None and evaluation is not None:
        bound = optimum.bound_ps
        if bound is None or evaluation.value_ps < bound:
            claim = "none exists" if bound is None else f"none is below {bound} ps"
            raise ConsistencyError(
                f"the plan, a member of the {optimum.family} family, takes {evaluation.value_ps} "
                f"ps, of whose plans the exact search says that {claim}: please report this plan"
            )
    return found


@overload
def verify(plan: Plan) -> VerifyResult: ...


@overload
def verify(plan: GraphPlan) -> GraphVerifyResult: ...


def verify(plan: Plan | GraphPlan) -> VerifyResult | GraphVerifyResult:
    """Evaluate and check a plan, whoever made it.

    Raises
    ------
    PlanError
        If the plan does not fit its problem: unknown layers, degrees without
        profiles.
    """
    if isinstance(plan, GraphPlan):
        return verify_graph(plan)
    require_checkers(plan.problem)
    costs = Costs(plan.problem)
    placement = plan.placement()
    claim = None if plan.objective is None else int(plan.objective.value_ps)
    broken = check_form(costs, placement)
    if broken:
        return VerifyResult(plan, None, tuple(broken), claim)
    evaluation = evaluate(costs, placement)
    violations = check(costs, placement, evaluation)
    if plan.objective is not None:
        violations += check_claim(evaluation, plan.objective.name, plan.objective.value_ps)
    return VerifyResult(plan, evaluation, tuple(violations), claim)
