"""The aligned family: the distinct device maps for given degrees, and who is a member."""

from nest_opt.cost.build import legal_replicas
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Blocks, DeviceMap, Placement
from nest_opt.problem import SearchSpace


def pitches(
    group_sizes: tuple[int, ...], devices: int, unit: int, count: int, search: SearchSpace
) -> list[int]:
    """Return the legal pitches for `count` units of `unit` devices, smallest first.

    `tight` is the unit itself, `level` rounds it up to whole groups of each
    network level, `spread` divides the devices evenly.
    """
    candidates: set[int] = set()
    if "tight" in search.pitch:
        candidates.add(unit)
    if "level" in search.pitch:
        candidates.update(-(-unit // size) * size for size in group_sizes)
    if "spread" in search.pitch:
        candidates.add(devices // count)
    return sorted(p for p in candidates if p >= unit and (count - 1) * p + unit <= devices)


def aligned_maps(
    group_sizes: tuple[int, ...],
    devices: int,
    block_size: int,
    replicas: int,
    stages: int,
    search: SearchSpace,
) -> list[DeviceMap]:
    """Return the distinct device maps of the family, pp-inner and small pitches first."""
    maps: list[DeviceMap] = []
    seen: set[tuple[int, int, int]] = set()
    for order in ("pp-inner", "dp-inner"):
        if order not in search.order:
            continue
        inner, outer = (stages, replicas) if order == "pp-inner" else (replicas, stages)
        for pitch in pitches(group_sizes, devices, inner * block_size, outer, search):
            device_map = DeviceMap(block_size, replicas, stages, order, pitch)
            if _corners(device_map) not in seen:
                seen.add(_corners(device_map))
                maps.append(device_map)
    return maps


def _corners(device_map: DeviceMap) -> tuple[int, int, int]:
    """Return the starts of three blocks, which tell where all are: the steps are equal."""
    last_replica, last_stage = device_map.replicas - 1, device_map.stages - 1
    return (
        device_map.block_start(0, 0),
        device_map.block_start(last_replica, 0),
        device_map.block_start(0, last_stage),
    )


def outside(costs: Costs, placement: Placement) -> str | None:
    """Return what puts a placement outside the family of its problem's search space.

    None for a member. A device map is one by the devices that it uses,
    whatever it is called.
    """
    problem, search = costs.problem, costs.problem.search
    if not placement.is_uniform:
        return f"configurations {', '.join(map(str, placement.configurations))}"
    k = placement.configurations[0]
    legal = legal_replicas(problem)
    if (placement.microbatch, k) not in legal:
        return f"microbatch {placement.microbatch}, {k}"
    if placement.replicas not in legal[placement.microbatch, k]:
        return f"dp {placement.replicas}"
    if search.pp and placement.stages not in search.pp:
        return f"pp {placement.stages}"
    for stage, mode in enumerate(placement.recompute):
        if mode not in search.recompute:
            return f"recompute {mode} of stage {stage}"
    family = aligned_maps(
        costs.network.group_sizes,
        problem.cluster.device_count,
        k.block_size,
        placement.replicas,
        placement.stages,
        search,
    )
    if any(_same_blocks(placement.device_map, member) for member in family):
        return None
    return f"order {placement.order}" + (f", pitch {placement.pitch}" if placement.pitch else "")


def _same_blocks(left: Blocks, right: Blocks) -> bool:
    """Whether two maps of one shape put every block on the same devices, rank by rank."""
    if isinstance(left, DeviceMap) and isinstance(right, DeviceMap):
        return _corners(left) == _corners(right)
    return all(
        tuple(left.block(replica, stage)) == tuple(right.block(replica, stage))
        for replica in range(left.replicas)
        for stage in range(left.stages)
    )
