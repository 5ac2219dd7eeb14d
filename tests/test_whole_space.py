"""All that finds best plans agrees on problems that draw from the whole space at once.

`benchmarks/crosscheck.py` runs the same comparison on as many as asked for.
"""

from collections import Counter
from functools import cache

import pytest
from agreement import Comparison, compare
from milp_agreement import program_difference, programs_know
from plan_features import meetings, plan_features, possible_meetings, space_features
from seeds import of_all_seeds
from whole_space import whole_space_data

from nest_opt import InstanceError
from nest_opt.errors import ModelError
from nest_opt.milp.exact import exact
from nest_opt.plan.evaluate import Costs, evaluate

# Few limits of hop latency decide: 576 and 697 have such.
SEEDS = (*range(160), 576, 697)
PROGRAM_SEEDS = SEEDS[::3]

# Each is in the best plan of some seed.
FEATURES = {
    "S > 1 and d > 1",
    "tp > 1",
    "cp > 1",
    "ep > 1",
    "sp",
    "expert parameters",
    "m 1",
    "m of 4 and more",
    "padded batch",
    "order dp-inner with both allowed",
    "pitch level with all allowed",
    "pitch spread",
    "replicas see different levels",
    "a group inside a block straddles",
    "devices idle",
    "several optimal plans",
    "schedule 1f1b",
    "schedule gpipe",
    "schedule interleaved",
    "schedule zb-h1",
    "a schedule chosen among several",
    "zb-h1 beats 1f1b",
    "zb-h1 with sync in the value",
    "interleaved with m > S",
    "three chunks",
    "zero 1",
    "zero 2",
    "zero 3",
    "zero of experts differs",
    "zero in runs",
    "zero chosen among levels",
    "recompute full and none",
    "recompute selective and another",
    "tied ends exchange",
    "tied ends exchange shares",
    "tied in one stage",
    "tree counts",
    "a call is hidden",
    "sync in the value",
    "stages differ",
    "layers in another order than listed",
    "stages of unequal size",
    "memory binds",
    "anti-colocation binds",
    "colocation binds",
    "degree-limit binds",
    "failure-domains binds",
    "forbidden-boundary binds",
    "hop-latency binds",
    "pinned-layers binds",
    "power binds",
    "tp-inside-node binds",
}
LEAST_MET = 0.75


@cache
def compared(seed: int) -> Comparison:
    """Return what search, brute force and oracle make of a seed."""
    return compare(whole_space_data(seed))


@cache
def features(seed: int) -> frozenset[str]:
    """Return what a seed's best plan makes use of; nothing where there is none."""
    problem, brute = compared(seed).problem, compared(seed).brute
    if brute.placement is None:
        return frozenset()
    evaluation = evaluate(Costs(problem), brute.placement)
    found = plan_features(problem, brute.placement, evaluation)
    found |= space_features(problem, brute.placement, evaluation)
    return frozenset(found | ({"several optimal plans"} if brute.optima > 1 else set()))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_search_equals_brute_force(seed: int) -> None:
    """Value, whole plan and infeasibility are those of brute force; the oracle agrees."""
    assert compared(seed).difference is None


@pytest.mark.parametrize("seed", PROGRAM_SEEDS)
def test_the_program_equals_brute_force(seed: int) -> None:
    """Value, bound and status are those of brute force; what has no programs is refused."""
    problem = compared(seed).problem
    if not programs_know(problem):
        with pytest.raises((ModelError, InstanceError)):
            exact(problem)
        return
    assert program_difference(problem, compared(seed).brute) is None


@of_all_seeds
def test_every_feature_is_in_some_best_plan() -> None:
    """Every degree, schedule, level and mode is best somewhere, and every constraint decides."""
    seen = Counter(name for seed in SEEDS for name in features(seed))
    assert not {name for name in FEATURES if not seen[name]}
    assert 0.05 < sum(not features(seed) for seed in SEEDS) / len(SEEDS) < 0.4


def test_features_meet() -> None:
    """Most pairs of features that can meet do so in some best plan."""
    met = set[str]().union(*(meetings(features(seed)) for seed in SEEDS))
    assert len(met & possible_meetings()) >= LEAST_MET * len(possible_meetings())
