"""What the driver asks of a family of placements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nest_opt.milp.cells import FreeCell, PathCell, ProgramCell, aligned_cells, free_cells
from nest_opt.milp.result import FamilyName
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import staged_maps
from nest_opt.plan.placement import Blocks, Placement, uneven_map


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
        device_map.order != "pp-inner",
        device_map.pitch,
    )


def _is_aligned(costs: Costs, placement: Placement) -> bool:
    """Whether some device map of the family puts every block on the same devices."""
    if not _is_free(costs, placement):
        return False
    sizes = [k.block_size for k in placement.configurations]
    problem = costs.problem
    for cell in free_cells(costs):
        if (
            cell.microbatch == placement.microbatch
            and (cell.replicas, cell.stages) == (placement.replicas, placement.stages)
            and set(placement.configurations) <= set(cell.choices)
        ):
            maps = staged_maps(
                costs.network.group_sizes,
                problem.cluster.device_count,
                sizes,
                [k.block_size for k in cell.choices],
                placement.replicas,
                problem.search,
            )
            for order, pitch in maps:
                blocks = uneven_map(sizes, placement.replicas, order, pitch)
                if _same(blocks, placement.device_map):
                    return True
    return False


def _same(left: Blocks, right: Blocks) -> bool:
    """Whether two device maps put every block on the same devices."""
    return all(
        tuple(left.block(replica, stage)) == tuple(right.block(replica, stage))
        for replica in range(left.replicas)
        for stage in range(left.stages)
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
