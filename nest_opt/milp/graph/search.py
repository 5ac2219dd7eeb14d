"""The search: cells one after the other, the incumbent as cutoff.

A first incumbent comes from the cuts of topological orders. It leaves each
part a few stages of a cell; a cell that leaves some part none needs no
program. Any other one is built and handed to HiGHS with the incumbent as
cutoff, and its solution rounded, checked and valued anew before it counts.
"""

import time
from dataclasses import dataclass, replace

from nest_opt.cost.graph_table import GraphTable
from nest_opt.errors import PlanError
from nest_opt.milp.graph.bounds import bound_ps
from nest_opt.milp.graph.build import GraphFormulation, build
from nest_opt.milp.graph.cells import GraphCell, Kinds, cell_count, cells
from nest_opt.milp.graph.extract import (
    confirm,
    graph_placement,
    overfull_stages,
    rounded,
    stages_of,
)
from nest_opt.milp.graph.heuristic import ORDERS, Stages, best_cuts
from nest_opt.milp.graph.memory import forbid_overfull
from nest_opt.milp.graph.moves import Loads, improve
from nest_opt.milp.graph.neighbourhoods import (
    LEAST_STEP,
    NODES,
    free_all,
    free_only,
    neighbourhoods,
)
from nest_opt.milp.graph.parts import parts
from nest_opt.milp.graph.result import GraphSearch, GraphSearchTimes
from nest_opt.milp.limits import NO_LIMIT, SearchLimits, proved_ps
from nest_opt.milp.result import Status
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import GraphEvaluation, evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement
from nest_opt.plan.progress import Progress
from nest_opt.solver.highs import HighsSession
from nest_opt.solver.options import SolverOptions
from nest_opt.solver.status import Limit, SolverAnswer

# The cuts of orders are hard to beat: HiGHS does better to prove than to seek.
_PROVE = {
    "mip_heuristic_effort": 0.0,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}


def search(
    table: GraphTable,
    limits: SearchLimits | None = None,
    start: GraphPlacement | None = None,
    progress: Progress | None = None,
    orders: int = ORDERS,
) -> GraphSearch:
    """Find the best placement of a placement graph by integer programs.

    Parameters
    ----------
    table
        The coefficients.
    limits
        When to stop early.
    start
        A legal placement: an incumbent besides those that the search makes.
    progress
        Called with (cells done, cells, best value in ps or None).
    orders
        How many topological orders to seek a first incumbent in; 0 for none,
        as where `start` is a best contiguous split.

    A KeyboardInterrupt ends the search with incumbent and bound.

    Raises
    ------
    PlanError
        If `start` is illegal.
    SolverError
        If HiGHS fails, or its answer does not stand up to checker and evaluator.
    """
    return _Search(table, limits or SearchLimits(), progress, orders).run(start)


@dataclass
class _Tally:
    """What a search counts."""

    pruned: int = 0
    solved: int = 0
    nodes: int = 0
    exact_units: bool = True
    start_s: float = 0.0
    build_s: float = 0.0
    handover_s: float = 0.0
    solve_s: float = 0.0


class _Search:
    """One search.

    `_floor` is the closed-form bound of every cell, `_least` the least bound of
    the cells that are settled.
    """

    def __init__(
        self, table: GraphTable, limits: SearchLimits, progress: Progress | None, orders: int
    ) -> None:
        self._begin = time.perf_counter()
        self._table = table
        self._limits = limits
        self._progress = progress
        self._orders = orders
        self._incumbent: tuple[GraphPlacement, GraphEvaluation] | None = None
        self._parts = parts(table)
        self._cells = cell_count(self._parts)
        self._floor = 0
        self._least = NO_LIMIT
        self._tally = _Tally()

    def run(self, start: GraphPlacement | None) -> GraphSearch:
        """Search until every cell is settled or a limit is met."""
        if start is not None:
            self._take_start(start)
        stopped: Limit | None = None
        try:
            floor = bound_ps(self._parts)
            self._floor = NO_LIMIT if floor is None else floor
            if floor is not None:
                self._seek_start()
            self._tally.start_s = time.perf_counter() - self._begin
            stopped = self._walk()
        except KeyboardInterrupt:
            stopped = "interrupt"
        return self._result(stopped)

    def _take_start(self, start: GraphPlacement) -> None:
        """Take a legal placement as incumbent."""
        violations = check_graph(self._table, start)
        if violations:
            raise PlanError(f"start: the placement is illegal ({violations[0]})")
        self._offer(start)

    def _offer(self, placement: GraphPlacement) -> None:
        """Take a legal placement as incumbent if it is better."""
        evaluation = evaluate_graph(self._table, placement)
        if self._incumbent is None or evaluation.value_ps < self._incumbent[1].value_ps:
            self._incumbent = placement, evaluation

    def _seek_start(self) -> None:
        """Make incumbents from cuts of topological orders; improve them where any split will do."""
        in_order = self._parts
        if not self._parts.contiguous:
            in_order = parts(replace(self._table, contiguous=True))
        found = best_cuts(in_order, self._orders, self._remaining_s())
        if found:
            self._offer(graph_placement(self._table, in_order, found))
        if self._incumbent and not self._parts.contiguous:
            kinds = next(cells(self._parts))
            stages = stages_of(self._table, self._parts, kinds, self._incumbent[0])
            if stages:
                better = improve(self._parts, stages, self._remaining_s())
                self._offer(graph_placement(self._table, self._parts, better))

    def _walk(self) -> Limit | None:
        """Settle cell by cell; return the limit that was met."""
        stopped: Limit | None = None
        for kinds in cells(self._parts):
            if self._floor >= self._threshold():
                break
            if self._progress:
                value = self._incumbent[1].value_ps if self._incumbent else None
                self._progress(self._done(), self._cells, value)
            if self._remaining_s() == 0:
                return "time"
            met = self._settle(kinds)
            stopped = met or stopped
            if met in ("time", "interrupt"):
                break
        return stopped

    def _threshold(self) -> int:
        """Return the value that a placement must be below to matter."""
        return self._limits.threshold_ps(
            None if self._incumbent is None else self._incumbent[1].value_ps
        )

    def _remaining_s(self) -> float | None:
        return self._limits.remaining_s(self._begin)

    def _settle(self, kinds: Kinds) -> Limit | None:
        """Settle a cell, by its windows or by a program; return the limit that it met."""
        threshold = self._threshold()
        cell = GraphCell(self._parts, kinds, None if threshold == NO_LIMIT else threshold)
        begin = time.perf_counter()
        empty = not all(
            any(cell.supports(part, stage) for stage in window)
            for part, window in enumerate(cell.windows)
        )
        self._tally.build_s += time.perf_counter() - begin
        if empty:
            self._least = min(self._least, threshold)
            self._tally.pruned += 1
            return None
        formulation, answer, stages = self._solve(cell)
        proved = self._proved(formulation, answer)
        found = None
        if stages is not None and answer.solution is not None:
            found = confirm(self._table, formulation, answer.solution, stages)
            if answer.termination.reason == "optimal" and not self._limits.gap:
                proved = found[1].value_ps
        # Only now: an interrupt before this leaves the cell open.
        self._tally.solved += 1
        self._least = min(self._least, proved)
        if found:
            self._offer(found[0])
        return answer.termination.limit

    def _solve(self, cell: GraphCell) -> tuple[GraphFormulation, SolverAnswer, Stages | None]:
        """Run a cell's program until its solution fits the memory, or there is none."""
        begin = time.perf_counter()
        formulation = build(cell)
        self._tally.build_s += time.perf_counter() - begin
        session = HighsSession(formulation.model)
        if not self._parts.contiguous:
            self._descend(formulation, session)
        while True:
            limits = self._limits
            answer = self._run(
                formulation,
                session,
                self._threshold() - 0.5,
                SolverOptions(
                    self._remaining_s(),
                    limits.node_limit,
                    relative_gap=limits.gap,
                    settings=_PROVE if self._parts.contiguous and self._incumbent else {},
                ),
            )
            if answer.solution is None:
                return formulation, answer, None
            stages = rounded(formulation, answer.solution)
            overfull = overfull_stages(self._parts, stages)
            if not overfull or answer.termination.limit:
                return formulation, answer, None if overfull else stages
            for stage, members in overfull:
                forbid_overfull(formulation.model, cell, stage, members)
            session = HighsSession(formulation.model)

    def _descend(self, formulation: GraphFormulation, session: HighsSession) -> None:
        """Improve the incumbent of any split by programs with most parts fixed.

        That takes at most half of the time that is left.
        """
        left = self._remaining_s()
        end = None if left is None else time.perf_counter() + left / 2
        while self._incumbent:
            before = self._incumbent
            self._improve(formulation, session, before, end)
            if self._incumbent is before:
                break
        free_all(formulation)

    def _improve(
        self,
        formulation: GraphFormulation,
        session: HighsSession,
        incumbent: tuple[GraphPlacement, GraphEvaluation],
        end: float | None,
    ) -> None:
        """Take a better placement from the first neighbourhood that has one."""
        placement, evaluation = incumbent
        stages = stages_of(self._table, self._parts, formulation.cell.kinds, placement)
        if stages is None:
            return
        cutoff_ps = min(evaluation.value_ps * (1 - LEAST_STEP), self._threshold() - 0.5)
        node_limit = self._limits.node_limit
        nodes = NODES if node_limit is None else min(NODES, node_limit)
        for free in neighbourhoods(Loads(self._parts, stages).loads):
            left = None if end is None else max(0.0, end - time.perf_counter())
            if left == 0 or self._incumbent is not incumbent:
                return
            free_only(formulation, stages, free)
            answer = self._run(formulation, session, cutoff_ps, SolverOptions(left, nodes))
            if answer.solution:
                found = rounded(formulation, answer.solution)
                if not overfull_stages(self._parts, found):
                    self._offer(confirm(self._table, formulation, answer.solution, found)[0])
            if answer.termination.limit == "interrupt":
                raise KeyboardInterrupt

    def _run(
        self,
        formulation: GraphFormulation,
        session: HighsSession,
        cutoff_ps: float,
        options: SolverOptions,
    ) -> SolverAnswer:
        """Solve a program once, with the incumbent as cutoff: what is not better is no use."""
        unit, cutoff = formulation.units.time_ps, None
        if self._incumbent:
            cutoff = cutoff_ps / unit
            formulation.model.maxF.setub(cutoff)
        answer = session.solve(options, cutoff=cutoff)
        tally = self._tally
        tally.nodes += answer.report.nodes
        tally.exact_units &= formulation.units.exact
        tally.handover_s += answer.report.handover_s
        tally.solve_s += answer.report.solve_s
        return answer

    def _proved(self, formulation: GraphFormulation, answer: SolverAnswer) -> int:
        """Return the lower bound that an answer claims for its cell."""
        return max(self._floor, proved_ps(answer, formulation.units.time_ps, self._threshold()))

    def _done(self) -> int:
        return self._tally.pruned + self._tally.solved

    def _result(self, stopped: Limit | None) -> GraphSearch:
        tally, incumbent = self._tally, self._incumbent
        bound = NO_LIMIT if incumbent is None else incumbent[1].value_ps
        bound = min(bound, self._least)
        if self._done() < self._cells:
            bound = min(bound, self._floor)
        if incumbent and bound >= self._threshold():
            # Whatever was stopped does not matter to the claim.
            stopped = None
        status: Status = "feasible" if incumbent else "no-solution"
        if stopped is None:
            status = "optimal" if incumbent else "infeasible"
        return GraphSearch(
            status=status,
            limit=stopped,
            placement=incumbent[0] if incumbent else None,
            evaluation=incumbent[1] if incumbent else None,
            bound_ps=None if bound == NO_LIMIT else bound,
            bound_by="solver" if tally.solved else "closed form",
            exact_units=tally.exact_units,
            cells=self._cells,
            cells_pruned=self._cells - tally.solved if stopped is None else tally.pruned,
            cells_solved=tally.solved,
            nodes=tally.nodes,
            times=GraphSearchTimes(
                tally.start_s,
                tally.build_s,
                tally.handover_s,
                tally.solve_s,
                time.perf_counter() - self._begin,
            ),
        )
