"""Family: the boundary after each stage. Equation (26)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.table import Row
from nest_opt.milp.assignment import cumulative
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import cut_pairs, cuts_of
from nest_opt.milp.units import Units


def add_hops(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (26): cut[c, i] = C[c - 1, i] - C[c, i], 1 if stage i ends right before layer c."""
    model.cut = pyo.Var(list(cut_pairs(k)), bounds=(0, 1))

    def boundary_rule(model: Any, cut: int, stage: int) -> Any:
        before, after = (cumulative(model, k, layer, stage) for layer in (cut - 1, cut))
        return model.cut[cut, stage] == before - after

    model.boundary = pyo.Constraint(list(cut_pairs(k)), rule=boundary_rule)


def hop_time(model: Any, k: CellCoefficients, units: Units, stage: int, hop_ps: Row) -> Any:
    """Return the time of the hop from a stage to the next: sum over c of hop_ps[c] cut[c, i]."""
    return sum(units.time(hop_ps[cut]) * model.cut[cut, stage] for cut in cuts_of(k, stage))
