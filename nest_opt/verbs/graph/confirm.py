"""Evaluate and check a graph's placement that a search returned: neither is taken on trust."""

from nest_opt.cost.graph_table import GraphTable
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import GraphEvaluation, evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement
from nest_opt.plan.graph_plan import GraphPlan, graph_plan_from_placement
from nest_opt.problem import Problem
from nest_opt.verbs.defects import check_value, illegal


def confirmed(
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
        raise illegal(method, placement, broken[0])
    evaluation = evaluate_graph(table, placement)
    check_value(method, placement, value_ps, evaluation.value_ps)
    return graph_plan_from_placement(problem, placement, evaluation.value_ps), evaluation
