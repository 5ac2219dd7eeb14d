"""When a search by programs may stop, what still matters to it, and what an answer proves."""

import time
from dataclasses import dataclass
from fractions import Fraction
from math import ceil

from nest_opt.errors import SolverError
from nest_opt.solver.status import SolverAnswer

# Above any objective value: a stage is below 2**60 ps, m below 2**41.
NO_LIMIT = 2**120

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

    def threshold_ps(self, value_ps: int | None) -> int:
        """Return the value that must be undercut to matter beside an incumbent's."""
        return NO_LIMIT if value_ps is None else ceil(value_ps * (1 - Fraction(self.gap)))

    def remaining_s(self, begin: float) -> float | None:
        """Return the seconds left of a search that began at `begin` of `perf_counter`."""
        if self.time_limit_s is None:
            return None
        return max(0.0, self.time_limit_s - (time.perf_counter() - begin))


def cutoff_ps(threshold_ps: int, chunks: int) -> Fraction:
    """Return a number between the objectives of values below a threshold and those of all others.

    A value is the objective, a multiple of 1 / v, rounded up.
    """
    return threshold_ps - 1 + Fraction(1, 2 * chunks)


def value_ps(objective_ps: float, chunks: int) -> int:
    """Return the value of an objective that is a multiple of 1 / v, but for rounding."""
    return -(-round(objective_ps * chunks) // chunks)


def claimed_ps(bound: float, unit_ps: int) -> int:
    """Return what a bound of the solver proves, given its tolerance."""
    return ceil((bound - BOUND_TOLERANCE * max(1.0, abs(bound))) * unit_ps)


def proved_ps(answer: SolverAnswer, unit_ps: int, threshold_ps: int) -> int:
    """Return the lower bound that an answer gives its program, whose cutoff is the threshold."""
    if answer.termination.reason in ("infeasible", "nothing-better"):
        return threshold_ps
    bound = answer.report.dual_bound
    if bound is None:
        return 0
    # Above the threshold nothing is known: such plans were not looked for.
    return min(claimed_ps(bound, unit_ps), threshold_ps)
