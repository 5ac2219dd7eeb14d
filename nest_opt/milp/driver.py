"""The driver: cells of the aligned family, best bound first, the incumbent as cutoff.

A cell whose closed-form bound cannot beat the incumbent needs no program; any
other one is built, handed to HiGHS with the incumbent as cutoff, and its
solution rounded, checked and valued anew before it counts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from heapq import heapify, heappop
from math import ceil

from nest_opt.errors import PlanError, SolverError
from nest_opt.milp.bounds import bound_ps
from nest_opt.milp.build import Formulation, build
from nest_opt.milp.cells import aligned_cells
from nest_opt.milp.coefficients import CoefficientSource
from nest_opt.milp.extract import confirm, overfull_stages, rounded
from nest_opt.milp.memory import forbid_overfull
from nest_opt.milp.result import ExactSearch, ProgramProgress, SearchTimes, Status
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate
from nest_opt.plan.family import outside
from nest_opt.plan.placement import Cell, Placement
from nest_opt.solver.highs import HighsSession
from nest_opt.solver.options import SolverOptions
from nest_opt.solver.status import Limit, SolverAnswer, SolverProgress

Progress = Callable[[int, int, int | None], None]
Watch = Callable[[ProgramProgress], None]

# HiGHS's feasibility tolerance, relative to a bound: what its claim may be off by.
BOUND_TOLERANCE = 1e-6


@dataclass(frozen=True)
class SearchLimits:
    """When a search may stop early.

    Attributes
    ----------
    time_limit_s
        Seconds for the whole search, None for no limit.
    node_limit
        Branch-and-bound nodes for each program, None for no limit.
    gap
        A plan within this share of its value of the bound is good enough.
    """

    time_limit_s: float | None = None
    node_limit: int | None = None
    gap: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.gap < 1:
            raise SolverError(f"gap: found {self.gap}, 0 <= gap < 1 is needed: change it")
        if self.time_limit_s is not None and not self.time_limit_s >= 0:
            raise SolverError(
                f"time_limit_s: found {self.time_limit_s}, at least 0 is needed: raise it"
            )


def search(
    costs: Costs,
    limits: SearchLimits | None = None,
    start: Placement | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> ExactSearch:
    """Find the best placement of the aligned family by integer programs.

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
    return _Search(costs, limits or SearchLimits(), progress, watch).run(start)


# Above any objective value: a stage is below 2**60 ps, m below 2**41.
_NO_LIMIT = 2**120


@dataclass
class _Tally:
    """What a search counts."""

    cells: int = 0
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
        limits: SearchLimits,
        progress: Progress | None,
        watch: Watch | None,
    ) -> None:
        self._begin = time.perf_counter()
        self._costs = costs
        self._source = CoefficientSource(costs)
        self._limits = limits
        self._progress = progress
        self._watch = watch
        self._incumbent: tuple[Placement, Evaluation] | None = None
        self._queue: list[tuple[int, tuple[object, ...], Cell]] = []
        self._filled = False
        self._settled = _NO_LIMIT
        self._tally = _Tally()

    def run(self, start: Placement | None) -> ExactSearch:
        """Search until every cell is settled or a limit is met."""
        if start is not None:
            self._take_start(start)
        stopped: Limit | None = None
        try:
            self._fill()
            while self._queue and self._queue[0][0] < self._threshold():
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
        found = outside(self._costs, start)
        if found:
            # Its value would not be one of the family, and the bound would be wrong.
            raise PlanError(
                f"start: found {found}, which is outside the search space: "
                "start from a plan of the aligned family"
            )
        self._incumbent = start, evaluation

    def _fill(self) -> None:
        """Bound every cell; those that cannot fit are settled."""
        begin = time.perf_counter()
        cells = list(aligned_cells(self._costs))
        for cell in cells:
            self._tell(self._tally.cells, len(cells))
            self._tally.cells += 1
            bound = bound_ps(self._source.of(cell))
            if bound is not None:
                self._queue.append((bound, _place(cell), cell))
        heapify(self._queue)
        self._filled = True
        self._tally.bounds_s = time.perf_counter() - begin

    def _tell(self, done: int, cells: int) -> None:
        if self._progress:
            self._progress(done, cells, self._value())

    def _tell_program(self, formulation: Formulation, progress: SolverProgress) -> None:
        """Tell where the search is while the program of the first open cell runs."""
        if self._watch is None:
            return
        unit = formulation.units.time_ps
        known = [self._value()]
        if progress.objective is not None:
            known.append(round(progress.objective * unit))
        of_cell, *_ = self._queue[0]
        if progress.dual_bound is not None:
            of_cell = max(of_cell, self._below(progress.dual_bound, unit))
        value = min((value for value in known if value is not None), default=None)
        others = [bound for bound, *_ in self._queue[1:3]]
        bound = min(of_cell, self._settled, *others, _NO_LIMIT if value is None else value)
        self._watch(ProgramProgress(value, bound, progress.nodes, progress.elapsed_s))

    def _value(self) -> int | None:
        return None if self._incumbent is None else self._incumbent[1].value_ps

    def _threshold(self) -> int:
        """Return the value that a cell's bound must be below to matter."""
        if self._incumbent is None:
            return _NO_LIMIT
        value = self._incumbent[1].value_ps
        return ceil(value * (1 - Fraction(self._limits.gap)))

    def _remaining_s(self) -> float | None:
        if self._limits.time_limit_s is None:
            return None
        return max(0.0, self._limits.time_limit_s - (time.perf_counter() - self._begin))

    def _next(self) -> Limit | None:
        """Run the program of the cell with the least bound; return the limit that it met."""
        self._tell(self._tally.cells - len(self._queue), self._tally.cells)
        bound, _, cell = self._queue[0]
        formulation, answer, raw = self._solve(cell)
        proved = self._proved(formulation, answer)
        found = None
        if raw is not None and answer.solution is not None:
            found = confirm(self._costs, formulation, answer.solution, raw)
            if answer.termination.reason == "optimal" and not self._limits.gap:
                proved = found[1].value_ps
        # Only now: an interrupt before this leaves the cell open.
        heappop(self._queue)
        self._tally.solved += 1
        self._settled = min(self._settled, max(bound, proved))
        if found and (self._incumbent is None or found[1].value_ps < self._incumbent[1].value_ps):
            self._incumbent = found
        return answer.termination.limit

    def _solve(self, cell: Cell) -> tuple[Formulation, SolverAnswer, Placement | None]:
        """Run a cell's program until its solution fits the memory, or there is none."""
        begin = time.perf_counter()
        formulation = build(self._costs, self._source.of(cell))
        self._tally.build_s += time.perf_counter() - begin
        while True:
            answer = self._run(formulation)
            if answer.solution is None:
                return formulation, answer, None
            raw = rounded(formulation, answer.solution)
            evaluation = evaluate(self._costs, raw)
            overfull = overfull_stages(evaluation)
            if not overfull or answer.termination.limit:
                return formulation, answer, None if overfull else raw
            for stage in overfull:
                of_stage = evaluation.stages[stage]
                layers = range(of_stage.low, of_stage.high)
                forbid_overfull(
                    formulation.model, formulation.coefficients, stage, layers, of_stage.recompute
                )

    def _run(self, formulation: Formulation) -> SolverAnswer:
        """Hand a program over and solve it once."""
        session = HighsSession(formulation.model)
        # The incumbent is worth more as a cutoff than as a MIP start, also in its own
        # cell: what is not better is of no interest.
        cutoff = Fraction(self._threshold()) - Fraction(1, 2)
        answer = session.solve(
            SolverOptions(
                self._remaining_s(), self._limits.node_limit, relative_gap=self._limits.gap
            ),
            cutoff=None if self._incumbent is None else float(cutoff / formulation.units.time_ps),
            watch=partial(self._tell_program, formulation),
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
        if answer.termination.reason in ("infeasible", "nothing-better"):
            return self._threshold()
        bound, unit = answer.report.dual_bound, formulation.units.time_ps
        if bound is None:
            return 0
        return self._below(bound, unit)

    @staticmethod
    def _below(bound: float, unit: int) -> int:
        """Return what a bound of the solver proves, given its tolerance."""
        return ceil((bound - BOUND_TOLERANCE * max(1.0, abs(bound))) * unit)

    def _result(self, stopped: Limit | None) -> ExactSearch:
        tally, incumbent = self._tally, self._incumbent
        still_open = sum(entry[0] < self._threshold() for entry in self._queue)
        bound = 0
        if self._filled:
            open_bounds = [entry[0] for entry in self._queue[:1]]
            value = _NO_LIMIT if incumbent is None else incumbent[1].value_ps
            bound = min(value, self._settled, *open_bounds)
        if incumbent and bound >= self._threshold():
            # Whatever was stopped does not matter to the claim.
            stopped = None
        status: Status = "feasible" if incumbent else "no-solution"
        if stopped is None:
            status = "optimal" if incumbent else "infeasible"
        return ExactSearch(
            family="aligned",
            status=status,
            limit=stopped,
            placement=incumbent[0] if incumbent else None,
            evaluation=incumbent[1] if incumbent else None,
            bound_ps=None if bound == _NO_LIMIT else bound,
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


def _place(cell: Cell) -> tuple[object, ...]:
    """Return a cell's place among equals: the order of ties."""
    device_map = cell.device_map
    return (
        device_map.devices_used,
        device_map.stages,
        device_map.replicas,
        cell.microbatch,
        cell.configuration,
        cell.zero,
        device_map.order != "pp-inner",
        device_map.pitch,
    )
