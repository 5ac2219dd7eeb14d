"""What the driver asks of a family of placements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nest_opt.errors import ModelError
from nest_opt.milp.cells import FreeCell, PathCell, ProgramCell, aligned_cells, free_cells
from nest_opt.milp.result import FamilyName
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import outside_aligned, outside_free
from nest_opt.plan.placement import Placement


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
    outside
        Returns what puts a legal placement outside the family, None for a member.
    """

    name: FamilyName
    cells: Callable[[Costs], Iterator[ProgramCell]]
    programs: tuple[bool, ...]
    place: Callable[[ProgramCell], tuple[object, ...]]
    outside: Callable[[Costs, Placement], str | None]


def _aligned_place(cell: ProgramCell) -> tuple[object, ...]:
    if isinstance(cell, FreeCell):
        assert isinstance(cell, PathCell)
        return (*_free_place(cell), cell.order != "pp-inner", cell.pitch)
    device_map = cell.device_map
    return (
        device_map.devices_used,
        device_map.stages,
        device_map.replicas,
        cell.microbatch,
        (cell.configuration,),
        cell.zero,
        device_map.order != "pp-inner",
        device_map.pitch,
    )


def _free_place(cell: ProgramCell) -> tuple[object, ...]:
    assert isinstance(cell, FreeCell)
    return cell.least_devices, cell.stages, cell.replicas, cell.microbatch, cell.choices


def _free_family(costs: Costs) -> Iterator[FreeCell]:
    """Yield the cells of the free family, whose programs know ZeRO level 0 alone."""
    levels = costs.problem.search.zero
    if any(levels):
        raise ModelError(
            f"search.zero: found {', '.join(map(str, levels))}, the programs of the free family "
            "know level 0 alone: use the aligned family, or remove the others"
        )
    yield from free_cells(costs)


FAMILIES: dict[FamilyName, Family] = {
    "aligned": Family("aligned", aligned_cells, (False,), _aligned_place, outside_aligned),
    "free": Family("free", _free_family, (True, False), _free_place, outside_free),
}
