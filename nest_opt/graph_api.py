"""The verbs on placement graphs; `nest_opt.api` calls them for problems of that kind."""

from dataclasses import dataclass

from nest_opt.cost.graph_build import build_graph_table
from nest_opt.plan.graph_check import check_graph, check_graph_claim, check_graph_form
from nest_opt.plan.graph_evaluate import GraphEvaluation, evaluate_graph
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.violation import Violation


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
