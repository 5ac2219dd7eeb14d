"""The memory-time front: the least batch time for each limit on memory per device."""

import time
from dataclasses import dataclass
from typing import Literal

from nest_opt.dp.rules import relaxed_constraints
from nest_opt.dp.search import SearchResult
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_search import search_all
from nest_opt.errors import InstanceError
from nest_opt.plan.evaluate import Costs
from nest_opt.problem import Problem
from nest_opt.verbs.pipeline.confirm import ranked_plan
from nest_opt.verbs.pipeline.result import RankedPlan, SolveResult
from nest_opt.verbs.pipeline.solve import solve_pipeline
from nest_opt.verbs.result import Progress

MAX_POINTS = 10_000
DEFAULT_POINTS = 100


Status = Literal["complete", "capped", "infeasible", "interrupted"]


@dataclass(frozen=True)
class FrontResult:
    """What `front` returns.

    Attributes
    ----------
    status
        `complete`; `capped` after as many points as were asked for;
        `infeasible` if no plan fits; `interrupted` by a KeyboardInterrupt.
    points
        Fastest first: plans of rising value and falling peak, the memory of
        the stage that needs the most. None is dominated: no plan has a lower
        value within a point's peak, and none of its value has a lower peak.
        (Of the last point of an interrupted front, the second is not known.)
        Nothing fits below the last peak if the front is `complete`.
    first
        What the search without a lower limit found.
    searches, wall_s
        How many searches there were, and their seconds.
    """

    problem: Problem
    status: Status
    points: tuple[RankedPlan, ...]
    first: SolveResult
    searches: int
    wall_s: float


def front(
    problem: Problem, progress: Progress | None = None, *, most: int = DEFAULT_POINTS
) -> FrontResult:
    """Find the plans of the aligned family that neither time nor memory dominates.

    A search finds the least batch time, the next one the least among plans
    that need at least a byte less on every device, and so on until nothing
    fits. A byte less than a plan's peak loses no plan of a lower peak, so that
    no point is missed.

    Parameters
    ----------
    problem
        The problem; its usable memory is the first limit.
    progress
        Called as by `solve`, anew for each search.
    most
        How many points to find, 1 to `MAX_POINTS`.

    Raises
    ------
    InstanceError
        As by `solve`; or if `most` is out of range, the problem is a placement
        graph, or the search leaves a constraint out.
    """
    _check(problem, most)
    begin = time.perf_counter()
    first = solve_pipeline(problem, progress)
    points = list(first.plans)
    status: Status | None = None
    searches = 1
    if first.status == "infeasible" or first.status == "interrupted":
        status = first.status
    costs = Costs(problem)
    while status is None:
        found = _search_within(problem, points[-1].peak_bytes - 1, progress)
        searches += 1
        if found is None or found.status == "infeasible":
            status = "complete"
        elif found.status == "interrupted":
            status = "interrupted"
        else:
            point = ranked_plan(costs, *found.ranking[0])
            if point.evaluation.value_ps == points[-1].evaluation.value_ps:
                points[-1] = point
            elif len(points) < most:
                points.append(point)
            else:
                status = "capped"
    wall_s = time.perf_counter() - begin
    return FrontResult(problem, status, tuple(points), first, searches, wall_s)


def _check(problem: Problem, most: int) -> None:
    if problem.is_placement_graph:
        raise InstanceError("front: found a placement graph, a pipeline is needed: leave it out")
    if not 1 <= most <= MAX_POINTS:
        raise InstanceError(
            f"front: found {most} points, 1 to {MAX_POINTS:,} are possible: change the number"
        )
    left_out = relaxed_constraints(problem)
    if left_out:
        raise InstanceError(
            f"front: found constraint {left_out[0]}, which has no rule in the search: give it one "
            "(docs/adding_a_constraint.md), or leave the front out"
        )


def _search_within(
    problem: Problem, limit_bytes: int, progress: Progress | None
) -> SearchResult | None:
    """Search with less memory; None where the reserve alone needs it all."""
    kind = problem.cluster.device_kind
    if limit_bytes <= kind.reserve_bytes:
        return None
    less = kind.model_copy(update={"memory_bytes": limit_bytes, "usable_share": 1})
    kinds = {**problem.cluster.device_kinds, problem.cluster.devices[0].kind: less}
    cluster = problem.cluster.model_copy(update={"device_kinds": kinds})
    costs = Costs(problem.model_copy(update={"cluster": cluster}))
    return search_all(costs, cell_source(costs), progress)
