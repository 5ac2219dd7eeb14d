"""Evaluate and check a pipeline's placement that a search returned: neither is taken on trust."""

from nest_opt.dp.rules import relaxed_constraints
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.plan.violation import Violation
from nest_opt.verbs.defects import check_value, illegal
from nest_opt.verbs.pipeline.result import RankedPlan


def ranked_plan(costs: Costs, placement: Placement, value_ps: int) -> RankedPlan:
    """Return what a search found that left no constraint out.

    Raises
    ------
    ConsistencyError
        If evaluator or checker disagree with the search: a defect.
    """
    plan, evaluation, broken = confirmed(costs, "search", placement, value_ps)
    if plan is None or evaluation is None:
        raise illegal("search", placement, broken[0])
    return RankedPlan(plan, evaluation)


def confirmed(
    costs: Costs, method: str, placement: Placement, value_ps: int
) -> tuple[Plan | None, Evaluation | None, list[Violation]]:
    """Evaluate and check what a method's search returned.

    A plan that breaks what the search has no rule for does not leave: then
    there are violations in its place.
    """
    evaluation = evaluate(costs, placement)
    check_value(method, placement, value_ps, evaluation.value_ps)
    broken = check(costs, placement, evaluation)
    relaxed = relaxed_constraints(costs.problem)
    defects = [violation for violation in broken if violation.rule not in relaxed]
    if defects:
        raise illegal(method, placement, defects[0])
    if broken:
        return None, None, broken
    plan = plan_from_placement(costs.problem, placement, evaluation.objective, value_ps)
    return plan, evaluation, []
