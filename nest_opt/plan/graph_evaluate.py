"""The evaluator of placement graphs: each device's load and memory, from the edges one by one."""

from dataclasses import dataclass
from functools import cached_property

from nest_opt.cost.graph_table import GraphTable
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage


@dataclass(frozen=True)
class GraphStageEvaluation:
    """Load and memory of one device.

    Attributes
    ----------
    device, kind
        Its number, and its kind's name.
    layers
        Indices of the layers on it.
    time_terms_ps
        Terms of its load: `layers`, and where its kind pays for transfers,
        `received` and `sent`.
    memory_bytes, usable_bytes
        What its layers take, which must not exceed what they may.
    """

    device: int
    kind: str
    layers: tuple[int, ...]
    time_terms_ps: dict[str, int]
    memory_bytes: int
    usable_bytes: int

    @cached_property
    def time_ps(self) -> int:
        """F: the device's load, the time that it needs for one batch."""
        return sum(self.time_terms_ps.values())


@dataclass(frozen=True)
class GraphEvaluation:
    """A placement's stages, and its value: the largest load."""

    stages: tuple[GraphStageEvaluation, ...]

    @property
    def value_ps(self) -> int:
        """The bottleneck objective, with one microbatch a batch."""
        return max(stage.time_ps for stage in self.stages)


def evaluate_graph(table: GraphTable, placement: GraphPlacement) -> GraphEvaluation:
    """Evaluate a placement of good form (`check_graph_form` finds nothing)."""
    return GraphEvaluation(tuple(evaluate_graph_stage(table, s) for s in placement.stages))


def evaluate_graph_stage(table: GraphTable, stage: GraphStage) -> GraphStageEvaluation:
    """Evaluate the layers on one device, wherever the others are."""
    kind, inside = table.kind_of[stage.device], set(stage.layers)
    terms = {"layers": sum(kind.time_ps[layer] or 0 for layer in stage.layers)}
    if kind.pays_transfers:
        # Sets: an output is one tensor, however many consume it on the other side.
        received = {u for u, v in table.edges if u not in inside and v in inside}
        sent = {u for u, v in table.edges if u in inside and v not in inside}
        terms["received"] = sum(table.transfer_ps[layer] for layer in received)
        terms["sent"] = sum(table.transfer_ps[layer] for layer in sent)
    return GraphStageEvaluation(
        device=stage.device,
        kind=kind.name,
        layers=stage.layers,
        time_terms_ps=terms,
        memory_bytes=sum(kind.size_bytes[layer] for layer in stage.layers),
        usable_bytes=kind.usable_bytes,
    )
