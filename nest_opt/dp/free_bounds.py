"""Bounds on every plan of the free family: the bound of the best group."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.free_source import FreeSource
from nest_opt.dp.passes import Passes, Stages
from nest_opt.dp.search import NO_LIMIT, GroupQueue
from nest_opt.dp.source import Group
from nest_opt.dp.thresholds import least_value
from nest_opt.plan.progress import Progress


@dataclass(frozen=True)
class FreeBound:
    """A lower bound on all plans of the free family.

    Attributes
    ----------
    bound_ps
        The bound; None if there is no plan.
    group
        A group that has no better bound; None if the bound is the value that was given.
    relaxed
        Groups that were relaxed to runs: for all others a cheaper bound was enough.
    complete
        Whether nothing ended the search early: a bound it is all the same.
    """

    bound_ps: int | None
    group: Group | None
    relaxed: int
    complete: bool


def free_bound(
    source: FreeSource, value_ps: int | None = None, progress: Progress | None = None
) -> FreeBound:
    """Return the best bound that runs of stages give.

    Parameters
    ----------
    source
        The groups.
    value_ps
        The value of a plan of the family, which no bound exceeds; None if none is known.
    progress
        Called with (groups done, groups, bound so far in ps or None).

    A KeyboardInterrupt ends the search with what it has.
    """
    best, holder, relaxed = NO_LIMIT if value_ps is None else value_ps, None, 0
    queue, complete = GroupQueue(source, with_dominated=False), True
    try:
        queue.fill()
        while (group := queue.next(best - 1)) is not None:
            if progress:
                progress(queue.done, queue.total, None if best == NO_LIMIT else best)
            found = group_bound_ps(source, group, best - 1)
            relaxed += not group.schedule.is_interleaved
            if found is not None:
                best, holder = found, replace(group, bound_ps=found)
            queue.finish()
    except KeyboardInterrupt:
        complete, best = False, min(best, queue.bound_ps())
    return FreeBound(None if best == NO_LIMIT else best, holder, relaxed, complete)


def group_bound_ps(source: FreeSource, group: Group, limit: int = NO_LIMIT) -> int | None:
    """Return the best of a group's bounds over levels; None if that is above a limit."""
    best = group.bound_ps
    if not group.schedule.is_interleaved:
        for level in source.levels:
            found = least_of(source.runs(group, level), source.group_weights(group), limit)
            if found is None:
                return None
            best = max(best, found)
    return best if best <= limit else None


def least_of(
    pipelines: Sequence[Passes[Stages]], weights: ObjectiveWeights, limit: int
) -> int | None:
    """Return the least value of several pipelines; None if that is above a limit."""
    least = None
    for pipeline in pipelines:
        found = least_value(pipeline, weights, limit).value
        if found is not None:
            least, limit = found, found - 1
    return least
