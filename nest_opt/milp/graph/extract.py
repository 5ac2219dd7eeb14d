"""From stages of parts to a placement of layers, and from a solution to stages."""

from nest_opt.cost.graph_table import GraphTable
from nest_opt.errors import SolverError
from nest_opt.milp.extract import VALUE_TOLERANCE, whole
from nest_opt.milp.graph.build import GraphFormulation
from nest_opt.milp.graph.cells import Kinds
from nest_opt.milp.graph.heuristic import Stages
from nest_opt.milp.graph.parts import Parts
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import GraphEvaluation, evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.solver.status import Solution


def rounded(formulation: GraphFormulation, solution: Solution) -> Stages:
    """Return the stages that a solution stands for, legal or not.

    Raises
    ------
    SolverError
        If a binary is not near 0 or 1.
    """
    stage_of = [
        next((stage for stage, value in row if whole(solution, value)), -1)
        for row in formulation.binaries()
    ]
    if -1 in stage_of:
        raise SolverError(
            f"HiGHS put part {stage_of.index(-1)} in no stage: please report this problem file"
        )
    return Stages(formulation.cell.kinds, tuple(stage_of))


def graph_placement(table: GraphTable, parts: Parts, stages: Stages) -> GraphPlacement:
    """Return the placement of layers that stages of parts stand for.

    A kind's devices are used in their order, one for each stage that is not
    empty.
    """
    layers: list[list[int]] = [[] for _ in stages.kinds]
    for part, stage in enumerate(stages.stage_of):
        layers[stage] += parts.layers[part]
    devices = [iter(kind.devices) for kind in table.kinds]
    return GraphPlacement(
        tuple(
            GraphStage(next(devices[kind]), tuple(sorted(members)))
            for kind, members in zip(stages.kinds, layers, strict=True)
            if members
        )
    )


def stages_of(
    table: GraphTable, parts: Parts, kinds: Kinds, placement: GraphPlacement
) -> Stages | None:
    """Return a placement's stages of parts in a cell, None if the cell has no such stages.

    Where the order of stages is free, they are sorted by kind, as the cell is.
    """
    kind_of = {device: kind for kind, found in enumerate(table.kinds) for device in found.devices}
    part_of = {layer: part for part, layers in enumerate(parts.layers) for layer in layers}
    found = [
        (kind_of[stage.device], sorted({part_of[layer] for layer in stage.layers}))
        for stage in placement.stages
    ]
    if sum(len(members) for _, members in found) != parts.count:
        return None
    stage_of, place = [-1] * parts.count, -1
    for kind, members in found if parts.contiguous else sorted(found):
        if kind not in kinds[place + 1 :]:
            return None
        place = kinds.index(kind, place + 1)
        for part in members:
            stage_of[part] = place
    return Stages(kinds, tuple(stage_of))


def overfull_stages(parts: Parts, stages: Stages) -> list[tuple[int, list[int]]]:
    """Return the stages that take more memory than there is, each with its parts."""
    found = []
    for stage, kind in enumerate(stages.kinds):
        members = [part for part, other in enumerate(stages.stage_of) if other == stage]
        sizes = parts.kinds[kind].size_bytes
        if sum(sizes[part] for part in members) > parts.kinds[kind].usable_bytes:
            found.append((stage, members))
    return found


def confirm(
    table: GraphTable, formulation: GraphFormulation, solution: Solution, stages: Stages
) -> tuple[GraphPlacement, GraphEvaluation]:
    """Return the placement of a solution's stages and its evaluation.

    Raises
    ------
    SolverError
        If the placement is illegal, or its value is not the solver's.
    """
    placement = graph_placement(table, formulation.cell.parts, stages)
    evaluation = evaluate_graph(table, placement)
    violations = check_graph(table, placement, evaluation)
    if violations:
        raise SolverError(
            f"HiGHS returned a placement that is illegal ({violations[0]}): "
            "please report this problem file"
        )
    claimed = solution.objective * formulation.units.time_ps
    if abs(claimed - evaluation.value_ps) > max(0.5, VALUE_TOLERANCE * evaluation.value_ps):
        raise SolverError(
            f"HiGHS values a placement at {claimed} ps, the evaluator at {evaluation.value_ps} ps: "
            "please report this problem file"
        )
    return placement, evaluation
