"""The driver: cells of a family, best bound first, the incumbent as cutoff.

A cell whose closed-form bound cannot beat the incumbent needs no program; any
other one is built, handed to HiGHS with the incumbent as cutoff, and its
solution rounded, checked and valued anew before it counts. Where a family has
a relaxed program, that goes first: most cells need no other one.
"""

import time
from dataclasses import dataclass, replace
from functools import partial
from heapq import heapify, heappop

from nest_opt.errors import PlanError
from nest_opt.milp.bounds import bound_ps, most_slowest_ps
from nest_opt.milp.build import Formulation, build
from nest_opt.milp.cells import FreeCell, ProgramCell
from nest_opt.milp.coefficients import CellCoefficients, CoefficientSource
from nest_opt.milp.extract import confirm, overfull_stages, rounded
from nest_opt.milp.families import FAMILIES, Family
from nest_opt.milp.limits import NO_LIMIT, SearchLimits, claimed_ps, cutoff_ps, proved_ps, value_ps
from nest_opt.milp.memory import forbid_overfull
from nest_opt.milp.result import (
    ExactSearch,
    FamilyName,
    ProgramProgress,
    SearchTimes,
    Status,
    Watch,
)
from nest_opt.milp.runs import without_dominated
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.plan.progress import Progress
from nest_opt.solver.highs import HighsSession
from nest_opt.solver.options import SolverOptions
from nest_opt.solver.status import Limit, SolverAnswer, SolverProgress

# So many cells are bounded whatever the time: without it nothing could be said.
_BOUNDED_AT_LEAST = 256


def search(
    costs: Costs,
    limits: SearchLimits | None = None,
    start: Placement | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
    family: FamilyName = "aligned",
) -> ExactSearch:
    """Find the best placement of a family by integer programs.

    Parameters
    ----------
    costs
        The problem with its coefficients.
    limits
        When to stop early.
    start
        A legal placement of the family: the first incumbent.
    progress
        Called with (cells done, cells, best value in ps or None), first while
        all cells are bounded, then while they are settled.
    watch
        Called about once a second while a program runs.
    family
        Its name.

    A KeyboardInterrupt ends the search with incumbent and bound.

    Raises
    ------
    InstanceError
        If the problem has no legal degrees.
    ModelError
        If a constraint has no rows, or coefficients are too far apart.
    PlanError
        If `start` is illegal or not of the family.
    SolverError
        If HiGHS fails, or its answer does not stand up to checker and evaluator.
    """
    run = _Search(costs, FAMILIES[family], limits or SearchLimits(), progress, watch)
    return run.run(start)


@dataclass
class _Tally:
    """What a search counts."""

    cells: int = 0
    programs: int = 0
    solved: int = 0
    nodes: int = 0
    exact_units: bool = True
    bounds_s: float = 0.0
    build_s: float = 0.0
    handover_s: float = 0.0
    solve_s: float = 0.0


class _Search:
    """One search.

    `_queue` holds the open cells as (bound, place in the order of ties, cell),
    `_settled` is the least bound of the cells that a program was run for.
    """

    def __init__(
        self,
        costs: Costs,
        family: Family,
        limits: SearchLimits,
        progress: Progress | None,
        watch: Watch | None,
    ) -> None:
        self._begin = time.perf_counter()
        self._costs = costs
        self._family = family
        self._source = CoefficientSource(costs)
        self._limits = limits
        self._progress = progress
        self._watch = watch
        self._incumbent: tuple[Placement, Evaluation] | None = None
        self._queue: list[tuple[int, tuple[object, ...], ProgramCell]] = []
        # Bounds of relaxed programs, by degrees.
        self._relaxed: dict[FreeCell, int] = {}
        self._filled = False
        self._settled = NO_LIMIT
        self._tally = _Tally()

    def run(self, start: Placement | None) -> ExactSearch:
        """Search until every cell is settled or a limit is met."""
        if start is not None:
            self._take_start(start)
        stopped: Limit | None = None
        try:
            stopped = self._fill()
            while stopped != "time" and self._queue and self._queue[0][0] < self._threshold():
                if self._remaining_s() == 0:
                    stopped = "time"
                    break
                met = self._next()
                stopped = met or stopped
                if met in ("time", "interrupt"):
                    break
        except KeyboardInterrupt:
            stopped = "interrupt"
        return self._result(stopped)

    def _take_start(self, start: Placement) -> None:
        """Take a legal placement of the family as incumbent."""
        evaluation = evaluate(self._costs, start)
        violations = check(self._costs, start, evaluation)
        if violations:
            raise PlanError(f"start: the placement is illegal ({violations[0]})")
        found = self._family.outside(self._costs, start)
        if found:
            # Its value would not be one of the family, and the bound would be wrong.
            raise PlanError(
                f"start: found {found}, which is outside the search space: "
                f"start from a plan of the {self._family.name} family"
            )
        self._incumbent = start, evaluation

    def _fill(self) -> Limit | None:
        """Bound every cell; those that cannot fit are settled. Return the limit that was met."""
        begin = time.perf_counter()
        cells: list[ProgramCell] = []
        for cell in self._family.cells(self._costs):
            cells.append(cell)
            if self._is_late(len(cells)):
                return "time"
        for cell in cells:
            self._tell(self._tally.cells, len(cells))
            self._tally.cells += 1
            bound = bound_ps(self._source.of(cell))
            if bound is not None:
                self._queue.append((bound, self._family.place(cell), cell))
            if self._tally.cells < len(cells) and self._is_late(self._tally.cells):
                return "time"
        heapify(self._queue)
        self._filled = True
        self._tally.bounds_s = time.perf_counter() - begin
        return None

    def _is_late(self, cells: int) -> bool:
        return cells >= _BOUNDED_AT_LEAST and self._remaining_s() == 0

    def _tell(self, done: int, cells: int) -> None:
        if self._progress:
            self._progress(done, cells, self._value())

    def _tell_program(
        self, formulation: Formulation, relaxed: bool, progress: SolverProgress
    ) -> None:
        """Tell where the search is while a program of the first open cell runs.

        The solution of a relaxed program is no plan.
        """
        if self._watch is None:
            return
        unit, chunks = formulation.units.time_ps, formulation.coefficients.cell.schedule.chunks
        known = [self._value()]
        if progress.objective is not None and not relaxed:
            known.append(value_ps(progress.objective * unit, chunks))
        of_cell, *_ = self._queue[0]
        if progress.dual_bound is not None:
            of_cell = max(of_cell, claimed_ps(progress.dual_bound, unit))
        value = min((value for value in known if value is not None), default=None)
        others = [bound for bound, *_ in self._queue[1:3]]
        bound = min(of_cell, self._settled, *others, NO_LIMIT if value is None else value)
        self._watch(ProgramProgress(value, bound, progress.nodes, progress.elapsed_s))

    def _value(self) -> int | None:
        return None if self._incumbent is None else self._incumbent[1].value_ps

    def _threshold(self) -> int:
        """Return the value that a cell's bound must be below to matter."""
        return self._limits.threshold_ps(self._value())

    def _remaining_s(self) -> float | None:
        return self._limits.remaining_s(self._begin)

    def _next(self) -> Limit | None:
        """Run the program of the cell with the least bound; return the limit that it met."""
        self._tell(self._tally.cells - len(self._queue), self._tally.cells)
        first, _, cell = self._queue[0]
        programs = self._tally.programs
        relaxed, limit = self._relaxed_bound(cell)
        bound, found = max(first, relaxed), None
        if bound < self._threshold() and limit not in ("time", "interrupt"):
            of_cell, found, limit = self._solve_cell(cell)
            bound = max(bound, of_cell)
        # Only now: an interrupt before this leaves the cell open.
        heappop(self._queue)
        self._tally.solved += self._tally.programs > programs
        self._settled = min(self._settled, bound)
        if found and (self._incumbent is None or found[1].value_ps < self._incumbent[1].value_ps):
            self._incumbent = found
        return limit

    def _relaxed_bound(self, cell: ProgramCell) -> tuple[int, Limit | None]:
        """Return what the relaxed program of a cell's degrees proves, and the limit that it met.

        Other cells of the same degrees ask for it too: it is run once. A limit
        that it met matters to nobody if the bound is good enough.
        """
        degrees = self._family.relaxation(cell)
        if degrees is None:
            return 0, None
        if degrees not in self._relaxed:
            formulation = self._build(self._narrowed(self._source.of(degrees)), relaxed=True)
            answer, _ = self._solve(formulation, relaxed=True)
            bound = self._proved(formulation, answer)
            limit = None if bound >= self._threshold() else answer.termination.limit
            if limit in ("time", "interrupt"):
                return bound, limit
            self._relaxed[degrees] = bound
        return self._relaxed[degrees], None

    def _solve_cell(
        self, cell: ProgramCell
    ) -> tuple[int, tuple[Placement, Evaluation] | None, Limit | None]:
        """Run a cell's own program; return its bound, its plan if any, and the limit it met."""
        formulation = self._build(self._narrowed(self._source.of(cell)), relaxed=False)
        answer, raw = self._solve(formulation, relaxed=False)
        bound, found = self._proved(formulation, answer), None
        if raw is not None and answer.solution is not None:
            optimal = answer.termination.reason == "optimal" and not self._limits.gap
            found = confirm(self._costs, formulation, answer.solution, raw, optimal)
            if optimal:
                bound = found[1].value_ps
        limit = None if bound >= self._threshold() else answer.termination.limit
        return bound, found, limit

    def _narrowed(self, coefficients: CellCoefficients) -> CellCoefficients:
        """Return coefficients of the plans that are better than the incumbent."""
        if coefficients.by_level is None:
            return coefficients
        if self._incumbent is not None:
            most_ps = most_slowest_ps(coefficients, self._threshold())
            coefficients = replace(coefficients, most_ps=most_ps)
        return without_dominated(coefficients)

    def _build(self, coefficients: CellCoefficients, relaxed: bool) -> Formulation:
        begin = time.perf_counter()
        formulation = build(self._costs, coefficients, relaxed)
        self._tally.build_s += time.perf_counter() - begin
        self._tally.programs += 1
        return formulation

    def _solve(
        self, formulation: Formulation, relaxed: bool
    ) -> tuple[SolverAnswer, Placement | None]:
        """Run a program until its solution fits the memory, or there is none.

        The solution of a relaxed program is no placement.
        """
        while True:
            answer = self._run(formulation, relaxed)
            if answer.solution is None or relaxed:
                return answer, None
            raw = rounded(formulation, answer.solution)
            evaluation = evaluate(self._costs, raw)
            overfull = overfull_stages(evaluation)
            if not overfull or answer.termination.limit:
                return answer, None if overfull else raw
            for stage in overfull:
                of_stage = evaluation.stages[stage]
                order = range(raw.ends[-1]) if raw.layer_order is None else raw.layer_order
                option = next(
                    option
                    for option in formulation.coefficients.options[stage]
                    if option[:2] == (raw.configurations[stage], of_stage.recompute)
                )
                forbid_overfull(
                    formulation.model,
                    formulation.coefficients,
                    stage,
                    [order[low:high] for low, high in of_stage.intervals],
                    option,
                )

    def _run(self, formulation: Formulation, relaxed: bool) -> SolverAnswer:
        """Hand a program over and solve it once."""
        session = HighsSession(formulation.model)
        # The incumbent is worth more as a cutoff than as a MIP start, also in its own
        # cell: what is not better is of no interest.
        cutoff = cutoff_ps(self._threshold(), formulation.coefficients.cell.schedule.chunks)
        answer = session.solve(
            SolverOptions(
                self._remaining_s(), self._limits.node_limit, relative_gap=self._limits.gap
            ),
            cutoff=None if self._incumbent is None else float(cutoff / formulation.units.time_ps),
            watch=partial(self._tell_program, formulation, relaxed),
        )
        self._count(formulation, answer)
        return answer

    def _count(self, formulation: Formulation, answer: SolverAnswer) -> None:
        tally, report = self._tally, answer.report
        tally.nodes += report.nodes
        tally.exact_units &= formulation.units.exact
        tally.handover_s += report.handover_s
        tally.solve_s += report.solve_s

    def _proved(self, formulation: Formulation, answer: SolverAnswer) -> int:
        """Return the lower bound that an answer claims for its cell."""
        return proved_ps(answer, formulation.units.time_ps, self._threshold())

    def _result(self, stopped: Limit | None) -> ExactSearch:
        tally, incumbent = self._tally, self._incumbent
        still_open = sum(entry[0] < self._threshold() for entry in self._queue)
        bound = 0
        if self._filled:
            open_bounds = [entry[0] for entry in self._queue[:1]]
            value = NO_LIMIT if incumbent is None else incumbent[1].value_ps
            bound = min(value, self._settled, *open_bounds)
        if incumbent and bound >= self._threshold():
            # Whatever was stopped does not matter to the claim.
            stopped = None
        status: Status = "feasible" if incumbent else "no-solution"
        if stopped is None:
            status = "optimal" if incumbent else "infeasible"
        return ExactSearch(
            family=self._family.name,
            status=status,
            limit=stopped,
            placement=incumbent[0] if incumbent else None,
            evaluation=incumbent[1] if incumbent else None,
            bound_ps=None if bound == NO_LIMIT else bound,
            bound_by="solver" if tally.solved else "closed form",
            exact_units=tally.exact_units,
            cells=tally.cells,
            cells_pruned=tally.cells - tally.solved - still_open,
            cells_solved=tally.solved,
            nodes=tally.nodes,
            times=SearchTimes(
                tally.bounds_s,
                tally.build_s,
                tally.handover_s,
                tally.solve_s,
                time.perf_counter() - self._begin,
            ),
        )
