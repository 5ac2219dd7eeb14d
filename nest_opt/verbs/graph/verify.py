"""Evaluate and check a placement graph's plan."""

from nest_opt.cost.graph_build import build_graph_table
from nest_opt.plan.graph_check import check_graph, check_graph_claim, check_graph_form
from nest_opt.plan.graph_evaluate import evaluate_graph
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.verbs.graph.result import GraphVerifyResult
from nest_opt.verbs.result import claimed_value


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
    claim = claimed_value(plan.objective)
    broken = check_graph_form(table, placement)
    if broken:
        return GraphVerifyResult(plan, None, tuple(broken), claim)
    evaluation = evaluate_graph(table, placement)
    violations = check_graph(table, placement, evaluation)
    if plan.objective is not None:
        violations += check_graph_claim(evaluation, plan.objective.name, plan.objective.value_ps)
    return GraphVerifyResult(plan, evaluation, tuple(violations), claim)
