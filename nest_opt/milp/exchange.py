"""Family: the ends of a pipeline that share tied parameters. Equation (66).

Only for cells whose stages or devices are chosen: elsewhere both are known,
and (28) has the time.
"""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.near import add_nested, free_cell, is_reached, least_of, levels_of
from nest_opt.milp.options import chosen
from nest_opt.milp.units import Units


def add_exchange(model: Any, k: CellCoefficients, _: Units) -> None:
    """Add (66): sum of mode[0, g] = sum of mode[S - 1, g] over the options g of each tp.

    exchange_above[l] = 1 if the worst two ranks of first and last stage, over
    ranks and replicas, are at level l or above.
    """
    if not k.ends_share:
        return
    cell = free_cell(k)
    choices = cell.choices
    tps = sorted({own.tp for own in choices})
    if len(tps) > 1:
        rows = pyo.ConstraintList()
        model.ends_alike = rows
        for tp in tps:
            alike = [own for own in choices if own.tp == tp]
            first, last = (chosen(model, k, end, *alike) for end in (0, k.stages - 1))
            rows.add(first == last)
    if not k.has_exchange:
        return
    levels = levels_of(k)
    above = pyo.Var(list(levels), domain=pyo.Binary)
    model.exchange_above = above
    add_nested(model, k, above, [()])
    least = [least_of(k, own).hop for own in choices]
    far = [level for level in levels if all(is_reached(k, hop, level) for hop in least)]
    model.exchange_least = pyo.Constraint(far, rule=lambda _, level: above[level] == 1)
