"""Bound all plans of a family from below, with a certificate where there is one."""

import time
from dataclasses import replace
from fractions import Fraction
from math import ceil

from nest_opt.certify.certificate import Certificate
from nest_opt.certify.maker import bound_by_programs, make_certificate
from nest_opt.certify.scope import uncertifiable
from nest_opt.dp.free_bounds import free_bound
from nest_opt.dp.free_source import FreeSource
from nest_opt.milp.limits import SearchLimits
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem
from nest_opt.verbs.deadline import Deadline
from nest_opt.verbs.pipeline.exact import exact_pipeline
from nest_opt.verbs.pipeline.result import Family, SolveResult
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.result import VOUCHERS, BoundResult, Progress

__all__ = ["BoundResult", "bound_pipeline"]


def bound_pipeline(
    problem: Problem,
    *,
    family: Family = "aligned",
    gap: float = 0.0,
    time_limit_s: float | None = None,
    progress: Progress | None = None,
    certify: bool = True,
    start: SolveResult | None = None,
    splits: int = 0,
) -> BoundResult:
    """Bound all plans of a family from below.

    Parameters
    ----------
    problem
        The problem.
    family
        `aligned`, the family of `solve`, or `free`: any distinct devices for
        the ranks of all blocks.
    gap
        Share of the value by which the best known plan may be above the bound.
    time_limit_s
        Seconds for all of it, but for the first steps.
    progress
        Called with (steps done, steps, best value in ps or None).
    certify
        Whether a certificate is wanted.
    start
        What `solve` found for the problem, if that is known.
    splits
        Of the free family: if above 0, integer programs look for the best
        plan, and where no other proof settles a group, a linear program is split
        up to so often.

    Raises
    ------
    InstanceError
        If the problem has no legal degrees, or its numbers leave the range of
        the search.
    ModelError
        If the family's programs cannot be written for the problem.
    SolverError
        If a limit is out of range, or the solver fails.
    ConsistencyError
        If two methods disagree, or the checker's proofs with the search: a defect.
    """
    begin = time.perf_counter()
    start = start and start.by_levels
    limits = SearchLimits(time_limit_s, None, gap)
    deadline = Deadline(progress, lambda: limits.remaining_s(begin))
    of_programs = Deadline(progress, lambda: limits.remaining_s(begin), are_long=True)
    if family == "free" and uncertifiable(problem):
        found, _ = _of_programs(problem, gap, time_limit_s, progress, start)
    else:
        solved = start or solve_pipeline(problem, deadline)
        found = _of_search(solved)
        if family == "free":
            if splits:
                best, stopped = _of_programs(
                    problem, gap, limits.remaining_s(begin), progress, solved
                )
                found = replace(
                    found, value_ps=best.value_ps, complete=found.complete and not stopped
                )
            found = _of_relaxations(problem, found, gap, splits, deadline, of_programs)
    if certify:
        found = _certified(problem, found, splits, of_programs if splits else deadline)
    return replace(found, wall_s=time.perf_counter() - begin)


def _certified(
    problem: Problem, found: BoundResult, splits: int, progress: Progress
) -> BoundResult:
    """Return a bound with its certificate, or with why it has none."""
    why = uncertifiable(problem) or _beyond(problem, found)
    if why is not None:
        return replace(found, uncertified=why)
    try:
        made = make_certificate(Costs(problem), found.family, found.bound_ps, progress, splits)
    except KeyboardInterrupt:
        return replace(found, uncertified="the search for proofs was cut short")
    return replace(
        found, certificate=Certificate(made.data), groups=made.groups, proofs=dict(made.proofs)
    )


def _beyond(problem: Problem, found: BoundResult) -> str | None:
    """Return what lets a bound be above what the checker can prove, None if nothing does."""
    if not found.complete:
        return "the search was cut short"
    for place, constraint in enumerate(problem.constraints):
        if constraint.type == "user":
            return f"constraints[{place}]: found a user's own, which the checker leaves out"
    return None


def _of_search(found: SolveResult) -> BoundResult:
    """Return what the dynamic program proves of the aligned family."""
    return BoundResult(
        family="aligned",
        bound_ps=found.bound_ps,
        value_ps=None if found.evaluation is None else found.evaluation.value_ps,
        voucher="DP",
        certificate=None,
        complete=found.status != "interrupted",
        groups=0,
    )


def _of_relaxations(
    problem: Problem,
    known: BoundResult,
    gap: float,
    splits: int,
    progress: Progress,
    of_programs: Progress,
) -> BoundResult:
    """Return what least levels, runs of stages and linear programs prove of the free family.

    Within the gap of the best plan that is known nothing better is looked for.
    """
    costs, enough = Costs(problem), known.value_ps
    if enough is not None:
        enough = ceil(enough * (1 - Fraction(gap)))
    found = free_bound(FreeSource(costs), enough, progress)
    bound_ps, complete, voucher = found.bound_ps, known.complete and found.complete, known.voucher
    if splits and complete and enough is not None and bound_ps is not None and bound_ps < enough:
        try:
            better = bound_by_programs(costs, enough, splits, of_programs)
        except KeyboardInterrupt:
            better, complete = 0, False
        if better > bound_ps:
            bound_ps, voucher = better, "LP dual"
    return replace(known, family="free", bound_ps=bound_ps, complete=complete, voucher=voucher)


def _of_programs(
    problem: Problem,
    gap: float,
    time_limit_s: float | None,
    progress: Progress | None,
    start: SolveResult | None,
) -> tuple[BoundResult, bool]:
    """Return what closed forms and the solver claim of the free family; whether Ctrl-C came."""
    found = exact_pipeline(
        problem,
        time_limit_s=time_limit_s,
        gap=gap,
        progress=progress,
        family="free",
        start=start,
    )
    result = BoundResult(
        family="free",
        bound_ps=found.bound_ps,
        value_ps=None if found.evaluation is None else found.evaluation.value_ps,
        voucher=VOUCHERS[found.bound_vouched_by],
        certificate=None,
        complete=found.status in ("optimal", "infeasible"),
        groups=0,
        exact_units=found.exact_units,
    )
    return result, found.status == "interrupted"
