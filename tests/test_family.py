"""Membership of the aligned family: what is inside, and what puts a placement outside."""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from random_instances import random_problem

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import enumerate_cells
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.family import outside_aligned
from nest_opt.plan.placement import DeviceMap, MapOrder
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
