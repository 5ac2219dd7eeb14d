"""Hold a legal plan against a bound of a family."""

from typing import Protocol

from nest_opt.errors import ConsistencyError
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import outside_aligned, outside_free
from nest_opt.verbs.defects import claim
from nest_opt.verbs.pipeline.result import VerifyResult


class FamilyBound(Protocol):
    """Whatever says that no plan of a family is below a bound, None for no plan at all."""

    @property
    def family(self) -> str:
        """`aligned` or `free`."""
        ...

    @property
    def bound_ps(self) -> int | None:
        """The bound."""
        ...


def outside_family(verified: VerifyResult, bound: FamilyBound) -> str | None:
    """Return what puts a legal plan outside the family of a bound; None for a member.

    Raises
    ------
    ConsistencyError
        If a member is better than the bound: a defect.
    """
    plan, evaluation = verified.plan, verified.evaluation
    outside = outside_free if bound.family == "free" else outside_aligned
    found = outside(Costs(plan.problem), plan.placement())
    if found is None and evaluation is not None:
        least_ps = bound.bound_ps
        if least_ps is None or evaluation.value_ps < least_ps:
            raise ConsistencyError(
                f"the plan, a member of the {bound.family} family, takes {evaluation.value_ps} "
                f"ps, of whose plans a bound says that {claim(least_ps)}: please report this plan"
            )
    return found
