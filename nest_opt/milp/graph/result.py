"""What the search with the program of placement graphs returns. No Pyomo here."""

from dataclasses import dataclass

from nest_opt.milp.result import BoundBy, Status, Tally
from nest_opt.plan.gap import relative_gap, value_of
from nest_opt.plan.graph_evaluate import GraphEvaluation
from nest_opt.plan.graph_placement import GraphPlacement
from nest_opt.solver.status import Limit


@dataclass(frozen=True)
class GraphSearchTimes:
    """Seconds of a search, by what they were spent on.

    Attributes
    ----------
    start_s
        Parts, closed-form bound and first incumbent.
    build_s, handover_s, solve_s
        Building programs (with their windows), passing them to HiGHS, solving them.
    total_s
        All of it, and what lies between.
    """

    start_s: float
    build_s: float
    handover_s: float
    solve_s: float
    total_s: float


@dataclass(frozen=True)
class GraphSearch(Tally):
    """What a search over cells, which are orders of kinds, found and counted.

    Attributes
    ----------
    status
        `optimal`: no placement is better (by more than the gap that was asked
        for). `infeasible`: there is no legal one. `feasible` and
        `no-solution`: a limit came first, with or without a placement.
    limit
        The limit that was met, None if none was.
    placement, evaluation
        The best placement, rounded, checked and valued by the evaluator.
    bound_ps
        No placement has a lower value; None if infeasible.
    bound_by
        Who vouches for the bound: `solver` as soon as a program took part in
        it, `closed form` if bounds and windows alone settled every cell.
    times
        Seconds.
    """

    status: Status
    limit: Limit | None
    placement: GraphPlacement | None
    evaluation: GraphEvaluation | None
    bound_ps: int | None
    bound_by: BoundBy
    times: GraphSearchTimes

    @property
    def value_ps(self) -> int | None:
        """The placement's value."""
        return value_of(self.evaluation)

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a placement."""
        return relative_gap(self.value_ps, self.bound_ps)
