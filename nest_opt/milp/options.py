"""Family: one recomputation mode for each stage, and its products with layers. Equation (24)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import stage_pairs
from nest_opt.milp.units import Units
from nest_opt.problem.profile import Recompute


def add_options(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (24): sum over g of mode[i, g] = 1, and under[l, i, g] = a[l, i] * mode[i, g].

    The product is linear as sum over g of under[l, i, g] = a[l, i] and
    under[l, i, g] <= mode[i, g]: a mode that is not chosen has no layer, so
    the chosen one has them all. With one mode there is nothing to choose.
    """
    if len(k.modes) == 1:
        return
    pairs, modes = list(stage_pairs(k)), list(k.modes)
    model.mode = pyo.Var(range(k.stages), modes, domain=pyo.Binary)
    model.under = pyo.Var(pairs, modes, bounds=(0, 1))

    def one_mode_rule(model: Any, stage: int) -> Any:
        return sum(model.mode[stage, mode] for mode in modes) == 1

    def split_rule(model: Any, layer: int, stage: int) -> Any:
        return sum(model.under[layer, stage, mode] for mode in modes) == model.a[layer, stage]

    def chosen_rule(model: Any, layer: int, stage: int, mode: Recompute) -> Any:
        return model.under[layer, stage, mode] <= model.mode[stage, mode]

    model.one_mode = pyo.Constraint(range(k.stages), rule=one_mode_rule)
    model.split = pyo.Constraint(pairs, rule=split_rule)
    model.chosen = pyo.Constraint(pairs, modes, rule=chosen_rule)


def under(model: Any, k: CellCoefficients, layer: int, stage: int, mode: Recompute) -> Any:
    """Return under[layer, stage, mode]: a[layer, stage] where there is one mode."""
    return model.a[layer, stage] if len(k.modes) == 1 else model.under[layer, stage, mode]
