"""The changes that a local search tries: places to exchange, and ends of stages to move."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from nest_opt.placing.meetings import seat_map
from nest_opt.plan.placement import ListedMap, Placement

# Pairs of places whose devices change places.
Exchange = tuple[tuple[int, int], ...]


def exchanges(placement: Placement, device_count: int) -> tuple[Exchange, ...]:
    """Return every exchange: of two devices, two blocks, or of a run of stages end for end.

    Places are seats, and after them those of idle devices.
    """
    seats = seat_map(placement)
    used = seats.devices_used
    devices = [((one, other),) for one in range(used) for other in range(one + 1, device_count)]
    blocks = list(_blocks(placement, seats))
    return (*devices, *dict.fromkeys((*blocks, *_reversals(placement, seats))))


def shifted_ends(placement: Placement) -> Iterator[Placement]:
    """Yield the placement with one end of a stage a layer earlier or later.

    Not with several chunks, which must stay equal.
    """
    if placement.schedule.is_interleaved:
        return
    ends = (0, *placement.ends)
    for place in range(1, placement.stages):
        for step in (-1, 1):
            moved = ends[place] + step
            if ends[place - 1] < moved < ends[place + 1]:
                yield replace(placement, ends=(*ends[1:place], moved, *ends[place + 1 :]))


def _blocks(placement: Placement, seats: ListedMap) -> Iterator[Exchange]:
    """Yield the exchange of every two blocks of equal size; not if they are single devices."""
    blocks = [block for stage in seats.devices for block in stage]
    for one, other in combinations(blocks, 2):
        if len(one) == len(other) > 1:
            yield tuple(zip(one, other, strict=True))


def _reversals(placement: Placement, seats: ListedMap) -> Iterator[Exchange]:
    """Yield runs of stages end for end (2-opt: Croes 1958), in one replica and in all at once."""
    sizes = [own.block_size for own in placement.configurations]
    every = range(placement.replicas)
    for first, last in combinations(range(placement.stages), 2):
        run = sizes[first : last + 1]
        if run != run[::-1]:
            continue
        for replicas in dict.fromkeys((*((r,) for r in every), tuple(every))):
            yield tuple(
                pair
                for replica in replicas
                for step in range(len(run) // 2)
                for pair in _pairs(seats, replica, first + step, last - step)
            )


def _pairs(seats: ListedMap, replica: int, one: int, other: int) -> Sequence[tuple[int, int]]:
    return list(zip(seats.block(replica, one), seats.block(replica, other), strict=True))
