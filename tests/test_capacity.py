"""Room for layers: bounds on pipelines from the memory of one type of layers."""

import random
from itertools import product

import numpy as np
import pytest

from nest_opt.dp.capacity import Layers, room


def fits(layers: Layers, taken: int, mode: int, in_flight: int, free: int) -> bool:
    """Whether some layers are within the memory of one stage."""
    held = layers.states_bytes + in_flight * layers.stash_bytes[mode]
    return taken == 0 or taken * held + layers.work_bytes[mode] <= free


@pytest.mark.parametrize("seed", range(150))
def test_no_pipeline_beats_the_room_for_layers(seed: int) -> None:
    """Of all ways to give layers and modes to stages, none has a smaller max or sum of F."""
    rng = random.Random(seed)
    modes, stages = rng.randint(1, 3), rng.randint(1, 3)
    repeats = sorted(rng.randint(0, 9) for _ in range(modes))
    base = rng.randint(0, 12)
    layers = Layers(
        rng.randint(stages, 6),
        [base + repeat for repeat in repeats],
        rng.randint(0, 6),
        sorted((rng.randint(0, 5) for _ in range(modes)), reverse=True),
        [rng.randint(0, 6) for _ in range(modes)],
    )
    free = rng.randint(0, 40)
    flights = np.array([rng.randint(1, 4) for _ in range(stages)], np.int64)
    hops = np.array([rng.randint(0, 4) for _ in range(stages)], np.int64)
    found = room(layers, free, flights, hops)
    slowest, total = [], []
    for taken in product(range(layers.count + 1), repeat=stages):
        if sum(taken) != layers.count:
            continue
        for chosen in product(range(modes), repeat=stages):
            parts = list(zip(taken, chosen, flights.tolist(), hops.tolist(), strict=True))
            if all(fits(layers, n, mode, held, free) for n, mode, held, _ in parts):
                times = [n * layers.time_ps[mode] + hop for n, mode, _, hop in parts]
                slowest.append(max(times))
                total.append(sum(times))
    assert found.has_all() == bool(slowest)
    if slowest:
        plain = layers.count * layers.time_ps[0] + int(hops.sum())
        assert found.least_slowest(0) <= min(slowest)
        assert plain + found.least_repeats() <= min(total)


def test_bounds_are_near_where_all_is_even() -> None:
    """With memory for two layers a stage under `full` alone, repeats are in the bounds."""
    layers = Layers(8, [1000, 1400], 10, [10, 1], [0, 0])
    flights, hops = np.array([4, 3, 2, 1]), np.array([5, 10, 10, 5])
    found = room(layers, 30, flights, hops)
    assert found.most.tolist() == [[0, 0, 1, 1], [2, 2, 2, 2]]
    assert found.least_repeats() == 6 * 400
    # Two layers under `full`, and the hops of an inner stage: 2810, less a thousandth.
    assert 2805 <= found.least_slowest(2015) <= 2810


def test_stashes_beyond_any_memory_do_not_overflow() -> None:
    """More microbatches in flight than bytes in the world leave no room, silently for none."""
    layers = Layers(3, [1], 0, [2**59], [0])
    found = room(layers, 2**40, np.array([2**41]), np.array([0]))
    assert found.most.tolist() == [[0]]
    assert not found.has_all()
    nothing = room(Layers(3, [1], 0, [0], [0]), 0, np.array([2**41]), np.array([0]))
    assert nothing.most.tolist() == [[3]]


@pytest.mark.parametrize("free", [0, -(10**15), 10**12])
def test_work_and_states_beyond_any_memory_do_not_overflow(free: int) -> None:
    """With chunks by the thousand neither a byte short nor a petabyte leaves the range."""
    ones = np.array([1])
    for layers in (Layers(3, [1], 0, [1], [10**15]), Layers(3, [1], 2**53, [1], [0])):
        assert room(layers, free, ones, 0 * ones, chunks=10**4).most.tolist() == [[0]]
