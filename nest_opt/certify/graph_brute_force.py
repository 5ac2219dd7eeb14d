"""Brute force on placement graphs: every assignment of layers to devices, for tiny ones.

It is the reference that the integer program is held against. Each layer is
tried on every device by itself: support, memory, classes and the order of
stages are left to the checker, loads to the evaluator. Devices of one kind
are alike, so that of assignments that differ in their names alone one is
tried.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations

from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.graph_table import GraphTable
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.problem import Problem


@dataclass(frozen=True)
class GraphBruteForceResult:
    """What brute force found.

    Attributes
    ----------
    value_ps, placement
        The least value and the first placement that has it; None where none
        is legal.
    placements
        Placements that are legal, equal ones up to the names of devices of
        one kind and the order of stages counted once.
    """

    value_ps: int | None
    placement: GraphPlacement | None
    placements: int


def graph_brute_force(problem: Problem) -> GraphBruteForceResult:
    """Find the best placement by valuing every one."""
    table = build_graph_table(problem)
    best: int | None = None
    winner: GraphPlacement | None = None
    legal = 0
    for assignment in enumerate_assignments(table):
        placement = _legal_order(table, assignment)
        if placement is None:
            continue
        legal += 1
        value = evaluate_graph(table, placement).value_ps
        if best is None or value < best:
            best, winner = value, placement
    return GraphBruteForceResult(best, winner, legal)


def enumerate_assignments(table: GraphTable) -> Iterator[tuple[int, ...]]:
    """Yield a device for each layer, in every way up to names of devices of one kind.

    Of the devices of a kind that are not in use yet, a layer takes the first.
    """

    def extend(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == len(table.layers):
            yield chosen
            return
        for kind in table.kinds:
            used = [device for device in kind.devices if device in chosen]
            unused = [device for device in kind.devices if device not in chosen]
            for device in (*used, *unused[:1]):
                yield from extend((*chosen, device))

    return extend(())


def _legal_order(table: GraphTable, assignment: tuple[int, ...]) -> GraphPlacement | None:
    """Return the placement with its stages in the first order that is legal, or None.

    The order matters to contiguous splits alone.
    """
    stages = tuple(
        GraphStage(device, tuple(n for n, chosen in enumerate(assignment) if chosen == device))
        for device in sorted(set(assignment))
    )
    if any(broken.rule != "contiguous" for broken in check_graph(table, GraphPlacement(stages))):
        return None
    for order in permutations(stages):
        if not check_graph(table, GraphPlacement(order)):
            return GraphPlacement(order)
    return None
