"""Whether the program of placement graphs agrees with checker, evaluator and brute force."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, permutations

from nest_opt import Problem
from nest_opt.certify.graph_brute_force import enumerate_assignments, graph_brute_force
from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.graph_table import GraphTable
from nest_opt.milp.graph.build import GraphFormulation, build
from nest_opt.milp.graph.cells import GraphCell, Kinds, device_counts
from nest_opt.milp.graph.extract import stages_of
from nest_opt.milp.graph.heuristic import ORDERS
from nest_opt.milp.graph.parts import Parts, parts
from nest_opt.milp.graph.result import GraphSearch
from nest_opt.milp.graph.search import search
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.solver.highs import HighsSession


@dataclass(frozen=True)
class FixedComparison:
    """Assignments fixed in the programs: how many, how many of them legal, what differs."""

    assignments: int
    legal: int
    difference: str | None


def assignment_count(table: GraphTable, most: int) -> int:
    """Return the number of assignments, or a larger number than `most` if there are more."""
    return sum(1 for _ in islice(enumerate_assignments(table), most + 1))


def placements(table: GraphTable) -> Iterator[GraphPlacement]:
    """Yield a placement for every assignment: in a legal order of its stages, if there is one."""
    for assignment in enumerate_assignments(table):
        stages = [
            GraphStage(device, tuple(n for n, chosen in enumerate(assignment) if chosen == device))
            for device in sorted(set(assignment))
        ]
        orders = [GraphPlacement(order) for order in permutations(stages)]
        yield next((order for order in orders if not check_graph(table, order)), orders[0])


def compare_fixed(table: GraphTable) -> FixedComparison:
    """Fix every assignment: feasible as the checker says, valued as the evaluator."""
    programs = Programs(table)
    count = legal = 0
    for placement in placements(table):
        violations = check_graph(table, placement)
        expected = None if violations else evaluate_graph(table, placement).value_ps
        found = programs.value(placement)
        count += 1
        legal += expected is not None
        if found != expected:
            told = f"checker and evaluator {expected} ({violations}), program {found}"
            return FixedComparison(count, legal, f"{placement}: {told}")
    return FixedComparison(count, legal, None)


class Programs:
    """The programs of a table's cells, without a cutoff, each built once."""

    def __init__(self, table: GraphTable, split: Parts | None = None) -> None:
        self._table = table
        self.parts = split or parts(table)
        self._built: dict[Kinds, tuple[GraphFormulation, HighsSession]] = {}

    def value(self, placement: GraphPlacement) -> float | None:
        """Return the program's value with a placement fixed; None if it has no such solution.

        Layers of a part cannot be on several devices: there is nothing to fix
        then. The value is rounded to 1e-4 ps: what is a whole number then
        agrees exactly.
        """
        kinds = self._cell(placement)
        stages = stages_of(self._table, self.parts, kinds, placement)
        if stages is None:
            return None
        if kinds not in self._built:
            formulation = build(GraphCell(self.parts, kinds))
            self._built[kinds] = formulation, HighsSession(formulation.model)
        formulation, session = self._built[kinds]
        for variable, value in formulation.decisions(stages.stage_of):
            variable.fix(value)
        answer = session.solve()
        if answer.solution is None:
            assert answer.termination.reason == "infeasible"
            return None
        return round(answer.solution.objective * formulation.units.time_ps, 4)

    def _cell(self, placement: GraphPlacement) -> Kinds:
        """Return the kinds of a cell that has a placement's stages, in order if that matters."""
        left = list(device_counts(self.parts))
        kinds = []
        for stage in placement.stages if self.parts.contiguous else ():
            kind = self._table.kinds.index(self._table.kind_of[stage.device])
            kinds.append(kind)
            left[kind] -= 1
        return (*kinds, *(kind for kind, number in enumerate(left) for _ in range(number)))


@dataclass(frozen=True)
class OptimumComparison:
    """A search, and what differs from brute force (None: nothing)."""

    found: GraphSearch
    difference: str | None


def compare_optimum(problem: Problem) -> OptimumComparison:
    """Hold the search against brute force.

    By a coin of the problem's name, it makes no first incumbent, or starts
    from a legal placement.
    """
    table = build_graph_table(problem)
    brute = graph_brute_force(problem)
    coin = random.Random(problem.name).random()
    start = None
    if brute.placement is not None and coin < 0.2:
        legal = [placement for placement in placements(table) if not check_graph(table, placement)]
        start = legal[-1]
    found = search(table, start=start, orders=0 if coin < 0.6 else ORDERS)
    status = "infeasible" if brute.value_ps is None else "optimal"
    difference = None
    if not (brute.value_ps == found.value_ps == found.bound_ps) or found.status != status:
        difference = (
            f"brute force {brute.value_ps}, program {found.status} {found.value_ps}, "
            f"bound {found.bound_ps}, {found.placement}"
        )
    return OptimumComparison(found, difference)
