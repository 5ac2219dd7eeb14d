"""Family: the boundary after each chunk, with one chunk a stage after each stage: (26)."""

from collections.abc import Mapping
from typing import Any

import pyomo.environ as pyo

from nest_opt.cost.cuts import GraphCuts
from nest_opt.cost.table import Row
from nest_opt.milp.assignment import cumulative
from nest_opt.milp.coefficients import CellCoefficients, label_of
from nest_opt.milp.index_sets import cut_pairs, cuts_of
from nest_opt.milp.options import chosen
from nest_opt.milp.units import Units
from nest_opt.problem import Configuration


def add_hops(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (26): cut[c, i] = C[c - 1, i] - C[c, i], 1 if chunk i ends right before layer c.

    Where stage j on either side chooses its configuration, cut_under[c, i, j, k]
    is 1 if it also has configuration k: sum over k of cut_under[c, i, j, k] =
    cut[c, i], and sum over c of it is 1 for the chosen k.

    In any order, (68): sum over the downsets c of cut[c, i] = 1 and sum over c
    with l in c of cut[c, i] = C[l, i], so that the layers up to stage i are c.
    """
    model.cut = pyo.Var(list(cut_pairs(k)), bounds=(0, 1))
    if k.graph is not None:
        add_downsets(model, k, k.graph)
        return

    def boundary_rule(model: Any, cut: int, chunk: int) -> Any:
        before, after = (cumulative(model, k, layer, chunk) for layer in (cut - 1, cut))
        return model.cut[cut, chunk] == before - after

    model.boundary = pyo.Constraint(list(cut_pairs(k)), rule=boundary_rule)
    # Stages that choose have one chunk each.
    sides = [
        (cut, stage, side)
        for cut, stage in cut_pairs(k)
        for side in (stage, stage + 1)
        if len(k.configurations(k.stage_of(side))) > 1
    ]
    if not sides:
        return
    owned = [(*place, label_of(own)) for place in sides for own in k.configurations(place[2])]
    model.cut_under = pyo.Var(owned, bounds=(0, 1))

    def of_cut_rule(model: Any, cut: int, stage: int, side: int) -> Any:
        parts = (model.cut_under[cut, stage, side, label_of(own)] for own in k.configurations(side))
        return sum(parts) == model.cut[cut, stage]

    def of_configuration_rule(model: Any, stage: int, side: int, place: int) -> Any:
        own = k.configurations(side)[place]
        parts = (model.cut_under[cut, stage, side, label_of(own)] for cut in cuts_of(k, stage))
        return sum(parts) == chosen(model, k, side, own)

    model.cut_split = pyo.Constraint(sides, rule=of_cut_rule)
    model.cut_owner = pyo.Constraint(
        [
            (stage, side, place)
            for stage, side in sorted({(stage, side) for _, stage, side in sides})
            for place in range(len(k.configurations(side)))
        ],
        rule=of_configuration_rule,
    )


def add_downsets(model: Any, k: CellCoefficients, graph: GraphCuts) -> None:
    """Add (68)."""
    boundaries = range(k.stages - 1)

    def one_downset_rule(model: Any, stage: int) -> Any:
        return sum(model.cut[cut, stage] for cut in cuts_of(k, stage)) == 1

    def inside_rule(model: Any, layer: int, stage: int) -> Any:
        inside = cumulative(model, k, layer, stage)
        if isinstance(inside, int):
            # All downsets at which the stage can end have the layer, or none has.
            return pyo.Constraint.Skip
        having = (cut for cut in cuts_of(k, stage) if graph.cuts[cut] >> layer & 1)
        return sum(model.cut[cut, stage] for cut in having) == inside

    model.one_downset = pyo.Constraint(boundaries, rule=one_downset_rule)
    model.inside = pyo.Constraint(range(k.layers), boundaries, rule=inside_rule)


def hop_time(
    model: Any,
    k: CellCoefficients,
    units: Units,
    chunk: int,
    side: int,
    hop_ps: Mapping[Configuration, Row],
) -> Any:
    """Return the time that stage `side` pays for the hop from a chunk to the next.

    That is the sum over c of hop_ps[c] cut[c, i].
    """
    configurations = k.configurations(side)
    if len(configurations) == 1:
        row = hop_ps[configurations[0]]
        return sum(units.time(row[cut]) * model.cut[cut, chunk] for cut in cuts_of(k, chunk))
    return sum(
        units.time(hop_ps[own][cut]) * model.cut_under[cut, chunk, side, label_of(own)]
        for own in configurations
        for cut in cuts_of(k, chunk)
    )
