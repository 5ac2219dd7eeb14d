"""Putting the families of one cell together."""

from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.assignment import add_assignment, add_equal_chunks
from nest_opt.milp.cells import FreeCell, PathCell
from nest_opt.milp.coefficients import CellCoefficients
from nest_opt.milp.constraints import add_constraints
from nest_opt.milp.counting import add_counting
from nest_opt.milp.devices import add_devices, add_near, add_room, add_symmetry
from nest_opt.milp.exchange import add_exchange
from nest_opt.milp.hops import add_hops
from nest_opt.milp.index_sets import open_pairs
from nest_opt.milp.level_load import add_level_load, add_level_sync
from nest_opt.milp.memory import add_memory, add_stash
from nest_opt.milp.near import add_levels
from nest_opt.milp.objective import add_fill, add_objective, add_slowest
from nest_opt.milp.options import add_options
from nest_opt.milp.path import add_path
from nest_opt.milp.runs import add_runs
from nest_opt.milp.stage_load import add_stage_load
from nest_opt.milp.sync import add_exposed_sync, add_sync
from nest_opt.milp.units import Units, units
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell
from nest_opt.problem import Configuration
from nest_opt.problem.profile import Recompute
from nest_opt.problem.schedule import ONE_F_ONE_B

# In the order of the formulation page: later ones use the variables of earlier ones.
FAMILIES = {
    "assignment": add_assignment,
    "equal_chunks": add_equal_chunks,
    "options": add_options,
    "stash": add_stash,
    "memory": add_memory,
    "hops": add_hops,
    "stage_load": add_stage_load,
    "sync": add_sync,
    "exposed_sync": add_exposed_sync,
    "fill": add_fill,
    "objective": add_objective,
}

# The free family, with devices left out: levels are what each could be by itself.
RELAXED_FAMILIES = {
    "assignment": add_assignment,
    "options": add_options,
    "room": add_room,
    "memory": add_memory,
    "runs": add_runs,
    "hops": add_hops,
    "levels": add_levels,
    "exchange": add_exchange,
    "counting": add_counting,
    "level_load": add_level_load,
    "level_sync": add_level_sync,
    "exposed_sync": add_exposed_sync,
    "fill": add_fill,
    "objective": add_objective,
    "slowest": add_slowest,
}
DEVICE_FAMILIES = {"devices": add_devices, "near": add_near, "symmetry": add_symmetry}
FREE_FAMILIES = {**RELAXED_FAMILIES, **DEVICE_FAMILIES}

# The aligned family where stages choose their configurations.
PATH_FAMILIES = {
    name: add for name, add in RELAXED_FAMILIES.items() if name not in ("room", "counting")
} | {"path": add_path}


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
        self,
        ends: tuple[int, ...],
        chosen: tuple[tuple[Configuration, Recompute], ...],
        layer_order: tuple[int, ...] | None = None,
    ) -> list[tuple[Any, int]]:
        """Return (variable, value) of every binary for given ends of chunks, options and order.

        Those of devices and levels are not among them.
        """
        k = self.coefficients
        order = range(k.layers) if layer_order is None else layer_order
        place = {layer: number for number, layer in enumerate(order)}
        values = [
            (self.model.C[layer, chunk], int(place[layer] < ends[chunk]))
            for layer, chunk in open_pairs(k)
        ]
        values += [
            (self.model.mode[stage, option.label], int(option[:2] == chosen[stage]))
            for stage, options in enumerate(k.options)
            if len(options) > 1
            for option in options
        ]
        return values


def build(costs: Costs, coefficients: CellCoefficients, relaxed: bool = False) -> Formulation:
    """Build the program of one cell.

    Parameters
    ----------
    costs, coefficients
        The problem and the cell's numbers.
    relaxed
        Whether to leave devices out, in the free family.

    Raises
    ------
    ModelError
        If a constraint has no family, or coefficients are too far apart.
    """
    scale = units(coefficients)
    families = FAMILIES
    if isinstance(coefficients.cell, PathCell):
        families = PATH_FAMILIES
    elif isinstance(coefficients.cell, FreeCell):
        families = RELAXED_FAMILIES if relaxed else FREE_FAMILIES
    model: Any = pyo.ConcreteModel(name=model_name(coefficients))
    rows = {}
    for name, add in families.items():
        before = _row_components(model)
        add(model, coefficients, scale)
        rows[name] = tuple(sorted(_row_components(model) - before))
    before = _row_components(model)
    add_constraints(model, costs, coefficients, relaxed)
    rows["constraints"] = tuple(sorted(_row_components(model) - before))
    return Formulation(model, coefficients, scale, rows)


def model_name(k: CellCoefficients) -> str:
    """Return a cell's name in exported files: its degrees and device map."""
    cell = k.cell
    zero = f"z{cell.zero}_".replace("/", "_").replace(" ", "_") if cell.zero else ""
    if isinstance(cell, Cell):
        tp, cp, ep, sp = cell.configuration
        return (
            f"b{cell.microbatch}_tp{tp}_cp{cp}_ep{ep}_{'sp_' if sp else ''}{zero}"
            f"d{cell.device_map.replicas}_S{k.stages}_{cell.device_map.order}_"
            f"P{cell.device_map.pitch}_{_schedule_name(k)}{k.objective}"
        )
    first = cell.choices[0]
    kind = f"{cell.order}_P{cell.pitch}" if isinstance(cell, PathCell) else "free"
    return (
        f"b{cell.microbatch}_cp{first.cp}_ep{first.ep}_{zero}d{cell.replicas}_S{k.stages}_{kind}_"
        f"{_schedule_name(k)}{k.objective}"
    )


def _schedule_name(k: CellCoefficients) -> str:
    name, chunks = k.cell.schedule
    if k.cell.schedule == ONE_F_ONE_B:
        return ""
    return f"{name}{chunks}_" if k.cell.schedule.is_interleaved else f"{name}_"


def _row_components(model: Any) -> set[str]:
    return {component.name for component in model.component_objects(pyo.Constraint)}
