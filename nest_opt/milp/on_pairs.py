"""Exact search on a network of pairs: first without most latencies, then with all."""

import time
from dataclasses import replace

from nest_opt.milp.driver import search
from nest_opt.milp.limits import SearchLimits
from nest_opt.milp.result import ExactSearch, Watch
from nest_opt.network.pair_levels import PairLevels
from nest_opt.network.pairs import PairNetwork
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.pairwise import pairwise_costs
from nest_opt.plan.placement import Placement
from nest_opt.plan.progress import Progress
from nest_opt.problem import Problem


def exact_on_pairs(
    problem: Problem,
    network: PairNetwork | PairLevels,
    *,
    start: Placement | None = None,
    limits: SearchLimits | None = None,
    progress: Progress | None = None,
    watch: Watch | None = None,
) -> ExactSearch:
    """Find the best placement of the free family under the costs of pairs.

    Programs have rows for every level, and latencies alone make most levels of
    a graph. So the search is run on `PairLevels.hopeful` first: its optimum is a bound, and
    its plan often the best one, or close. If that settles it, nothing more is
    run; else the search with all levels begins with the better plan.

    Parameters
    ----------
    problem
        The problem; of its cluster the kind and the number of devices count.
    network
        The network.
    start
        A legal placement on the network's device numbers: the first incumbent.
    limits
        When to stop early; a limit of time is for both searches, which get half each.
    progress, watch
        As of `nest_opt.milp.driver.search`, of each of both.

    Raises
    ------
    InstanceError, ModelError, PlanError, SolverError
        As `exact`, and as `pairwise_costs`.
    """
    limits, begin = limits or SearchLimits(), time.perf_counter()
    costs = pairwise_costs(problem, network)
    assert isinstance(costs.network, PairLevels)
    hopeful = costs.network.hopeful()
    if hopeful.level_count == costs.network.level_count:
        return search(costs, limits, start, progress, watch, "free")
    half = None if limits.time_limit_s is None else limits.time_limit_s / 2
    first = search(
        pairwise_costs(problem, hopeful),
        replace(limits, time_limit_s=half),
        start,
        progress,
        watch,
        "free",
    )
    if first.bound_ps is None:
        # No plan fits the memory, wherever its devices are.
        return first
    best = min(
        (one for one in (start, first.placement) if one is not None),
        key=lambda one: evaluate(costs, one).value_ps,
        default=None,
    )
    if best is not None and first.bound_ps >= limits.threshold_ps(evaluate(costs, best).value_ps):
        return _valued(costs, first, best, first.bound_ps, limits)
    left = None if half is None else max(half, 2 * half - (time.perf_counter() - begin))
    found = search(costs, replace(limits, time_limit_s=left), best, progress, watch, "free")
    found = replace(found, nodes=found.nodes + first.nodes)
    if found.placement is None or found.bound_ps is None:
        return found
    bound_ps = max(found.bound_ps, first.bound_ps)
    return _valued(costs, found, found.placement, bound_ps, limits)


def _valued(
    costs: Costs, found: ExactSearch, placement: Placement, bound_ps: int, limits: SearchLimits
) -> ExactSearch:
    """Return what a search found with a placement valued on the network itself, and a bound."""
    evaluation = evaluate(costs, placement)
    settled = bound_ps >= limits.threshold_ps(evaluation.value_ps)
    return replace(
        found,
        placement=placement,
        evaluation=evaluation,
        bound_ps=min(bound_ps, evaluation.value_ps),
        status="optimal" if settled else "feasible",
        limit=None if settled else found.limit,
    )
