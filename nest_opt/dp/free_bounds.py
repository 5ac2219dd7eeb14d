"""Bounds on every plan of the free family, and proofs that none is below a target."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.free_source import FreeSource
from nest_opt.dp.passes import Passes, Stages
from nest_opt.dp.search import NO_LIMIT, GroupQueue
from nest_opt.dp.slabs import slabs
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
    """

    bound_ps: int | None
    group: Group | None
    relaxed: int


@dataclass(frozen=True)
class GroupProof:
    """That no plan of a group is below a target: runs at a level, and limits of slabs of max Z."""

    group: Group
    level: int
    sync_ps: tuple[int, ...]


@dataclass(frozen=True)
class FreeProof:
    """What is shown of a target.

    Attributes
    ----------
    proofs
        Groups for which runs are needed, in the order of their cheaper bounds; for all that are
        not named these are enough.
    open
        Groups that may have a plan below the target, each with its bound.
    """

    proofs: tuple[GroupProof, ...]
    open: tuple[Group, ...]


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
    """
    best, holder, relaxed = NO_LIMIT if value_ps is None else value_ps, None, 0
    queue = GroupQueue(source, with_dominated=False)
    queue.fill()
    while (group := queue.next(best - 1)) is not None:
        if progress:
            progress(queue.done, queue.total, None if best == NO_LIMIT else best)
        found = group_bound_ps(source, group, best - 1)
        relaxed += not group.schedule.is_interleaved
        if found is not None:
            best, holder = found, replace(group, bound_ps=found)
        queue.finish()
    return FreeBound(None if best == NO_LIMIT else best, holder, relaxed)


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


def prove(
    source: FreeSource,
    target_ps: int,
    with_dominated: bool = False,
    progress: Progress | None = None,
) -> FreeProof:
    """Show that no plan of the family has a value below a target, group by group.

    Parameters
    ----------
    source
        The groups.
    target_ps
        The target.
    with_dominated
        Whether groups are looked at that have no better plans than others.
    progress
        Called with (groups done, groups, None).
    """
    proofs, left = [], []
    queue = GroupQueue(source, with_dominated)
    queue.fill()
    while (group := queue.next(target_ps - 1)) is not None:
        if progress:
            progress(queue.done, queue.total, None)
        proof = group_proof(source, group, target_ps)
        if proof is not None:
            proofs.append(proof)
        else:
            bound = group_bound_ps(source, group, target_ps - 1)
            assert bound is not None
            left.append(replace(group, bound_ps=bound))
        queue.finish()
    return FreeProof(tuple(proofs), tuple(left))


def group_proof(source: FreeSource, group: Group, target_ps: int) -> GroupProof | None:
    """Return a proof that a group has no plan below a target, of the first level with one."""
    if group.schedule.is_interleaved:
        return None
    for level in source.levels:
        limits = slabs(source.runs(group, level), source.group_weights(group), target_ps)
        if limits is not None:
            return GroupProof(group, level, limits)
    return None
