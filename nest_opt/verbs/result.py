"""What results of both kinds of problems share."""

from dataclasses import dataclass, field
from typing import Literal

from nest_opt.certify.certificate import Certificate
from nest_opt.plan.gap import Valued, relative_gap, value_of
from nest_opt.plan.plan import ClaimedValue
from nest_opt.plan.progress import Progress

__all__ = [
    "VOUCHERS",
    "AnyFamily",
    "BoundResult",
    "Bounded",
    "Progress",
    "Voucher",
    "claimed_value",
]

AnyFamily = Literal["aligned", "free", "contiguous", "any"]
Voucher = Literal["closed form", "DP", "LP dual", "solver"]


class Bounded:
    """A result with a plan's evaluation, if there is a plan, and a bound."""

    evaluation: Valued | None
    bound_ps: int | None

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan."""
        return relative_gap(value_of(self.evaluation), self.bound_ps)


@dataclass(frozen=True)
class BoundResult:
    """What `bound` returns: a lower bound on all plans of a family, and who vouches for it.

    Attributes
    ----------
    family
        The family of plans that the bound holds in; of a placement graph its
        split.
    bound_ps
        No plan of the family has a lower objective; None: proved that there
        is no plan.
    value_ps
        The best plan of the family that is known, None if none is.
    voucher
        Who says so: `closed form`, `DP`, `LP dual` or `solver`.
    certificate
        The proof, to be checked apart from whoever made it; None if there is none.
    complete
        False if a time limit or a KeyboardInterrupt came first: the bound
        holds all the same.
    groups, proofs
        Groups of cells that the certificate covers, and how many by each proof.
    uncertified
        Why there is no certificate; None if there is one or none was asked for.
    exact_units
        Whether no tolerance of a solver can hide a unit.
    wall_s
        Seconds.
    """

    family: AnyFamily
    bound_ps: int | None
    value_ps: int | None
    voucher: Voucher
    certificate: Certificate | None
    complete: bool
    groups: int
    proofs: dict[str, int] = field(default_factory=dict)
    uncertified: str | None = None
    exact_units: bool = True
    wall_s: float = 0.0

    @property
    def gap(self) -> float | None:
        """(value - bound) / value, None without a plan or a bound."""
        return relative_gap(self.value_ps, self.bound_ps)


# What an exact search calls those who vouch for its bound.
VOUCHERS: dict[str, Voucher] = {
    "closed form": "closed form",
    "dynamic program": "DP",
    "solver": "solver",
}


def claimed_value(objective: ClaimedValue | None) -> int | None:
    """Return the value in ps that a plan's file claims, None without a claim."""
    return None if objective is None else int(objective.value_ps)
