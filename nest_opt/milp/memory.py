"""Family: memory of a stage. Equation (25), which is (14) for all stages at once."""

from collections.abc import Sequence
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients, Option
from nest_opt.milp.index_sets import layers_of
from nest_opt.milp.options import has_option, under
from nest_opt.milp.units import Units


def add_memory(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (25): states + in flight * stash + work[i, g] <= (usable - reserve) mode[i, g].

    States are the sum over l of states_l under[l, i, g], stash is the sum over
    l of stash_(g,l) under[l, i, g], and work[i, g] >= work_(g,l) under[l, i, g]
    for each layer l. An option that is not chosen has neither layers nor memory.
    """
    labels = {(i, o.label): o for i, options in enumerate(k.options) for o in options}
    model.work = pyo.Var(list(labels), domain=pyo.NonNegativeReals)
    held = [
        (layer, stage, label)
        for (stage, label), option in labels.items()
        for layer in layers_of(k, stage)
        if k.work_bytes[option][layer]
    ]

    def largest_work_rule(model: Any, layer: int, stage: int, label: str) -> Any:
        option = labels[stage, label]
        size = units.size(k.work_bytes[option][layer])
        return model.work[stage, label] >= size * under(model, k, layer, stage, option)

    def memory_rule(model: Any, stage: int, label: str) -> Any:
        option = labels[stage, label]
        states, stash = k.states_bytes[option.configuration], k.stash_bytes[option]
        used = sum(
            units.size(states[layer] + k.in_flight[stage] * stash[layer])
            * under(model, k, layer, stage, option)
            for layer in layers_of(k, stage)
        )
        room = units.size(k.free_bytes) * has_option(model, k, stage, option)
        return used + model.work[stage, label] <= room

    model.largest_work = pyo.Constraint(held, rule=largest_work_rule)
    model.memory = pyo.Constraint(list(labels), rule=memory_rule)


def forbid_overfull(
    model: Any, k: CellCoefficients, stage: int, layers: Sequence[int], option: Option
) -> None:
    """Add a cover to (25): sum over l in layers of under[l, i, g] <= number of layers - 1.

    For layers that are too large together by less than the solver can see.
    More layers only take more memory, so no legal placement is lost.
    """
    if model.component("cover") is None:
        model.cover = pyo.ConstraintList()
    terms = sum(under(model, k, layer, stage, option) for layer in layers)
    model.cover.add(terms <= len(layers) - 1)
