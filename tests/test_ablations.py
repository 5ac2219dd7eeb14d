"""Ablations: legal plans, never better than the optimum, and each blind to what it leaves out."""

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from random_instances import random_data, random_sharded_data, random_staged_data
from samples import problem_data

from nest_opt import InstanceError, Problem, compare, solve, verify
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import outside_aligned
from nest_opt.planners import EqualStagesPlanner, OneBandwidthPlanner, ablations
from nest_opt.planners.beliefs import with_one_bandwidth, without_memory_limit
from nest_opt.planners.manual import equal_ends
from nest_opt.problem.files import read_problem
from nest_opt.problem.validation import build

INSTANCES = Path(__file__).resolve().parent.parent / "instances"
TINY = sorted((INSTANCES / "tiny").glob("*.json"))


# Data by seed: problems with ZeRO, schedules, constraints, and stages of their own.
DRAWN: tuple[tuple[Callable[[int], dict[str, Any]], int], ...] = (
    *((random_data, seed) for seed in (0, 5, 8)),
    *((random_sharded_data, seed) for seed in (1, 5)),
    *((random_staged_data, seed) for seed in (0, 2, 8)),
)


def values(problem: Problem) -> dict[str, int | None]:
    """Return the value of each ablation's plan, asserting that it is legal and of the family."""
    found: dict[str, int | None] = {}
    for name, planner in ablations().items():
        outcome = planner.plan(problem)
        assert outcome.planner == name
        assert (outcome.plan is None) == (outcome.reason is not None)
        found[name] = None
        if outcome.plan is not None and outcome.evaluation is not None:
            assert not verify(outcome.plan).violations
            assert verify(outcome.plan).evaluation == outcome.evaluation
            if not problem.search.per_stage and problem.search.layer_order == "listed":
                assert outside_aligned(Costs(problem), outcome.plan.placement()) is None
            found[name] = outcome.evaluation.value_ps
    return found


def above_the_optimum(problem: Problem) -> set[str]:
    """Return the ablations whose plans are above the optimum; assert that none is below."""
    bound, above = solve(problem).bound_ps, set()
    for name, value in values(problem).items():
        if value is not None:
            assert bound is not None
            assert value >= bound, name
            above |= {name} if value > bound else set()
    return above


@pytest.mark.parametrize("path", TINY[::4], ids=lambda path: path.stem)
def test_no_ablation_beats_the_optimum(path: Path) -> None:
    """Every plan is legal, of the family, and not below the optimum."""
    above_the_optimum(read_problem(path))


@pytest.mark.parametrize(("data", "seed"), DRAWN)
def test_ablations_are_sound_on_random_problems(
    data: Callable[[int], dict[str, Any]], seed: int
) -> None:
    """The same where ZeRO, schedules, constraints and stages of their own come in."""
    above_the_optimum(build(Problem, data(seed), f"seed {seed}"))


def test_each_ablation_loses_somewhere() -> None:
    """What is left out is worth something: on two problems all but the best repair are worse."""
    sharded = above_the_optimum(build(Problem, random_sharded_data(2), "sharded"))
    placed = above_the_optimum(read_problem(INSTANCES / "tiny" / "dp-inner-wins.json"))
    assert sharded | placed == set(ablations()) - {"memory-repaired"}
    assert "outer-bandwidth" in placed


def test_what_memory_is_worth() -> None:
    """Llama-3-70B on 64 H100: what ignores memory has to be made to fit, and is slower for it."""
    problem = read_problem(INSTANCES / "paper" / "llama-3-70b-dgx-h100-64.json")
    bound, known = solve(problem).bound_ps, ablations()
    first, best = (known[name].plan(problem) for name in ("memory-last", "memory-repaired"))
    assert first.evaluation is not None
    assert best.evaluation is not None
    assert bound is not None
    assert first.evaluation.value_ps >= best.evaluation.value_ps > bound
    # Plans that did not fit came before the first that does.
    assert first.tried > 1


def small(*levels: tuple[int, int, str]) -> Problem:
    """Return a chain of layers on levels of (size, bytes/s, latency in s), with ample memory."""
    named = [
        {"name": f"level-{n}", "size": size, "bandwidth_bytes_per_s": rate, "latency_s": latency}
        for n, (size, rate, latency) in enumerate(levels)
    ]
    sizes = tuple(size for size, _, _ in levels)
    data = problem_data(sizes=sizes, memory_bytes=10**14)
    data["cluster"]["network"]["levels"] = named
    return build(Problem, data, "small")


@pytest.mark.parametrize(
    ("belief", "rate", "latency"),
    [
        ("none", 10**15, "0"),
        ("inner", 900, "0.001"),
        ("outer", 100, "0.003"),
        ("mean", 367, "0.002"),
    ],
)
def test_beliefs_about_the_network(belief: Any, rate: int, latency: str) -> None:
    """Effective bandwidths 900, 100, 100: means and ends of the levels that devices need."""
    problem = small((2, 900, "0.001"), (2, 100, "0.002"), (2, 400, "0.003"))
    for level in with_one_bandwidth(problem, belief).cluster.network.levels:
        assert round(level.bandwidth_bytes_per_s) == rate
        assert level.latency_s == Decimal(latency)


def test_levels_that_no_device_needs_do_not_count() -> None:
    """With as many devices as a node has, the outer belief is the node's bandwidth."""
    problem = small((2, 900, "0.001"), (2, 100, "0.002"))
    cluster = problem.cluster
    devices = (cluster.devices[0].model_copy(update={"count": 2}),)
    less = problem.model_copy(update={"cluster": cluster.model_copy(update={"devices": devices})})
    levels = with_one_bandwidth(less, "outer").cluster.network.levels
    assert {level.bandwidth_bytes_per_s for level in levels} == {900}


@pytest.mark.parametrize("belief", ["inner", "mean", "outer"])
def test_a_true_belief_loses_nothing(belief: Any) -> None:
    """On a network whose levels are alike every belief in one bandwidth is true: the optimum."""
    problem = small((2, 10**9, "0.001"), (2, 10**9, "0.001"))
    found = OneBandwidthPlanner("one", belief).plan(problem)
    best = solve(problem)
    assert found.evaluation is not None
    assert best.evaluation is not None
    assert found.evaluation.value_ps == best.evaluation.value_ps


def test_ample_memory_loses_nothing() -> None:
    """Where memory binds nowhere, both planners that ignore it have the optimum."""
    problem = small((2, 10**9, "0.001"), (2, 10**8, "0.002"))
    assert without_memory_limit(problem).cluster.device_kind.usable_bytes == 10**15
    found = values(problem)
    best = solve(problem).bound_ps
    assert found["memory-last"] == found["memory-repaired"] == best


def test_equal_stages_are_the_best_of_their_kind() -> None:
    """Its stages are equal, and no plan of the ranking with equal stages is better."""
    met = 0
    for seed in (0, 5, 7, 8, 9):
        problem = build(Problem, random_data(seed), f"seed {seed}")
        try:
            ranked = solve(problem, top=50)
        except InstanceError:
            continue
        found = EqualStagesPlanner().plan(problem)
        rows = Costs(problem).table.layer_rows
        equal = [
            each.evaluation.value_ps
            for each in ranked.plans
            if (placement := each.plan.placement()).ends == equal_ends(rows, placement.stages)
        ]
        if found.plan is None or found.evaluation is None:
            assert not equal
            continue
        placement = found.plan.placement()
        assert placement.ends == equal_ends(rows, placement.stages)
        assert found.evaluation.value_ps <= min(equal, default=found.evaluation.value_ps)
        met += 1
    assert met > 2


def test_ablations_are_asked_for_by_name() -> None:
    """`compare` runs them if they are named, and none of them if no name is given."""
    problem = read_problem(TINY[0])
    named = compare(problem, ["equal-stages", "manual"])
    assert [each.planner for each in named.outcomes] == ["equal-stages", "manual"]
    every = compare(problem, budget=5)
    assert not {each.planner for each in every.outcomes} & set(ablations())
