"""How full the groups of a network level get: devices and replicas of a device map in them.

In closed form per group or block, so that 100,000 devices take milliseconds;
listed blocks are counted.
"""

from collections import Counter

import numpy as np
import numpy.typing as npt

from nest_opt.plan.placement import DeviceMap, ListedMap


def most_devices(device_map: DeviceMap | ListedMap, size: int) -> int:
    """Return the most devices in use in one group of `size` devices.

    Every map is c units of u devices in a row, one each P devices: replicas
    where stages are the inner order, stages otherwise.
    """
    if isinstance(device_map, ListedMap):
        return max(Counter(group for group, _ in _held(device_map, size)).values())
    inner, units = device_map.stages, device_map.replicas
    if device_map.order == "dp-inner":
        inner, units = units, inner
    unit = inner * device_map.block_size
    last = (units - 1) * device_map.pitch + unit - 1
    edges = np.arange(last // size + 2, dtype=np.int64) * size
    whole, part = np.divmod(edges, device_map.pitch)
    before = np.where(whole < units, whole * unit + np.minimum(part, unit), units * unit)
    return int(np.diff(before).max())


def most_replicas(device_map: DeviceMap | ListedMap, size: int) -> int:
    """Return the most replicas that have devices in one group of `size` devices.

    Only the groups of a block's first and last device can hold other blocks.
    """
    if isinstance(device_map, ListedMap):
        return max(Counter(group for group, _ in set(_held(device_map, size))).values())
    replicas, stages = _numbers(device_map.replicas), _numbers(device_map.stages)
    a, pitch = device_map.block_size, device_map.pitch
    start = {
        "pp-inner": replicas[:, None] * pitch + stages * a,
        "dp-inner": stages * pitch + replicas[:, None] * a,
        "pp-inner-reversed": replicas[:, None] * pitch + stages[::-1] * a,
    }[device_map.order]
    ends = np.stack([start // size, (start + a - 1) // size])
    held = np.unique(ends * device_map.replicas + replicas[:, None])
    _, counts = np.unique(held // device_map.replicas, return_counts=True)
    return int(counts.max())


def _numbers(count: int) -> npt.NDArray[np.int64]:
    return np.arange(count, dtype=np.int64)


def _held(listed: ListedMap, size: int) -> list[tuple[int, int]]:
    """Return (group, replica) of every device in use."""
    return [
        (device // size, replica)
        for stage in listed.devices
        for replica, block in enumerate(stage)
        for device in block
    ]
