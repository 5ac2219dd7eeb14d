"""The driver: cells of the aligned family, best bound first, the incumbent as cutoff.

A cell whose closed-form bound cannot beat the incumbent needs no program; any
other one is built, handed to HiGHS with the incumbent as cutoff, and its
solution rounded, checked and valued anew before it counts.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop
from math import ceil

from nest_opt.errors import PlanError, SolverError
from nest_opt.milp.bounds import bound_ps
from nest_opt.milp.build import Formulation, build
from nest_opt.milp.cells import aligned_cells
from nest_opt.milp.coefficients import CoefficientSource
from nest_opt.milp.extract import extract
from nest_opt.milp.result import ExactSearch, SearchTimes, Status, StoppedBy
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, Evaluation, evaluate, placement_cell
from nest_opt.plan.placement import Cell, Placement
from nest_opt.solver.highs import HighsSession
from nest_opt.solver.options import SolverOptions
from nest_opt.solver.status import SolverAnswer

Progress = Callable[[int, int, int | None], None]

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
        Called with (cells done, cells, best value in ps or None).

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
    return _Search(costs, limits or SearchLimits(), progress).run(start)


@dataclass
class _Seconds:
    bounds: float = 0.0
    build: float = 0.0
    handover: float = 0.0
    solve: float = 0.0


@dataclass
class _Search:
    """The state of one search.

    Attributes
    ----------
    queue
        Open cells as (bound, place in the order of ties, cell).
    settled
        The least bound of the cells that a program has been run for.
    """

    costs: Costs
    limits: SearchLimits
    progress: Progress | None
    placement: Placement | None = None
    evaluation: Evaluation | None = None
    start: Placement | None = None
    queue: list[tuple[int, tuple[object, ...], Cell]] = field(default_factory=list)
    settled: int | None = None
    cells: int = 0
    solved: int = 0
    nodes: int = 0
    exact_units: bool = True
    node_limit_met: bool = False
    seconds: _Seconds = field(default_factory=_Seconds)
    begin: float = field(default_factory=time.perf_counter)

    def run(self, start: Placement | None) -> ExactSearch:
        """Search until every cell is settled or a limit is met."""
        self.source = CoefficientSource(self.costs)
        if start is not None:
            self._take_start(start)
        stopped: StoppedBy | None = None
        try:
            self._fill()
            while self.queue and self.queue[0][0] < self._threshold() and stopped is None:
                if self._remaining_s() == 0:
                    stopped = "time"
                else:
                    stopped = self._next()
        except KeyboardInterrupt:
            stopped = "interrupt"
        return self._result(stopped or ("nodes" if self.node_limit_met else None))

    def _take_start(self, start: Placement) -> None:
        evaluation = evaluate(self.costs, start)
        violations = check(self.costs, start, evaluation)
        if violations:
            raise PlanError(f"start: the placement is illegal: {violations[0]}")
        self.start = self.placement = start
        self.evaluation = evaluation

    def _fill(self) -> None:
        """Bound every cell; those that cannot fit are settled."""
        begin = time.perf_counter()
        for cell in aligned_cells(self.costs):
            self.cells += 1
            bound = bound_ps(self.source.of(cell))
            if bound is not None:
                self.queue.append((bound, _place(cell), cell))
        if self.start is not None:
            self._place_start(self.start)
        heapify(self.queue)
        self.seconds.bounds = time.perf_counter() - begin

    def _place_start(self, start: Placement) -> None:
        """Refuse a start that is no plan of the family: its value would not be one."""
        cell = placement_cell(self.costs.problem, start)
        if not any(_same(cell, other) for _, _, other in self.queue):
            raise PlanError(
                f"start: the device map (order {start.order}, pitch {start.pitch}) or a degree is "
                "not in the search space: start from a plan of the aligned family"
            )

    def _threshold(self) -> int:
        """Return the value that a cell's bound must be below to matter."""
        if self.evaluation is None:
            return 2**200
        value = self.evaluation.value_ps
        return ceil(value * (1 - self.limits.gap)) if self.limits.gap else value

    def _remaining_s(self) -> float | None:
        if self.limits.time_limit_s is None:
            return None
        return max(0.0, self.limits.time_limit_s - (time.perf_counter() - self.begin))

    def _next(self) -> StoppedBy | None:
        """Run the program of the cell with the least bound; return the limit that ends all."""
        if self.progress:
            value = None if self.evaluation is None else self.evaluation.value_ps
            self.progress(self.cells - len(self.queue), self.cells, value)
        bound, _, cell = self.queue[0]
        formulation, answer = self._solve(cell)
        # Only now: an interrupt while the program was built leaves the cell open.
        heappop(self.queue)
        self._settle(max(bound, self._proved(formulation, answer)))
        if answer.solution is not None:
            self._consider(formulation, answer)
        self.solved += 1
        self.nodes += answer.report.nodes
        self.exact_units &= formulation.units.exact
        limit = answer.termination.limit
        self.node_limit_met |= limit == "nodes"
        return None if limit == "nodes" else limit

    def _solve(self, cell: Cell) -> tuple[Formulation, SolverAnswer]:
        begin = time.perf_counter()
        formulation = build(self.costs, self.source.of(cell))
        self.seconds.build += time.perf_counter() - begin
        session = HighsSession(formulation.model)
        options = SolverOptions(
            self._remaining_s(), self.limits.node_limit, relative_gap=self.limits.gap
        )
        decisions = ()
        cutoff = self._threshold() - 0.5
        if self.start is not None and _same(placement_cell(self.costs.problem, self.start), cell):
            decisions = formulation.decisions(self.start.ends, self.start.recompute)
            # The start itself must pass.
            cutoff = self.evaluation.value_ps + 0.5
        answer = session.solve(
            options,
            cutoff=None if self.evaluation is None else formulation.units.time(cutoff),
            start=decisions,
        )
        self.seconds.handover += answer.report.handover_s
        self.seconds.solve += answer.report.solve_s
        return formulation, answer

    def _proved(self, formulation: Formulation, answer: SolverAnswer) -> int:
        """Return the lower bound that an answer proves for its cell."""
        reason, bound = answer.termination.reason, answer.report.dual_bound
        if reason in ("infeasible", "nothing-better"):
            return self._threshold()
        if bound is None:
            return 0
        in_ps = bound * formulation.units.time_ps
        return ceil(in_ps - BOUND_TOLERANCE * max(abs(in_ps), formulation.units.time_ps))

    def _settle(self, bound: int) -> None:
        self.settled = bound if self.settled is None else min(self.settled, bound)

    def _consider(self, formulation: Formulation, answer: SolverAnswer) -> None:
        """Take the solution as incumbent if it is better."""
        assert answer.solution is not None
        placement, evaluation = extract(self.costs, formulation, answer.solution)
        if self.evaluation is None or evaluation.value_ps < self.evaluation.value_ps:
            self.placement, self.evaluation = placement, evaluation

    def _result(self, stopped: StoppedBy | None) -> ExactSearch:
        ...
