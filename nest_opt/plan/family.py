"""The aligned family: the distinct device maps for given degrees, and who is a member."""

from collections.abc import Iterable, Iterator, Sequence

from nest_opt.cost.build import legal_replicas
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import AlignedOrder, Blocks, DeviceMap, Placement, uneven_map
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


def count_maps(
    group_sizes: tuple[int, ...],
    devices: int,
    block_size: int,
    replicas: int,
    stages: Sequence[int],
    search: SearchSpace,
) -> list[int]:
    """Return the number of `aligned_maps` for each of some numbers of stages, without making any.

    Two maps of one order are equal if their pitches are, or if there is one
    unit only, which takes no step. Maps of both orders are equal where one
    degree is 1 and the other one's units follow each other block by block.
    """
    counts = []
    for count in stages:
        found = {}
        for order, inner, outer in (("pp-inner", count, replicas), ("dp-inner", replicas, count)):
            legal = order in search.order
            found[order] = (
                set(pitches(group_sizes, devices, inner * block_size, outer, search))
                if legal
                else set()
            )
            if outer == 1 and found[order]:
                found[order] = {block_size * inner}
        both = bool(found["pp-inner"] and found["dp-inner"])
        equal = both and (
            (replicas == 1 and (count == 1 or block_size in found["dp-inner"]))
            or (count == 1 and block_size in found["pp-inner"])
        )
        counts.append(len(found["pp-inner"]) + len(found["dp-inner"]) - equal)
    return counts


def replica_pitches(
    group_sizes: tuple[int, ...], devices: int, unit: int, replicas: int, search: SearchSpace
) -> list[int]:
    """Return the pitches of `pp-inner` for replicas of `unit` devices in all, smallest first.

    One replica takes no step, so that all its pitches are one device map.
    """
    if "pp-inner" not in search.order:
        return []
    found = pitches(group_sizes, devices, unit, replicas, search)
    return found if replicas > 1 else found[:1]


def stage_pitches(
    group_sizes: tuple[int, ...],
    devices: int,
    block_sizes: Iterable[int],
    replicas: int,
    stages: int,
    search: SearchSpace,
) -> list[tuple[int, int]]:
    """Return the pitches of `dp-inner`, smallest first, and the largest block of each.

    Parameters
    ----------
    block_sizes
        The sizes A that a stage's block may have: a pitch made for A serves
        stages of at most A devices.
    """
    if "dp-inner" not in search.order:
        return []
    largest: dict[int, int] = {}
    for size in sorted(set(block_sizes)):
        for pitch in pitches(group_sizes, devices, replicas * size, stages, search):
            largest[pitch] = size
    return sorted(largest.items())


def staged_maps(
    group_sizes: tuple[int, ...],
    devices: int,
    block_sizes: Sequence[int],
    choices: Iterable[int],
    replicas: int,
    search: SearchSpace,
) -> list[tuple[AlignedOrder, int]]:
    """Return the distinct device maps, as (order, pitch), of stages with blocks of their own size.

    Parameters
    ----------
    block_sizes
        a_i, the devices of each stage's block.
    choices
        The sizes A that a stage's block may have.
    """
    unit, stages = sum(block_sizes), len(block_sizes)
    wide_enough = [size for size in choices if size >= max(block_sizes)]
    maps: list[tuple[AlignedOrder, int]] = [
        ("pp-inner", pitch)
        for pitch in replica_pitches(group_sizes, devices, unit, replicas, search)
    ]
    # One replica with equal steps from stage to stage is in both orders.
    one_row = set(block_sizes[:-1]) if maps and replicas == 1 else set()
    maps += [
        ("dp-inner", pitch)
        for pitch, _ in stage_pitches(group_sizes, devices, wide_enough, replicas, stages, search)
        if one_row != {pitch}
    ]
    return maps


def _corners(device_map: DeviceMap) -> tuple[int, int, int]:
    """Return the starts of three blocks, which tell where all are: the steps are equal."""
    last_replica, last_stage = device_map.replicas - 1, device_map.stages - 1
    return (
        device_map.block_start(0, 0),
        device_map.block_start(last_replica, 0),
        device_map.block_start(0, last_stage),
    )


def outside_free(costs: Costs, placement: Placement) -> str | None:
    """Return what puts a legal placement outside the free family, None for a member.

    Any devices will do: degrees and modes alone decide.
    """
    search = costs.problem.search
    legal = legal_replicas(costs.problem)
    for k in placement.configurations:
        if (placement.microbatch, k) not in legal:
            return f"microbatch {placement.microbatch}, {k}"
        if placement.replicas not in legal[placement.microbatch, k]:
            return f"dp {placement.replicas}"
    if placement.zero not in costs.problem.zeros:
        return f"zero {placement.zero}"
    if placement.schedule not in search.schedules:
        return f"schedule {placement.schedule}"
    if search.pp and placement.stages not in search.pp:
        return f"pp {placement.stages}"
    for stage, mode in enumerate(placement.recompute):
        if mode not in search.recompute:
            return f"recompute {mode} of stage {stage}"
    return None


def outside_aligned(costs: Costs, placement: Placement) -> str | None:
    """Return what puts a legal placement outside the aligned family, None for a member.

    A device map is one of the family by the devices that it uses, whatever it
    is called.
    """
    degrees = outside_free(costs, placement)
    if degrees:
        return degrees
    if any(same_blocks(placement.device_map, member) for member in _members(costs, placement)):
        return None
    return f"order {placement.order}" + (f", pitch {placement.pitch}" if placement.pitch else "")


def _members(costs: Costs, placement: Placement) -> Iterator[Blocks]:
    """Yield the family's device maps for the degrees of a placement."""
    problem, network = costs.problem, costs.network
    devices, replicas = problem.cluster.device_count, placement.replicas
    sizes = [k.block_size for k in placement.configurations]
    if placement.is_uniform and not problem.search.per_stage:
        yield from aligned_maps(
            network.group_sizes, devices, sizes[0], replicas, placement.stages, problem.search
        )
        return
    shared = problem.search.shared(placement.configurations[0])
    choices = {
        k.block_size
        for b, k in problem.candidates
        if b == placement.microbatch and problem.search.shared(k) == shared
    }
    for order, pitch in staged_maps(
        network.group_sizes, devices, sizes, choices, replicas, problem.search
    ):
        yield uneven_map(sizes, replicas, order, pitch)


def same_blocks(left: Blocks, right: Blocks) -> bool:
    """Whether two maps of one shape put every block on the same devices, rank by rank."""
    if isinstance(left, DeviceMap) and isinstance(right, DeviceMap):
        return _corners(left) == _corners(right)
    return all(
        tuple(left.block(replica, stage)) == tuple(right.block(replica, stage))
        for replica in range(left.replicas)
        for stage in range(left.stages)
    )
