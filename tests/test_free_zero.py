"""ZeRO levels in the free family: program, brute force, evaluator and checker agree."""

from collections import Counter
from functools import cache

import pytest
from free_agreement import Fixed, FreeComparison, compare_fixed, placements
from free_brute_force import free_brute_force
from free_zero_instances import equals_problem, free_zero_problem, runs_problem

from nest_opt import InstanceError, solve
from nest_opt.cost.table import ParameterClass
from nest_opt.milp.exact import exact
from nest_opt.plan.evaluate import Costs, copy_levels, evaluate, sync_group
from nest_opt.problem.zero import Zero

OPTIMUM_SEEDS = range(120)
FIXED_SEEDS = range(2000, 2080)
MOST_ASSIGNMENTS = 1_500


@cache
def optimum(seed: int) -> tuple[int | None, Zero | None, int | None] | None:
    """Return brute force's value, the level that the program's plan has, and the search's value.

    None if they were not compared. Status, value and bound of the program must be those of
    brute force.
    """
    problem = free_zero_problem(seed)
    try:
        solved = solve(problem)
    except InstanceError:
        return None
    best = free_brute_force(problem, MOST_ASSIGNMENTS)
    if best is None:
        return None
    found = exact(problem, start=best.placement if seed % 4 == 0 else None, family="free")
    expected = "infeasible" if best.value_ps is None else "optimal"
    assert (found.status, found.value_ps) == (expected, best.value_ps), f"seed {seed}"
    assert found.bound_ps == best.value_ps, f"seed {seed}"
    zero = found.placement.zero if found.placement else None
    return best.value_ps, zero, solved.evaluation.value_ps if solved.evaluation else None


@pytest.mark.parametrize("first", range(OPTIMUM_SEEDS.start, OPTIMUM_SEEDS.stop, 10))
def test_program_equals_brute_force(first: int) -> None:
    """Value, bound and infeasibility are brute force's, and no aligned plan is better."""
    for seed in range(first, first + 10):
        free, _, aligned = optimum(seed) or (None, None, None)
        if aligned is not None:
            assert free is not None, f"seed {seed}"
            assert free <= aligned, f"seed {seed}"


def test_optima_of_every_level_are_compared() -> None:
    """The comparisons say something: each level wins on some seeds, so do runs of replicas."""
    found = [values for seed in OPTIMUM_SEEDS if (values := optimum(seed))]
    assert len(found) >= 80
    levels = Counter(zero.dense for _, zero, _ in found if zero is not None)
    assert all(levels[level] >= 3 for level in range(4)), levels
    assert sum(zero.instances > 1 for _, zero, _ in found if zero) >= 5
    assert sum(zero.dense != zero.expert for _, zero, _ in found if zero) >= 3
    assert any(free < aligned for free, zero, aligned in found if free and zero and aligned)


def test_every_fixed_placement_is_judged_and_valued_alike() -> None:
    """Fixed in the program, a placement is feasible as the checker says, of the evaluator's value.

    Where the counted ranks of a slot are not in the order of their devices,
    the program's value may be lower, never higher.
    """
    told = FreeComparison()
    for seed in FIXED_SEEDS:
        compare_fixed(free_zero_problem(seed), f"seed {seed}", told)
    assert told.problems >= 40
    assert told.unsorted < told.placements / 2
    assert 0.1 < told.illegal / told.placements < 0.9
    levels = Counter(zero.dense for zero in told.zeros)
    assert all(levels[level] >= 20 for level in range(4)), levels
    assert sum(zero.instances > 1 for zero in told.zeros) >= 20
    assert sum(zero.dense != zero.expert for zero in told.zeros) >= 20


@pytest.mark.parametrize("kind", ["tp", "ep"])
def test_each_rank_has_a_level_inside_runs_and_one_between(kind: str) -> None:
    """On all devices, also where one rank's runs are far and the other's equals, values agree.

    The worst level inside with the worst one between would be too much there: no rank has both.
    """
    problem = runs_problem(kind)
    costs = Costs(problem)
    fixed, apart, values = Fixed(costs), 0, []
    name: ParameterClass = "expert" if kind == "ep" else "dense"
    for placement in placements(costs, 10**6):
        values.append(evaluate(costs, placement).value_ps)
        assert fixed.value(placement) == values[-1]
        assert placement.devices is not None
        levels = [
            copy_levels(
                costs.network,
                sync_group(placement.devices, placement.configurations[0], name, 0, rank),
                2,
            )
            for rank in range(2)
        ]
        worst = tuple(map(max, zip(*levels, strict=True)))
        apart += worst not in levels
    assert apart >= 20
    assert exact(problem, family="free").value_ps == min(values)


def test_runs_may_be_torn_for_equals_to_be_near() -> None:
    """Sorting replicas (48) does not put runs together: the optimum keeps equals in a group."""
    problem = equals_problem()
    costs = Costs(problem)
    best = free_brute_force(problem)
    found = exact(problem, family="free")
    assert best is not None
    assert found.value_ps == found.bound_ps == best.value_ps
    assert found.placement is not None
    assert found.placement.devices is not None
    (k,) = found.placement.configurations
    group = sync_group(found.placement.devices, k, "dense", 0, 0)
    assert copy_levels(costs.network, group, 4) == (1, 0)
