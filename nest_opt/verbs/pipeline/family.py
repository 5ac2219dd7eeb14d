"""Hold a legal plan against the optimum of a family."""

from nest_opt.errors import ConsistencyError
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import outside_aligned, outside_free
from nest_opt.verbs.defects import claim
from nest_opt.verbs.pipeline.result import ExactResult, VerifyResult


def outside_family(verified: VerifyResult, optimum: ExactResult) -> str | None:
    """Return what puts a legal plan outside the family that was searched; None for a member.

    Raises
    ------
    ConsistencyError
        If a member is better than the bound of the family: a defect.
    """
    plan, evaluation = verified.plan, verified.evaluation
    outside = outside_free if optimum.family == "free" else outside_aligned
    found = outside(Costs(plan.problem), plan.placement())
    if found is None and evaluation is not None:
        bound = optimum.bound_ps
        if bound is None or evaluation.value_ps < bound:
            raise ConsistencyError(
                f"the plan, a member of the {optimum.family} family, takes {evaluation.value_ps} "
                "ps, of whose plans the exact search says that "
                f"{claim(bound)}: please report this plan"
            )
    return found
