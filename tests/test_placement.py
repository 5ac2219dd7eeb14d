"""Placements whose devices are listed, or whose stages differ in tp or sp."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cli_running import run, run_json, write

import nest_opt
from nest_opt import InstanceError, PlanError, Problem
from nest_opt.plan import Placement
from nest_opt.plan.check import check, check_form
from nest_opt.plan.evaluate import Costs, evaluate, hop_ends
from nest_opt.plan.placement import DeviceMap, ListedMap, uneven_map
from nest_opt.plan.plan import plan_from_placement
from nest_opt.problem import Configuration
from tests.random_instances import random_problem
from tests.random_placements import random_placement
from tests.samples import layer_type, problem_data, sample

TWO, FOUR = Configuration(2), Configuration(4)


def listed(placement: Placement) -> Placement:
    """Return a placement with its blocks written out."""
    device_map = placement.device_map
    blocks = tuple(
        tuple(tuple(device_map.block(r, s)) for r in range(device_map.replicas))
        for s in range(device_map.stages)
    )
    return replace(placement, order="listed", pitch=0, devices=ListedMap(blocks))


def legal_samples(count: int) -> Iterator[tuple[Costs, Placement]]:
    """Yield random placements of random problems that keep the rules of form."""
    for seed in range(count):
        problem = random_problem(seed)
        try:
            placement = random_placement(random.Random(seed), problem)
        except InstanceError:
            continue
        if placement is not None:
            yield Costs(problem), placement


def test_listing_the_devices_changes_nothing() -> None:
    """A placement and its listed twin have the same evaluation and the same violations."""
    seen = 0
    for costs, placement in legal_samples(150):
        twin = listed(placement)
        assert evaluate(costs, twin) == evaluate(costs, placement)
        assert list(map(str, check(costs, twin))) == list(map(str, check(costs, placement)))
        seen += 1
    assert seen > 100


def test_devices_of_one_innermost_group_are_alike() -> None:
    """Shuffling the devices inside each innermost group leaves the evaluation as it is."""
    rng, moved = random.Random(0), 0
    for costs, placement in legal_samples(150):
        size = costs.problem.cluster.network.levels[0].size
        total = costs.problem.cluster.network.device_count
        shuffled: list[int] = []
        for first in range(0, total, size):
            group = list(range(first, first + size))
            rng.shuffle(group)
            shuffled += group
        twin = listed(placement)
        assert twin.devices is not None
        names = tuple(
            tuple(tuple(shuffled[device] for device in block) for block in stage)
            for stage in twin.devices.devices
        )
        other = replace(twin, devices=ListedMap(names))
        assert evaluate(costs, other) == evaluate(costs, placement)
        moved += names != twin.devices.devices
    assert moved > 50


@pytest.mark.parametrize("order", ["pp-inner", "dp-inner"])
def test_uneven_map_of_equal_blocks_is_the_even_one(order: str) -> None:
    """Blocks of one size are where the arithmetic of one size puts them."""
    even = DeviceMap(2, 2, 3, order, 7)  # type: ignore[arg-type]
    uneven = uneven_map((2, 2, 2), 2, order, 7)  # type: ignore[arg-type]
    for replica in range(2):
        for stage in range(3):
            assert uneven.block(replica, stage) == tuple(even.block(replica, stage))
    assert uneven.devices_used == even.devices_used == 12


def test_uneven_blocks_follow_each_other() -> None:
    """In `pp-inner`, a stage begins where the one before ends; in `dp-inner`, at its pitch."""
    inner = uneven_map((4, 1, 2), 2, "pp-inner", 8)
    assert [inner.block(1, stage) for stage in range(3)] == [(8, 9, 10, 11), (12,), (13, 14)]
    outer = uneven_map((4, 1, 2), 2, "dp-inner", 8)
    assert [outer.block(1, stage) for stage in range(3)] == [(4, 5, 6, 7), (9,), (18, 19)]


def connected(here: Configuration, there: Configuration) -> set[tuple[int, int]]:
    """Return which ranks of two neighbouring blocks pass tensors on."""
    sizes = (here.block_size, there.block_size)
    device_map = uneven_map(sizes, 1, "pp-inner", sum(sizes))
    pairs = hop_ends(device_map, (here, there), 0, 0, 1)
    return {(first, second - sizes[0]) for first, second in pairs}


def test_ranks_with_a_common_share_are_connected() -> None:
    """Equal shares of both blocks are connected, and all ranks where one side has slices."""
    assert connected(TWO, TWO) == {(0, 0), (1, 1)}
    assert connected(TWO, FOUR) == {(0, 0), (0, 1), (1, 2), (1, 3)}
    assert connected(FOUR, Configuration(1)) == {(0, 0), (1, 0), (2, 0), (3, 0)}
    assert connected(TWO, Configuration(2, sp=True)) == {(0, 0), (0, 1), (1, 0), (1, 1)}
    across = connected(Configuration(1, cp=2), Configuration(2, cp=2))
    assert across == {(0, 0), (0, 1), (1, 2), (1, 3)}


def two_stage_problem(per_stage: tuple[str, ...]) -> Problem:
    """Return four layers on 8 devices in two nodes, profiled for tp 1, 2 and 4."""
    kind = layer_type()
    profile = kind["profiles"][0]
    kind["profiles"] = [
        {**profile, "tp": tp, "forward_s": 4 / tp, "backward_input_s": 8 / tp} for tp in (1, 2, 4)
    ]
    data = problem_data(sizes=(4, 2), search={"per_stage": list(per_stage)})
    data["model"]["layer_types"] = dict.fromkeys(data["model"]["layer_types"], kind)
    return Problem.model_validate(data)


def uneven(*configurations: Configuration) -> Placement:
    """Return a placement of one replica with two layers in each of two stages."""
    pitch = sum(k.block_size for k in configurations)
    return Placement(1, configurations, 1, "pp-inner", pitch, (2, 4), ("none", "none"))


def test_degrees_differ_only_where_the_search_lets_them() -> None:
    """Tp of 4 and 2 breaks a rule of form unless `per_stage` names tp."""
    placement = uneven(FOUR, TWO)
    (broken,) = check_form(Costs(two_stage_problem(())), placement)
    assert str(broken).startswith("degrees: found tp of 2, 4 in the stages")
    assert check_form(Costs(two_stage_problem(("tp",))), placement) == []


def test_neighbouring_degrees_divide_each_other() -> None:
    """Tp of 3 beside 2 breaks a rule of form, beside 1 it does not."""
    costs, three = Costs(two_stage_problem(("tp",))), Configuration(3)
    (broken,) = check_form(costs, uneven(three, TWO))
    assert str(broken).startswith("degrees: found tp 3 in stage 0 and 2 in stage 1")
    assert check_form(costs, uneven(three, Configuration(1))) == []


def test_each_stage_has_the_costs_of_its_own_degree() -> None:
    """Stage times are those of tp 4 and tp 2, and X takes off the backward time under tp 4."""
    costs = Costs(two_stage_problem(("tp",)))
    first, second = evaluate(costs, uneven(FOUR, TWO)).stages
    of_four = evaluate(costs, uneven(FOUR, FOUR)).stages[0]
    of_two = evaluate(costs, uneven(TWO, TWO)).stages[1]
    assert first.time_terms_ps["backward"] == of_four.time_terms_ps["backward"]
    assert second.time_terms_ps["backward"] == of_two.time_terms_ps["backward"]
    assert first.time_terms_ps["backward"] < second.time_terms_ps["backward"]
    assert second.backward_before_ps == first.time_terms_ps["backward"]


def test_a_device_in_two_listed_blocks_is_refused() -> None:
    """A listed device that two blocks claim, or that does not exist, breaks a rule of form."""
    costs = Costs(two_stage_problem(()))
    placement = listed(uneven(TWO, TWO))
    twice = replace(placement, devices=ListedMap((((0, 1),), ((1, 2),))))
    (broken,) = check_form(costs, twice)
    assert "device 1 in two blocks" in str(broken)
    beyond = replace(placement, devices=ListedMap((((0, 1),), ((2, 8),))))
    (broken,) = check_form(costs, beyond)
    assert "device 8 in use" in str(broken)


def test_a_plan_file_keeps_stages_that_differ_and_listed_devices() -> None:
    """Written to a plan and read again, such placements are the same."""
    problem = two_stage_problem(("tp",))
    costs = Costs(problem)
    for placement in (uneven(FOUR, TWO), listed(uneven(TWO, FOUR)), listed(uneven(TWO, TWO))):
        evaluation = evaluate(costs, placement)
        plan = plan_from_placement(problem, placement, evaluation.objective, evaluation.value_ps)
        again = type(plan).model_validate_json(plan.model_dump_json())
        assert again.placement() == placement
        assert nest_opt.verify(again).violations == ()


def test_the_artifact_refuses_what_it_does_not_know() -> None:
    """Under the artifact's cost model, listed devices are refused with a remedy."""
    problem = sample(job={"cost_model": "artifact"}, search={"recompute": ["full"]})
    one = Configuration(1)
    placement = listed(Placement(1, (one, one), 1, "pp-inner", 2, (2, 4), ("full", "full")))
    with pytest.raises(PlanError, match="cost_model artifact knows neither"):
        evaluate(Costs(problem), placement)


def test_too_many_devices_are_never_written_out(tmp_path: Path) -> None:
    """Uneven stages of a foreign plan that ask for 2^34 devices are refused by every command."""
    problem = nest_opt.problem.validation.build(Problem, problem_data(), "problem")
    many = 2**17
    stages = [
        {"layers": problem.model.ids[:1], "recompute": "none", "tp": 1},
        {"layers": problem.model.ids[1:], "recompute": "none"},
    ]
    data = {
        "format": "nest-opt-plan",
        "version": 1,
        "problem": problem_data(),
        "microbatch": 1,
        "tp": many,
        "dp": many,
        "order": "dp-inner",
        "pitch": 1,
        "stages": stages,
    }
    path = write(tmp_path / "plan.json", data)
    for command in (("verify",), ("verify", "--simulate"), ("show",)):
        told = run(*command, path, width=200)
        assert told.exit_code == 1
        assert f"{many * (many + 1)}" in told.output
    for command in ("verify", "show"):
        assert run_json(command, path)["devices"]["used"] == many * (many + 1)
