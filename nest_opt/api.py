"""The verbs: solve a problem, by one method or by two, bound it, verify a plan, check a proof.

Each is there for any problem, and for a caller who knows its kind with the
kind's own result.
"""

from pathlib import Path
from typing import TYPE_CHECKING, overload

from nest_opt.certify.certificate import Certificate
from nest_opt.certify.checking import CheckResult, check_certificate
from nest_opt.errors import InstanceError
from nest_opt.plan.graph_plan import GraphPlan
from nest_opt.plan.plan import Plan
from nest_opt.problem import Problem
from nest_opt.verbs.graph.bound import bound_graph
from nest_opt.verbs.graph.exact import exact_graph
from nest_opt.verbs.graph.result import GraphExactResult, GraphSolveResult, GraphVerifyResult
from nest_opt.verbs.graph.solve import solve_graph
from nest_opt.verbs.graph.verify import verify_graph
from nest_opt.verbs.pipeline.bound import bound_pipeline
from nest_opt.verbs.pipeline.exact import exact_pipeline
from nest_opt.verbs.pipeline.family import outside_family
from nest_opt.verbs.pipeline.on_links import RankBy, ranks_by, solve_on_links
from nest_opt.verbs.pipeline.result import (
    ExactResult,
    Family,
    LinkRanking,
    RankedPlan,
    SolveResult,
    TimedPlan,
    VerifyResult,
)
from nest_opt.verbs.pipeline.solve import MAX_TOP, solve_pipeline
from nest_opt.verbs.pipeline.verify import verify_pipeline
from nest_opt.verbs.result import VOUCHERS, AnyFamily, BoundResult, Progress, Voucher

if TYPE_CHECKING:
    from nest_opt.milp.result import Watch

__all__ = [
    "MAX_TOP",
    "VOUCHERS",
    "AnyFamily",
    "BoundResult",
    "Certificate",
    "CheckResult",
    "ExactResult",
    "Family",
    "GraphExactResult",
    "GraphSolveResult",
    "GraphVerifyResult",
    "LinkRanking",
    "Progress",
    "RankBy",
    "RankedPlan",
    "SolveResult",
    "TimedPlan",
    "VerifyResult",
    "Voucher",
    "bound",
    "bound_graph",
    "bound_pipeline",
    "check",
    "exact",
    "exact_graph",
    "exact_pipeline",
    "outside_family",
    "ranks_by",
    "solve",
    "solve_graph",
    "solve_on_links",
    "solve_pipeline",
    "verify",
    "verify_graph",
    "verify_pipeline",
]


def solve(
    problem: Problem,
    progress: Progress | None = None,
    *,
    top: int = 1,
    rank_by: RankBy | None = None,
) -> SolveResult | GraphSolveResult:
    """Find the best plan, or the best plans, by a dynamic program.

    Parameters and errors are those of `solve_pipeline`, or for a placement
    graph, which has no `top`, those of `solve_graph`. With `rank_by` links,
    the default on a network that is a graph, the plan is the best on its links of
    those that `solve_on_links` times there.
    """
    rank_by = ranks_by(problem, rank_by)
    if problem.is_placement_graph:
        if top != 1:
            raise InstanceError(
                f"top: found {top} for a placement graph, whose search finds 1 split: leave it out"
            )
        return solve_graph(problem, progress)
    if rank_by == "links":
        return solve_on_links(problem, progress, top=top)
    return solve_pipeline(problem, progress, top=top)


def exact(
    problem: Problem,
    *,
    time_limit_s: float | None = None,
    gap: float = 0.0,
    progress: Progress | None = None,
    watch: "Watch | None" = None,
    family: Family = "aligned",
    start: SolveResult | None = None,
    independent: bool = False,
) -> ExactResult | GraphExactResult:
    """Find the best plan by integer programs.

    Parameters and errors are those of `exact_pipeline`, or for a placement
    graph those of `exact_graph`: `family`, `start` and `watch` are of
    pipelines alone, whose programs are always run; `independent` asks for that
    where a placement graph's dynamic program has proved the answer. The free
    family is valued by pairs of devices where the network is a graph.
    """
    if problem.is_placement_graph:
        return exact_graph(
            problem,
            time_limit_s=time_limit_s,
            gap=gap,
            progress=progress,
            independent=independent,
        )
    return exact_pipeline(
        problem,
        time_limit_s=time_limit_s,
        gap=gap,
        progress=progress,
        watch=watch,
        family=family,
        start=start,
        by_pairs=True,
    )


def bound(
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
    """Bound all plans of a family from below, with a certificate where there is one.

    Parameters and errors are those of `bound_pipeline`, or for a placement
    graph, which has no certificates, those of `bound_graph`: `family`,
    `certify`, `start` and `splits` are of pipelines alone.
    """
    if problem.is_placement_graph:
        return bound_graph(problem, gap=gap, time_limit_s=time_limit_s, progress=progress)
    return bound_pipeline(
        problem,
        family=family,
        gap=gap,
        time_limit_s=time_limit_s,
        progress=progress,
        certify=certify,
        start=start,
        splits=splits,
    )


def check(
    certificate: Path | Certificate,
    problem: Problem | None = None,
    *,
    recompute_costs: bool = False,
) -> CheckResult:
    """Check what a certificate claims; parameters and errors are those of `check_certificate`."""
    return check_certificate(certificate, problem, recompute_costs)


@overload
def verify(plan: Plan) -> VerifyResult: ...


@overload
def verify(plan: GraphPlan) -> GraphVerifyResult: ...


def verify(plan: Plan | GraphPlan) -> VerifyResult | GraphVerifyResult:
    """Evaluate and check a plan, whoever made it.

    Raises
    ------
    PlanError
        If the plan does not fit its problem: unknown layers, degrees without
        profiles.
    """
    if isinstance(plan, GraphPlan):
        return verify_graph(plan)
    return verify_pipeline(plan)
