"""What the driver asks of a family of placements."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nest_opt.errors import ModelError
from nest_opt.milp.cells import FreeCell, PathCell, ProgramCell, aligned_cells, free_cells
from nest_opt.milp.coefficients import pairs_of
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
    relaxation
        Returns the cell whose relaxed program bounds a cell, None if it has none.
    place
        Returns a cell's place among equals: the order of ties.
    outside
        Returns what puts a legal placement outside the family, None for a member.
    """

    name: FamilyName
    cells: Callable[[Costs], Iterator[ProgramCell]]
    relaxation: Callable[[ProgramCell], FreeCell | None]
    place: Callable[[ProgramCell], tuple[object, ...]]
    outside: Callable[[Costs, Placement], str | None]


def _without_devices(cell: ProgramCell) -> FreeCell | None:
    """Return a cell's degrees alone, where stages choose or devices are free.

    Its relaxed program, in which all groups are on their lowest levels, is one
    for all pitches and both rank orders.
    """
    if not isinstance(cell, FreeCell):
        return None
    return FreeCell(
        cell.microbatch,
        cell.choices,
        cell.rounds,
        cell.replicas,
        cell.stages,
        schedule=cell.schedule,
        zero=cell.zero,
    )


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
        cell.schedule,
        device_map.order != "pp-inner",
        device_map.pitch,
    )


def _free_place(cell: ProgramCell) -> tuple[object, ...]:
    assert isinstance(cell, FreeCell)
    return (
        cell.least_devices,
        cell.stages,
        cell.replicas,
        cell.microbatch,
        cell.choices,
        cell.zero,
        cell.schedule,
    )


# Programs of the free family have a variable for each block and innermost group of devices.
MOST_FREE_DEVICES = 256


def check_family(costs: Costs, family: FamilyName) -> None:
    """Refuse what the programs of a family cannot be written for.

    Raises
    ------
    ModelError
        If the free family has too many devices, an interleaved schedule, or any order of
        layers; if a level of the aligned family has collectives in rounds, or runs of
        replicas, where stages choose; if collectives leave a group by several ports, and
        the program chooses devices.
    """
    if not costs.network.spreads.is_flat and (family == "free" or costs.problem.search.per_stage):
        raise ModelError(
            "cluster.network.collectives: found ports, the programs of the free family, and of "
            "stages that choose, know the levels of copies and not how they spread below: use the "
            "aligned family without search.per_stage, or flat"
        )
    if family != "free":
        if pairs_of(costs) is not None:
            raise ModelError(
                f"family: found {family!r} on a network of pairs, which has no groups to align "
                "with: use the free family, or levels of the network"
            )
        levels = costs.problem.zeros
        beyond = [z for z in levels if max(z.dense, z.expert) > 1 or z.instances > 1]
        if beyond and costs.problem.search.per_stage:
            raise ModelError(
                f"search.zero: found {', '.join(map(str, beyond))} with search.per_stage, the "
                "programs of stages that choose know levels 0 and 1 over all copies alone: remove "
                "the others, use the free family, or remove search.per_stage"
            )
        return
    check_free_devices(costs.problem.cluster.device_count)
    if pairs_of(costs) is not None and any(k.cp > 1 for _, k in costs.problem.candidates):
        raise ModelError(
            "search.cp: found a degree above 1, the programs of networks of pairs know cp 1 alone: "
            "fix it"
        )
    if costs.graph is not None:
        raise ModelError(
            "search.layer_order: found 'any', the programs of the free family know stages of the "
            "listed order alone: use the aligned family, or layer_order listed"
        )
    if any(schedule.is_interleaved for schedule in costs.problem.search.schedules):
        raise ModelError(
            "search.schedule: found interleaved, the programs of the free family know one chunk a "
            "stage alone: use the aligned family, or remove it"
        )


def check_free_devices(devices: int) -> None:
    """Refuse more devices than the programs of the free family are written for.

    Raises
    ------
    ModelError
        If there are too many.
    """
    if devices > MOST_FREE_DEVICES:
        raise ModelError(
            f"cluster.devices: found {devices:,} devices, the programs of the free family are "
            f"written for at most {MOST_FREE_DEVICES}: use the aligned family, or fewer devices"
        )


def _aligned_family(costs: Costs) -> Iterator[ProgramCell]:
    """Yield the cells of the aligned family."""
    check_family(costs, "aligned")
    yield from aligned_cells(costs)


def _free_family(costs: Costs) -> Iterator[FreeCell]:
    """Yield the cells of the free family."""
    check_family(costs, "free")
    yield from free_cells(costs)


FAMILIES: dict[FamilyName, Family] = {
    "aligned": Family(
        "aligned", _aligned_family, _without_devices, _aligned_place, outside_aligned
    ),
    "free": Family("free", _free_family, _without_devices, _free_place, outside_free),
}
