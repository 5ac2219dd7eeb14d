"""The outer search over cells whose stages may differ: below the best of those that do not."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.search import NO_LIMIT, Ranked, SearchResult, Status, search
from nest_opt.dp.source import CellSource
from nest_opt.dp.staged_needs import may_fit
from nest_opt.dp.staged_source import ClassCell, StagedGroup, StagedSource
from nest_opt.dp.thresholds import least_value
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Placement
from nest_opt.plan.progress import Progress

# Bounds after that in closed form: under each ZeRO level, and the interval DP by devices.
_REFINEMENTS = 2


class _Open(NamedTuple):
    """A group that may hold a better plan, with so many bounds taken."""

    bound_ps: int
    serial: int
    step: int
    group: StagedGroup


@dataclass
class _Best:
    """The least value so far, and the placement that has it if its stages may differ."""

    value_ps: int
    placement: Placement | None = None
    solved: int = 0


def search_all(
    costs: Costs,
    source: CellSource,
    progress: Progress | None = None,
    top: int = 1,
) -> SearchResult:
    """Find the best placement, whether or not its stages may differ.

    `top` asks for as many of the best cells whose stages do not differ.
    """
    found = search(source, progress, top)
    if not costs.problem.search.per_stage or not isinstance(source, DefaultSource):
        return found
    return search_staged(StagedSource(costs, source), found, progress)


def search_staged(
    source: StagedSource,
    uniform: SearchResult,
    progress: Progress | None = None,
) -> SearchResult:
    """Find the best placement, given the best of those with one configuration for all stages.

    Parameters
    ----------
    source
        The cells whose stages may differ; a cell here is a class, d, S, ZeRO level and schedule.
    uniform
        What the search among other cells found: its value must be beaten.
    progress
        Called with (groups done, groups, best value in ps or None).

    A KeyboardInterrupt ends the search with what it has.
    """
    if uniform.status == "interrupted":
        return replace(uniform, bound_ps=0, rest_bound_ps=0)
    best = _Best(NO_LIMIT if uniform.value_ps is None else uniform.value_ps)
    queue: list[_Open] = []
    total = done = 0
    try:
        queue = [
            _Open(group.bound_ps, number, 0, group) for number, group in enumerate(source.groups())
        ]
        total = sum(entry.group.levels for entry in queue)
        serial = len(queue)
        heapify(queue)
        if uniform.value_ps is None and not may_fit(source):
            # Where no plan gives a limit, bounds on times are of no use.
            queue = []
        while queue and queue[0].bound_ps < best.value_ps:
            if progress:
                progress(done, total, _known(best.value_ps))
            bound, _, step, group = queue[0]
            if step == _REFINEMENTS:
                _search_group(source, group, best)
                better = []
            else:
                better = _refined(source, group, step, best.value_ps - 1)
            # What is open stays so until it is replaced: an interrupt may come at any time.
            for part in better:
                heappush(queue, _Open(max(bound, part.bound_ps), serial, step + 1, part))
                serial += 1
            done += 0 if better else group.levels
            heappop(queue)
    except KeyboardInterrupt:
        bound = min(best.value_ps, queue[0].bound_ps) if queue else 0
        return _result("interrupted", uniform, best, total, bound)
    return _result("optimal", uniform, best, total, best.value_ps)


def _refined(source: StagedSource, group: StagedGroup, step: int, limit: int) -> list[StagedGroup]:
    """Return the groups that a group stands for, with better bounds; none if nothing fits."""
    if step == 0:
        return source.by_level(group)
    bounds = source.unit_bounds(group, limit)
    return [replace(group, bound_ps=min(bounds.values()))] if bounds else []


def _known(value_ps: int) -> int | None:
    return None if value_ps == NO_LIMIT else value_ps


def _search_group(source: StagedSource, group: StagedGroup, best: _Best) -> None:
    """Solve the cells of a group whose bounds allow something better."""
    for bound, cell in source.cells(group, best.value_ps - 1):
        if bound >= best.value_ps:
            break
        _solve(source, cell, best)
    best.solved += 1


def _solve(source: StagedSource, cell: ClassCell, best: _Best) -> None:
    """Take the best plan of a cell if it beats the best so far.

    Constraints on device maps depend on the sizes of all blocks. Where the
    plan found breaks one, sizes are fixed from the first stage on.
    """
    chain = source.chain(cell)
    weights = source.weights(cell.group)
    if chain is None or not chain.tighten(weights, best.value_ps - 1):
        return
    found = least_value(chain, weights, best.value_ps - 1)
    if found.value is None:
        return
    _, path = chain.least_sum_time(*min(found.thresholds))
    if source.allows_path(cell, [step.configuration for step, _, _ in path]):
        best.value_ps, best.placement = found.value, source.placement(cell, path)
        return
    for part in by_first_size(cell):
        _solve(source, part, best)


def by_first_size(cell: ClassCell) -> Iterator[ClassCell]:
    """Yield cells with one size for the first stage that has several; nothing if none has."""
    for stage, allowed in enumerate(cell.allowed):
        sizes = sorted({k.block_size for k in allowed})
        if len(sizes) > 1:
            for size in sizes:
                kept = tuple(k for k in allowed if k.block_size == size)
                yield replace(
                    cell, allowed=(*cell.allowed[:stage], kept, *cell.allowed[stage + 1 :])
                )
            return


def _result(
    status: Status, uniform: SearchResult, best: _Best, groups: int, bound_ps: int
) -> SearchResult:
    cells = uniform.cells + groups
    pruned = uniform.cells_pruned + groups - best.solved
    value = _known(best.value_ps)
    if value is None and status == "optimal":
        return SearchResult("infeasible", (), None, cells, pruned)
    placement = best.placement or uniform.placement
    ranking = () if placement is None or value is None else (Ranked(placement, value),)
    # Other plans may be as good as the best: cells are not told apart here.
    return SearchResult(status, ranking, bound_ps, cells, pruned, bound_ps)
