"""Putting the families of one cell together."""

from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.assignment import add_assignment
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.constraints import add_constraints
from nest_opt.milp.hops import add_hops
from nest_opt.milp.index_sets import open_pairs
from nest_opt.milp.memory import add_memory
from nest_opt.milp.objective import add_objective
from nest_opt.milp.options import add_options
from nest_opt.milp.stage_load import add_stage_load
from nest_opt.milp.sync import add_exposed_sync, add_sync
from nest_opt.milp.units import Units, units
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.profile import Recompute

# In the order of the formulation page: later ones use the variables of earlier ones.
FAMILIES = {
    "assignment": add_assignment,
    "options": add_options,
    "memory": add_memory,
    "hops": add_hops,
    "stage_load": add_stage_load,
    "sync": add_sync,
    "exposed_sync": add_exposed_sync,
    "objective": add_objective,
}


@dataclass(frozen=True)
class Formulation:
    """The program of one cell.

    Attributes
    ----------
    model
        The Pyomo model; its objective is in units of `units.time_ps`.
    coefficients, units
        The numbers that it was built from.
    rows
        Names of the row components of each family.
    """

    model: Any
    coefficients: CellCoefficients
    units: Units
    rows: dict[str, tuple[str, ...]]

    def decisions(
        self, ends: tuple[int, ...], modes: tuple[Recompute, ...]
    ) -> list[tuple[Any, int]]:
        """Return (variable, value) of every binary for given stage ends and modes."""
        k = self.coefficients
        values = [
            (self.model.C[layer, stage], int(layer < ends[stage])) for layer, stage in open_pairs(k)
        ]
        if len(k.modes) > 1:
            values += [
                (self.model.mode[stage, mode], int(chosen == mode))
                for stage, chosen in enumerate(modes)
                for mode in k.modes
            ]
        return values


def build(costs: Costs, coefficients: CellCoefficients) -> Formulation:
    """Build the program of one cell.

    Raises
    ------
    ModelError
        If a constraint has no family, or coefficients are too far apart.
    """
    scale = units(coefficients)
    model: Any = pyo.ConcreteModel(name=model_name(coefficients))
    rows = {}
    for name, add in FAMILIES.items():
        before = _row_components(model)
        add(model, coefficients, scale)
        rows[name] = tuple(sorted(_row_components(model) - before))
    before = _row_components(model)
    add_constraints(model, costs, coefficients)
    rows["constraints"] = tuple(sorted(_row_components(model) - before))
    return Formulation(model, coefficients, scale, rows)


def model_name(k: CellCoefficients) -> str:
    """Return a cell's name in exported files: its degrees and device map."""
    tp, cp, ep, sp = k.cell.configuration
    device_map = k.cell.device_map
    zero = f"z{k.cell.zero}_" if k.cell.zero else ""
    return (
        f"b{k.cell.microbatch}_tp{tp}_cp{cp}_ep{ep}_{'sp_' if sp else ''}{zero}"
        f"d{device_map.replicas}_S{k.stages}_{device_map.order}_P{device_map.pitch}_{k.objective}"
    )


def _row_components(model: Any) -> set[str]:
    return {component.name for component in model.component_objects(pyo.Constraint)}
