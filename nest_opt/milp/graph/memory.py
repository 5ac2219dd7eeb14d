"""Family: memory. Equation (G13)."""

from collections.abc import Iterable
from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.graph.assignment import in_stage
from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.units import GraphUnits, needs_memory_row


def add_memory(model: Any, cell: GraphCell, units: GraphUnits) -> None:
    """Add (G13): sum over u of size[kind(i), u] a[u, i] <= usable[kind(i)].

    Stages that all parts of their windows fit into have no row.
    """

    def memory_rule(model: Any, stage: int) -> Any:
        kind = cell.kind(stage)
        sizes = {
            part: size
            for part, size in enumerate(kind.size_bytes)
            if cell.in_reach(part, stage) and units.size(size)
        }
        if not needs_memory_row(sizes.values(), kind.usable_bytes):
            return pyo.Constraint.Skip
        return sum(
            units.size(size) * model.a[part, stage] for part, size in sizes.items()
        ) <= units.size(kind.usable_bytes)

    model.memory = pyo.Constraint(range(cell.stages), rule=memory_rule)
    model.overfull = pyo.ConstraintList()


def forbid_overfull(model: Any, cell: GraphCell, stage: int, parts: Iterable[int]) -> None:
    """Keep parts that do not fit together from being all on one device of a stage's kind.

    A solver with tolerances does not see one byte in 8e10.
    """
    parts = list(parts)
    for other in range(cell.stages):
        if cell.kinds[other] == cell.kinds[stage]:
            together = sum(in_stage(model, cell, part, other) for part in parts)
            if not isinstance(together, int):
                model.overfull.add(together <= len(parts) - 1)
