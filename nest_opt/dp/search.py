"""The outer search: groups of cells, best bound first, until nothing can win."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from nest_opt.dp.source import CellSource, Group
from nest_opt.dp.thresholds import least_value, smallest_ends
from nest_opt.plan.placement import Cell, Placement

Status = Literal["optimal", "infeasible", "interrupted"]

# Above any objective value: a stage is below 2**60 ps, m below 2**41.
_NO_LIMIT = 2**120


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

    value_ps: int = _NO_LIMIT
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
    groups: list[Group] = []
    done = cells = solved = 0
    status: Status = "optimal"
    try:
        groups = sorted(source.groups())
        for group in groups:
            if group.bound_ps > best.value_ps:
                break
            if progress:
                progress(done, len(groups), None if best.cell is None else best.value_ps)
            for cell in source.cells(group):
                cells += 1
                solved += _try(source, group, cell, best)
            done += 1
        cells += sum(len(source.cells(group)) for group in groups[done:])
    except KeyboardInterrupt:
        status = "interrupted"
    bound = min([best.value_ps, *(group.bound_ps for group in groups[done : done + 1])])
    if best.cell is None:
        if status == "interrupted":
            return SearchResult(status, None, None, bound if groups else 0, cells, cells - solved)
        return SearchResult("infeasible", None, None, None, cells, cells - solved)
    placement = _placement(source, best.cell, best.value_ps)
    return SearchResult(status, placement, best.value_ps, bound, cells, cells - solved)


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
    device_map = cell.device_map
    return Placement(
        cell.microbatch,
        cell.configuration,
        device_map.replicas,
        device_map.order,
        device_map.pitch,
        ends,
        modes,
    )
