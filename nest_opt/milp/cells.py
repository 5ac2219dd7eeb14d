"""The cells of the aligned family, from its definition: equations (5) to (7)."""

from collections.abc import Iterator
from itertools import product

from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell, DeviceMap


def aligned_cells(costs: Costs) -> Iterator[Cell]:
    """Yield every cell of the aligned family; of equal device maps, the first in the tie order."""
    problem, table = costs.problem, costs.table
    devices = problem.cluster.device_count
    for (microbatch, configuration), degrees in table.replicas.items():
        a = configuration.block_size
        for replicas in degrees:
            rounds = rounds_per_batch(problem.job, microbatch, configuration.ep, replicas)
            # The table lists only degrees that divide the batch.
            assert rounds is not None
            most = min(table.layer_count, devices // (a * replicas))
            for stages in range(1, most + 1):
                if problem.search.pp and stages not in problem.search.pp:
                    continue
                for device_map in device_maps(costs, a, replicas, stages):
                    yield Cell(microbatch, configuration, rounds, device_map)


def device_maps(costs: Costs, a: int, replicas: int, stages: int) -> Iterator[DeviceMap]:
    """Yield the distinct device maps of (6) and (7), `pp-inner` and small pitches first."""
    seen = set()
    for order in ("pp-inner", "dp-inner"):
        if order not in costs.problem.search.order:
            continue
        unit, count = (stages * a, replicas) if order == "pp-inner" else (replicas * a, stages)
        for pitch in _pitches(costs, unit, count):
            device_map = DeviceMap(a, replicas, stages, order, pitch)
            starts = tuple(
                device_map.block_start(replica, stage)
                for replica, stage in product(range(replicas), range(stages))
            )
            if starts not in seen:
                seen.add(starts)
                yield device_map


def _pitches(costs: Costs, unit: int, count: int) -> list[int]:
    """Return the pitches of (7) for `count` units of `unit` devices."""
    devices, kinds = costs.problem.cluster.device_count, costs.problem.search.pitch
    found = set()
    if "tight" in kinds:
        found.add(unit)
    if "level" in kinds:
        found |= {unit + (-unit) % size for size in costs.network.group_sizes}
    if "spread" in kinds:
        found.add(devices // count)
    return sorted(p for p in found if p >= unit and (count - 1) * p + unit <= devices)
