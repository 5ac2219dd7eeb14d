"""Family: gradient sync of a stage, full and exposed. Equations (28) and (29)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.assignment import cumulative
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import layers_of
from nest_opt.milp.units import Units


def add_sync(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (28): Y[i] >= sum over c of A_c holds[i, c] + sum over l of y_l a[l, i].

    One row for each maximal pair of levels of a rank's copies, with y_l the
    sum over classes c with R_c > 1; holds[i, c] >= a[l, i] for each layer l
    with parameters of class c. This is (15) for all stages at once.
    """
    if not has_sync(k):
        return
    classes = sorted({name for stage in k.sync for terms in stage for name in terms.fixed_ps})
    model.Y = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)
    model.holds = pyo.Var(range(k.stages), classes, bounds=(0, 1))
    held = [
        (layer, stage, name)
        for name in classes
        for stage in range(k.stages)
        for layer in layers_of(k, stage)
        if k.holds[name][layer]
    ]

    def holds_rule(model: Any, layer: int, stage: int, name: str) -> Any:
        return model.holds[stage, name] >= model.a[layer, stage]

    def sync_rule(model: Any, stage: int, place: int) -> Any:
        terms = k.sync[stage][place]
        fixed = sum(
            units.time(value) * model.holds[stage, name] for name, value in terms.fixed_ps.items()
        )
        return model.Y[stage] >= fixed + sum(
            units.time(terms.layer_ps[layer]) * model.a[layer, stage]
            for layer in layers_of(k, stage)
        )

    rows = [(stage, place) for stage in range(k.stages) for place in range(len(k.sync[stage]))]
    model.held = pyo.Constraint(held, rule=holds_rule)
    model.sync = pyo.Constraint(rows, rule=sync_rule)


def add_exposed_sync(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (29): X[i] >= Y[i] - sum over l of backward_l C[l, i - 1], X[i] >= 0.

    The sum is the plain backward time of all layers before stage i. This is
    (16) for all stages at once; objectives without X have no such rows.
    """
    if not has_sync(k) or k.objective != "fill-drain":
        return
    model.X = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)

    def exposed_rule(model: Any, stage: int) -> Any:
        hidden = sum(
            units.time(time) * cumulative(model, k, layer, stage - 1)
            for layer, time in enumerate(k.backward_ps)
        )
        return model.X[stage] >= model.Y[stage] - hidden

    model.exposed_sync = pyo.Constraint(range(k.stages), rule=exposed_rule)


def has_sync(k: CellCoefficients) -> bool:
    """Whether sync is in the objective and any stage has some."""
    return k.weights.sync and any(terms.fixed_ps for stage in k.sync for terms in stage)
