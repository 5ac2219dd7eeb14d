"""Evaluate and check a pipeline's plan."""

from nest_opt.plan.check import check, check_claim, check_form
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.plan import Plan
from nest_opt.plan.rules import require_checkers
from nest_opt.verbs.pipeline.result import VerifyResult
from nest_opt.verbs.result import claimed_value


def verify_pipeline(plan: Plan) -> VerifyResult:
    """Evaluate and check a plan of a pipeline, whoever made it.

    Raises
    ------
    PlanError
        If the plan does not fit its problem: unknown layers, degrees without
        profiles.
    """
    require_checkers(plan.problem)
    costs = Costs(plan.problem)
    placement = plan.placement()
    claim = claimed_value(plan.objective)
    broken = check_form(costs, placement)
    if broken:
        return VerifyResult(plan, None, tuple(broken), claim)
    evaluation = evaluate(costs, placement)
    violations = check(costs, placement, evaluation)
    if plan.objective is not None:
        violations += check_claim(evaluation, plan.objective.name, plan.objective.value_ps)
    return VerifyResult(plan, evaluation, tuple(violations), claim)
