"""Putting the families of one cell together, and reading a solution of it."""

from dataclasses import dataclass
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.graph.assignment import add_assignment, cumulative, open_pairs
from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.kinds import add_kinds
from nest_opt.milp.graph.memory import add_memory
from nest_opt.milp.graph.objective import add_objective
from nest_opt.milp.graph.stage_load import add_stage_load
from nest_opt.milp.graph.transfers import add_received, add_sent
from nest_opt.milp.graph.units import GraphUnits, graph_units

# In the order of the page: later ones use the variables of earlier ones.
FAMILIES = {
    "assignment": add_assignment,
    "kinds": add_kinds,
    "memory": add_memory,
    "sent": add_sent,
    "received": add_received,
    "stage_load": add_stage_load,
    "objective": add_objective,
}


@dataclass(frozen=True)
class GraphFormulation:
    """The program of one cell.

    Attributes
    ----------
    model
        The Pyomo model; its objective is in units of `units.time_ps`.
    cell, units
        What it was built from.
    rows
        Names of the row components of each family.
    """

    model: Any
    cell: GraphCell
    units: GraphUnits
    rows: dict[str, tuple[str, ...]]

    def decisions(self, stage_of: tuple[int, ...]) -> list[tuple[Any, int]]:
        """Return (variable, value) of every binary for given stages of the parts."""
        if self.cell.parts.contiguous:
            return [
                (self.model.C[part, stage], int(stage_of[part] <= stage))
                for part, stage in open_pairs(self.cell)
            ]
        return [
            (variable, int(stage_of[part] == stage))
            for (part, stage), variable in self.model.a.items()
        ]

    def binaries(self) -> list[list[tuple[int, Any]]]:
        """Return per part (stage, variable or settled value), of which `stage_in` makes a stage."""
        cell = self.cell
        if cell.parts.contiguous:
            return [
                [(stage, cumulative(self.model, cell, part, stage)) for stage in window]
                for part, window in enumerate(cell.windows)
            ]
        return [
            [(stage, self.model.a[part, stage]) for stage in window]
            for part, window in enumerate(cell.windows)
        ]


def build(cell: GraphCell) -> GraphFormulation:
    """Build the program of a cell in which every part has a stage."""
    scale = graph_units(cell)
    model: Any = pyo.ConcreteModel(name="placement_graph")
    rows = {}
    for name, add in FAMILIES.items():
        before = _row_components(model)
        add(model, cell, scale)
        rows[name] = tuple(sorted(_row_components(model) - before))
    return GraphFormulation(model, cell, scale, rows)


def _row_components(model: Any) -> set[str]:
    return {component.name for component in model.component_objects(pyo.Constraint)}
