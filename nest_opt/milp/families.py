"""What the driver asks of a family of placements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nest_opt.milp.cells import FreeCell, ProgramCell, aligned_cells, free_cells
from nest_opt.milp.result import FamilyName
from nest_opt.plan.evaluate import Costs, placement_cell
from nest_opt.plan.placement import Cell, Placement


@dataclass(frozen=True)
class Family:
    """A family of placements, cut into cells.

    Attributes
    ----------
    name
        Its name.
    cells
        Yields its cells.
    programs
        For each program that a cell may need, in their order, whether it is a
        relaxed one. The last one is not.
    place
        Returns a cell's place among equals: the order of ties.
    contains
        Whether a legal placement is one of the family.
    """

    name: FamilyName
    cells: Callable[[Costs], Iterator[ProgramCell]]
    programs: tuple[bool, ...]
    place: Callable[[ProgramCell], tuple[object, ...]]
    contains: Callable[[Costs, Placement], bool]


def _aligned_place(cell: ProgramCell) -> tuple[object, ...]:
    assert isinstance(cell, Cell)
    device_map = cell.device_map
    return (
        device_map.devices_used,
        device_map.stages,
        device_map.replicas,
        cell.microbatch,
        cell.configuration,
        device_map.order != "pp-inner",
        device_map.pitch,
    )


def _is_aligned(costs: Costs, placement: Placement) -> bool:
    cell = placement_cell(costs.problem, placement)
    return isinstance(cell, Cell) and any(_same(cell, other) for other in aligned_cells(costs))


def _same(left: Cell, right: Cell) -> bool:
    """Whether two cells have the same degrees and put every block on the same devices."""
    shape = [
        (cell.pair, cell.device_map.replicas, cell.device_map.stages) for cell in (left, right)
    ]
    return shape[0] == shape[1] and all(
        left.device_map.block_start(replica, stage) == right.device_map.block_start(replica, stage)
        for replica in range(left.device_map.replicas)
        for stage in range(left.device_map.stages)
    )


def _free_place(cell: ProgramCell) -> tuple[object, ...]:
    assert isinstance(cell, FreeCell)
    return cell.least_devices, cell.stages, cell.replicas, cell.microbatch, cell.choices


def _is_free(costs: Costs, placement: Placement) -> bool:
    """Any devices will do, so that degrees alone decide."""
    asked, replicas = costs.problem.search, costs.table.replicas
    return (not asked.pp or placement.stages in asked.pp) and all(
        placement.replicas in replicas.get((placement.microbatch, k), ())
        for k in placement.configurations
    )


FAMILIES: dict[FamilyName, Family] = {
    "aligned": Family("aligned", aligned_cells, (False,), _aligned_place, _is_aligned),
    "free": Family("free", free_cells, (True, False), _free_place, _is_free),
}
