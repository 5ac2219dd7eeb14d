"""The changes that a local search tries."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

from nest_opt.placing.state import State
from nest_opt.plan.placement import Placement


def exchanges(state: State, sites: dict[int, int]) -> Iterator[tuple[int, ...]]:
    """Yield devices with two of them exchanged, of which one or both are in use.

    Two of one site (`sites`, by device) are alike: that changes nothing.
    """
    seats = len(state.seats)
    for one, other in combinations(range(len(state.devices)), 2):
        if one < seats and sites[state.devices[one]] != sites[state.devices[other]]:
            yield _exchanged(state.devices, ((one, other),))


def block_exchanges(state: State) -> Iterator[tuple[int, ...]]:
    """Yield devices with two blocks of equal size exchanged."""
    sizes = [own.block_size for own in state.placement.configurations]
    if max(sizes) == 1:
        # A block is a device then.
        return
    for one, other in combinations(state.starts, 2):
        if sizes[one[0]] == sizes[other[0]]:
            yield _exchanged(state.devices, _pairs(state, one, other))


def reversals(state: State) -> Iterator[tuple[int, ...]]:
    """Yield devices with a run of stages in reverse order (2-opt: Croes 1958).

    In one replica, and in all of them at once.
    """
    placement = state.placement
    sizes = [own.block_size for own in placement.configurations]
    every = range(placement.replicas)
    for first, last in combinations(range(placement.stages), 2):
        run = sizes[first : last + 1]
        if last - first < 2 or run != run[::-1]:
            continue
        for replicas in (*([r] for r in every), *([every] if len(every) > 1 else [])):
            pairs = [
                pair
                for replica in replicas
                for step in range((last - first + 1) // 2)
                for pair in _pairs(state, (first + step, replica), (last - step, replica))
            ]
            yield _exchanged(state.devices, pairs)


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


def _pairs(
    state: State, one: tuple[int, int], other: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    """Return the places of equal ranks of two blocks."""
    size = state.placement.configurations[one[0]].block_size
    here, there = state.starts[one], state.starts[other]
    return tuple((here + rank, there + rank) for rank in range(size))


def _exchanged(
    devices: tuple[int, ...], pairs: tuple[tuple[int, int], ...] | list[tuple[int, int]]
) -> tuple[int, ...]:
    found = list(devices)
    for one, other in pairs:
        found[one], found[other] = found[other], found[one]
    return tuple(found)
