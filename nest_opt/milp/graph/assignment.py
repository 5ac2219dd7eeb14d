"""Families: which stage a part is in. Equations (G10) and (G11).

In a contiguous split the cumulative binaries leave no symmetry between
stages, and a row of the precedence has two variables: this family alone has
only integer vertices.
"""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.units import GraphUnits


def add_assignment(model: Any, cell: GraphCell, _: GraphUnits) -> None:
    """Add (G10) to a contiguous split, (G11) to any other.

    a[u, i] is 1 if part u is in stage i, one of its window.
    """
    pairs = [(part, stage) for part, window in enumerate(cell.windows) for stage in window]
    if cell.parts.contiguous:
        model.a = pyo.Var(pairs, bounds=(0, 1))
        _add_stages_in_order(model, cell, pairs)
    else:
        model.a = pyo.Var(pairs, domain=pyo.Binary)
        _add_one_stage(model, cell)


def _add_stages_in_order(model: Any, cell: GraphCell, pairs: list[tuple[int, int]]) -> None:
    """Add (G10): C[u, i] = 1 if part u is in one of the stages 0 to i.

    C[u, i] <= C[u, i + 1], and C[v, i] <= C[u, i] for every precedence pair
    (u, v); C is 0 before a part's window and 1 from its end on.
    a[u, i] = C[u, i] - C[u, i - 1]. Stages may be empty.
    """
    model.C = pyo.Var(open_pairs(cell), domain=pyo.Binary)

    def upwards_rule(model: Any, part: int, stage: int) -> Any:
        return _at_most(
            cumulative(model, cell, part, stage), cumulative(model, cell, part, stage + 1)
        )

    def precedence_rule(model: Any, first: int, second: int, stage: int) -> Any:
        return _at_most(
            cumulative(model, cell, second, stage), cumulative(model, cell, first, stage)
        )

    def in_stage_rule(model: Any, part: int, stage: int) -> Any:
        upto, before = (cumulative(model, cell, part, i) for i in (stage, stage - 1))
        return model.a[part, stage] == upto - before

    steps = range(cell.stages - 1)
    model.upwards = pyo.Constraint(range(cell.parts.count), steps, rule=upwards_rule)
    model.precedence = pyo.Constraint(
        [(u, v, stage) for u, v in cell.parts.precedence for stage in steps], rule=precedence_rule
    )
    model.in_stage = pyo.Constraint(pairs, rule=in_stage_rule)


def _add_one_stage(model: Any, cell: GraphCell) -> None:
    """Add (G11): sum over i of a[u, i] = 1.

    Devices of a kind are alike; HiGHS finds that out, and rows that number
    them would only be in its way.
    """
    model.one_stage = pyo.Constraint(
        range(cell.parts.count),
        rule=lambda model, part: sum(model.a[part, i] for i in range(cell.stages)) == 1,
    )


def open_pairs(cell: GraphCell) -> list[tuple[int, int]]:
    """Return the (part, stage) whose C is not settled by the part's window."""
    return [(part, stage) for part, window in enumerate(cell.windows) for stage in window[:-1]]


def cumulative(model: Any, cell: GraphCell, part: int, stage: int) -> Any:
    """Return C[part, stage]: a variable, or the 0 or 1 that it is settled at."""
    window = cell.windows[part]
    if stage in window[:-1]:
        return model.C[part, stage]
    return 0 if stage < window[0] else 1


def in_stage(model: Any, cell: GraphCell, part: int, stage: int) -> Any:
    """Return a[part, stage]: a variable, or 0 outside the part's window."""
    return model.a[part, stage] if cell.in_reach(part, stage) else 0


def _at_most(left: Any, right: Any) -> Any:
    """Return left <= right; windows of parts in order leave it true where one side is settled."""
    if isinstance(left, int) or isinstance(right, int):
        return pyo.Constraint.Skip
    return left <= right
