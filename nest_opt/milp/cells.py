"""The cells of both families, from their definitions: equations (5) to (7) and (44)."""

from collections.abc import Iterator
from dataclasses import dataclass

from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import aligned_maps
from nest_opt.plan.placement import Cell, StagedCell
from nest_opt.problem import Configuration


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
    """

    microbatch: int
    choices: tuple[Configuration, ...]
    rounds: int
    replicas: int
    stages: int

    @property
    def least_devices(self) -> int:
        """Devices that a placement of the cell takes at least."""
        return self.replicas * self.stages * min(k.block_size for k in self.choices)


# What a program is written for.
ProgramCell = Cell | StagedCell | FreeCell


def aligned_cells(costs: Costs) -> Iterator[Cell]:
    """Yield every cell of the aligned family; of equal device maps, the first in the tie order."""
    problem, table = costs.problem, costs.table
    devices, groups = problem.cluster.device_count, costs.network.group_sizes
    search = problem.search
    for (microbatch, configuration), degrees in table.replicas.items():
        a = configuration.block_size
        for replicas in degrees:
            rounds = rounds_per_batch(problem.job, microbatch, configuration.ep, replicas)
            # The table lists only degrees that divide the batch.
            assert rounds is not None
            most = min(table.layer_count, devices // (a * replicas))
            for stages in range(1, most + 1):
                if search.pp and stages not in search.pp:
                    continue
                for device_map in aligned_maps(groups, devices, a, replicas, stages, search):
                    yield Cell(microbatch, configuration, rounds, device_map)


def free_cells(costs: Costs) -> Iterator[FreeCell]:
    """Yield every cell of the free family (44): b, d, S and what each stage may choose.

    Configurations that may change from stage to stage are choices of one cell.
    """
    problem, table = costs.problem, costs.table
    devices, per_stage = problem.cluster.device_count, problem.search.per_stage
    pairs: dict[tuple[object, ...], list[tuple[int, Configuration]]] = {}
    for microbatch, k in table.replicas:
        fixed = {"tp": k.tp, "sp": k.sp}
        own = tuple(value for name, value in fixed.items() if name not in per_stage)
        pairs.setdefault((microbatch, k.cp, k.ep, *own), []).append((microbatch, k))
    for (microbatch, _, ep, *_), members in pairs.items():
        assert isinstance(microbatch, int)
        assert isinstance(ep, int)
        for replicas in sorted({d for pair in members for d in table.replicas[pair]}):
            choices = tuple(k for b, k in members if replicas in table.replicas[b, k])
            rounds = rounds_per_batch(problem.job, microbatch, ep, replicas)
            assert rounds is not None
            least = min(k.block_size for k in choices)
            for stages in range(1, min(table.layer_count, devices // (least * replicas)) + 1):
                if not problem.search.pp or stages in problem.search.pp:
                    yield FreeCell(microbatch, choices, rounds, replicas, stages)
