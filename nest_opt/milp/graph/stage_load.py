"""Family: the load of a stage. Equation (G16)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.units import GraphUnits, capped_ps


def add_stage_load(model: Any, cell: GraphCell, units: GraphUnits) -> None:
    """Add (G16): F[i] = sum over u of t[kind(i), u] a[u, i] + sum over t of c_t (sent + received).

    The second sum only where stage i pays for transfers.
    """
    model.F = pyo.Var(range(cell.stages), domain=pyo.NonNegativeReals)
    terms: list[list[Any]] = [[] for _ in range(cell.stages)]
    for (part, stage), variable in model.a.items():
        time = cell.kind(stage).time_ps[part]
        # Where the kind does not have the part, (G12) keeps it out.
        terms[stage].append(units.time(capped_ps(cell, time or 0)) * variable)
    for moved in (model.sent, model.received):
        for (number, stage), variable in moved.items():
            transfer_ps = capped_ps(cell, cell.parts.tensors[number].transfer_ps)
            terms[stage].append(units.time(transfer_ps) * variable)
    model.stage_load = pyo.Constraint(
        range(cell.stages), rule=lambda model, stage: model.F[stage] == sum(terms[stage])
    )
