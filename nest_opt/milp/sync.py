"""Family: gradient sync of a stage, full and exposed. Equations (28) and (29)."""

from collections.abc import Sequence
from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.table import ParameterClass
from nest_opt.milp.assignment import cumulative
from nest_opt.milp.coefficients import CellCoefficients, SyncTerms, label_of
from nest_opt.milp.index_sets import layers_of, stage_places
from nest_opt.milp.options import layer_under
from nest_opt.milp.units import Units
from nest_opt.problem import Configuration


def add_holds(model: Any, k: CellCoefficients) -> None:
    """Add holds[i, c] >= a[l, i] for each layer l with parameters of class c.

    Where stages choose, holds[i, c, k] is 1 only if the configuration is k.
    """
    held = {
        (stage, *_key(k, name, own)): (name, own)
        for stage in range(k.stages)
        for name, own in sorted(key for terms in k.sync[stage] for key in terms.fixed_ps)
    }
    model.holds = pyo.Var(list(held), bounds=(0, 1))
    rows = [
        (layer, chunk, *place[1:])
        for place, (name, own) in held.items()
        for layer, chunk in stage_places(k, int(str(place[0])))
        if k.holds[name, own][layer]
    ]

    def holds_rule(model: Any, layer: int, chunk: int, *name: Any) -> Any:
        place = k.stage_of(chunk), *name
        _, own = held[place]
        return model.holds[place] >= layer_under(model, k, layer, chunk, own)

    model.held = pyo.Constraint(rows, rule=holds_rule)


def add_sync(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (28): Y[i] >= sum over c of A_c holds[i, c] + sum over l of y_l a[l, i] + E.

    E is (66) at the ends of a pipeline, else nothing. One row for each
    maximal pair of levels of a rank's copies, with y_l the sum over classes c
    with R_c > 1; holds[i, c] >= a[l, i] for each layer l with parameters of
    class c. This is (15) for all stages at once.
    """
    if not has_sync(k):
        return
    model.Y = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)
    add_holds(model, k)

    def sync_rule(model: Any, stage: int, place: int) -> Any:
        terms = k.sync[stage][place]
        time = sync_time(model, k, units, stage, k.configurations(stage), terms)
        return model.Y[stage] >= time + (units.time(k.exchange_ps) if is_end(k, stage) else 0)

    rows = [(stage, place) for stage in range(k.stages) for place in range(len(k.sync[stage]))]
    model.sync = pyo.Constraint(rows, rule=sync_rule)


def sync_time(
    model: Any,
    k: CellCoefficients,
    units: Units,
    stage: int,
    configurations: Sequence[Configuration],
    terms: SyncTerms,
) -> Any:
    """Return A_c holds[i, c] + sum over l of y_l a[l, i] of a stage, for some configurations."""
    fixed = sum(
        units.time(value) * model.holds[(stage, *_key(k, name, own))]
        for (name, own), value in terms.fixed_ps.items()
        if own in configurations
    )
    return fixed + sum(
        units.time(terms.layer_ps[own][layer]) * layer_under(model, k, layer, chunk, own)
        for own in configurations
        for layer, chunk in stage_places(k, stage)
    )


def add_exposed_sync(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (29): X[i] >= Y[i] - sum over l of backward_l C[l, i - 1], X[i] >= 0.

    The sum is the plain backward time of all layers before stage i (its first
    chunk, where it has several), each in the configuration of its stage. This
    is (16) for all stages at once; objectives without X have no such rows, nor
    has a schedule whose drain hides nothing.
    """
    if not has_sync(k) or not k.hides_sync:
        return
    model.X = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)

    def exposed_rule(model: Any, stage: int) -> Any:
        return model.X[stage] >= model.Y[stage] - _backward_before(model, k, units, stage)

    model.exposed_sync = pyo.Constraint(range(k.stages), rule=exposed_rule)


def _backward_before(model: Any, k: CellCoefficients, units: Units, stage: int) -> Any:
    if k.is_uniform:
        (row,) = k.backward_ps.values()
        return sum(
            units.time(time) * cumulative(model, k, layer, stage - 1)
            for layer, time in enumerate(row)
        )
    return sum(
        units.time(k.backward_ps[own][layer]) * layer_under(model, k, layer, before, own)
        for before in range(stage)
        for layer in layers_of(k, before)
        for own in k.configurations(before)
    )


def has_sync(k: CellCoefficients) -> bool:
    """Whether sync is in the objective and any stage has some."""
    copies = any(terms.fixed_ps for stage in k.sync for terms in stage)
    return k.has_exchange or (k.weights.sync and copies)


def is_end(k: CellCoefficients, stage: int) -> bool:
    """Whether a stage is the first or the last of several, which pay for tied gradients."""
    return k.ends_share and stage in (0, k.stages - 1)


def _key(
    k: CellCoefficients, name: ParameterClass, configuration: Configuration
) -> tuple[str, ...]:
    if all(len(k.configurations(stage)) == 1 for stage in range(k.stages)):
        return (name,)
    return name, label_of(configuration)
