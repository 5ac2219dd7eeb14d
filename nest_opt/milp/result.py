"""What the exact search returns. No Pyomo here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

from nest_opt.plan.evaluate import Evaluation
from nest_opt.plan.gap import relative_gap, value_of
from nest_opt.plan.placement import Placement
from nest_opt.solver.status import Limit

Status = Literal["optimal", "infeasible", "feasible", "no-solution"]
FamilyName = Literal["aligned", "free"]
BoundBy = Literal["solver", "closed form"]


@dataclass(frozen=True)
class Tally:
    """What a search over cells counts.

    Attributes
    ----------
    exact_units
        Whether all coefficients were small integers, in which no tolerance of
        the solver can hide a unit. Otherwise its claims hold up to a relative
        tolerance of about 1e-6.
    cells, cells_pruned, cells_solved
        Cells, how many of them bounds in closed form settled, and for how many
        programs were run.
    nodes
        Branch-and-bound nodes of all programs.
    """

    exact_units: bool
    cells: int
    cells_pruned: int
    cells_solved: int
    nodes: int


@dataclass(frozen=True)
class SearchTimes:
    """Seconds of a search, by what they were spent on.

    Attributes
    ----------
    bounds_s
        Cells, their coefficients and closed-form bounds.
    build_s, handover_s, solve_s
        Building programs, passing them to HiGHS, solving them.
    total_s
        All of it, and what lies between.
    """

    bounds_s: float
    build_s: float
    handover_s: float
    solve_s: float
    total_s: float


@dataclass(frozen=True)
class ProgramProgress:
    """Where a search is while the program of a cell runs.

    Attributes
    ----------
    value_ps
        Of the best plan so far, as the solver has it, None without one.
    bound_ps
        No plan of the family has a lower value.
    nodes, elapsed_s
        Branch-and-bound nodes and seconds of this program so far.
    """

    value_ps: int | None
    bound_ps: int
    nodes: int
    elapsed_s: float


# Called about once a second while the program of a cell runs.
Watch: TypeAlias = Callable[[ProgramProgress], None]


@dataclass(frozen=True)
class ExactSearch(Tally):
    """What a search over cells with the integer program found, and counted.

    Attributes
    ----------
    family
        The family of placements that status and bound hold in.
    status
        `optimal`: no plan of the family is better (by more than the gap that
        was asked for). `infeasible`: the family has no legal plan. `feasible`
        and `no-solution`: a limit came first, with or without a plan.
    limit
        The limit that was met, None if none was.
    placement, evaluation
        The best plan, rounded, checked and valued by the evaluator.
    bound_ps
        No plan of the family has a lower value; None if infeasible.
    bound_by
        Who vouches for the bound: `solver` as soon as a program of some cell
        took part in it, `closed form` if bounds alone settled every cell.
    times
        Seconds.
    """

    family: FamilyName
    status: Status
    limit: Limit | None
    placement: Placement | None
    evaluation: Evaluation | None
    bound_ps: int | None
    bound_by: BoundBy
    times: SearchTimes

    @property
    def value_ps(self) -> int | None:
        """The plan's value."""
        return value_of(self.evaluation)

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        return relative_gap(self.value_ps, self.bound_ps)
