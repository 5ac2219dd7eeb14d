"""The checker's numbers of a group are those of the cost model."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from free_instances import free_data
from free_zero_instances import free_zero_data
from tied_instances import tied_free_data

from nest_opt import InstanceError, Problem
from nest_opt.certify import dual_checked
from nest_opt.certify.checker import ENDLESS, Coverage, Group, Proofs, Space, Table
from nest_opt.certify.dual_groups import Degrees, group_numbers, groups
from nest_opt.cost.table_file import table_to_json
from nest_opt.plan.evaluate import Costs
from nest_opt.problem.files import read_problem, to_json_data
from nest_opt.problem.schedule import Schedule
from nest_opt.problem.validation import build
from nest_opt.problem.zero import Zero

SMALL = Path(__file__).resolve().parent.parent / "instances" / "small"


def both(costs: Costs) -> Iterator[tuple[Proofs, Group, Degrees]]:
    """Yield the checker's groups, of one chunk, with the degrees that they are of."""
    data, table = to_json_data(costs.problem), table_to_json(costs.table)
    space = Space(data, table, "free")
    proofs = Proofs(space, Table(table, space), ENDLESS)
    known = {
        (at.microbatch, *map(tuple, at.choices), at.replicas, at.stages, at.schedule, at.zero): at
        for at in groups(costs)
    }
    for group in Coverage(space).groups:
        schedule, zero = Schedule(*space.schedules[group.schedule]), Zero(*space.zeros[group.zero])
        key = (*space.pairs[group.pair], group.replicas, group.stages, schedule, zero)
        if key in known:
            yield proofs, group, known[key]


def compare(costs: Costs) -> int:
    """Assert that all groups have equal numbers; return how many there are."""
    count = 0
    for proofs, group, at in both(costs):
        assert dual_checked.numbers(proofs, group) == group_numbers(costs, at)
        count += 1
    return count


@pytest.mark.parametrize("maker", [free_data, free_zero_data, tied_free_data])
def test_numbers_of_tiny_problems_are_equal(maker: object) -> None:
    """Of every schedule and ZeRO level, with tied parameters and constraints."""
    count = 0
    for seed in range(14):
        data = maker(seed)  # type: ignore[operator]
        data["search"]["per_stage"] = []
        if seed % 2:
            data["search"]["schedule"] = ["1f1b", "gpipe", "zb-h1"]
        try:
            count += compare(Costs(build(Problem, data, f"seed {seed}")))
        except InstanceError:
            continue
    assert count >= 40


@pytest.mark.parametrize("name", ["experts", "replicas-in-nodes-of-their-own"])
def test_numbers_of_small_instances_are_equal(name: str) -> None:
    """With experts, and with failure domains."""
    assert compare(Costs(read_problem(SMALL / f"{name}.json"))) >= 80
