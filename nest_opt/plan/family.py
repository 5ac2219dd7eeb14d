"""The aligned family: the distinct device maps for given degrees."""

from collections.abc import Iterable, Sequence

from nest_opt.plan.placement import AlignedOrder, DeviceMap
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
