"""The closed forms of `docs/schedules.md` on uneven stages, against the simulator."""

import csv
import random
from pathlib import Path

import pytest
import schedule_formulas as formulas
from random_instances import random_artifact_data, random_problem
from random_placements import random_placement
from random_schedules import with_schedules

from nest_opt import Problem, solve
from nest_opt.plan.evaluate import GATHERED, Costs, evaluate
from nest_opt.problem.job import OBJECTIVES
from nest_opt.problem.schedule import SCHEDULES
from nest_opt.problem.validation import build
from nest_opt.simulate import (
    StageTimes,
    gpipe,
    interleaved,
    one_f_one_b,
    peak_in_flight,
    simulate,
    zb_h1,
    zb_h2,
)
from nest_opt.simulate.plan import simulate_plan, stage_times

ROOT = Path(__file__).resolve().parent.parent
CASES = 1500


def random_stages(rng: random.Random, size: int) -> list[formulas.Stage]:
    """Return stages that are uneven by little or by all, some of them with times of 0."""
    numbers = rng.choice(((0, 1, 10), tuple(range(1, 101)), tuple(range(90, 111))))
    return [(rng.choice(numbers), rng.choice(numbers), rng.choice(numbers)) for _ in range(size)]


def alike(rng: random.Random, size: int) -> list[formulas.Stage]:
    """Return stages of one ratio F : B : W, with W the least."""
    w = rng.randint(1, 4)
    f, b = rng.randint(w, 6), rng.randint(w, 6)
    return [(f * x, b * x, w * x) for x in (rng.randint(1, 30) for _ in range(size))]


def bare(stages: formulas.Stages) -> list[StageTimes]:
    """Return stages without hops."""
    return [StageTimes(*stage) for stage in stages]


def with_hops(rng: random.Random, stages: formulas.Stages) -> list[StageTimes]:
    """Return stages with random hops; none at the model's ends."""
    last = len(stages) - 1
    return [
        StageTimes(
            *stage,
            hop_in_ps=rng.randint(0, 20) if i > 0 else 0,
            hop_out_ps=rng.randint(0, 20) if i < last else 0,
        )
        for i, stage in enumerate(stages)
    ]


def test_gpipe_is_exact_on_uneven_stages() -> None:
    """GPipe takes sum T + (m - 1)(max F + max B), and every hop that only delays once more."""
    rng = random.Random(1)
    for _ in range(CASES):
        p, m = rng.randint(1, 6), rng.randint(1, 14)
        stages = random_stages(rng, p)
        hops = with_hops(rng, stages)
        delays = sum(stage.hop_in_ps + stage.hop_out_ps for stage in hops)
        assert simulate(gpipe(p, m), bare(stages)).compute_ps == formulas.gpipe(stages, m)
        found = simulate(gpipe(p, m), hops, hops="delay").compute_ps
        assert found == formulas.gpipe(stages, m) + delays


def test_1f1b_lies_between_one_stage_and_gpipe() -> None:
    """1F1B takes at least its path through any one stage and at most what GPipe takes.

    Hops that only delay add at most those of equal stages, each as long as the longest.
    """
    rng, exact = random.Random(2), 0
    for _ in range(CASES):
        p, m = rng.randint(1, 6), rng.randint(1, 14)
        stages = random_stages(rng, p)
        found = simulate(one_f_one_b(p, m), bare(stages)).compute_ps
        least = formulas.one_f_one_b_through(stages, m)
        assert least <= found <= formulas.gpipe(stages, m)
        exact += least == found
        hops = with_hops(rng, stages)
        longest = max(max(stage.hop_in_ps, stage.hop_out_ps) for stage in hops)
        delayed = simulate(one_f_one_b(p, m), hops, hops="delay").compute_ps
        assert delayed <= formulas.gpipe(stages, m) + formulas.hops_1f1b(p, m) * longest
    assert exact > CASES / 2


def test_fill_drain_bounds_1f1b_where_one_stage_is_slowest_both_ways() -> None:
    """`fill-drain` is not exceeded if F : B is one ratio, and is if it is not."""
    rng = random.Random(3)
    for _ in range(CASES):
        p, m = rng.randint(1, 6), rng.randint(1, 14)
        stages = alike(rng, p)
        found = simulate(one_f_one_b(p, m), bare(stages)).compute_ps
        assert found <= formulas.fill_drain(stages, m)
    crossed = [(10, 0, 0), (0, 10, 0), (1, 1, 0), (0, 1, 0), (0, 0, 0), (1, 1, 0), (0, 0, 0)]
    found = simulate(one_f_one_b(7, 4), bare(crossed)).compute_ps
    assert found == 83 > formulas.fill_drain(crossed, 4) == 55


@pytest.mark.parametrize("p", [1, 2, 3, 5, 8])
def test_hops_that_delay_1f1b(p: int) -> None:
    """On equal stages the formula's number of hops is exact for every number of microbatches."""
    for m in range(1, 3 * p + 2):
        times = [StageTimes(1000, 900, 600, 1, 1)] * p
        found = simulate(one_f_one_b(p, m), times, hops="delay").compute_ps
        assert found == (m + p - 1) * 2500 + formulas.hops_1f1b(p, m)


@pytest.mark.parametrize(("p", "groups"), [(2, 1), (3, 2), (4, 4), (8, 3)])
def test_hops_that_delay_the_other_schedules(p: int, groups: int) -> None:
    """On equal stages: 2 p v - 2 hops for v chunks, 4 (p - 1) for ZB-H1, 2 (p - 1) for ZB-H2."""
    m = p * groups
    equal = StageTimes(1000, 900, 600, 1, 1)
    for v in (1, 2, 3):
        chunks = simulate(interleaved(p, m, v), [equal] * (p * v), hops="delay")
        assert chunks.compute_ps == (m * v + p - 1) * 2500 + 2 * p * v - 2
    if m > p:
        h1 = simulate(zb_h1(p, m), [equal] * p, hops="delay")
        assert h1.compute_ps == m * 2500 + (p - 1) * 1300 + 4 * (p - 1)
        h2 = simulate(zb_h2(p, m), [equal] * p, hops="delay")
        assert h2.span_ps == m * 2500 + (p - 1) * 700 + 2 * (p - 1)
        assert h2.compute_ps == m * 2500 + (p - 1) * 1001


def test_interleaved_is_bounded_by_gpipe_of_chunks() -> None:
    """Interleaved 1F1B takes at most GPipe's time for m v microbatches on the largest chunks."""
    rng = random.Random(4)
    for _ in range(CASES // 3):
        p, v = rng.randint(1, 5), rng.randint(1, 3)
        m = p * rng.randint(1, 4)
        chunks = random_stages(rng, p * v)
        found = simulate(interleaved(p, m, v), bare(chunks)).compute_ps
        assert found <= formulas.interleaved(chunks, m, v)


def test_zero_bubble_bounds() -> None:
    """ZB-H1 takes at least its path through one stage; one ratio F : B : W bounds H1 and H2."""
    rng = random.Random(5)
    for _ in range(CASES // 2):
        p, m = rng.randint(1, 6), rng.randint(1, 14)
        stages = random_stages(rng, p)
        found = simulate(zb_h1(p, m), bare(stages)).compute_ps
        assert found >= formulas.zb_h1_through(stages, m)
        stages = alike(rng, p)
        if m >= p:
            found = simulate(zb_h1(p, m), bare(stages)).compute_ps
            assert found <= formulas.zb_h1(stages, m)
        if m >= 2 * p - 1:
            span = simulate(zb_h2(p, m), bare(stages)).span_ps
            assert m * max(map(sum, stages)) <= span <= formulas.zb_h2_span(stages, m)


def test_when_devices_end() -> None:
    """On equal stages device i ends i B earlier under 1F1B, i (B - W) under ZB-H1: time to sync."""
    f, b, w, p, m = 70, 60, 50, 4, 8
    for schedule, earlier in ((one_f_one_b(p, m), b + w), (zb_h1(p, m), b - w)):
        simulation = simulate(schedule, [StageTimes(f, b, w)] * p)
        for device, timeline in enumerate(simulation.timelines):
            assert timeline[-1].end_ps == simulation.compute_ps - device * earlier


def test_simulated_plans() -> None:
    """A plan's stage times add up to F, its peaks are those charged, its time is within bounds."""
    rng, plans, repeated = random.Random(6), 0, 0
    for seed in range(150):
        problem = with_schedules(random_problem(seed), "1f1b")
        placement = random_placement(rng, problem)
        if placement is None:
            continue
        costs = Costs(problem)
        evaluation = evaluate(costs, placement)
        times = stage_times(costs, placement, evaluation)
        for stage, time in zip(evaluation.stages, times, strict=True):
            parts = time.forward_ps + time.backward_input_ps + time.hop_in_ps + time.hop_out_ps
            assert parts == stage.time_ps
            assert time.backward_input_ps >= stage.time_terms_ps["backward"]
            if stage.recompute == "full" and GATHERED not in stage.time_terms_ps:
                # What is repeated is the forward pass, collectives and all.
                again = {n: t for n, t in stage.time_terms_ps.items() if n.startswith("recomputed")}
                assert time.forward_ps == sum(again.values())
                repeated += len(again) > 1
        simulation = simulate_plan(costs, placement, evaluation)
        stages = [
            (t.forward_ps + t.hop_in_ps, t.backward_input_ps + t.hop_out_ps, 0) for t in times
        ]
        m, sync = evaluation.rounds, [stage.sync_ps for stage in evaluation.stages]
        least = formulas.one_f_one_b_through(stages, m)
        assert least <= simulation.compute_ps <= formulas.gpipe(stages, m)
        assert simulation.iteration_ps <= simulation.compute_ps + max(sync)
        if len(stages) == 1:
            assert simulation.iteration_ps == m * evaluation.stages[0].time_ps + sync[0]
        flights = tuple(stage.in_flight for stage in evaluation.stages)
        assert peak_in_flight(simulation.schedule) == flights
        plans += len(stages) > 1
    assert plans > 50
    assert repeated > 5


def test_simulated_plans_of_the_artifact_model() -> None:
    """Forward and backward paths of the artifact's model are run as they are, hops inside."""
    data = random_artifact_data(9)
    costs = Costs(build(Problem, data, "artifact"))
    plan = solve(costs.problem).plan
    assert plan is not None
    placement = plan.placement()
    evaluation = evaluate(costs, placement)
    for stage, time in zip(
        evaluation.stages, stage_times(costs, placement, evaluation), strict=True
    ):
        assert time.forward_ps == stage.time_terms_ps["forward path"]
        assert time.backward_input_ps == stage.time_terms_ps["backward path"]
        assert time.sync_ps == stage.sync_ps
    assert simulate_plan(costs, placement, evaluation).iteration_ps > 0


def test_the_page_has_the_data_of_its_figure() -> None:
    """Each row of the figure's data, of every sort, schedule and objective, is in a table."""
    page = (ROOT / "docs" / "schedules.md").read_text(encoding="utf-8")
    with (ROOT / "docs" / "figures" / "closed_forms.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    keys = {(row["plans"], row["schedule"], row["objective"]) for row in rows}
    assert len(keys) == len(rows) == 3 * len(SCHEDULES) * len(OBJECTIVES)
    for row in rows:
        share = {name: float(row[name]) for name in ("least", "low", "median", "high", "most")}
        assert sorted(share.values()) == list(share.values())
        ends = " | ".join(f"{share[name]:+.1%}" for name in ("least", "median", "most"))
        labels = " | ".join((row["plans"], row["schedule"], row["objective"], row["cases"]))
        lines = [line for line in page.splitlines() if line.startswith(f"| {labels} | ")]
        assert len(lines) == 1, labels
        assert ends in lines[0]
