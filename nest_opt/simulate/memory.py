"""Activations in flight: what the devices of a schedule hold at their peak.

The order of a device's operations alone decides this, not their times.
"""

from collections.abc import Sequence

from nest_opt.errors import ScheduleError
from nest_opt.simulate.schedule import Schedule


def peak_in_flight(schedule: Schedule) -> tuple[int, ...]:
    """Return for each device the most pairs (microbatch, chunk) between F and W at one time.

    A chunk counts as one: with v chunks per device, v of them are what one
    microbatch takes with v = 1.
    """
    return peak_stash_bytes(schedule, [1] * schedule.stages)


def peak_stash_bytes(
    schedule: Schedule, stash_bytes: Sequence[int], kept_bytes: Sequence[int] | None = None
) -> tuple[int, ...]:
    """Return for each device the largest stash of all its microbatches and chunks together.

    Parameters
    ----------
    schedule
        The schedule.
    stash_bytes
        Bytes that a microbatch takes from its F on, one number per stage.
    kept_bytes
        What of it is kept from B until W, one number per stage; all of it if
        not given. Qi et al. 2023 (arXiv:2401.10241), table 1, call it M_W. BW
        frees everything at once.

    Raises
    ------
    ScheduleError
        If there is not one number per stage.
    """
    kept_bytes = stash_bytes if kept_bytes is None else kept_bytes
    for item, numbers in (("stash_bytes", stash_bytes), ("kept_bytes", kept_bytes)):
        if len(numbers) != schedule.stages:
            raise ScheduleError(
                f"{item}: found {len(numbers)} numbers, {schedule.name} has {schedule.stages} "
                "stages: give one number per stage"
            )
    peaks = []
    for device, order in enumerate(schedule.orders):
        held = peak = 0
        for kind, _, chunk in order:
            stage = chunk * schedule.devices + device
            stash, kept = stash_bytes[stage], kept_bytes[stage]
            held += {"F": stash, "B": kept - stash, "W": -kept, "BW": -stash}[kind]
            peak = max(peak, held)
        peaks.append(peak)
    return tuple(peaks)
