"""The shrinker of the cross-check."""

from typing import Any

import pytest
from random_instances import random_data
from shrinking import shrink

from nest_opt import InstanceError, Problem
from nest_opt.problem.validation import build


def three_layers_one_colocated(data: dict[str, Any]) -> bool:
    """Whether a problem has profiles to choose from, 3 layers or more, and a colocation."""
    try:
        problem = build(Problem, data, "problem")
        if not problem.candidates:
            return False
    except InstanceError:
        return False
    return len(problem.model.ids) >= 3 and any(c.type == "colocation" for c in problem.constraints)


SEEDS = [seed for seed in range(400) if three_layers_one_colocated(random_data(seed))]


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_shrinks_to_what_is_needed(seed: int) -> None:
    """Of a problem that needs 3 layers and a colocation, these and one device are left."""
    small = build(
        Problem, shrink(random_data(seed), three_layers_one_colocated), f"seed {seed}, shrunk"
    )
    assert len(small.model.ids) == 3
    assert [constraint.type for constraint in small.constraints] == ["colocation"]
    assert small.cluster.device_count == 1
    assert len(small.cluster.network.levels) == 1
    assert len(small.model.layer_types) == 1
    assert len(small.candidates) == 1


def test_leaves_alone_what_does_not_hold() -> None:
    """A problem of which the statement is false comes back as it was."""
    data = random_data(0)
    assert shrink(data, lambda _: False) is data
