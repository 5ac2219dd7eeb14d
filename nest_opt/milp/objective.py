"""Families: the fill of stages, the objective and its maxima. Equations (72) and (30)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.cells import FreeCell
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.index_sets import cuts_of, layers_of, stage_places
from nest_opt.milp.options import has_option, layer_under, under
from nest_opt.milp.sync import has_sync
from nest_opt.milp.units import Units


def add_fill(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (72): f[i] >= F[i] - 2 * W[i], f[i] >= 0, and maxL >= m F[i] + w_fill f[i].

    W[i] is the sum over l of w_l a[l, i]: (69) under ZB-H1. Where the fill is F,
    or a share of it, or nothing that the objective knows, there are no rows.
    """
    weights = k.weights
    if not k.has_fill:
        return
    model.f = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)
    model.maxL = pyo.Var(domain=pyo.NonNegativeReals)

    def fill_rule(model: Any, stage: int) -> Any:
        hidden = sum(
            units.time(weights.hidden_weight * k.weight_gradient_ps[own][layer])
            * layer_under(model, k, layer, chunk, own)
            for own in k.configurations(stage)
            for layer, chunk in stage_places(k, stage)
        )
        return model.f[stage] >= model.F[stage] - hidden

    def largest_load_rule(model: Any, stage: int) -> Any:
        rounds = weights.round_weight * model.F[stage]
        return model.maxL >= rounds + weights.fill_weight * model.f[stage]

    model.fill = pyo.Constraint(range(k.stages), rule=fill_rule)
    model.largest_L = pyo.Constraint(range(k.stages), rule=largest_load_rule)


def add_objective(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (30): minimise w_sum * sum F[i] + w_max * maxF + maxZ, one of (17), (18) and (19).

    maxF >= F[i] and maxZ >= Z[i], with Z = X for `fill-drain`, Y for `nest`,
    nothing for `bottleneck`. A maximum that the objective does not weigh is
    left out, and so is sync where no stage has any. With v chunks a stage, F has
    a v-th of these weights. With (72), w_sum * sum f[i] + maxL stands for F.
    """
    weights = k.weights
    total: Any = 0
    if k.has_fill:
        total += weights.sum_weight * sum(model.f[stage] for stage in range(k.stages))
        total += model.maxL
    else:
        if weights.sum_weight:
            share = _of_chunk(k, weights.sum_weight)
            total += share * sum(model.F[stage] for stage in range(k.stages))
        if weights.max_weight:
            _add_maximum(model, "F", k.stages)
            total += _of_chunk(k, weights.max_weight) * model.maxF
    if has_sync(k):
        name = "X" if k.hides_sync else "Y"
        _add_maximum(model, name, k.stages)
        total += model.component(f"max{name}")
    model.objective = pyo.Objective(expr=total, sense=pyo.minimize)


def add_slowest(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (58): slowest[i, g] = maxF * mode[i, g], by rows that this product keeps.

    sum over g of slowest[i, g] = maxF; the sum over i and g of d * a_g *
    slowest[i, g] is at most K * maxF; slowest[i, g] is at least the time of
    the layers under option g, with the least hops. They say that the devices
    of all stages have to do all work in the time of the slowest one.
    """
    if k.is_uniform or not (k.has_fill or k.weights.max_weight):
        return
    assert isinstance(k.cell, FreeCell)
    places = [(stage, option.label) for stage in range(k.stages) for option in k.options[stage]]
    model.slowest = pyo.Var(places, domain=pyo.NonNegativeReals)
    rows = pyo.ConstraintList()
    model.slowest_rows = rows
    if k.has_fill:
        # No fill is more than F, so that a load is at least this multiple of it.
        _add_maximum(model, "F", k.stages)
        least = k.weights.round_weight + min(0, k.weights.fill_weight)
        rows.add(model.maxL >= least * model.maxF)
    used: Any = 0
    for stage in range(k.stages):
        options, (terms,) = k.options[stage], k.load[stage]
        rows.add(sum(model.slowest[stage, option.label] for option in options) == model.maxF)
        for option in options:
            time = sum(
                units.time(terms.layer_ps[option][layer]) * under(model, k, layer, stage, option)
                for layer in layers_of(k, stage)
            )
            for hops, boundary in ((terms.hop_in_ps, stage - 1), (terms.hop_out_ps, stage)):
                if hops is not None:
                    least = min(hops[option.configuration][cut] for cut in cuts_of(k, boundary))
                    time += units.time(least) * has_option(model, k, stage, option)
            slowest = model.slowest[stage, option.label]
            rows.add(slowest >= time)
            used += k.cell.replicas * option.configuration.block_size * slowest
    rows.add(used <= k.devices * model.maxF)


def _of_chunk(k: CellCoefficients, weight: int) -> float | int:
    """Return a weight of v times a value as one of the value."""
    return weight if k.weights.chunks == 1 else weight / k.weights.chunks


def _add_maximum(model: Any, name: str, stages: int) -> None:
    """Add a variable max<name> that no stage's variable exceeds."""
    of_stage = model.component(name)
    largest = pyo.Var(domain=pyo.NonNegativeReals)
    model.add_component(f"max{name}", largest)
    model.add_component(
        f"largest_{name}",
        pyo.Constraint(range(stages), rule=lambda _, stage: largest >= of_stage[stage]),
    )
