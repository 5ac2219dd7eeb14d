"""The threshold loops against enumeration of all stage ends of random cells."""

import random
from itertools import combinations

import numpy as np
import pytest

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import INFINITE, Chain
from nest_opt.dp.thresholds import least_value, smallest_ends


def random_chain(generator: random.Random) -> Chain:
    """Return a cell of 1 to 6 layers whose times and syncs pull in different directions."""
    layers = generator.randint(1, 6)
    stages = generator.randint(1, layers)
    shape = (layers + 1, layers + 1)

    def matrix(holes: float, most: int) -> np.ndarray:
        values = [
            INFINITE if generator.random() < holes else generator.randint(0, most)
            for _ in range(shape[0] * shape[1])
        ]
        entries = np.array(values, np.int64).reshape(shape)
        entries[np.tril_indices(layers + 1)] = INFINITE
        return entries

    holes = generator.choice([0, 0.2, 0.5])
    most = generator.choice([3, 20, 1000])
    time = [matrix(holes, most) for _ in range(stages)]
    if generator.random() < 0.1:
        return Chain(time, None)
    sync = [np.minimum(matrix(0, 3 * most), 3 * most + 1) for _ in range(stages)]
    return Chain(time, sync)


def enumerated(chain: Chain, weights: ObjectiveWeights) -> tuple[int, tuple[int, ...]] | None:
    """Return the least value and the first of the stage ends that have it."""
    stages = len(chain.time)
    best: tuple[int, tuple[int, ...]] | None = None
    for cuts in combinations(range(1, chain.layers), stages - 1):
        ends = (*cuts, chain.layers)
        time, sync, total = 0, 0, 0
        for stage, (low, high) in enumerate(zip((0, *ends), ends, strict=False)):
            cost = int(chain.time[stages - 1 - stage][low, high])
            sums = chain.time if chain.fill is None else chain.fill
            time, total = max(time, cost), total + int(sums[stages - 1 - stage][low, high])
            if chain.sync is not None:
                sync = max(sync, int(chain.sync[stages - 1 - stage][low, high]))
        if time < INFINITE:
            weight = 1 if weights.has_loads else weights.max_weight
            value = weights.sum_weight * total + weight * time
            value += sync if weights.sync else 0
            if best is None or (value, ends) < best:
                best = value, ends
    return best


WEIGHTS = [
    *(ObjectiveWeights(1, weight + 1, -1, True) for weight in (0, 1, 2, 7, 100)),
    *(ObjectiveWeights(0, weight, 0, True) for weight in (1, 3, 50)),
    ObjectiveWeights(0, 5, 0, False),
]
# Of schedules whose fills are not F: loads have their weights inside.
LOADED = [ObjectiveWeights(1, 6, -1, True, 1, 2), ObjectiveWeights(0, 6, 3, True, 1, 2)]


@pytest.mark.parametrize("seed", range(400))
def test_least_value_and_first_ends_equal_enumeration(seed: int) -> None:
    """Value and lexicographically smallest ends are those of full enumeration."""
    generator = random.Random(seed)
    chain = random_chain(generator)
    weights = generator.choice(WEIGHTS)
    expected = enumerated(chain, weights)
    found = least_value(chain, weights, 10**30)
    if expected is None:
        assert found.value is None
        return
    assert found.value == expected[0]
    assert smallest_ends(chain, weights, expected[0]) == expected[1]
    assert least_value(chain, weights, expected[0]).value == expected[0]
    assert least_value(chain, weights, expected[0] - 1).value is None


def loaded_chain(generator: random.Random) -> Chain:
    """Return a cell whose sums are of another matrix than its maxima, feasible alike."""
    chain = random_chain(generator)
    most = generator.choice([3, 20, 1000])
    fill = [
        np.where(time < INFINITE, np.array([generator.randint(0, most) for _ in time]), INFINITE)
        for time in chain.time
    ]
    return Chain(chain.time, chain.sync, fill)


@pytest.mark.parametrize("seed", range(300))
def test_fills_that_are_not_loads_equal_enumeration(seed: int) -> None:
    """Value and smallest ends agree where sums are of fills and maxima of loads."""
    generator = random.Random(f"loads {seed}")
    chain, weights = loaded_chain(generator), LOADED[seed % 2]
    expected = enumerated(chain, weights)
    found = least_value(chain, weights, 10**30)
    assert found.value == (None if expected is None else expected[0])
    if expected is not None:
        assert smallest_ends(chain, weights, expected[0]) == expected[1]
        assert least_value(chain, weights, expected[0] - 1).value is None


def test_one_bottleneck_optimal_plan_is_not_enough() -> None:
    """Random cells exist whose optimum has neither the least max F nor the least sum F."""
    missed = 0
    for seed in range(400):
        chain = random_chain(random.Random(seed))
        weights = ObjectiveWeights(0, 2, 0, True)
        best = enumerated(chain, weights)
        if best is not None:
            time, _ = chain.measure(best[1])
            missed += time > chain.least_max_time(INFINITE)
    assert missed > 0


def structured_chain(seed: int) -> Chain:
    """Return a cell as real ones are: times and gradients add up, sync hides behind backward."""
    generator = random.Random(seed)
    layers = generator.randint(3, 7)
    stages = generator.randint(2, min(4, layers))
    times = [generator.randint(0, 30) for _ in range(layers)]
    gradients = [generator.randint(0, 30) for _ in range(layers)]
    noise = generator.choice([0, 3, 15])
    scale = generator.choice([1, 2, 4])
    forbidden = generator.choice([0, 0.1, 0.3])
    shape = (layers + 1, layers + 1)
    time = [np.full(shape, INFINITE, np.int64) for _ in range(stages)]
    sync = [np.zeros(shape, np.int64) for _ in range(stages)]
    for position in range(stages):
        for low in range(layers):
            for high in range(low + 1, layers + 1):
                if generator.random() >= forbidden:
                    time[position][low, high] = sum(times[low:high]) + generator.randint(0, noise)
                exposed = scale * sum(gradients[low:high]) - sum(times[:low])
                sync[position][low, high] = max(0, exposed) + generator.randint(0, noise)
    return Chain(time, sync)


# Cells on which taking the last plan's Z, not the largest of the loop, for the
# next limit loses the optimum.
TELLING_SEEDS = (6644, 10270, 11216, 37423)


@pytest.mark.parametrize("seed", [*range(300), *TELLING_SEEDS])
def test_structured_cells_equal_enumeration(seed: int) -> None:
    """Value and smallest ends of cells with hidden sync are those of full enumeration."""
    chain = structured_chain(seed)
    weights = WEIGHTS[seed % len(WEIGHTS)]
    expected = enumerated(chain, weights)
    found = least_value(chain, weights, 10**30)
    assert found.value == (None if expected is None else expected[0])
    if expected is not None:
        assert smallest_ends(chain, weights, expected[0]) == expected[1]
