"""Family: the objective. Equation (G17)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.units import GraphUnits


def add_objective(model: Any, cell: GraphCell, units: GraphUnits) -> None:
    """Add (G17): minimise maxF, maxF >= F[i], below the cutoff.

    The cutoff bounds the variable as well: presolve then reads every load row
    as a knapsack.
    """
    cutoff = None if cell.cutoff_ps is None else (cell.cutoff_ps - 0.5) / units.time_ps
    model.maxF = pyo.Var(bounds=(0, cutoff))
    model.largest_F = pyo.Constraint(
        range(cell.stages), rule=lambda model, stage: model.maxF >= model.F[stage]
    )
    model.objective = pyo.Objective(expr=model.maxF, sense=pyo.minimize)
