"""Family: which stage a layer is in. Equation (23).

The cumulative binaries leave no symmetry between stages: stage i is the
layers with C[l, i] = 1 and C[l, i - 1] = 0. Their rows are differences of two
variables each, a totally unimodular matrix, so this family alone has only
integer vertices.
"""

from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.cuts import GraphCuts
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import layers_of, open_pairs, stage_pairs, stages_of
from nest_opt.milp.units import Units


def add_assignment(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (23): C[l, i] = 1 if layer l is in one of the stages 0 to i.

    C[l + 1, i] <= C[l, i] (stages are intervals of the listed order) and
    C[l, i] <= C[l + 1, i + 1] (the next layer is in the same stage or in the
    next), with C[l, i] = 1 for l <= i and C[l, i] = 0 for n - l > S - i, so
    that no stage is empty. a[l, i] = C[l, i] - C[l, i - 1] is 1 if layer l is
    in stage i.

    In any order, (67): C[v, i] <= C[u, i] along each edge u -> v (which implies
    it for all that must come before), and sum over l of a[l, i] >= 1.
    """
    model.C = pyo.Var(list(open_pairs(k)), domain=pyo.Binary)
    model.a = pyo.Var(list(stage_pairs(k)), bounds=(0, 1))

    def in_stage_rule(model: Any, layer: int, stage: int) -> Any:
        upto, before = (cumulative(model, k, layer, i) for i in (stage, stage - 1))
        return model.a[layer, stage] == upto - before

    if k.graph is not None:
        add_any_order(model, k, k.graph)
        model.in_stage = pyo.Constraint(list(stage_pairs(k)), rule=in_stage_rule)
        return

    def order_rule(model: Any, layer: int, stage: int) -> Any:
        return _at_most(cumulative(model, k, layer + 1, stage), cumulative(model, k, layer, stage))

    def consecutive_rule(model: Any, layer: int, stage: int) -> Any:
        return _at_most(
            cumulative(model, k, layer, stage), cumulative(model, k, layer + 1, stage + 1)
        )

    steps = range(k.layers - 1), range(k.stages - 1)
    model.order = pyo.Constraint(*steps, rule=order_rule)
    model.consecutive = pyo.Constraint(*steps, rule=consecutive_rule)
    model.in_stage = pyo.Constraint(list(stage_pairs(k)), rule=in_stage_rule)


def add_any_order(model: Any, k: CellCoefficients, graph: GraphCuts) -> None:
    """Add (67): C[v, i] <= C[u, i] along each edge, and sum over l of a[l, i] >= 1."""

    def precedence_rule(model: Any, edge: int, stage: int) -> Any:
        source, target = graph.edges[edge]
        later, sooner = (cumulative(model, k, layer, stage) for layer in (target, source))
        return _at_most(later, sooner)

    def filled_rule(model: Any, stage: int) -> Any:
        return sum(model.a[layer, stage] for layer in layers_of(k, stage)) >= 1

    model.precedence = pyo.Constraint(
        range(len(graph.edges)), range(k.stages - 1), rule=precedence_rule
    )
    model.filled = pyo.Constraint(range(k.stages), rule=filled_rule)


def cumulative(model: Any, k: CellCoefficients, layer: int, stage: int) -> Any:
    """Return C[layer, stage]: a variable, or the 0 or 1 that it is settled at."""
    possible = stages_of(k, layer)
    if stage in possible[:-1]:
        return model.C[layer, stage]
    return 0 if stage < possible[0] else 1


def _at_most(left: Any, right: Any) -> Any:
    """Return left <= right; where one side is settled, no value of the other breaks it."""
    if isinstance(left, int) or isinstance(right, int):
        return pyo.Constraint.Skip
    return left <= right
