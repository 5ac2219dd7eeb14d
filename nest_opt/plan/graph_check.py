"""The checker of placement graphs: is a placement legal? Apart from whatever found it."""

from collections import Counter
from collections.abc import Iterator

from nest_opt.cost.graph_table import GraphTable
from nest_opt.plan.graph_evaluate import GraphEvaluation, evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement
from nest_opt.plan.violation import Violation
from nest_opt.problem.base import listed


def check_graph(
    table: GraphTable, placement: GraphPlacement, evaluation: GraphEvaluation | None = None
) -> list[Violation]:
    """Return every rule that a placement breaks, in a fixed order.

    `evaluation` may be passed if it was made already. A placement that breaks
    a rule of form is not evaluated.
    """
    form = check_graph_form(table, placement)
    if form:
        return form
    evaluation = evaluation or evaluate_graph(table, placement)
    stage_of = {
        layer: number for number, stage in enumerate(placement.stages) for layer in stage.layers
    }
    return [
        *_check_memory(evaluation),
        *_check_classes(table, stage_of),
        *_check_order(table, stage_of),
    ]


def check_graph_form(table: GraphTable, placement: GraphPlacement) -> list[Violation]:
    """Return what makes a placement impossible to evaluate: layers, devices, support."""
    devices = _check_devices(table, placement)
    return [
        *_check_layers(table, placement),
        *devices,
        *(() if devices else _check_support(table, placement)),
    ]


def check_graph_claim(evaluation: GraphEvaluation, name: str, value_ps: str) -> list[Violation]:
    """Return a violation if a plan claims another objective or value than it has."""
    found, allowed = f"{name} of {int(value_ps)} ps", f"bottleneck of {evaluation.value_ps} ps"
    if found == allowed:
        return []
    return [
        Violation(
            "claim",
            found,
            f"{allowed} is what the plan evaluates to",
            "drop the claim, or solve again",
        )
    ]


def _check_layers(table: GraphTable, placement: GraphPlacement) -> Iterator[Violation]:
    counts = Counter(layer for stage in placement.stages for layer in stage.layers)
    for layer, name in enumerate(table.layers):
        if counts[layer] != 1:
            yield Violation(
                "layers",
                f"layer {name!r} in {counts[layer]} places",
                "1 place is needed",
                "put it on one device" if counts[layer] == 0 else "take it off the others",
            )


def _check_devices(table: GraphTable, placement: GraphPlacement) -> list[Violation]:
    found = []
    for device, stages in sorted(Counter(stage.device for stage in placement.stages).items()):
        if device not in table.kind_of:
            found.append(
                Violation(
                    "devices",
                    f"device {device} in use",
                    f"devices 0 to {len(table.kind_of) - 1} exist",
                    "use one of these",
                )
            )
        if stages > 1:
            found.append(
                Violation(
                    "devices",
                    f"device {device} in {stages} stages",
                    "1 stage a device is allowed",
                    "use another device, or join the stages",
                )
            )
    return found


def _check_support(table: GraphTable, placement: GraphPlacement) -> Iterator[Violation]:
    for stage in placement.stages:
        kind = table.kind_of[stage.device]
        for layer in stage.layers:
            if kind.time_ps[layer] is None:
                kinds = [k.name for k in table.kinds if k.time_ps[layer] is not None]
                yield Violation(
                    "support",
                    f"layer {table.layers[layer]!r} on device {stage.device}, of kind "
                    f"{kind.name!r}, which has no profile of it",
                    f"a device of kind {listed(kinds)} is needed",
                    "move the layer, or add a profile",
                )


def _check_memory(evaluation: GraphEvaluation) -> Iterator[Violation]:
    for stage in evaluation.stages:
        if stage.memory_bytes > stage.usable_bytes:
            yield Violation(
                "memory",
                f"{stage.memory_bytes:,} bytes on device {stage.device}",
                f"at most {stage.usable_bytes:,} bytes are usable (kind {stage.kind!r})",
                f"free {stage.memory_bytes - stage.usable_bytes:,} bytes: move layers elsewhere",
            )


def _check_classes(table: GraphTable, stage_of: dict[int, int]) -> Iterator[Violation]:
    for layers in table.classes:
        stages = sorted({stage_of[layer] for layer in layers})
        if len(stages) > 1:
            names = ", ".join(repr(table.layers[layer]) for layer in layers[:8])
            yield Violation(
                "colocation",
                f"layers {names}{', ...' if len(layers) > 8 else ''} in stages "
                f"{', '.join(map(str, stages))}",
                "one stage for all of them is needed",
                "move them together",
            )


def _check_order(table: GraphTable, stage_of: dict[int, int]) -> Iterator[Violation]:
    """Yield the pairs whose second layer is in a stage before that of the first."""
    for first, second in table.precedence if table.contiguous else ():
        if stage_of[first] > stage_of[second]:
            yield Violation(
                "contiguous",
                f"layer {table.layers[first]!r} in stage {stage_of[first]}, which comes before "
                f"{table.layers[second]!r} in stage {stage_of[second]}",
                "stages along the order of the layers are needed",
                "move a layer, or list the stages in another order",
            )
