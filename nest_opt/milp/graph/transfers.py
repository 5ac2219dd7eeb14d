"""Families: the tensors that a stage sends and receives. Equations (G14) and (G15).

A tensor is sent once by its source's stage and received once by every stage
with a target of it, however many there are, so one variable each is enough.
Nothing else pushes them up, hence they need not be integer.
"""

from typing import Any

import pyomo.environ as pyo

from nest_opt.milp.graph.assignment import in_stage
from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.graph.units import GraphUnits


def add_sent(model: Any, cell: GraphCell, units: GraphUnits) -> None:
    """Add (G14): sent[t, i] >= a[source, i] - a[w, i] for every target w of tensor t.

    Only where stage i pays for transfers.
    """
    tensors = cell.parts.tensors
    pairs = [
        (number, stage)
        for number, stage in visible_pairs(cell, units)
        if cell.in_reach(tensors[number].source, stage)
    ]
    model.sent = pyo.Var(pairs, bounds=(0, 1))

    def sent_rule(model: Any, number: int, stage: int, target: int) -> Any:
        source = tensors[number].source
        return model.sent[number, stage] >= in_stage(model, cell, source, stage) - in_stage(
            model, cell, target, stage
        )

    model.sends = pyo.Constraint(
        [(*pair, target) for pair in pairs for target in tensors[pair[0]].targets], rule=sent_rule
    )


def add_received(model: Any, cell: GraphCell, units: GraphUnits) -> None:
    """Add (G15): received[t, i] >= a[w, i] - a[source, i] for every target w of tensor t.

    Only where stage i pays for transfers.
    """
    tensors = cell.parts.tensors
    triples = [
        (number, stage, target)
        for number, stage in visible_pairs(cell, units)
        for target in tensors[number].targets
        if cell.in_reach(target, stage)
    ]
    model.received = pyo.Var(list(dict.fromkeys(triple[:2] for triple in triples)), bounds=(0, 1))

    def received_rule(model: Any, number: int, stage: int, target: int) -> Any:
        source = tensors[number].source
        return model.received[number, stage] >= in_stage(model, cell, target, stage) - in_stage(
            model, cell, source, stage
        )

    model.receives = pyo.Constraint(triples, rule=received_rule)


def visible_pairs(cell: GraphCell, units: GraphUnits) -> list[tuple[int, int]]:
    """Return (tensor, stage) of all tensors that take time and all stages that pay for them."""
    return [
        (number, stage)
        for number, tensor in enumerate(cell.parts.tensors)
        if units.time(tensor.transfer_ps)
        for stage in range(cell.stages)
        if cell.kind(stage).pays_transfers
    ]
