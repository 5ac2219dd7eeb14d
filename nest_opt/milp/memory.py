"""Family: memory of a stage. Equation (25), which is (14) for all stages at once."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import layers_of, stage_pairs
from nest_opt.milp.options import under
from nest_opt.milp.units import Units
from nest_opt.problem.profile import Recompute


def add_memory(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (25): states + in flight * stash + work[i] <= usable - reserve, for each stage i.

    States are the sum over l of states_l a[l, i], stash is the sum over l, g
    of stash_(g,l) under[l, i, g], and work[i] >= sum over g of work_(g,l)
    under[l, i, g] for each layer l.
    """
    model.work = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)

    def largest_work_rule(model: Any, layer: int, stage: int) -> Any:
        if not any(k.work_bytes[mode][layer] for mode in k.modes):
            return pyo.Constraint.Skip
        return model.work[stage] >= sum(
            units.size(k.work_bytes[mode][layer]) * under(model, k, layer, stage, mode)
            for mode in k.modes
        )

    def memory_rule(model: Any, stage: int) -> Any:
        used = sum(
            units.size(k.states_bytes[layer]) * model.a[layer, stage]
            + sum(
                units.size(k.in_flight[stage] * k.stash_bytes[mode][layer])
                * under(model, k, layer, stage, mode)
                for mode in k.modes
            )
            for layer in layers_of(k, stage)
        )
        return used + model.work[stage] <= units.size(k.free_bytes)

    model.largest_work = pyo.Constraint(list(stage_pairs(k)), rule=largest_work_rule)
    model.memory = pyo.Constraint(range(k.stages), rule=memory_rule)


def forbid_overfull(
    model: Any, k: CellCoefficients, stage: int, layers: range, mode: Recompute
) -> None:
    """Add a cover to (25): sum over l in layers of under[l, i, g] <= number of layers - 1.

    For layers that are too large together by less than the solver can see.
    More layers only take more memory, so no legal placement is lost.
    """
    if model.component("cover") is None:
        model.cover = pyo.ConstraintList()
    model.cover.add(sum(under(model, k, layer, stage, mode) for layer in layers) <= len(layers) - 1)
