"""The evaluator against the oracle, a second reading of the cost model."""

import random

import pytest
from agreement import oracle_difference
from random_instances import random_data, random_staged_data
from random_placements import random_placement, random_staged_placement

from nest_opt import Problem
from nest_opt.problem.validation import build

SEEDS_A_TEST = 50
PLACEMENTS_A_SEED = 3


@pytest.mark.parametrize("first", range(10_000, 10_400, SEEDS_A_TEST))
def test_evaluator_equals_oracle(first: int) -> None:
    """F, Y, X, every term of memory and the value are equal, to the picosecond and byte."""
    compared = 0
    for seed in range(first, first + SEEDS_A_TEST):
        data = random_data(seed)
        problem = build(Problem, data, f"seed {seed}")
        rng = random.Random(seed)
        for _ in range(PLACEMENTS_A_SEED):
            placement = random_placement(rng, problem)
            if placement is None:
                break
            assert oracle_difference(data, problem, placement) is None, f"seed {seed}"
            compared += 1
    assert compared >= 0.8 * SEEDS_A_TEST * PLACEMENTS_A_SEED


@pytest.mark.parametrize("first", range(0, 200, SEEDS_A_TEST))
def test_evaluator_equals_oracle_where_stages_differ(first: int) -> None:
    """The same holds with tp and sp of each stage's own, in rows of blocks or on listed devices."""
    compared = differing = listed = 0
    for seed in range(first, first + SEEDS_A_TEST):
        data = random_staged_data(seed)
        problem = build(Problem, data, f"seed {seed}")
        rng = random.Random(seed)
        for _ in range(PLACEMENTS_A_SEED):
            placement = random_staged_placement(rng, problem)
            if placement is None:
                break
            assert oracle_difference(data, problem, placement) is None, f"seed {seed}"
            compared += 1
            differing += not placement.is_uniform
            listed += placement.order == "listed"
    assert compared >= 0.6 * SEEDS_A_TEST * PLACEMENTS_A_SEED
    assert differing >= 0.25 * compared
    assert listed >= 0.15 * compared
