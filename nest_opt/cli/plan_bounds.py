"""The bounds that `verify` holds a plan against: one a family, the best that is known."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from nest_opt import api
from nest_opt.api import (
    VOUCHERS,
    AnyFamily,
    BoundResult,
    ExactResult,
    Family,
    GraphExactResult,
    GraphVerifyResult,
    Progress,
    VerifyResult,
    Voucher,
    outside_family,
)
from nest_opt.certify.scope import uncertifiable
from nest_opt.cli.progress import SearchProgress
from nest_opt.errors import ConsistencyError, NestOptError
from nest_opt.problem import Problem

FAMILIES: tuple[Family, ...] = ("aligned", "free")
# What `verify` waits for at most, of each family.
TIME_LIMIT_S = 5.0
# So wide that closed forms alone settle every cell: no program, which takes long, is run.
NO_PROGRAMS_GAP = 0.99


@dataclass(frozen=True)
class PlanBound:
    """A bound on the plans of a family, or why there is none.

    Attributes
    ----------
    family
        The family.
    bound_ps
        No plan of it has a lower objective; None: there is no plan, or if
        `missing`, nothing is known.
    voucher, exact_units
        Who says so, and whether no tolerance can hide a unit; None if `missing`.
    certificate
        The file that proves it, if it was given.
    complete
        Whether the search for it came to its end.
    missing
        Why there is no bound.
    outside
        What puts the plan outside the family; None for a member.
    """

    family: AnyFamily
    bound_ps: int | None = None
    voucher: Voucher | None = None
    certificate: Path | None = None
    complete: bool = True
    exact_units: bool = True
    missing: str | None = None
    outside: str | None = None


def checked_bounds(result: VerifyResult, certificates: Sequence[Path]) -> dict[Family, PlanBound]:
    """Check certificates about a plan's problem; return the strongest of each family.

    Raises
    ------
    CertificateError
        If one is refused, or is about another problem.
    """
    found: dict[Family, PlanBound] = {}
    for path in certificates:
        proved = api.check(path, result.plan.problem)
        family: Family = "free" if proved.family == "free" else "aligned"
        bound = PlanBound(family, proved.least_ps, certificate=path)
        if family not in found or _strength(bound) > _strength(found[family]):
            found[family] = bound
    return found


def _strength(bound: PlanBound) -> tuple[bool, int]:
    return bound.bound_ps is None, bound.bound_ps or 0


def plan_bounds(
    result: VerifyResult,
    proved: dict[Family, PlanBound],
    optima: Sequence[ExactResult],
    skipped: str | None,
    compute: bool,
) -> list[PlanBound]:
    """Return the bound of each family for a legal plan: proved, of an exact search, or computed.

    Parameters
    ----------
    result
        The plan, legal.
    proved
        What certificates say.
    optima
        What `--exact` found.
    skipped
        Why no program is written for the free family, where nothing else bounds it; None if one is.
    compute
        Whether to compute what is neither proved nor found.

    Raises
    ------
    ConsistencyError
        If the plan is a member of a family and below its bound: a defect.
    """
    exact = {optimum.family: optimum for optimum in optima}
    bounds = []
    for family in FAMILIES:
        if family in proved:
            bounds.append(proved[family])
        elif family in exact:
            bounds.append(_of_exact(exact[family]))
        elif compute and family == "free" and skipped and uncertifiable(result.plan.problem):
            bounds.append(PlanBound(family, missing=skipped))
        elif compute:
            bounds.append(_computed(result, family))
    return [
        bound if bound.missing else replace(bound, outside=outside_family(result, bound))
        for bound in bounds
    ]


def graph_plan_bounds(
    result: GraphVerifyResult, optimum: GraphExactResult | None, compute: bool
) -> list[PlanBound]:
    """Return the bound of a placement graph's split: of an exact search, or computed."""
    problem = result.plan.problem
    if optimum is not None:
        return [_of_exact(optimum)]
    if not compute:
        return []
    return [_told(problem.job.split, lambda progress: _graph_bound(problem, progress))]


def _of_exact(optimum: ExactResult | GraphExactResult) -> PlanBound:
    return PlanBound(
        optimum.family,
        optimum.bound_ps,
        VOUCHERS[optimum.bound_vouched_by],
        complete=optimum.status in ("optimal", "infeasible"),
        exact_units=optimum.exact_units,
    )


def _computed(result: VerifyResult, family: Family) -> PlanBound:
    """Return what can be had at once."""
    return _told(
        family,
        lambda progress: api.bound_pipeline(
            result.plan.problem,
            family=family,
            gap=NO_PROGRAMS_GAP if uncertifiable(result.plan.problem) else 0.0,
            time_limit_s=TIME_LIMIT_S,
            progress=progress,
            certify=False,
        ),
    )


def _graph_bound(problem: Problem, progress: Progress) -> BoundResult:
    return api.bound_graph(
        problem, gap=NO_PROGRAMS_GAP, time_limit_s=TIME_LIMIT_S, progress=progress
    )


def _told(family: AnyFamily, search: Callable[[Progress], BoundResult]) -> PlanBound:
    """Return what a search finds; a problem that cannot be searched says why."""
    try:
        with SearchProgress() as progress:
            found = search(progress)
    except ConsistencyError:
        raise
    except NestOptError as error:
        return PlanBound(family, missing=str(error))
    if found.bound_ps == 0 and not found.complete:
        return PlanBound(family, missing=f"nothing found in {TIME_LIMIT_S:g} s")
    return PlanBound(
        family,
        found.bound_ps,
        found.voucher,
        complete=found.complete,
        exact_units=found.exact_units,
    )
