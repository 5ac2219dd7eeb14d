"""Family: time of a stage. Equation (27), which is (11) for all stages at once."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.hops import hop_time
from nest_opt.milp.index_sets import stage_chunks, stage_places
from nest_opt.milp.options import under
from nest_opt.milp.units import Units


def add_stage_load(model: Any, k: CellCoefficients, units: Units) -> None:
    """Add (27): F[i] >= sum over l, g of t_(g,l) under[l, i, g] + hop in + hop out.

    One row for each maximal tuple of levels that a replica of the stage sees;
    t is (8) and (9) at these levels, and the hops are sums over cuts, (26). A
    stage of several chunks has the layers and hops of all of them.
    """
    model.F = pyo.Var(range(k.stages), domain=pyo.NonNegativeReals)

    def stage_load_rule(model: Any, stage: int, place: int) -> Any:
        terms = k.load[stage][place]
        time = sum(
            units.time(terms.layer_ps[option][layer]) * under(model, k, layer, chunk, option)
            for layer, chunk in stage_places(k, stage)
            for option in k.options[stage]
        )
        for chunk in stage_chunks(k, stage):
            if terms.hop_in_ps is not None and chunk > 0:
                time += hop_time(model, k, units, chunk - 1, stage, terms.hop_in_ps)
            if terms.hop_out_ps is not None and chunk + 1 < k.chunks:
                time += hop_time(model, k, units, chunk, stage, terms.hop_out_ps)
        return model.F[stage] >= time

    rows = [(stage, place) for stage in range(k.stages) for place in range(len(k.load[stage]))]
    model.stage_load = pyo.Constraint(rows, rule=stage_load_rule)
