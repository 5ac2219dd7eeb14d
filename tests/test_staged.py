"""Plans whose stages differ in tp and sp: dynamic program = brute force, and its passes."""

import copy
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import compare
from cli_running import run, run_json, write
from plan_features import replicas_differ, sync_counts
from random_instances import MOST_DEVICES, random_staged_data, random_staged_sharded_data
from seeds import enough, of_all_seeds, thinned

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import brute_force, enumerate_plans, enumerate_staged_cells
from nest_opt.cost.schedule import drains
from nest_opt.dp.chain import INFINITE, UNLIMITED
from nest_opt.dp.default_source import DefaultSource
from nest_opt.dp.search import NO_LIMIT
from nest_opt.dp.sources import cell_source
from nest_opt.dp.staged_chain import StagedChain, StagePath
from nest_opt.dp.staged_needs import fewest_devices, least_bytes
from nest_opt.dp.staged_source import StagedSource
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.family import staged_maps
from nest_opt.plan.placement import uneven_map
from nest_opt.problem.validation import build

SEEDS = range(240)
SEEDS_A_TEST = 20
# With ZeRO levels and schedules, `random_staged_sharded_data`.
SHARDED_SEEDS = range(100)
TOLD_SHARDED_SEEDS = range(350)
LEAST_SHARDED_OCCURRENCES = {
    "stages differ": 30,
    "states are shared out": 25,
    "levels of both classes": 10,
    "several replicas": 8,
    "runs of replicas": 2,
    "dp-inner": 2,
    "1f1b": 10,
    "gpipe": 4,
    "zb-h1": 10,
}

# In the best plans of the seeds, each of these occurs at least this often.
LEAST_OCCURRENCES = {
    "stages differ in tp": 15,
    "stages differ in sp": 5,
    "dp-inner where they differ": 2,
    "d > 1 where they differ": 5,
    "replicas see different levels": 3,
    "sync in the value": 8,
    "constraints": 5,
}


def problem_of(seed: int) -> Problem:
    """Return the problem of a seed."""
    return build(Problem, random_staged_data(seed), f"seed {seed}")


@pytest.mark.parametrize("first", range(SEEDS.start, SEEDS.stop, SEEDS_A_TEST))
def test_dynamic_program_equals_brute_force(first: int) -> None:
    """The value is that of brute force, or both find nothing; evaluator and oracle agree."""
    for seed in thinned(range(first, first + SEEDS_A_TEST)):
        assert compare(random_staged_data(seed)).difference is None, f"seed {seed}"


@of_all_seeds
def test_every_rule_gets_its_turn() -> None:
    """Among the best plans of the seeds are enough whose stages differ, of all sorts."""
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        problem = problem_of(seed)
        try:
            plan = solve(problem).plan
        except InstanceError:
            continue
        if plan is not None:
            placement = plan.placement()
            differ = not placement.is_uniform
            facts = {
                "stages differ in tp": len({k.tp for k in placement.configurations}) > 1,
                "stages differ in sp": len({k.sp for k in placement.configurations}) > 1,
                "dp-inner where they differ": differ and placement.order == "dp-inner",
                "d > 1 where they differ": differ and placement.replicas > 1,
                "replicas see different levels": differ and replicas_differ(problem, placement),
                "sync in the value": differ and sync_counts(evaluate(Costs(problem), placement)),
                "constraints": differ and bool(problem.constraints),
            }
            seen.update(name for name, holds in facts.items() if holds)
    rare = {name: seen[name] for name, least in LEAST_OCCURRENCES.items() if seen[name] < least}
    assert not rare


@pytest.mark.parametrize("first", range(SHARDED_SEEDS.start, SHARDED_SEEDS.stop, SEEDS_A_TEST))
def test_dynamic_program_equals_brute_force_with_levels_and_schedules(first: int) -> None:
    """With ZeRO levels of both classes, runs of replicas, GPipe and ZB-H1 they agree as well."""
    for seed in thinned(range(first, first + SEEDS_A_TEST)):
        assert compare(random_staged_sharded_data(seed)).difference is None, f"seed {seed}"


@of_all_seeds
def test_every_level_and_schedule_gets_its_turn() -> None:
    """Of the best plans of stages that differ, enough have levels, runs, and each schedule."""
    seen: Counter[str] = Counter()
    for seed in TOLD_SHARDED_SEEDS:
        try:
            plan = solve(build(Problem, random_staged_sharded_data(seed), f"seed {seed}")).plan
        except InstanceError:
            continue
        placement = plan and plan.placement()
        if placement is not None and not placement.is_uniform:
            zero = placement.zero
            facts = {
                "stages differ": True,
                "states are shared out": bool(zero),
                "levels of both classes": zero.dense != zero.expert,
                "several replicas": bool(zero) and placement.replicas > 1,
                "runs of replicas": zero.instances > 1,
                "dp-inner": placement.order == "dp-inner",
                placement.schedule.name: True,
            }
            seen.update(name for name, holds in facts.items() if holds)
    least = LEAST_SHARDED_OCCURRENCES
    assert not {name: seen[name] for name in least if seen[name] < least[name]}


def test_bounds_of_groups_are_below_their_plans() -> None:
    """No bound of a group, of one ZeRO level or of all, exceeds a plan of brute force in it."""
    compared: Counter[str] = Counter()
    for seed in thinned(range(150)):
        data = random_staged_sharded_data(seed)
        if data.get("constraints"):
            continue
        problem = build(Problem, data, f"seed {seed}")
        try:
            costs = Costs(problem)
            source = StagedSource(costs, DefaultSource(costs))
        except InstanceError:
            continue
        best: dict[tuple[object, ...], int] = {}
        for cell, _, _ in enumerate_staged_cells(problem):
            blocks, k = cell.device_map, problem.search.shared(cell.configurations[0])
            shape = cell.microbatch, k, blocks.replicas, blocks.stages, cell.schedule, cell.zero
            for plan in enumerate_plans(costs, cell):
                best[shape] = min(plan.value_ps, best.get(shape, plan.value_ps))
        for group in source.groups():
            of = group.stage_class
            for part in source.by_level(group):
                k = problem.search.shared(of.configurations[0])
                value = best.get(
                    (of.microbatch, k, part.replicas, part.stages, part.schedule, part.zero)
                )
                if value is not None:
                    assert group.bound_ps <= part.bound_ps <= value, f"seed {seed}"
                    # Limits may fall from one group to the next, not rise.
                    bounds = source.unit_bounds(part, max(best.values()))
                    assert min(bounds.values()) <= value, f"seed {seed}"
                    compared[part.schedule.name] += 1
    assert all(compared[name] >= enough(30) for name in ("1f1b", "gpipe", "zb-h1")), compared


def test_device_maps_are_those_of_brute_force() -> None:
    """For every vector of configurations the family's device maps are the same, each once."""
    maps = 0
    for seed in thinned(range(150)):
        problem = problem_of(seed)
        search, devices = problem.search, problem.cluster.device_count
        groups = Costs(problem).network.group_sizes
        found: dict[tuple[object, ...], list[object]] = {}
        for cell, order, pitch in enumerate_staged_cells(problem):
            key = (cell.microbatch, cell.configurations, cell.device_map.replicas)
            found.setdefault(key, []).append((order, pitch))
        for (microbatch, configurations, replicas), theirs in found.items():
            assert isinstance(configurations, tuple)
            assert isinstance(replicas, int)
            sizes = [k.block_size for k in configurations]
            choices = {
                k.block_size
                for b, k in problem.candidates
                if (b, k.cp, k.ep) == (microbatch, *configurations[0][1:3])
                and ("tp" in search.per_stage or k.tp == configurations[0].tp)
                and ("sp" in search.per_stage or k.sp == configurations[0].sp)
            }
            ours = staged_maps(groups, devices, sizes, choices, replicas, search)
            assert ours == theirs, f"seed {seed}"
            assert len({uneven_map(sizes, replicas, *each) for each in ours}) == len(ours)
            maps += len(ours)
    assert maps >= enough(501)


def every_path(chain: StagedChain) -> list[StagePath]:
    """Return every way to place all stages that the steps of a chain allow."""
    paths: list[tuple[int, int, StagePath]] = [
        (state, chain.layers, ()) for state in range(chain.states[0])
    ]
    for place, steps in enumerate(chain.steps):
        last = place == len(chain.steps) - 1
        paths = [
            (target, low, ((step, low, high), *path))
            for state, high, path in paths
            for step in steps
            for sources, targets in step.moves
            if state in sources
            for target, low in product(targets, [0] if last else range(high))
            if low < high and step.load[low, high] < INFINITE
        ]
    return [path for _, _, path in paths]


@pytest.mark.parametrize("make", [random_staged_data, random_staged_sharded_data])
def test_passes_equal_enumeration(make: Callable[[int], dict[str, Any]]) -> None:
    """Least sums and syncs under any two limits are those of all ways to place the stages."""
    compared = hidden = 0
    for seed in thinned(range(500, 620)):
        problem = build(Problem, make(seed), f"seed {seed}")
        if problem.job.objective == "bottleneck":
            continue
        costs, rng = Costs(problem), random.Random(seed)
        try:
            source = StagedSource(costs, DefaultSource(costs))
            parts = [part for group in source.groups() for part in source.by_level(group)]
            cells = [cell for part in parts for _, cell in source.cells(part, NO_LIMIT)]
        except InstanceError:
            continue
        for cell in rng.sample(cells, min(3, len(cells))):
            chain = source.chain(cell)
            paths = every_path(chain) if chain else []
            if chain is None or not paths:
                continue
            rows = [
                (*chain.measure(path), sum(int(step.fill[low, high]) for step, low, high in path))
                for path in paths
            ]
            times, syncs, _ = zip(*rows, strict=True)
            for _ in range(6):
                most_time = rng.choice((UNLIMITED, *times))
                most_sync = rng.choice((UNLIMITED, 0, *syncs))
                kept = [row for row in rows if row[0] <= most_time and row[1] <= most_sync]
                total, path = chain.least_sum_time(most_time, most_sync)
                assert total == min((row[2] for row in kept), default=INFINITE), f"seed {seed}"
                if path:
                    assert (*chain.measure(path), total) in kept
                assert chain.least_max_sync(most_time) == min(
                    row[1] for row in rows if row[0] <= most_time
                )
                least = min((r[0] for r in rows if r[1] <= most_sync), default=INFINITE)
                bound = chain.least_max_time(most_sync)
                assert bound <= least
                if problem.job.objective == "nest":
                    assert bound == least
                compared += 1
                hidden += (
                    problem.job.objective == "fill-drain"
                    and drains(cell.group.schedule)
                    and 0 < most_sync < UNLIMITED
                )
    assert compared >= enough(200)
    assert hidden >= enough(20)


def with_devices(data: dict[str, Any], devices: int) -> dict[str, Any]:
    """Return a problem on another number of devices, in a network with room for them."""
    cluster = copy.deepcopy(data["cluster"])
    cluster["network"]["levels"][-1]["size"] *= devices
    cluster["devices"] = [{"kind": "device", "count": devices}]
    return {**data, "cluster": cluster}


def with_memory(data: dict[str, Any], memory_bytes: int) -> dict[str, Any]:
    """Return a problem whose devices have another memory."""
    cluster = copy.deepcopy(data["cluster"])
    cluster["device_kinds"]["device"]["memory_bytes"] = memory_bytes
    return {**data, "cluster": cluster}


def feasible(data: dict[str, Any]) -> bool:
    """Whether brute force finds a plan."""
    try:
        return brute_force(build(Problem, data, "changed")).value_ps is not None
    except InstanceError:
        # The reserve alone takes all of the memory.
        return False


@of_all_seeds
def test_what_would_make_something_fit_with_levels_and_schedules() -> None:
    """The least memory that a diagnosis names is that from which on brute force finds a plan."""
    named = differing = 0
    schedules: Counter[str] = Counter()
    for seed in range(1000, 1160):
        data = random_staged_sharded_data(seed)
        try:
            diagnosis = solve(build(Problem, data, f"seed {seed}")).diagnosis
        except InstanceError:
            continue
        if diagnosis is None or diagnosis.memory_bytes is None:
            continue
        assert diagnosis.case is not None
        named += 1
        differing += len(set(diagnosis.configurations)) > 1
        schedules[diagnosis.case.schedule.name] += 1
        assert feasible(with_memory(data, diagnosis.memory_bytes)), f"seed {seed}"
        assert not feasible(with_memory(data, diagnosis.memory_bytes - 1)), f"seed {seed}"
    assert named >= 15
    assert differing >= 1
    assert len(schedules) == 3


@of_all_seeds
def test_what_would_make_something_fit() -> None:
    """A diagnosis names the least memory and devices with which brute force finds a plan."""
    named = never = fewer = differing = 0
    for seed in range(1000, 1220):
        data = random_staged_data(seed)
        try:
            diagnosis = solve(build(Problem, data, f"seed {seed}")).diagnosis
        except InstanceError:
            continue
        if diagnosis is None:
            continue
        if diagnosis.memory_bytes is None:
            never += 1
            assert not feasible(with_memory(data, 10**14)), f"seed {seed}"
        else:
            named += 1
            differing += len(set(diagnosis.configurations)) > 1
            assert feasible(with_memory(data, diagnosis.memory_bytes)), f"seed {seed}"
            assert not feasible(with_memory(data, diagnosis.memory_bytes - 1)), f"seed {seed}"
        if diagnosis.devices is not None and diagnosis.devices <= MOST_DEVICES:
            fewer += 1
            assert feasible(with_devices(data, diagnosis.devices)), f"seed {seed}"
            assert not feasible(with_devices(data, diagnosis.devices - 1)), f"seed {seed}"
    assert named >= 20
    assert never >= 15
    assert fewer >= 5
    assert differing >= 2


@pytest.mark.parametrize("make", [random_staged_data, random_staged_sharded_data])
def test_fewest_devices_are_the_first_with_room(make: Callable[[int], dict[str, Any]]) -> None:
    """For each S the fewest devices within a cap are the first row of bytes that are finite.

    Rows of one S alone are those of all S together, whose ends are shared.
    """
    compared = pinned = 0
    for seed in thinned(range(1000, 1120)):
        try:
            problem = build(Problem, make(seed), f"seed {seed}")
            costs = Costs(problem)
            source = cell_source(costs)
        except InstanceError:
            continue
        assert isinstance(source, DefaultSource)
        staged = StagedSource(costs, source)
        for group in staged.memory_groups():
            every = [
                s for s in range(2, staged.layers + 1) if staged.allows(replace(group, stages=s))
            ]
            most = staged.layers * group.stage_class.most
            for cap in (costs.table.usable_bytes, costs.table.usable_bytes * 2):
                rows = dict(least_bytes(staged, group, every, cap, most))
                first = {
                    stages: int(np.flatnonzero(need <= cap)[0])
                    for stages, need in rows.items()
                    if (need <= cap).any()
                }
                assert dict(fewest_devices(staged, group, cap, most)) == first, f"seed {seed}"
                for stages in first:
                    ((_, alone),) = least_bytes(staged, group, [stages], cap, most)
                    assert (alone == rows[stages]).all()
                compared += len(first)
                pinned += len(first) * any(c.type == "pinned-layers" for c in problem.constraints)
    assert compared >= enough(200)
    assert pinned >= enough(10)


def written(folder: Path, data: dict[str, Any]) -> Path:
    """Return the path of a problem file with such data."""
    return write(folder / "problem.json", {"format": "nest-opt-problem", "version": 1, **data})


def test_solve_says_what_differs_by_stage(tmp_path: Path) -> None:
    """The report gives tp from the first stage to the last; the plan file has it, too."""
    path, plan = written(tmp_path, random_staged_data(26)), tmp_path / "plan.json"
    assert "tp 1/1/2, " in run("solve", path, "-o", plan).stdout
    assert run("verify", plan).exit_code == 0
    assert [stage["tp"] for stage in run_json("verify", plan)["stages"]] == [1, 1, 2]


def test_fix_lets_stages_differ(tmp_path: Path) -> None:
    """`--fix per_stage=tp` is as if the file said so; other names are refused."""
    data = random_staged_data(26)
    del data["search"]["per_stage"]
    path = written(tmp_path, data)
    assert "tp 1/1/2, " not in run("solve", path).stdout
    assert "tp 1/1/2, " in run("solve", path, "--fix", "per_stage=tp").stdout
    refused = run("solve", path, "--fix", "per_stage=dp")
    assert refused.exit_code == 2
    assert "legal values are tp, sp" in refused.stderr


def test_exact_confirms_stages_that_differ(tmp_path: Path) -> None:
    """The integer programs find the same plan of stages that differ."""
    data = random_staged_data(26)
    # Programs in which stages choose know one port a group.
    data["cluster"]["network"]["collectives"] = "flat"
    path = written(tmp_path, data)
    solved, found = run_json("solve", path), run_json("exact", path)
    assert found["status"] == "optimal"
    assert found["bound_ps"] == solved["objective"]["value_ps"]
    assert found["objective"] == solved["objective"]
