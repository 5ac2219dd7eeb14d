"""The cells of both families, from their definitions: equations (5) to (7) and (44)."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nest_opt.cost.schedule import rounds_per_batch, runs
from nest_opt.cost.sharding import fits_replicas
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import aligned_maps, replica_pitches, stage_pitches
from nest_opt.plan.placement import AlignedOrder, Cell
from nest_opt.problem import Configuration
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule
from nest_opt.problem.zero import NOT_SHARDED, Zero


@dataclass(frozen=True)
class FreeCell:
    """The degrees that a program of the free family fixes.

    Attributes
    ----------
    microbatch, rounds
        b and m.
    choices
        The configurations that each stage may choose among; cp and ep are the same.
    replicas, stages
        d and S.
    schedule
        The pipeline schedule.
    zero
        z and h: the ZeRO levels of all stages, and over which copies.
    """

    microbatch: int
    choices: tuple[Configuration, ...]
    rounds: int
    replicas: int
    stages: int
    schedule: Schedule = field(default=ONE_F_ONE_B, kw_only=True)
    zero: Zero = field(default=NOT_SHARDED, kw_only=True)

    @property
    def least_devices(self) -> int:
        """Devices that a placement of the cell takes at least."""
        return self.replicas * self.stages * min(k.block_size for k in self.choices)


@dataclass(frozen=True)
class PathCell(FreeCell):
    """A cell of the aligned family whose stages choose their configurations.

    Attributes
    ----------
    order, pitch
        The device map's: where a stage starts follows from the sizes before.
    sizes
        For `pp-inner`, the devices that a replica may have in all to have this
        pitch; for `dp-inner`, the largest block that a stage may have, alone.
    """

    order: AlignedOrder
    pitch: int
    sizes: tuple[int, ...]

    def start(self, replica: int, stage: int, before: int, k: Configuration) -> int:
        """Return the first device of a block, (6), from the devices of the stages before."""
        if self.order == "pp-inner":
            return replica * self.pitch + before
        return stage * self.pitch + replica * k.block_size


# What a program is written for.
ProgramCell = Cell | FreeCell


def aligned_cells(costs: Costs) -> Iterator[Cell | PathCell]:
    """Yield every cell of the aligned family; of equal device maps, the first in the tie order."""
    for cell in _degrees(costs):
        if len(cell.choices) > 1:
            for zero in _zeros(costs, cell):
                yield from _path_cells(costs, replace(cell, zero=zero))
            continue
        (k,) = cell.choices
        problem = costs.problem
        for device_map in aligned_maps(
            costs.network.group_sizes,
            problem.cluster.device_count,
            k.block_size,
            cell.replicas,
            cell.stages,
            problem.search,
        ):
            for zero in _zeros(costs, cell):
                yield Cell(cell.microbatch, k, cell.rounds, device_map, zero, cell.schedule)


def _path_cells(costs: Costs, cell: FreeCell) -> Iterator[PathCell]:
    """Yield the cells of each order and pitch: (7)."""
    problem, groups = costs.problem, costs.network.group_sizes
    devices, search = problem.cluster.device_count, problem.search
    sizes = {k.block_size for k in cell.choices}
    totals = {0}
    for _ in range(cell.stages):
        totals = {total + size for total in totals for size in sizes}
    of_pitch: dict[int, list[int]] = {}
    for total in sorted(totals):
        if total * cell.replicas <= devices:
            for pitch in replica_pitches(groups, devices, total, cell.replicas, search):
                of_pitch.setdefault(pitch, []).append(total)
    maps: list[tuple[AlignedOrder, int, tuple[int, ...]]] = [
        ("pp-inner", pitch, tuple(found)) for pitch, found in sorted(of_pitch.items())
    ]
    pitches = stage_pitches(groups, devices, sizes, cell.replicas, cell.stages, search)
    maps += [("dp-inner", pitch, (largest,)) for pitch, largest in pitches]
    for order, pitch, allowed in maps:
        yield PathCell(
            cell.microbatch, cell.choices, cell.rounds, cell.replicas, cell.stages,
            order, pitch, allowed, schedule=cell.schedule, zero=cell.zero,
        )  # fmt: skip


def free_cells(costs: Costs) -> Iterator[FreeCell]:
    """Yield every cell of the free family (44): b, d, S, schedule, z, h, what stages may choose.

    Configurations that may change from stage to stage are choices of one cell.
    """
    for cell in _degrees(costs):
        for zero in _zeros(costs, cell):
            yield replace(cell, zero=zero)


def _zeros(costs: Costs, cell: FreeCell) -> Iterator[Zero]:
    """Yield what the search space says of ZeRO, where it has runs for the cell's replicas."""
    return (zero for zero in costs.problem.zeros if fits_replicas(zero, cell.replicas))


def _degrees(costs: Costs) -> Iterator[FreeCell]:
    """Yield every b, d, S and schedule, with what each stage may choose; nothing is sharded."""
    problem, table = costs.problem, costs.table
    devices = problem.cluster.device_count
    pairs: dict[tuple[int, Configuration], list[tuple[int, Configuration]]] = {}
    for microbatch, k in table.replicas:
        pairs.setdefault((microbatch, problem.search.shared(k)), []).append((microbatch, k))
    for (microbatch, shared), members in pairs.items():
        for replicas in sorted({d for pair in members for d in table.replicas[pair]}):
            choices = tuple(k for b, k in members if replicas in table.replicas[b, k])
            rounds = rounds_per_batch(problem.job, microbatch, shared.ep, replicas)
            assert rounds is not None
            least = min(k.block_size for k in choices)
            for stages in range(1, min(table.layer_count, devices // (least * replicas)) + 1):
                if problem.search.pp and stages not in problem.search.pp:
                    continue
                for schedule in problem.search.schedules:
                    fits = stages * schedule.chunks <= table.layer_count
                    if fits and runs(schedule, stages, rounds):
                        yield FreeCell(
                            microbatch, choices, rounds, replicas, stages, schedule=schedule
                        )
