"""The search over pipeline schedules: DP = brute force = oracle, bounds, rankings, diagnoses."""

from collections import Counter
from dataclasses import replace
from functools import cache

import pytest
from agreement import Comparison, compare
from random_schedule_problems import random_schedule_data
from samples import sample
from seeds import of_all_seeds, thinned
from test_top import differs

from nest_opt import InstanceError, Problem, solve
from nest_opt.api import solve_pipeline
from nest_opt.cost.sharding import fits_replicas
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.rules import restriction
from nest_opt.dp.search import search
from nest_opt.dp.source import Bundle, Group
from nest_opt.dp.sources import cell_source
from nest_opt.dp.thresholds import least_value
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Cell
from nest_opt.problem.schedule import SCHEDULES
from nest_opt.problem.validation import build

SEEDS = range(70_000, 70_300)


@cache
def compared(seed: int) -> Comparison:
    """Return what DP, brute force and oracle make of a seed."""
    return compare(random_schedule_data(seed))


@pytest.mark.parametrize("seed", thinned(SEEDS))
def test_schedules_agree(seed: int) -> None:
    """Value and plan of the search are those of brute force; evaluator and oracle agree."""
    assert compared(seed).difference is None


@of_all_seeds
def test_every_schedule_is_best_somewhere() -> None:
    """Each schedule wins under each objective, and against others too."""
    best: Counter[tuple[str, str]] = Counter()
    against = Counter[str]()
    for seed in SEEDS:
        problem, brute = compared(seed).problem, compared(seed).brute
        if brute.placement is not None:
            name = brute.placement.schedule.name
            best[name, problem.job.objective] += 1
            against[name] += len(problem.search.schedule) > 1
    for name in SCHEDULES:
        for objective in ("fill-drain", "nest", "bottleneck"):
            assert best[name, objective] > 0, (name, objective)
        # GPipe is never better than 1F1B, but it is than the two others.
        assert against[name] > 0, name


@of_all_seeds
def test_constraints_meet_interleaved_chunks() -> None:
    """Among the best plans are interleaved ones under every constraint on stages and hops."""
    met = Counter(
        constraint.type
        for seed in SEEDS
        if (best := compared(seed).brute.placement) and best.schedule.is_interleaved
        for constraint in compared(seed).problem.constraints
    )
    for kind in ("colocation", "anti-colocation", "pinned-layers", "forbidden-boundary"):
        assert met[kind] > 0, kind
    assert met["hop-latency"] > 0


@pytest.mark.parametrize("seed", thinned(range(71_000, 71_060)))
def test_rankings_agree(seed: int) -> None:
    """The best cells are those of brute force, dominated schedules among them."""
    problem = build(Problem, random_schedule_data(seed), "problem")
    assert differs(problem, 2 + seed % 6) is None


def opened(bundle: Bundle) -> list[tuple[Group, bool]]:
    """Return every group of a bundle, and whether it is listed: memory may have ruled it out."""
    listed = {bundle.group(rank).stages: bundle.group(rank) for rank in range(bundle.open())}
    every = [bundle._group(place) for place in range(len(bundle._bounds))]
    return [(listed.get(group.stages, group), group.stages in listed) for group in every]


def refinements(source: DefaultSource, group: Group) -> list[list[Group]]:
    """Return a group's parts after each step; a part's bounds are those of its ZeRO level."""
    steps = [[group]]
    for step in range(source.refinements):
        steps.append([part for whole in steps[-1] for part in source.refined(whole, step)])
    return steps


@pytest.mark.parametrize("seed", thinned(range(72_000, 72_080)))
def test_bounds_are_bounds(seed: int) -> None:
    """Every bound of a group, from the closed form to the interval DP, is at most its best plan.

    So is a cell's; on every third seed the ZeRO level is open.
    """
    data = random_schedule_data(seed)
    if seed % 3 == 0:
        data["search"].update(zero=[0, 1, 2, 3], zero_instances=[1, 2])
    try:
        problem = build(Problem, data, "problem")
        source = cell_source(Costs(problem))
    except InstanceError:
        return
    assert isinstance(source, DefaultSource)
    for group, kept in (found for bundle in source.bundles() for found in opened(bundle)):
        steps = refinements(source, group)
        for zero in (zero for zero in problem.zeros if fits_replicas(zero, group.replicas)):
            own = [[part for part in parts if part.zero == zero] for parts in steps[1:]]
            for cell in source.cells(replace(group, zero=zero)):
                value = best_value(source, cell)
                if value is not None:
                    assert kept, "a group with a plan is not listed"
                    assert all(len(parts) == 1 for parts in own), "a group with a plan is dropped"
                    assert max(group.bound_ps, *(part.bound_ps for (part,) in own)) <= value


def best_value(source: DefaultSource, cell: Cell) -> int | None:
    """Return the value of a cell's best plan, None if there is none; its bound is one."""
    bound = source.bound_ps(cell)
    if bound is None:
        return None
    if cell.schedule.is_interleaved:
        plan = source.chunk_plan(cell)
        value = None if plan is None else plan.value_ps
    else:
        value = least_value(source.chain(cell), source.weights(cell), 2**120).value
    assert value is None or bound <= value
    return value


def test_dominated_groups_are_not_looked_into() -> None:
    """GPipe beside 1F1B costs no refined bound, and its cells count as settled."""
    problem = sample(layers=6, sizes=(2, 2), search={"schedule": ["1f1b", "gpipe"]})
    alone = sample(layers=6, sizes=(2, 2))
    both, one = search(cell_source(Costs(problem))), search(cell_source(Costs(alone)))
    assert both.cells == 2 * one.cells
    assert both.cells - both.cells_pruned == one.cells - one.cells_pruned
    assert both.value_ps == one.value_ps


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_memory_that_is_missing_is_the_least(name: str) -> None:
    """With the memory that the diagnosis names something fits; with a byte less nothing does."""

    def with_memory(memory_bytes: int) -> Problem:
        space = {"schedule": [name], "chunks": [2], "pp": [2]}
        return sample(layers=6, sizes=(2, 2), memory_bytes=memory_bytes, search=space)

    result = solve(with_memory(100))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    needed = result.diagnosis.memory_bytes
    assert needed is not None
    assert solve(with_memory(needed)).status == "optimal"
    assert solve(with_memory(needed - 1)).status == "infeasible"


@pytest.mark.parametrize("seed", thinned(range(73_000, 73_100)))
def test_what_does_not_fit_is_told(seed: int) -> None:
    """Random problems get a plan with just the memory named, and conflicts that hold."""
    data = random_schedule_data(seed)
    data["cluster"]["device_kinds"]["device"].update(memory_bytes=40, reserve_bytes=0)
    try:
        result = solve_pipeline(build(Problem, data, "problem"))
    except InstanceError:
        return
    if result.diagnosis is None or result.diagnosis.memory_bytes is None:
        return
    assert result.diagnosis.memory_bytes > 40
    kind = data["cluster"]["device_kinds"]["device"]
    kind["memory_bytes"] = result.diagnosis.memory_bytes
    assert solve_pipeline(build(Problem, data, "problem")).status == "optimal"
    kind["memory_bytes"] -= 1
    assert solve_pipeline(build(Problem, data, "problem")).status == "infeasible"


def test_stages_that_differ_have_one_chunk_each() -> None:
    """Interleaved schedules beside `search.per_stage` are refused."""
    with pytest.raises(InstanceError, match=r"found interleaved with search\.per_stage"):
        sample(search={"per_stage": ["tp"], "schedule": ["gpipe", "interleaved"]})


def test_colocated_layers_may_be_in_two_chunks() -> None:
    """Two layers of one stage need not be next to each other where chunks take turns."""
    together = {"type": "colocation", "layers": ["layer-0", "layer-2"]}
    space = {"schedule": ["interleaved"], "chunks": [2], "pp": [2], "dp": [1]}
    problem = sample(layers=4, sizes=(2,), search=space, constraints=[together])
    assert restriction(problem).interval_cuts == {1, 2}
    result = solve(problem)
    assert result.plan is not None
    assert result.plan.placement().ends == (1, 2, 3, 4)
