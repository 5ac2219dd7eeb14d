"""Family: memory of a stage. Equation (25), which is (14) for all stages at once."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients, Option
from nest_opt.milp.index_sets import layers_of, stage_pairs
from nest_opt.milp.options import layer_under, under
from nest_opt.milp.units import Units


def add_memory(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (25): states + in flight * stash + work[i] <= usable - reserve, for each stage i.

    States are the sum over l of states_l a[l, i], stash is the sum over l, g
    of stash_(g,l) under[l, i, g], and work[i] >= sum over g of work_(g,l)
    under[l, i, g] for each layer l.
    """
    model.work = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)

    def largest_work_rule(model: Any, layer: int, stage: int) -> Any:
        options = k.options[stage]
        if not any(k.work_bytes[option][layer] for option in options):
            return pyo.Constraint.Skip
        return model.work[stage] >= sum(
            units.size(k.work_bytes[option][layer]) * under(model, k, layer, stage, option)
            for option in options
        )

    def memory_rule(model: Any, stage: int) -> Any:
        used = sum(
            sum(
                units.size(k.states_bytes[own][layer]) * layer_under(model, k, layer, stage, own)
                for own in k.configurations(stage)
            )
            + sum(
                units.size(k.in_flight[stage] * k.stash_bytes[option][layer])
                * under(model, k, layer, stage, option)
                for option in k.options[stage]
            )
            for layer in layers_of(k, stage)
        )
        return used + model.work[stage] <= units.size(k.free_bytes)

    model.largest_work = pyo.Constraint(list(stage_pairs(k)), rule=largest_work_rule)
    model.memory = pyo.Constraint(range(k.stages), rule=memory_rule)


def forbid_overfull(
    model: Any, k: CellCoefficients, stage: int, layers: range, option: Option
) -> None:
    """Add a cover to (25): sum over l in layers of under[l, i, g] <= number of layers - 1.

    For layers that are too large together by less than the solver can see.
    More layers only take more memory, so no legal placement is lost.
    """
    if model.component("cover") is None:
        model.cover = pyo.ConstraintList()
    terms = sum(under(model, k, layer, stage, option) for layer in layers)
    model.cover.add(terms <= len(layers) - 1)
