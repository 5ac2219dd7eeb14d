"""Family: the objective and its maxima. Equation (30)."""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.coefficients import CellCoefficients
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


def _add_maximum(model: Any, name: str, stages: int) -> None:
    """Add a variable max<name> that no stage's variable exceeds."""
    of_stage = model.component(name)
    largest = pyo.Var(domain=pyo.NonNegativeReals)
    model.add_component(f"max{name}", largest)
    model.add_component(
        f"largest_{name}",
        pyo.Constraint(range(stages), rule=lambda _, stage: largest >= of_stage[stage]),
    )
