"""The aligned family: the distinct device maps for given degrees."""

from nest_opt.plan.placement import DeviceMap
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
    seen: set[tuple[int, int]] = set()
    for order in ("pp-inner", "dp-inner"):
        if order not in search.order:
            continue
        inner, outer = (stages, replicas) if order == "pp-inner" else (replicas, stages)
        for pitch in pitches(group_sizes, devices, inner * block_size, outer, search):
            steps = (pitch, block_size) if order == "pp-inner" else (block_size, pitch)
            # A step that is never taken does not tell maps apart.
            taken = (steps[0] * (replicas > 1), steps[1] * (stages > 1))
            if taken not in seen:
                seen.add(taken)
                maps.append(DeviceMap(block_size, replicas, stages, order, pitch))
    return maps
