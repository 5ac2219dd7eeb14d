"""The outer search: groups of cells, best bound first, until nothing can win."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from typing import Literal

from nest_opt.dp.source import CellSource, Group
from nest_opt.dp.thresholds import least_value, smallest_ends
from nest_opt.plan.placement import Cell, Placement

Status = Literal["optimal", "infeasible", "interrupted"]

# Above any objective value: a stage is below 2**60 ps, m below 2**41.
NO_LIMIT = 2**120


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    status
        `optimal`, `infeasible`, or `interrupted` with the best so far.
    placement, value_ps
        The best placement and its objective, None where there is none.
    bound_ps
        No cell of the search space has a lower value; None if infeasible.
    cells, cells_pruned
        Cells of the search space (of those reached, if interrupted), and how
        many of them a bound settled.
    """

    status: Status
    placement: Placement | None
    value_ps: int | None
    bound_ps: int | None
    cells: int
    cells_pruned: int


@dataclass
class _Incumbent:
    """The best cell so far: its value, its group's and its own place among ties."""

    value_ps: int = NO_LIMIT
    group: Group | None = None
    cell: Cell | None = None

    def limit(self, group: Group) -> int:
        """Return the most that a cell of a group may cost to replace the incumbent."""
        if self.group is None:
            return self.value_ps
        return self.value_ps if group.place < self.group.place else self.value_ps - 1


def search(
    source: CellSource, progress: Callable[[int, int, int | None], None] | None = None
) -> SearchResult:
    """Find the best placement of a cost model's cells.

    Parameters
    ----------
    source
        The cost model's cells.
    progress
        Called with (groups done, groups, best value in ps or None).

    A KeyboardInterrupt ends the search with what it has.
    """
    best = _Incumbent()
    queue = _Queue(source)
    solved = 0
    status: Status = "optimal"
    try:
        queue.fill()
        while (group := queue.next(best.value_ps)) is not None:
            if progress:
                progress(queue.done, queue.total, None if best.cell is None else best.value_ps)
            for cell in source.cells(group):
                solved += _try(source, group, cell, best)
            queue.finish()
        queue.count_rest()
    except KeyboardInterrupt:
        status = "interrupted"
    bound, cells = min(best.value_ps, queue.bound_ps()), queue.cells
    if best.cell is None:
        if status == "interrupted":
            return SearchResult(status, None, None, bound, cells, cells - solved)
        return SearchResult("infeasible", None, None, None, cells, cells - solved)
    placement = _placement(source, best.cell, best.value_ps)
    return SearchResult(status, placement, best.value_ps, bound, cells, cells - solved)


class _Queue:
    """Groups by bound; a group's costlier bound is taken when its first one is the least.

    Attributes
    ----------
    done, total
        Groups that need not be looked at again, and all groups.
    cells
        Cells in the groups done.
    """

    def __init__(self, source: CellSource) -> None:
        self._source = source
        # (bound, place, refined, group): equal bounds in the order of ties.
        self._heap: list[tuple[int, tuple[object, ...], bool, Group]] = []
        self._current: tuple[int, Group] | None = None
        self._filled = False
        self.done = self.total = self.cells = 0

    def fill(self) -> None:
        """Ask the source for all groups."""
        groups = self._source.groups()
        self._heap = [(group.bound_ps, group.place, False, group) for group in groups]
        heapify(self._heap)
        self.total = len(groups)
        self._filled = True

    def next(self, value_ps: int) -> Group | None:
        """Return the group of the least refined bound, or None if all exceed a value."""
        while self._heap and self._heap[0][0] <= value_ps:
            bound, place, refined, group = self._heap[0]
            if refined:
                self._current = bound, group
                heappop(self._heap)
                return replace(group, bound_ps=bound)
            better = self._source.refined_bound_ps(group)
            if better is None:
                heappop(self._heap)
                self.done += 1
                self.cells += self._source.cell_count(group)
            else:
                heapreplace(self._heap, (max(better, bound), place, True, group))
        return None

    def finish(self) -> None:
        """Count the group that `next` returned as done."""
        if self._current is not None:
            self.done += 1
            self.cells += self._source.cell_count(self._current[1])
            self._current = None

    def count_rest(self) -> None:
        """Count the cells of all groups that bounds have settled."""
        self.cells += sum(self._source.cell_count(entry[3]) for entry in self._heap)

    def bound_ps(self) -> int:
        """Return a bound on all cells of groups that are not done."""
        if not self._filled:
            return 0
        open_bounds = [entry[0] for entry in self._heap[:1]]
        if self._current is not None:
            open_bounds.append(self._current[0])
        return min(open_bounds, default=NO_LIMIT)


def _try(source: CellSource, group: Group, cell: Cell, best: _Incumbent) -> bool:
    """Solve a cell if its bound allows; return whether it was solved."""
    limit = best.limit(group)
    if group.bound_ps > limit:
        return False
    bound = source.bound_ps(cell)
    if bound is None or bound > limit:
        return False
    found = least_value(source.chain(cell), source.weights(cell), limit)
    if found.value is not None:
        best.value_ps, best.group, best.cell = found.value, group, cell
    return True


def _placement(source: CellSource, cell: Cell, value_ps: int) -> Placement:
    """Return the cell's placement with the smallest stage ends, modes filled in."""
    ends = smallest_ends(source.chain(cell), source.weights(cell), value_ps)
    modes = tuple(
        source.mode(cell, stage, low, high)
        for stage, (low, high) in enumerate(zip((0, *ends), ends, strict=False))
    )
    return cell.placement(ends, modes)
