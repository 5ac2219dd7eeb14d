"""What a solver answers: how it ended, what it found, what it reports. Three types, no defaults."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Reason = Literal["optimal", "infeasible", "nothing-better", "feasible", "no-solution"]
Limit = Literal["time", "nodes", "interrupt"]


@dataclass(frozen=True)
class SolverProgress:
    """Where a running solve is.

    Attributes
    ----------
    objective, dual_bound
        Of the best solution so far, and what no solution is below; None if
        there is none.
    nodes
        Branch-and-bound nodes so far.
    elapsed_s
        Seconds so far.
    """

    objective: float | None
    dual_bound: float | None
    nodes: int
    elapsed_s: float


@dataclass(frozen=True)
class Termination:
    """How a solve ended.

    Attributes
    ----------
    reason
        `optimal`: the solution is the best within the gap that was asked for.
        `infeasible`: there is no solution. `nothing-better`: there is none
        below the cutoff; whether there is any at all is not known. `feasible`
        and `no-solution`: a limit came first, with or without a solution.
    limit
        The limit that ended the solve, None if none did.
    detail
        The solver's own word for it.
    """

    reason: Reason
    limit: Limit | None
    detail: str


@dataclass(frozen=True)
class Solution:
    """Values of variables, as the solver left them (neither rounded nor checked).

    Attributes
    ----------
    objective
        The objective by the solver's own reckoning.
    values
        Value of each variable object of the model.
    """

    objective: float
    values: Mapping[Any, float]


@dataclass(frozen=True)
class SolverReport:
    """What the solver says of its own work.

    Attributes
    ----------
    dual_bound
        No solution has a lower objective: claimed up to the solver's
        tolerances. None where it claims none, and where there is no solution
        below the cutoff.
    nodes, iterations
        Branch-and-bound nodes and simplex iterations.
    handover_s, solve_s
        Seconds to pass the model over and to solve it.
    version
        The solver's version.
    log
        The solver's log.
    """

    dual_bound: float | None
    nodes: int
    iterations: int
    handover_s: float
    solve_s: float
    version: str
    log: str


@dataclass(frozen=True)
class SolverAnswer:
    """A termination, the solution if there is one, and the report."""

    termination: Termination
    solution: Solution | None
    report: SolverReport
