"""The verbs: solve a problem, verify a plan."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nest_opt.dp.infeasible import Diagnosis, diagnose
from nest_opt.dp.rules import relaxed_constraints
from nest_opt.dp.search import search
from nest_opt.dp.sources import cell_source
from nest_opt.errors import ConsistencyError
from nest_opt.plan.check import check, check_claim, check_form
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.plan.rules import require_checkers
from nest_opt.plan.violation import Violation
from nest_opt.problem import Problem

Status = Literal["optimal", "relaxed", "infeasible", "interrupted"]
Progress = Callable[[int, int, int | None], None]


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
    diagnosis
        Why there is no plan, when `infeasible`.
    relaxed
        Constraints that the search had no rule for. An `optimal` plan keeps
        them: no plan is better even without them.
    broken
        What the best plan without them breaks.
    cells, cells_pruned, wall_s
        Size of the search, how much of it bounds settled, and its seconds.
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

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        if self.evaluation is None or self.bound_ps is None:
            return None
        value = self.evaluation.value_ps
        return (value - self.bound_ps) / value if value else 0.0


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


def solve(problem: Problem, progress: Progress | None = None) -> SolveResult:
    """Find the best plan of the aligned family.

    Parameters
    ----------
    problem
        The problem.
    progress
        Called with (groups of cells done, groups, best value in ps or None).

    Raises
    ------
    InstanceError
        If the problem has no legal degrees, its numbers leave the range of
        the search, or a constraint of a user is not registered.
    ConsistencyError
        If evaluator or checker disagree with the search: a defect.
    """
    start = time.perf_counter()
    require_checkers(problem)
    costs = Costs(problem)
    source = cell_source(costs)
    found = search(source, progress)
    plan = evaluation = diagnosis = None
    status: Status = found.status
    broken: list[Violation] = []
    relaxed = relaxed_constraints(problem)
    if found.placement is not None and found.value_ps is not None:
        evaluation = evaluate(costs, found.placement)
        if evaluation.value_ps != found.value_ps:
            raise ConsistencyError(
                f"the search values {found.placement} at {found.value_ps} ps, "
                f"the evaluator at {evaluation.value_ps} ps: please report this problem file"
            )
        broken = check(costs, found.placement, evaluation)
        defects = [violation for violation in broken if violation.rule not in relaxed]
        if defects:
            raise ConsistencyError(
                f"the search returned {found.placement}, which is illegal ({defects[0]}): "
                "please report this problem file"
            )
        if broken:
            evaluation = None
            status = "relaxed" if status == "optimal" else status
        else:
            plan = plan_from_placement(
                problem, found.placement, evaluation.objective, evaluation.value_ps
            )
    elif found.status == "infeasible":
        diagnosis = diagnose(costs, source)
    return SolveResult(
        problem=problem,
        status=status,
        plan=plan,
        evaluation=evaluation,
        bound_ps=found.bound_ps,
        diagnosis=diagnosis,
        relaxed=relaxed,
        cells=found.cells,
        cells_pruned=found.cells_pruned,
        wall_s=time.perf_counter() - start,
        broken=tuple(broken),
    )


def verify(plan: Plan) -> VerifyResult:
    """Evaluate and check a plan, whoever made it.

    Raises
    ------
    PlanError
        If the plan does not fit its problem: unknown layers, degrees without
        profiles.
    """
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
