"""Membership of the aligned family: what is inside, and what puts a placement outside."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from free_instances import free_data
from random_instances import random_problem

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import enumerate_cells, enumerate_staged_cells
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import outside_aligned
from nest_opt.plan.placement import Blocks, DeviceMap, MapOrder, Placement, uneven_map
from nest_opt.problem.files import read_problem, to_json_data
from nest_opt.problem.validation import build

HOPS = Path(__file__).resolve().parent.parent / "instances" / "tiny" / "hop-latency-limit.json"
ORDERS: tuple[MapOrder, ...] = ("pp-inner", "dp-inner")


@pytest.mark.parametrize("seed", range(40))
def test_the_family_has_the_cells_that_enumeration_finds(seed: int) -> None:
    """Of degrees and device maps those of brute force's cells are members, and no others."""
    problem = random_problem(seed)
    try:
        cells = list(enumerate_cells(problem))
        costs = Costs(problem)
        assert costs.table
    except InstanceError:
        return
    starts = {(cell.pair, *_starts(cell.device_map)) for cell in cells}
    rng = random.Random(seed)
    mode = problem.search.recompute[0]
    inside = 0
    for cell in rng.sample(cells, min(len(cells), 12)):
        for order, pitch in product(ORDERS, range(1, 8)):
            device_map = replace(cell.device_map, order=order, pitch=pitch)
            other = replace(cell, device_map=device_map)
            ends = (*range(1, device_map.stages), len(problem.model.ids))
            found = outside_aligned(costs, other.placement(ends, (mode,) * device_map.stages))
            member = (other.pair, *_starts(device_map)) in starts
            assert (found is None) == member, (other, found)
            inside += member
    assert inside or not cells


@pytest.mark.parametrize("per_stage", [("sp",), ("tp",), ("tp", "sp")])
def test_pitches_are_made_for_sizes_that_a_stage_may_have(per_stage: tuple[str, ...]) -> None:
    """Configurations that no stage of a plan may have make no pitch for it."""
    data = free_data(0)
    kind = next(iter(data["model"]["layer_types"].values()))
    (profile, *_) = kind["profiles"]
    kind["profiles"] = [
        {**profile, "tp": tp, "cp": 1, "ep": 1, "sp": sp, "collectives": []}
        for tp, sp in ((1, False), (2, False), (1, True), (5, True))
    ]
    kind["output_bytes"] = {str(profile["microbatch"]): 1}
    name = next(iter(data["model"]["layer_types"]))
    data["model"] = {
        "layer_types": {name: kind},
        "layers": [{"id": "first", "type": name}, {"id": "second", "type": name}],
    }
    data["cluster"]["network"]["levels"] = [
        {"name": "node", "size": 4, "bandwidth_bytes_per_s": 10**12, "latency_s": 0},
        {"name": "cluster", "size": 6, "bandwidth_bytes_per_s": 10**12, "latency_s": 0},
    ]
    data["cluster"]["devices"][0]["count"] = 23
    data["job"]["global_batch"] = 2 * profile["microbatch"]
    data["search"] = {"microbatch": [profile["microbatch"]], "tp": [1, 2, 5], "sp": [False, True],
                      "dp": [2], "pp": [2], "per_stage": per_stage}  # fmt: skip
    data.pop("constraints", None)
    problem = build(Problem, data, "two stages")
    costs, mode = Costs(problem), problem.search.recompute[0]
    cells = [*enumerate_cells(problem), *(cell for cell, *_ in enumerate_staged_cells(problem))]
    chains = {cell.configurations for cell in cells}
    members = {(cell.configurations, _blocks(cell.device_map)) for cell in cells}
    found = set()
    for chain, order, pitch in product(chains, ORDERS, range(1, 24)):
        blocks = _blocks(uneven_map([k.block_size for k in chain], 2, order, pitch))
        used = [device for block in blocks for device in block]
        if len(set(used)) == len(used) and max(used) < 23:
            placement = Placement(
                profile["microbatch"], chain, 2, order, pitch, (1, 2), (mode, mode)
            )
            if outside_aligned(costs, placement) is None:
                found.add((chain, blocks))
    assert found == members


def _blocks(device_map: Blocks) -> tuple[tuple[int, ...], ...]:
    """Return the devices of every block of two replicas and two stages."""
    return tuple(tuple(device_map.block(r, i)) for r in range(2) for i in range(2))


def _starts(device_map: DeviceMap) -> tuple[object, ...]:
    """Return the shape of a device map and the first device of every block."""
    replicas, stages = range(device_map.replicas), range(device_map.stages)
    return (
        len(replicas),
        len(stages),
        tuple(device_map.block_start(r, i) for r in replicas for i in stages),
    )


def test_what_puts_a_plan_outside_the_family() -> None:
    """Each dimension of the search space that a plan leaves is named."""
    problem = read_problem(HOPS)
    plan = solve(problem).plan
    assert plan is not None
    placement = plan.placement()
    for search, told in (
        ({"dp": [1]}, "dp 2"),
        ({"pp": [1]}, "pp 2"),
        ({"order": ["dp-inner"]}, "order pp-inner, pitch 2"),
    ):
        data = {**to_json_data(problem), "search": search}
        assert outside_aligned(Costs(build(Problem, data, "narrow")), placement) == told
    full = replace(placement, recompute=("full", "none"))
    data = {**to_json_data(problem), "search": {"recompute": ["none"]}}
    assert (
        outside_aligned(Costs(build(Problem, data, "narrow")), full) == "recompute full of stage 0"
    )
    two = replace(placement, microbatch=2)
    assert outside_aligned(Costs(problem), two) == "microbatch 2, tp=1 cp=1 ep=1"
