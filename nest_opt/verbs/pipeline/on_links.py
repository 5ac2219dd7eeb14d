"""Solve a pipeline for the links of its network, which levels stand for in the search.

The optimum by levels may be far from the best on the links, and levels err both
ways: under traffic `alone` they leave shared links out, under `rings` and `any`
they count with more than a plan may send. So the best cells under each are
timed on the links (`nest_opt.plan.retime`), and ranked by that. The plan that
the problem's own levels find is among them: the answer is never worse there.
It is the best of what was timed; nothing is proved of other plans on the links.
"""

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from nest_opt.dp.rules import relaxed_constraints
from nest_opt.errors import InstanceError
from nest_opt.network.planned import planned_levels, with_traffic
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.plan.plan import plan_from_placement
from nest_opt.plan.retime import is_retimed, retime
from nest_opt.problem import HierarchicalSpec, Problem
from nest_opt.problem.networks import Traffic
from nest_opt.verbs.pipeline.result import LinkRanking, RankedPlan, SolveResult, TimedPlan
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.result import Progress

RankBy = Literal["levels", "links"]

# Plans of each set of levels: timing one takes about as long as it has devices.
MOST_PLANS, LEAST_PLANS = 16, 3
_PLAN_DEVICES = 2**14
# Levels for any traffic take longer to derive than all else on more devices.
MOST_DEVICES_ANY = 128
# Of a hierarchy's own levels, which are those for any traffic.
OWN = "levels"


def ranks_by(problem: Problem, rank_by: RankBy | None) -> RankBy:
    """Return what plans are ranked by: links where the network is a graph, unless said.

    Raises
    ------
    InstanceError
        If links are asked for and nothing is timed on them.
    """
    is_graph = not isinstance(problem.cluster.network, HierarchicalSpec)
    can = not problem.is_placement_graph and is_retimed(problem)
    if rank_by is None:
        return "links" if is_graph and can else "levels"
    if rank_by == "links" and not can:
        raise InstanceError(
            "rank_by: found links, but only pipelines under the default cost model are timed "
            "there, on a graph or on oversubscribed levels whose algorithms are ring alone: "
            "rank by levels, or leave it out"
        )
    return rank_by


def plans_timed(problem: Problem) -> int:
    """Return how many plans of each set of levels are timed: 1 where the search ranks none."""
    if problem.search.per_stage or relaxed_constraints(problem):
        return 1
    return max(LEAST_PLANS, min(MOST_PLANS, _PLAN_DEVICES // problem.cluster.device_count))


def solve_on_links(
    problem: Problem, progress: Progress | None = None, *, top: int = 1
) -> SolveResult:
    """Find plans under each set of levels, and return the one that is best on the links.

    Where no plan is proved the best by levels (nothing fits, Ctrl-C came), that
    result is returned as it is; after Ctrl-C later on, the best of what was timed.

    Parameters and errors are those of `solve_pipeline`, and a network of
    which nothing is timed is an InstanceError as well.
    """
    start = time.perf_counter()
    ranks_by(problem, "links")
    found = solve_pipeline(problem, progress, top=max(top, plans_timed(problem)))
    levels = _shortened(found, top)
    if found.status != "optimal":
        return levels
    timed: dict[Placement, TimedPlan] = {}
    searched: dict[str, int] = {}
    try:
        _time(problem, found, progress, timed, searched)
    except KeyboardInterrupt:
        if not timed:
            return replace(levels, status="interrupted", wall_s=time.perf_counter() - start)
        levels = replace(levels, status="interrupted")
    first = next(iter(timed.values()))
    plans = tuple(
        sorted(timed.values(), key=lambda each: (each.links_ps, each.evaluation.value_ps))
    )
    return replace(
        levels,
        status="best-on-links" if levels.status == "optimal" else levels.status,
        plan=plans[0].plan,
        evaluation=plans[0].evaluation,
        wall_s=time.perf_counter() - start,
        links=LinkRanking(plans, first, searched, levels),
    )


def _shortened(found: SolveResult, top: int) -> SolveResult:
    """Return a search as if it had been asked for fewer plans."""
    if len(found.plans) <= top:
        return found
    # The first plan of a cell that is left out is the best of all that are.
    return replace(
        found, plans=found.plans[:top], rest_bound_ps=found.plans[top].evaluation.value_ps
    )


def _time(
    problem: Problem,
    found: SolveResult,
    progress: Progress | None,
    timed: dict[Placement, TimedPlan],
    searched: dict[str, int],
) -> None:
    """Time the plans of every set of levels, those of the problem's own first."""
    costs = Costs(problem)
    network = problem.cluster.network
    own = OWN if isinstance(network, HierarchicalSpec) else network.traffic
    _add(costs, own, found.plans, timed, searched)
    for traffic, other in _other_levels(problem):
        result = solve_pipeline(other, progress, top=plans_timed(problem))
        _add(costs, traffic, result.plans, timed, searched)
        if result.cut_short:
            raise KeyboardInterrupt


def _add(
    costs: Costs,
    traffic: str,
    plans: tuple[RankedPlan, ...],
    timed: dict[Placement, TimedPlan],
    searched: dict[str, int],
) -> None:
    for each in plans:
        searched[traffic] = searched.get(traffic, 0) + 1
        placement = each.plan.placement()
        if placement in timed:
            continue
        evaluation = evaluate(costs, placement)
        # A constraint may know times, which are those of other levels here.
        if check(costs, placement, evaluation):
            continue
        again = retime(costs, placement, evaluation)
        if again is not None:
            plan = plan_from_placement(
                costs.problem, placement, evaluation.objective, evaluation.value_ps
            )
            timed[placement] = TimedPlan(plan, evaluation, again.value_ps, traffic)


def _other_levels(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Yield the problem on the levels of each other traffic, where they differ."""
    cluster, network = problem.cluster, problem.cluster.network
    if isinstance(network, HierarchicalSpec):
        # Without oversubscription every transfer has what it has alone.
        plain = [level.model_copy(update={"oversubscription": 1}) for level in network.levels]
        yield "alone", _on(problem, network.model_copy(update={"levels": tuple(plain)}))
        return
    known = [planned_levels(cluster)]
    names: tuple[Traffic, ...] = ("alone", "rings", "any")
    for name in names:
        if name == "any" and network.device_count > MOST_DEVICES_ANY:
            continue
        other = _on(problem, with_traffic(network, name))
        found = planned_levels(other.cluster)
        if found not in known:
            known.append(found)
            yield name, other


def _on(problem: Problem, network: object) -> Problem:
    cluster = problem.cluster.model_copy(update={"network": network})
    return problem.model_copy(update={"cluster": cluster})
