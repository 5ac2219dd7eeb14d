"""The outer search: groups of cells, best bound first, until nothing can win."""

from bisect import insort
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Literal, NamedTuple

from nest_opt.dp.source import Bundle, CellSource, Group
from nest_opt.dp.thresholds import least_value, smallest_ends
from nest_opt.plan.placement import Cell, Placement
from nest_opt.plan.progress import Progress

Status = Literal["optimal", "infeasible", "interrupted"]

# Above any objective value: a stage is below 2**60 ps, m below 2**41.
NO_LIMIT = 2**120


class Ranked(NamedTuple):
    """The best placement of a cell, and its objective."""

    placement: Placement
    value_ps: int


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    status
        `optimal`, `infeasible`, or `interrupted` with the best so far.
    ranking
        The best placement of each of the best cells, best first: as many as
        were asked for, fewer if there are no more.
    bound_ps
        No cell of the search space has a lower value; None if infeasible.
    rest_bound_ps
        No cell outside the ranking has a lower value; None if there is none.
    cells, cells_pruned
        Cells of the search space, and how many of them were not solved: a
        bound settled them or, if interrupted, they were not reached.
    """

    status: Status
    ranking: tuple[Ranked, ...]
    bound_ps: int | None
    cells: int
    cells_pruned: int
    rest_bound_ps: int | None = None

    @property
    def placement(self) -> Placement | None:
        """The best placement, None where there is none."""
        return self.ranking[0].placement if self.ranking else None

    @property
    def value_ps(self) -> int | None:
        """The best placement's objective, None where there is none."""
        return self.ranking[0].value_ps if self.ranking else None


class _Entry(NamedTuple):
    """A cell with its value; entries compare as values do, and then as ties do."""

    value_ps: int
    place: tuple[object, ...]
    number: int
    cell: Cell


class _Incumbents:
    """The best cells so far, best first, and no more than were asked for.

    Attributes
    ----------
    entries
        The cells: `number` is one's place among those of its group.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self.entries: list[_Entry] = []

    @property
    def value_ps(self) -> int:
        """What a cell must not exceed to be among the best."""
        return self.entries[-1].value_ps if len(self.entries) == self._most else NO_LIMIT

    @property
    def least_ps(self) -> int:
        """The value of the best cell."""
        return self.entries[0].value_ps if self.entries else NO_LIMIT

    def limit(self, group: Group) -> int:
        """Return the most that the next cell of a group may cost to be among the best."""
        if len(self.entries) < self._most:
            return NO_LIMIT
        last = self.entries[-1]
        return last.value_ps if group.place < last.place else last.value_ps - 1

    def add(self, value_ps: int, group: Group, number: int, cell: Cell) -> None:
        """Take a cell that is within the limit; the worst goes if there are too many."""
        insort(self.entries, _Entry(value_ps, group.place, number, cell))
        del self.entries[self._most :]


def search(
    source: CellSource,
    progress: Progress | None = None,
    top: int = 1,
) -> SearchResult:
    """Find the best placement of a cost model's cells, or of each of the best cells.

    Parameters
    ----------
    source
        The cost model's cells.
    progress
        Called with (groups done, groups, best value in ps or None).
    top
        How many cells to rank, at least 1.

    A KeyboardInterrupt ends the search with what it has.
    """
    best = _Incumbents(top)
    queue = GroupQueue(source, with_dominated=top > 1)
    solved = 0
    status: Status = "optimal"
    try:
        queue.fill()
        while (group := queue.next(best.value_ps)) is not None:
            if progress:
                progress(queue.done, queue.total, best.least_ps if best.entries else None)
            for number, cell in enumerate(source.cells(group)):
                solved += _try(source, group, number, cell, best)
            queue.finish()
    except KeyboardInterrupt:
        status = "interrupted"
    cells = source.cell_count()
    if not best.entries and status == "optimal":
        return SearchResult("infeasible", (), None, cells, cells - solved)
    left = queue.bound_ps()
    rest = min(best.value_ps, left)
    return SearchResult(
        status,
        tuple(
            Ranked(_placement(source, entry.cell, entry.value_ps), entry.value_ps)
            for entry in best.entries
        ),
        min(best.least_ps, left),
        cells,
        cells - solved,
        None if rest == NO_LIMIT else rest,
    )


class _Open(NamedTuple):
    """Groups that may hold a better plan: one, or those of a bundle from a rank on."""

    bound_ps: int
    serial: int
    group: Group | None
    step: int
    bundle: Bundle | None = None


class GroupQueue:
    """Groups by bound; a group's costlier bounds are taken when its last one is the least.

    Attributes
    ----------
    done, total
        Groups that need not be looked at again, and all groups.
    """

    def __init__(self, source: CellSource, with_dominated: bool) -> None:
        self._source = source
        # Only a ranking has a use for them.
        self._with_dominated = with_dominated
        self._heap: list[_Open] = []
        self._serial = 0
        self._current: Group | None = None
        self._filled = False
        self.done = self.total = 0

    def fill(self) -> None:
        """Ask the source for all groups."""
        for bundle in self._source.bundles(self._with_dominated):
            self.total += len(bundle) * bundle.levels
            if len(bundle):
                self._push(bundle.least_ps, None, 0, bundle)
        self._filled = True

    def _push(
        self, bound_ps: int, group: Group | None, step: int, bundle: Bundle | None = None
    ) -> None:
        self._serial += 1
        heappush(self._heap, _Open(bound_ps, self._serial, group, step, bundle))

    def next(self, value_ps: int) -> Group | None:
        """Return the group of the least refined bound, or None if all exceed a value."""
        while self._heap and self._heap[0].bound_ps <= value_ps:
            # It stays until what it stands for is open: an interrupt may come at any time.
            first = self._heap[0]
            if first.bundle is not None:
                self._open(first.bundle, first.step)
            else:
                assert first.group is not None
                if first.step == self._source.refinements:
                    self._current = replace(first.group, bound_ps=first.bound_ps)
                else:
                    self._refine(first.group, first.step, first.bound_ps)
            heappop(self._heap)
            if self._current is not None:
                return self._current
        return None

    def _refine(self, group: Group, step: int, bound_ps: int) -> None:
        """Take the groups that a group stands for, with their next bounds."""
        better = self._source.refined(group, step)
        if not better:
            self.done += group.levels
        for part in better:
            self._push(max(part.bound_ps, bound_ps), part, step + 1)

    def _open(self, bundle: Bundle, rank: int) -> None:
        """Take a bundle's group of a rank out of it."""
        if rank == 0:
            all_groups = len(bundle)
            left = bundle.open()
            self.done += (all_groups - left) * bundle.levels
            if not left:
                return
        group = bundle.group(rank)
        self._push(group.bound_ps, group, 0)
        if rank + 1 < len(bundle):
            self._push(bundle.bound_ps(rank + 1), None, rank + 1, bundle)

    def finish(self) -> None:
        """Count the group that `next` returned as done."""
        if self._current is not None:
            self.done += 1
            self._current = None

    def bound_ps(self) -> int:
        """Return a bound on all cells of groups that are not done."""
        if not self._filled:
            return 0
        open_bounds = [entry.bound_ps for entry in self._heap[:1]]
        if self._current is not None:
            open_bounds.append(self._current.bound_ps)
        return min(open_bounds, default=NO_LIMIT)


def _try(source: CellSource, group: Group, number: int, cell: Cell, best: _Incumbents) -> bool:
    """Solve a cell if its bound allows; return whether it was solved."""
    limit = best.limit(group)
    if group.bound_ps > limit:
        return False
    bound = source.bound_ps(cell)
    if bound is None or bound > limit:
        return False
    value = _least(source, cell, limit)
    if value is not None:
        best.add(value, group, number, cell)
    return True


def _least(source: CellSource, cell: Cell, limit: int) -> int | None:
    """Return the least value of a cell, None if it exceeds the limit or nothing fits."""
    if cell.schedule.is_interleaved:
        plan = source.chunk_plan(cell)
        return plan.value_ps if plan is not None and plan.value_ps <= limit else None
    return least_value(source.chain(cell), source.weights(cell), limit).value


def _placement(source: CellSource, cell: Cell, value_ps: int) -> Placement:
    """Return the cell's placement with the smallest stage ends, modes filled in."""
    if cell.schedule.is_interleaved:
        plan = source.chunk_plan(cell)
        assert plan is not None
        return cell.placement(plan.ends, plan.modes)
    path = smallest_ends(source.chain(cell), source.weights(cell), value_ps)
    modes = tuple(
        source.mode(cell, stage, low, high)
        for stage, (low, high) in enumerate(zip((0, *path), path, strict=False))
    )
    ends, layer_order = source.stages(path)
    return cell.placement(ends, modes, layer_order)
