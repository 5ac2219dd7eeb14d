"""Family: what a stage's kind of device supports. Equation (G12)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.units import GraphUnits


def add_kinds(model: Any, cell: GraphCell, _: GraphUnits) -> None:
    """Add (G12): a[u, i] = 0 where the kind of stage i does not have part u.

    Likewise where it takes the cutoff or more for it.
    """
    model.unsupported = pyo.Constraint(
        [
            (u, i)
            for u, window in enumerate(cell.windows)
            for i in window
            if not cell.supports(u, i)
        ],
        rule=lambda model, part, stage: model.a[part, stage] == 0,
    )
