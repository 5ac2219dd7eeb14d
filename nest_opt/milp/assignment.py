"""Families: which chunk a layer is in, and how large chunks are. Equations (23) and (73).

With one chunk a stage, chunk i is stage i. The cumulative binaries leave no
symmetry between chunks: chunk i is the layers with C[l, i] = 1 and
C[l, i - 1] = 0. Their rows are differences of two
variables each, a totally unimodular matrix, so this family alone has only
integer vertices.
"""

from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.cuts import GraphCuts
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import chunks_of, layer_pairs, layers_of, open_pairs, stage_chunks
from nest_opt.milp.units import Units


def add_assignment(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (23): C[l, i] = 1 if layer l is in one of the chunks 0 to i.

    C[l + 1, i] <= C[l, i] (chunks are intervals of the listed order) and
    C[l, i] <= C[l + 1, i + 1] (the next layer is in the same chunk or in the
    next), with C[l, i] = 1 for l <= i and C[l, i] = 0 for n - l > S * v - i, so
    that no chunk is empty. a[l, i] = C[l, i] - C[l, i - 1] is 1 if layer l is
    in chunk i.

    In any order, (67): C[v, i] <= C[u, i] along each edge u -> v (which implies
    it for all that must come before), and sum over l of a[l, i] >= 1.
    """
    model.C = pyo.Var(list(open_pairs(k)), domain=pyo.Binary)
    model.a = pyo.Var(list(layer_pairs(k)), bounds=(0, 1))

    def in_stage_rule(model: Any, layer: int, chunk: int) -> Any:
        upto, before = (cumulative(model, k, layer, i) for i in (chunk, chunk - 1))
        return model.a[layer, chunk] == upto - before

    if k.graph is not None:
        add_any_order(model, k, k.graph)
        model.in_stage = pyo.Constraint(list(layer_pairs(k)), rule=in_stage_rule)
        return

    def order_rule(model: Any, layer: int, chunk: int) -> Any:
        return _at_most(cumulative(model, k, layer + 1, chunk), cumulative(model, k, layer, chunk))

    def consecutive_rule(model: Any, layer: int, chunk: int) -> Any:
        return _at_most(
            cumulative(model, k, layer, chunk), cumulative(model, k, layer + 1, chunk + 1)
        )

    steps = range(k.layers - 1), range(k.chunks - 1)
    model.order = pyo.Constraint(*steps, rule=order_rule)
    model.consecutive = pyo.Constraint(*steps, rule=consecutive_rule)
    model.in_stage = pyo.Constraint(list(layer_pairs(k)), rule=in_stage_rule)


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


def add_equal_chunks(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (73): sum over l of a[l, c] = sum over l of a[l, c + 1] for 1 <= c < S * v - 2: (70)."""
    if not k.cell.schedule.is_interleaved:
        return

    def size(chunk: int) -> Any:
        return sum(model.a[layer, chunk] for layer in layers_of(k, chunk))

    model.equal_chunks = pyo.Constraint(
        range(1, k.chunks - 2), rule=lambda _, chunk: size(chunk) == size(chunk + 1)
    )


def cumulative(model: Any, k: CellCoefficients, layer: int, chunk: int) -> Any:
    """Return C[layer, chunk]: a variable, or the 0 or 1 that it is settled at."""
    possible = chunks_of(k, layer)
    if chunk in possible[:-1]:
        return model.C[layer, chunk]
    return 0 if chunk < possible[0] else 1


def in_stage(model: Any, k: CellCoefficients, layer: int, stage: int) -> Any:
    """Return 1 if a layer is in any chunk of a stage, else 0."""
    possible = chunks_of(k, layer)
    return sum(model.a[layer, chunk] for chunk in stage_chunks(k, stage) if chunk in possible)


def _at_most(left: Any, right: Any) -> Any:
    """Return left <= right; where one side is settled, no value of the other breaks it."""
    if isinstance(left, int) or isinstance(right, int):
        return pyo.Constraint.Skip
    return left <= right
