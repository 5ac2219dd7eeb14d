"""The baselines: legal plans or a reason, never better than the optimum, by their rules."""

import math
import random
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from random_instances import random_data, random_sharded_data, random_staged_data
from samples import layer_type, problem_data, sample

from nest_opt import InstanceError, Problem, solve, verify
from nest_opt.cost.schedule import in_flight
from nest_opt.plan.evaluate import Costs, evaluate_stage
from nest_opt.plan.family import outside_aligned
from nest_opt.plan.placement import Cell
from nest_opt.planners import (
    AlpaPlanner,
    ManualPlanner,
    McmcPlanner,
    PhazePlanner,
    Planner,
    RandomPlanner,
    planners,
)
from nest_opt.planners.alpa import least_sum, submesh_sizes
from nest_opt.planners.manual import equal_ends
from nest_opt.planners.mcmc import MOVES, acceptance, even_ends
from nest_opt.planners.memory import StageMemory
from nest_opt.planners.random_plans import draw
from nest_opt.planners.trials import Trials
from nest_opt.problem.files import read_problem
from nest_opt.problem.profile import RECOMPUTE_MODES
from nest_opt.problem.validation import build

INSTANCES = Path(__file__).resolve().parent.parent / "instances"
TINY = sorted((INSTANCES / "tiny").glob("*.json"))
PAPER = [
    INSTANCES / "paper" / f"{name}-64.json"
    for name in ("bert-large-dgx-h100", "llama-2-7b-paper-h100-spineleaf", "mixtral-8x7b-dgx-h100")
]


def assert_sound(planner: Planner, problem: Problem, bound_ps: int | None) -> int | None:
    """Assert that a planner has a legal plan not below a bound, or a reason; return its value."""
    found = planner.plan(problem)
    assert found.planner == planner.name
    assert (found.plan is None) == (found.evaluation is None) == (found.reason is not None)
    if found.plan is None or found.evaluation is None:
        return None
    verified = verify(found.plan)
    assert not verified.violations
    assert verified.evaluation == found.evaluation
    assert outside_aligned(Costs(problem), found.plan.placement()) is None
    assert bound_ps is not None
    assert found.evaluation.value_ps >= bound_ps
    assert found.free_bytes is not None
    assert found.free_bytes >= 0
    return found.evaluation.value_ps


@pytest.mark.parametrize("path", [*TINY, *PAPER[:2]], ids=lambda path: path.stem)
def test_no_planner_beats_the_optimum(path: Path) -> None:
    """Every plan is legal, of the family, not below it; `mcmc` is no worse than `manual`."""
    problem = read_problem(path)
    bound = solve(problem).bound_ps
    values = {
        name: assert_sound(planner, problem, bound) for name, planner in planners(budget=60).items()
    }
    if values["manual"] is not None:
        assert values["mcmc"] is not None
        assert values["mcmc"] <= values["manual"]


@pytest.mark.parametrize("data", [random_data, random_sharded_data, random_staged_data])
def test_planners_are_sound_on_random_problems(data: Callable[[int], dict[str, Any]]) -> None:
    """The same where ZeRO, schedules, constraints and stages of their own come in."""
    for seed in range(14):
        problem = build(Problem, data(seed), f"seed {seed}")
        try:
            bound = solve(problem).bound_ps
        except InstanceError:
            continue
        if set(problem.search.schedule) == {"interleaved"}:
            continue
        for planner in planners(seed, budget=20).values():
            assert_sound(planner, problem, bound)


@pytest.mark.parametrize("kind", [RandomPlanner, McmcPlanner])
def test_a_seed_is_repeated(kind: type[RandomPlanner] | type[McmcPlanner]) -> None:
    """Equal seeds give equal plans and counts, whatever ran before; another seed draws others."""
    problem = read_problem(INSTANCES / "tiny" / "spread-pitch-wins.json")
    plans = [kind(seed=seed, budget=25).plan(problem) for seed in (3, 4, 3)]
    assert plans[0].plan == plans[2].plan
    assert plans[0].tried == plans[2].tried <= 25
    values = {
        found.evaluation.value_ps
        for seed in range(12)
        if (found := kind(seed=seed, budget=3).plan(problem)).evaluation
    }
    assert len(values) > 1


def test_what_fits_is_what_the_evaluator_says() -> None:
    """The mode of every run of layers, in every stage, is the first whose bytes are usable."""
    for seed in range(12):
        data = (random_data, random_sharded_data)[seed % 2](seed)
        problem = build(Problem, data, f"seed {seed}")
        try:
            trials = Trials(problem)
            degrees = trials.plain_degrees[-1]
        except InstanceError:
            continue
        for stages in trials.stage_counts(degrees):
            maps = trials.maps(degrees, stages)
            if not maps:
                continue
            cell = Cell(
                *degrees.pair, trials.rounds(degrees), maps[0], degrees.zero, degrees.schedule
            )
            memory: StageMemory = trials.memory(degrees)
            for low, high in combinations(range(trials.layers + 1), 2):
                stage = stages - 1 if high == trials.layers else 0
                flight = in_flight(degrees.schedule, stage, stages, cell.rounds)
                if stages == 1 and (low, high) != (0, trials.layers):
                    continue
                fitting = [
                    mode
                    for mode in memory.modes
                    if (e := evaluate_stage(trials.costs, cell, stage, ((low, high),), mode))
                    and e.memory_bytes <= e.usable_bytes
                ]
                assert memory.mode(low, high, flight) == (fitting[0] if fitting else None)
                for mode in memory.modes:
                    assert memory.fits(mode, flight)[low, high] == (mode in fitting)


def test_manual_takes_equal_blocks_and_the_ends_on_top() -> None:
    """Layers like no other at the ends are extra; what S does not divide has no equal stages."""
    assert equal_ends((0, 1, 1, 1, 1, 2), 2) == (3, 6)
    assert equal_ends((0, 1, 1, 1, 1), 4) == (2, 3, 4, 5)
    assert equal_ends((1, 1, 1, 1), 4) == (1, 2, 3, 4)
    assert equal_ends((0, 1, 1, 1, 2), 2) is None
    assert equal_ends((0, 1), 2) == (1, 2)


def manual_plan(problem: Problem) -> tuple[int, int, int, int]:
    """Return (b, tp, dp, pp) of the plan of `manual`."""
    plan = ManualPlanner().plan(problem).plan
    assert plan is not None
    return plan.microbatch, plan.tp, plan.dp, len(plan.stages)


def with_tp(memory_bytes: int) -> Problem:
    """Return eight equal layers with tp 1, 2 and 4 on two nodes of four devices.

    A layer's states are 16,000 bytes / tp, and everything else is nothing.
    """
    kind = layer_type(parameters=1000, output_bytes=0, stash_bytes=0)
    profile = kind["profiles"][0]
    kind["profiles"] = [{**profile, "tp": tp, "dense_parameters": 1000 // tp} for tp in (1, 2, 4)]
    return sample(layers=8, memory_bytes=memory_bytes, model={"layer_types": {"block": kind}})


@pytest.mark.parametrize(
    ("memory_bytes", "expected"),
    [
        # All layers in one stage, in half of them with tp 2, in a quarter with tp 4.
        (128_000, (1, 1, 8, 1)),
        (64_000, (1, 2, 4, 1)),
        (32_000, (1, 4, 2, 1)),
        # Above the node there are stages, and data parallelism for the rest.
        (31_999, (1, 4, 1, 2)),
        (16_000, (1, 4, 1, 2)),
    ],
)
def test_manual_grows_tp_in_the_node_then_stages(
    memory_bytes: int, expected: tuple[int, int, int, int]
) -> None:
    """The least model parallelism that fits, tp first, and replicas on all other devices."""
    assert manual_plan(with_tp(memory_bytes)) == expected


def test_manual_says_what_does_not_fit() -> None:
    """Where no tp and no equal stages fit there is a reason and no plan."""
    found = ManualPlanner().plan(with_tp(15_999))
    assert found.plan is None
    assert found.reason == "no tp inside a node and number of equal stages makes the model fit"


def test_manual_prefers_experts_to_tp_and_the_microbatch_by_its_formula() -> None:
    """A mixture of experts has tp 1 and ep in the node; the microbatch has the least estimate."""
    plan = ManualPlanner().plan(read_problem(PAPER[2])).plan
    assert plan is not None
    assert (plan.tp, plan.ep) == (1, 8)
    assert manual_plan(read_problem(INSTANCES / "tiny" / "microbatch-choice.json"))[0] == 2


def flat_problem(seed: int) -> Problem:
    """Return a chain on one network level without parameters, under the objective `nest`."""
    rng = random.Random(seed)
    layers = rng.randint(2, 7)
    types = {
        f"type-{place}": layer_type(
            forward_s=rng.randint(1, 9) / 100,
            backward_s=rng.randint(1, 9) / 100,
            parameters=0,
            output_bytes=rng.randint(0, 9) * 10**7,
            stash_bytes=rng.randint(1, 9),
        )
        for place in range(layers)
    }
    data = problem_data(
        sizes=(8,),
        memory_bytes=rng.randint(15, 40),
        global_batch=rng.choice((4, 6, 8)),
        job={"objective": "nest"},
    )
    data["model"] = {
        "layer_types": types,
        "layers": [{"id": name, "type": name} for name in types],
    }
    return build(Problem, data, f"seed {seed}")


def test_phaze_is_exact_where_the_network_has_one_level() -> None:
    """Without levels and gradients, what it believes is true: it finds the optimum of `nest`."""
    with_plan = 0
    for seed in range(25):
        problem = flat_problem(seed)
        best, found = solve(problem), PhazePlanner().plan(problem)
        assert (best.plan is None) == (found.plan is None)
        if found.evaluation is not None:
            assert found.evaluation.value_ps == best.bound_ps
            with_plan += 1
    assert with_plan > 15


def test_phaze_does_not_see_levels() -> None:
    """The instance in which replicas next to each other win is one that it gets wrong."""
    problem = read_problem(INSTANCES / "tiny" / "dp-inner-wins.json")
    best, found = solve(problem), PhazePlanner().plan(problem)
    assert found.evaluation is not None
    assert best.bound_ps is not None
    assert found.evaluation.value_ps > best.bound_ps


def test_alpa_takes_the_submeshes_of_its_paper() -> None:
    """Powers of two inside a node, then whole nodes."""
    assert submesh_sizes(8, 32) == [1, 2, 4, 8, 16, 24, 32]
    assert submesh_sizes(6, 12) == [1, 2, 4, 6, 12]
    assert submesh_sizes(1, 3) == [1, 2, 3]


def test_alpa_covers_all_devices_or_says_that_it_cannot() -> None:
    """Stages times submesh are all devices; where no shape does that there is no plan."""
    plan = AlpaPlanner().plan(read_problem(PAPER[0])).plan
    assert plan is not None
    assert plan.placement().device_map.devices_used == 64
    found = AlpaPlanner().plan(read_problem(INSTANCES / "tiny" / "spread-pitch-wins.json"))
    assert found.plan is None
    assert found.reason is not None
    assert "cover all devices" in found.reason


def test_alpa_minimises_the_sum_under_a_limit() -> None:
    """The DP finds the least sum of all partitions without a stage above the limit."""
    rng = random.Random(1)
    for _ in range(60):
        n = rng.randint(1, 6)
        stages = rng.randint(1, n)
        times = [
            np.array([[rng.randint(1, 20) for _ in range(n + 1)] for _ in range(n + 1)], np.int64)
            for _ in range(stages)
        ]
        for of_stage in times:
            of_stage[np.tril_indices(n + 1)] = 2**61
        limit = rng.randint(5, 20)
        sums = []
        for cuts in combinations(range(1, n), stages - 1):
            ends = (*cuts, n)
            each = [
                int(times[stages - 1 - stage][low, high])
                for stage, (low, high) in enumerate(zip((0, *cuts), ends, strict=True))
            ]
            if max(each) <= limit:
                sums.append((sum(each), ends, max(each)))
        found = least_sum(times, limit)
        assert (found is None) == (not sums)
        if found is not None:
            ends, total, largest = found
            assert total == min(sums)[0]
            assert (total, ends, largest) in sums


def test_moves_of_the_walk_keep_partitions() -> None:
    """Every move leads to degrees of the space, a map of the family, and no empty stage."""
    trials = Trials(read_problem(INSTANCES / "tiny" / "spread-pitch-wins.json"))
    generator = random.Random(0)
    state = None
    while state is None:
        state = draw(trials, generator)
    moved = 0
    for _ in range(400):
        found = generator.choice(MOVES)(trials, generator, state)
        if found is None:
            continue
        moved += found != state
        state = found
        assert state.degrees in trials.degrees
        assert state.device_map in trials.maps(state.degrees, len(state.ends))
        assert list(state.ends) == sorted(set(state.ends))
        assert state.ends[0] > 0
        assert state.ends[-1] == trials.layers
    assert moved > 100


def test_steps_are_accepted_by_the_rule_of_metropolis() -> None:
    """A step to a batch no longer always is; one longer by the temperature's share with 1 / e."""
    assert acceptance(100, 100, 0.02) == acceptance(100, 90, 0.02) == 1.0
    assert acceptance(100, 102, 0.02) == pytest.approx(math.exp(-1))
    assert acceptance(100, 104, 0.02) == pytest.approx(math.exp(-2))
    assert acceptance(0, 1, 0.02) == 0.0


def test_even_stages_differ_by_one_layer_at_most() -> None:
    """All layers are in stages of floor(n / S) or one more."""
    for layers, stages in ((7, 3), (8, 4), (5, 5), (34, 16)):
        ends = even_ends(layers, stages)
        sizes = {high - low for low, high in zip((0, *ends), ends, strict=False)}
        assert (len(ends), ends[-1]) == (stages, layers)
        assert sizes <= {layers // stages, layers // stages + 1}


def test_draws_reach_all_degrees_stages_and_maps() -> None:
    """Every choice of degrees, every S and every device map comes up."""
    trials = Trials(read_problem(INSTANCES / "tiny" / "dp-inner-wins.json"))
    generator = random.Random(0)
    drawn = [found for _ in range(400) if (found := draw(trials, generator))]
    every = {
        (degrees, stages, device_map)
        for degrees in trials.degrees
        for stages in trials.stage_counts(degrees)
        for device_map in trials.maps(degrees, stages)
    }
    assert {(each.degrees, len(each.ends), each.device_map) for each in drawn} == every


def test_reasons_name_the_rules_that_were_broken() -> None:
    """A search without a legal plan says how many placements broke what."""
    problem = read_problem(INSTANCES / "tiny" / "infeasible-conflict.json")
    reason = RandomPlanner(budget=40).plan(problem).reason
    assert reason is not None
    assert reason.startswith("40 placements were tried, none is legal: refused ")
    assert "by memory" in reason


def test_planners_refuse_what_they_have_no_costs_for() -> None:
    """Interleaving alone is refused with what to add."""
    problem = sample(search={"schedule": ["interleaved"]})
    for planner in planners(budget=5).values():
        with pytest.raises(InstanceError, match="add 1f1b, gpipe or zb-h1"):
            planner.plan(problem)


def test_modes_are_in_the_order_of_time() -> None:
    """The planners try modes in the order in which the evaluator's ties have them."""
    trials = Trials(read_problem(PAPER[0]))
    modes = trials.memory(trials.degrees[0]).modes
    assert list(modes) == [mode for mode in RECOMPUTE_MODES if mode in modes]
