"""The cells of the aligned family, from its definition: equations (5) to (7)."""

from collections.abc import Iterator

from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import aligned_maps
from nest_opt.plan.placement import Cell


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
                    for zero in sorted(search.zero):
                        yield Cell(microbatch, configuration, rounds, device_map, zero)
