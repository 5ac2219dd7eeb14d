"""The program's face of each constraint: rows that forbid what the checker refuses.

`FAMILIES` maps a constraint's type to a function that adds its rows. Every
type needs one: without it the program would be a relaxation.
"""

from collections.abc import Callable
from typing import Any

import pyomo.environ as pyo

from nest_opt.errors import ModelError
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import cut_pairs, cuts_of
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Colocation, ForbiddenBoundary, HopLatency

Family = Callable[[Any, Any, Costs, CellCoefficients, str], None]


def add_colocation(
    constraint: Colocation, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (31): sum over i of cut[c, i] = 0 for each cut c between the first and last layer.

    Stages are intervals, so the layers are in one stage, as (20) asks, exactly
    if no stage ends between them.
    """
    places = [costs.problem.model.index[layer] for layer in constraint.layers]
    _forbid_cuts(model, k, range(min(places) + 1, max(places) + 1), name)


def add_forbidden_boundary(
    constraint: ForbiddenBoundary, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (32): sum over i of cut[l + 1, i] = 0 for the named layer l, which is (21)."""
    cut = costs.problem.model.index[constraint.after] + 1
    _forbid_cuts(model, k, range(cut, cut + 1), name)


def add_hop_latency(
    constraint: HopLatency, model: Any, costs: Costs, k: CellCoefficients, name: str
) -> None:
    """Add (33): sum over c of cut[c, i] = 0 for each stage i with a hop out above the limit.

    The hop is the worst of all replicas and ranks, as (22) says. Every stage
    but the last has a boundary, so such a cell has no solution.
    """
    levels = costs.problem.cluster.network.levels
    above = [
        stage
        for stage in range(k.stages - 1)
        if levels[k.levels[stage].hop_out].latency_s > constraint.limit_s
    ]
    model.add_component(
        name,
        pyo.Constraint(
            above, rule=lambda m, stage: sum(m.cut[cut, stage] for cut in cuts_of(k, stage)) == 0
        ),
    )


def _forbid_cuts(model: Any, k: CellCoefficients, cuts: range, name: str) -> None:
    """Add a row for each cut that says that no stage ends there."""
    stages = {cut: [i for c, i in cut_pairs(k) if c == cut] for cut in cuts}
    model.add_component(
        name,
        pyo.Constraint(
            [cut for cut in cuts if stages[cut]],
            rule=lambda m, cut: sum(m.cut[cut, stage] for stage in stages[cut]) == 0,
        ),
    )


FAMILIES: dict[str, Family] = {
    "colocation": add_colocation,
    "forbidden-boundary": add_forbidden_boundary,
    "hop-latency": add_hop_latency,
}


def add_constraints(model: Any, costs: Costs, k: CellCoefficients) -> None:
    """Add the rows of every constraint of a problem, named after its type and place.

    Raises
    ------
    ModelError
        If a constraint's type has no family.
    """
    for number, constraint in enumerate(costs.problem.constraints):
        if constraint.type not in FAMILIES:
            raise ModelError(
                f"constraints[{number}]: found type {constraint.type!r}, the integer program has "
                f"rows for {', '.join(FAMILIES)}: register a function in "
                "nest_opt.milp.constraints.FAMILIES"
            )
        name = f"{constraint.type.replace('-', '_')}_{number}"
        FAMILIES[constraint.type](constraint, model, costs, k, name)
