"""Plans of every schedule: the simulator beside memory (13), (14) and the objectives (17), (18)."""

import random
from collections import Counter
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from cli_running import write
from random_instances import random_problem
from random_schedules import random_scheduled_placement, with_schedules
from samples import problem_data

from nest_opt import Plan, Problem, verify
from nest_opt.certify.brute_force import brute_force
from nest_opt.cost.objective import batch_time_ps
from nest_opt.cost.schedule import in_flight, runs
from nest_opt.plan import Placement
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.files import read_plan
from nest_opt.plan.plan import plan_from_placement
from nest_opt.problem.files import to_json_data
from nest_opt.problem.schedule import SCHEDULES, Schedule, ScheduleName
from nest_opt.problem.validation import build
from nest_opt.simulate import StageTimes, peak_in_flight, peak_stash_bytes, simulate
from nest_opt.simulate.plan import event_schedule, simulate_plan, stage_times

CHOICES = [
    Schedule(name, chunks)
    for name in SCHEDULES
    for chunks in ((2, 3, 4) if name == "interleaved" else (1,))
]
SHAPES = [(stages, rounds) for stages in range(1, 7) for rounds in range(1, 4 * stages + 2)]
GRID = [
    (schedule, stages, rounds)
    for schedule, (stages, rounds) in product(CHOICES, SHAPES)
    if runs(schedule, stages, rounds)
]


def test_peaks_are_those_of_the_formulation() -> None:
    """The simulator holds what (13) says on every device, for all S, v and m of a grid."""
    for schedule, stages, rounds in GRID:
        peaks = peak_in_flight(event_schedule(schedule, stages, rounds))
        charged = [in_flight(schedule, stage, stages, rounds) for stage in range(stages)]
        assert list(peaks) == charged, (schedule, stages, rounds)
    assert {schedule for schedule, _, _ in GRID} == set(CHOICES)


@pytest.mark.parametrize("name", SCHEDULES)
def test_objectives_are_exact_on_equal_stages(name: ScheduleName) -> None:
    """(17) and (18) are the simulated time of equal stages, for ZB-H1 while W <= F and W <= B."""
    rng, seen = random.Random(name), 0
    for schedule, stages, rounds in GRID:
        if schedule.name != name:
            continue
        v, w = schedule.chunks, rng.randint(0, 50)
        f, b = (rng.randint(w, 100) for _ in "fb")
        times = [StageTimes(f, b, w)] * (stages * v)
        found = simulate(event_schedule(schedule, stages, rounds), times).compute_ps
        for objective in ("fill-drain", "nest"):
            value = batch_time_ps(
                objective,
                rounds,
                [v * (f + b + w)] * stages,
                [0] * stages,
                [0] * stages,
                schedule,
                [v * w] * stages,
            )
            assert value == found, (schedule, stages, rounds)
        seen += stages > 1
    assert seen > 30


def test_longer_weight_gradients_leave_the_objective_below() -> None:
    """With W above F the objectives of ZB-H1 are below the simulation: they hide too much."""
    schedule, stages, rounds = Schedule("zb-h1"), 4, 8
    times = [StageTimes(10, 100, 90)] * stages
    found = simulate(event_schedule(schedule, stages, rounds), times).compute_ps
    value = batch_time_ps("fill-drain", rounds, [200] * 4, [0] * 4, [0] * 4, schedule, [90] * 4)
    assert value == 8 * 200 + 3 * 20
    assert value < found


@pytest.mark.parametrize("name", SCHEDULES)
def test_simulated_plans(name: ScheduleName) -> None:
    """Operations and hops of a stage's chunks add up to F, W to the evaluator's, and a sync to Y.

    Of a stage alone the simulation takes at least m F, and the stash that it
    holds is at most that of (14), the same where all chunks have one stash.
    """
    rng, seen = random.Random(f"plans {name}"), Counter[str]()
    for seed in range(160):
        problem = with_schedules(random_problem(seed))
        placement = random_scheduled_placement(rng, problem, name)
        if placement is None:
            continue
        costs = Costs(problem)
        evaluation = evaluate(costs, placement)
        times = stage_times(costs, placement, evaluation)
        stages, m = len(evaluation.stages), evaluation.rounds
        for number, stage in enumerate(evaluation.stages):
            chunks = times[number::stages]
            operations = [t.forward_ps + t.backward_input_ps + t.backward_weight_ps for t in chunks]
            hops = [t.hop_in_ps + t.hop_out_ps for t in chunks]
            assert sum(operations) + sum(hops) == stage.time_ps
            assert sum(t.sync_ps for t in chunks) == stage.sync_ps
            if name == "zb-h1":
                assert chunks[0].backward_weight_ps == stage.weight_gradient_ps
            seen["hops"] += sum(hop > 0 for hop in hops) > 1
        run = simulate_plan(costs, placement, evaluation)
        assert run.iteration_ps >= m * max(stage.time_ps for stage in evaluation.stages)
        pair = costs.table.pairs[placement.microbatch, placement.configurations[0]]
        stash = [0] * len(times)
        for number, stage in enumerate(evaluation.stages):
            for chunk, (low, high) in enumerate(stage.intervals):
                rows = costs.table.layer_rows[low:high]
                stash[chunk * stages + number] = sum(
                    pair.stash_bytes[stage.recompute][row] for row in rows
                )
        held = peak_stash_bytes(run.schedule, stash)
        charged = [stage.memory_terms_bytes["stash"] for stage in evaluation.stages]
        for number, (most, least) in enumerate(zip(charged, held, strict=True)):
            assert least <= most
            if len(set(stash[number::stages])) == 1:
                assert least == most
            seen["below"] += least < most
        flights = tuple(stage.in_flight for stage in evaluation.stages)
        assert peak_in_flight(run.schedule) == flights
        seen["plans"] += 1
    assert seen["plans"] > 20
    if name == "interleaved":
        assert seen["hops"] > 20
        assert seen["below"] > 5


def test_chunks_go_round_the_pipeline() -> None:
    """The first stage waits for the last one between its chunks, at the level of these two."""
    rng = random.Random("round")
    for seed in range(200):
        problem = with_schedules(random_problem(seed))
        placement = random_scheduled_placement(rng, problem, "interleaved")
        if placement is None:
            continue
        costs = Costs(problem)
        times = stage_times(costs, placement, evaluate(costs, placement))
        ends = placement.device_map
        level = max(
            costs.network.level(pair)
            for replica in range(placement.replicas)
            for pair in zip(
                ends.block(replica, 0), ends.block(replica, placement.stages - 1), strict=True
            )
        )
        pair = costs.table.pairs[placement.microbatch, placement.configurations[0]]
        cut = placement.ends[placement.stages - 1]
        worst = pair.hop_ps[level][cut]
        assert times[placement.stages].hop_in_ps <= worst
        assert times[placement.stages - 1].hop_out_ps <= worst
        if placement.replicas == 1:
            assert times[placement.stages].hop_in_ps == worst
            assert times[placement.stages - 1].hop_out_ps == worst
            if worst:
                return
    raise AssertionError("no plan of one replica with chunks")


def scheduled_problem(name: ScheduleName, *, layers: int = 8, **search: Any) -> Problem:
    """Return a problem of equal layers that searches one schedule on two stages."""
    data = problem_data(layers=layers)
    (profile,) = data["model"]["layer_types"]["block"]["profiles"]
    profile |= {"backward_input_s": 0.01, "backward_weight_s": 0.008}
    data["search"] = {"pp": [2], "dp": [1], "schedule": [name], "chunks": [2, 3], **search}
    return build(Problem, data, "problem")


def placed(problem: Problem) -> Placement:
    """Return the best placement."""
    found = brute_force(problem).placement
    assert found is not None
    return found


@pytest.mark.parametrize("name", SCHEDULES)
def test_a_plan_file_keeps_its_schedule(name: ScheduleName, tmp_path: Path) -> None:
    """Written and read again, a plan has the placement, the schedule and the chunks it had."""
    problem = scheduled_problem(name)
    placement = placed(problem)
    value = evaluate(Costs(problem), placement).value_ps
    plan = plan_from_placement(problem, placement, "fill-drain", value)
    again = read_plan(write(tmp_path / "plan.json", to_json_data(plan)))
    assert isinstance(again, Plan)
    assert again.placement() == placement
    assert again.placement().schedule.name == name
    assert (again.stages[0].chunks is not None) == (name == "interleaved")
    assert verify(again).violations == ()


def violations(problem: Problem, placement: Placement) -> list[str]:
    """Return what the checker finds, in words."""
    return [f"{v.found}: {v.allowed}" for v in check(Costs(problem), placement)]


def test_a_schedule_that_is_not_searched_is_a_violation() -> None:
    """So is a number of chunks; both name what is allowed."""
    problem = scheduled_problem("interleaved", chunks=[2])
    plain = placed(scheduled_problem("1f1b"))
    assert violations(problem, plain) == ["1f1b: interleaved, 2 chunks is allowed"]
    three = placed(scheduled_problem("interleaved", chunks=[3]))
    assert violations(problem, three) == ["interleaved, 3 chunks: interleaved, 2 chunks is allowed"]


def test_rounds_that_stages_do_not_divide_are_a_violation() -> None:
    """Interleaving takes a multiple of S rounds."""
    problem = scheduled_problem("interleaved")
    placement = placed(problem)
    job = problem.job.model_copy(update={"global_batch": 9})
    assert violations(problem.model_copy(update={"job": job}), placement) == [
        f"{placement.schedule} with 9 rounds on 2 stages: 2 stages or more and a multiple of 2 "
        "rounds are needed"
    ]


def test_unequal_chunks_are_a_violation() -> None:
    """All but the first and the last chunk have one size; those two have any."""
    problem = scheduled_problem("interleaved")
    placement = replace(placed(problem), schedule=Schedule("interleaved", 2))
    assert violations(problem, replace(placement, ends=(1, 3, 4, 8))) == [
        "chunks of 1, 2, 1, 4 layers: equal ones are needed but for the first and the last"
    ]
    assert violations(problem, replace(placement, ends=(1, 3, 5, 8))) == []


def test_too_few_rounds_for_zb_h1_are_a_violation() -> None:
    """ZB-H1 takes at least S rounds."""
    problem = scheduled_problem("zb-h1")
    placement = placed(problem)
    job = problem.job.model_copy(update={"global_batch": 1})
    assert violations(problem.model_copy(update={"job": job}), placement) == [
        "zb-h1 with 1 rounds on 2 stages: at least 2 rounds are needed"
    ]
