"""The DP's face of each constraint, where it can be exact: what it forbids.

`RULES` maps a constraint's type to a function that returns a `Restriction`. A
type without a rule makes the DP's answer a relaxation, and the result says so.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from nest_opt.problem import Colocation, ForbiddenBoundary, HopLatency, Problem


@dataclass(frozen=True)
class Restriction:
    """What a constraint takes away.

    Attributes
    ----------
    cuts
        Places in the listed order where no stage may end (0 < cut < n).
    highest_hop_level
        Highest network level that a hop may use, None for any; -1 for none.
    """

    cuts: frozenset[int] = frozenset()
    highest_hop_level: int | None = None

    def __and__(self, other: "Restriction") -> "Restriction":
        limits = [r.highest_hop_level for r in (self, other) if r.highest_hop_level is not None]
        return Restriction(self.cuts | other.cuts, min(limits) if limits else None)


def restrict_colocation(constraint: Colocation, problem: Problem) -> Restriction:
    """Forbid every cut between the first and the last of the layers."""
    places = [problem.model.index[name] for name in constraint.layers]
    return Restriction(cuts=frozenset(range(min(places) + 1, max(places) + 1)))


def restrict_forbidden_boundary(constraint: ForbiddenBoundary, problem: Problem) -> Restriction:
    """Forbid the cut after the layer."""
    return Restriction(cuts=frozenset({problem.model.index[constraint.after] + 1}))


def restrict_hop_latency(constraint: HopLatency, problem: Problem) -> Restriction:
    """Allow hops only up to the last level whose latency is within the limit."""
    levels = problem.cluster.network.levels
    allowed = sum(level.latency_s <= constraint.limit_s for level in levels)
    return Restriction(highest_hop_level=allowed - 1)


RULES: dict[str, Callable[[Any, Problem], Restriction]] = {
    "colocation": restrict_colocation,
    "forbidden-boundary": restrict_forbidden_boundary,
    "hop-latency": restrict_hop_latency,
}


def restriction(problem: Problem) -> Restriction:
    """Return what all constraints of a problem together take away."""
    return reduce(
        lambda left, right: left & right,
        (
            RULES[constraint.type](constraint, problem)
            for constraint in problem.constraints
            if constraint.type in RULES
        ),
        Restriction(),
    )


def relaxed_constraints(problem: Problem) -> tuple[str, ...]:
    """Return the types of constraints that the DP has no rule for."""
    return tuple(c.type for c in problem.constraints if c.type not in RULES)
