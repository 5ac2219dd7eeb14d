"""The memory-time front: all plans that neither time nor memory dominates, and no other."""

from itertools import pairwise

import pytest
from random_instances import random_data, random_staged_data
from samples import problem_data, sample

import nest_opt
from nest_opt import InstanceError, Problem, front, verify
from nest_opt.certify.brute_force import (
    enumerate_cells,
    enumerate_plans,
    enumerate_staged_cells,
)
from nest_opt.errors import NestOptError
from nest_opt.plan.evaluate import Costs, Evaluation, evaluated_objective
from nest_opt.plan.placement import Placement
from nest_opt.plan.rules import violations_of
from nest_opt.problem.validation import build

SEEDS = range(70_000, 70_040)


def every_plan(problem: Problem) -> set[tuple[int, int]]:
    """Return (value, peak memory) of every legal plan, of every mode of every stage."""
    costs = Costs(problem)
    cells = [(c, c.device_map.order, c.device_map.pitch) for c in enumerate_cells(problem)]
    if problem.search.per_stage:
        cells += enumerate_staged_cells(problem)  # type: ignore[arg-type]
    found = set()
    for cell, order, pitch in cells:
        for plan in enumerate_plans(costs, cell):
            peak = max(stage.memory_bytes for stage in plan.stages)
            if (plan.value_ps, peak) in found:
                continue
            modes = tuple(stage.recompute for stage in plan.stages)
            placement = Placement(
                cell.microbatch,
                cell.configurations,
                cell.device_map.replicas,
                order,
                pitch,
                plan.ends,
                modes,
            )
            evaluation = Evaluation(
                evaluated_objective(problem), cell.rounds, plan.stages, plan.value_ps
            )
            if next(violations_of(costs, placement, evaluation), None) is None:
                found.add((plan.value_ps, peak))
    return found


def undominated(plans: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the plans of which no other has both a value and a peak that are as low."""
    kept: list[tuple[int, int]] = []
    for value, peak in sorted(plans):
        if not kept or peak < kept[-1][1]:
            kept.append((value, peak))
    return kept


def points(problem: Problem, most: int = 1000) -> list[tuple[int, int]] | None:
    """Return (value, peak memory) along the front; None where the problem has no legal degrees."""
    try:
        result = front(problem, most=most)
    except NestOptError:
        return None
    assert result.status in ("complete", "infeasible")
    return [(each.evaluation.value_ps, each.peak_bytes) for each in result.points]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_front_is_that_of_all_plans(seed: int) -> None:
    """Values and peaks along the front are those of the undominated among all plans."""
    problem = build(Problem, random_data(seed), "problem")
    found = points(problem)
    assert (found or []) == undominated(every_plan(problem))


def test_the_seeds_have_fronts() -> None:
    """Several seeds have fronts of several points."""
    fronts = [
        undominated(every_plan(build(Problem, random_data(seed), "problem"))) for seed in SEEDS[::2]
    ]
    assert sum(len(each) > 2 for each in fronts) > 3


@pytest.mark.parametrize("seed", range(6))
def test_the_front_of_stages_that_differ(seed: int) -> None:
    """Where tp or sp may differ by stage, the front is that of all such plans too."""
    problem = build(Problem, random_staged_data(seed), "problem")
    found = points(problem)
    assert (found or []) == undominated(every_plan(problem))


def test_every_point_stands_on_its_own() -> None:
    """A point's plan belongs to the problem as it is, and verifies; the first is as fast as any."""
    problem = sample(layers=5, memory_bytes=10**6)
    result = front(problem)
    assert result.status == "complete"
    assert len(result.points) > 3
    assert result.searches > len(result.points)
    for each in result.points:
        assert each.plan.problem == problem
        assert not verify(each.plan).violations
    for faster, smaller in pairwise(result.points):
        assert faster.evaluation.value_ps < smaller.evaluation.value_ps
        assert faster.peak_bytes > smaller.peak_bytes
    assert result.first.evaluation is not None
    assert result.points[0].evaluation.value_ps == result.first.evaluation.value_ps


def test_below_the_last_peak_nothing_fits() -> None:
    """With the last point's peak as memory there is a plan; with a byte less there is none."""
    last = front(sample(layers=5, memory_bytes=10**6)).points[-1].peak_bytes
    for memory, status in ((last, "optimal"), (last - 1, "infeasible")):
        result = nest_opt.solve(sample(layers=5, memory_bytes=memory))
        assert result.status == status


def test_a_reserve_counts() -> None:
    """Peaks include the reserve, under a usable share too."""
    data = problem_data(layers=4, memory_bytes=10**6)
    data["cluster"]["device_kinds"]["device"] |= {"reserve_bytes": 5000, "usable_share": 0.5}
    problem = build(Problem, data, "problem")
    found = points(problem)
    assert found
    assert found == undominated(every_plan(problem))
    assert min(peak for _, peak in found) > 5000


def test_a_cap_keeps_the_fastest_points() -> None:
    """Of a front that is capped, the first points are those of the whole front."""
    problem = sample(layers=5, memory_bytes=10**6)
    whole, capped = front(problem), front(problem, most=2)
    assert capped.status == "capped"
    assert capped.points == whole.points[:2]
    assert front(problem, most=len(whole.points)).status == "complete"


def test_an_interrupt_keeps_the_points() -> None:
    """After an interrupt in a later search the points before it are there."""
    problem = sample(layers=5, memory_bytes=10**6)
    calls: list[int | None] = []

    def count(done: int, total: int, value_ps: int | None) -> None:
        calls.append(value_ps)

    def stop(done: int, total: int, value_ps: int | None) -> None:
        calls.pop()
        if not calls:
            raise KeyboardInterrupt

    whole = front(problem, count)
    del calls[: len(calls) // 3]
    result = front(problem, stop)
    assert result.status == "interrupted"
    assert 1 < len(result.points) < len(whole.points)
    # The last point may yield to one of its value.
    assert result.points[:-1] == whole.points[: len(result.points) - 1]
    last, known = result.points[-1], whole.points[len(result.points) - 1]
    assert last.evaluation.value_ps == known.evaluation.value_ps


def test_nothing_fits() -> None:
    """Where no plan fits there is no point, and the diagnosis of the first search."""
    result = front(sample(memory_bytes=10))
    assert (result.status, result.points, result.searches) == ("infeasible", (), 1)
    assert result.first.diagnosis is not None


@pytest.mark.parametrize("most", [0, 10_001])
def test_a_number_of_points_out_of_range_is_refused(most: int) -> None:
    """The number found and those allowed are named."""
    with pytest.raises(InstanceError, match=f"front: found {most} points, 1 to 10,000"):
        front(sample(), most=most)
