"""Family: the objective and its maxima. Equation (30)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.cells import FreeCell
from nest_opt.milp.coefficients import CellCoefficients, label_of
from nest_opt.milp.index_sets import cuts_of, layers_of
from nest_opt.milp.options import chosen, under
from nest_opt.milp.sync import has_sync
from nest_opt.milp.units import Units


def add_objective(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (30): minimise w_sum * sum F[i] + w_max * maxF + maxZ, one of (17), (18) and (19).

    maxF >= F[i] and maxZ >= Z[i], with Z = X for `fill-drain`, Y for `nest`,
    nothing for `bottleneck`. A maximum that the objective does not weigh is
    left out, and so is sync where no stage has any.
    """
    weights = k.weights
    total: Any = 0
    if weights.sum_weight:
        total += weights.sum_weight * sum(model.F[stage] for stage in range(k.stages))
    if weights.max_weight:
        _add_maximum(model, "F", k.stages)
        total += weights.max_weight * model.maxF
    if has_sync(k):
        name = "X" if k.objective == "fill-drain" else "Y"
        _add_maximum(model, name, k.stages)
        total += model.component(f"max{name}")
    model.objective = pyo.Objective(expr=total, sense=pyo.minimize)


def add_slowest(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (58): slowest[i, k] = maxF * (stage i has configuration k), by rows that it keeps.

    sum over k of slowest[i, k] = maxF; the sum over i and k of a_k
    slowest[i, k] is at most K / d times maxF; slowest[i, k] is at least the
    time of the layers in a stage of that configuration, with the least hops. They say that d * a
    devices for each stage have to do all work in the time of the slowest one.
    """
    if not k.weights.max_weight or k.is_uniform:
        return
    assert isinstance(k.cell, FreeCell)
    cell = k.cell
    names = {label_of(own): own for own in cell.choices}
    model.slowest = pyo.Var(range(k.stages), list(names), domain=pyo.NonNegativeReals)
    rows = pyo.ConstraintList()
    model.slowest_rows = rows
    for stage in range(k.stages):
        rows.add(sum(model.slowest[stage, label] for label in names) == model.maxF)
        terms = k.load[stage][0]
        for label, own in names.items():
            time = sum(
                units.time(row[layer]) * under(model, k, layer, stage, option)
                for option, row in terms.layer_ps.items()
                if option.configuration == own
                for layer in layers_of(k, stage)
            )
            for hops, cuts in (
                (terms.hop_in_ps, cuts_of(k, stage - 1) if stage else ()),
                (terms.hop_out_ps, cuts_of(k, stage)),
            ):
                if hops is not None:
                    least = min(hops[own][cut] for cut in cuts)
                    time += units.time(least) * chosen(model, k, stage, own)
            rows.add(model.slowest[stage, label] >= time)
    used = sum(
        cell.replicas * own.block_size * model.slowest[stage, label]
        for stage in range(k.stages)
        for label, own in names.items()
    )
    rows.add(used <= k.devices * model.maxF)


def _add_maximum(model: Any, name: str, stages: int) -> None:
    """Add a variable max<name> that no stage's variable exceeds."""
    of_stage = model.component(name)
    largest = pyo.Var(domain=pyo.NonNegativeReals)
    model.add_component(f"max{name}", largest)
    model.add_component(
        f"largest_{name}",
        pyo.Constraint(range(stages), rule=lambda _, stage: largest >= of_stage[stage]),
    )
