"""The shrinker of the cross-checks."""

import pytest
from random_instances import random_data, random_problem

from nest_opt import InstanceError, Problem
from nest_opt.problem.validation import build
from nest_opt.shrink import shrink


def three_layers_one_colocated(problem: Problem) -> bool:
    """Whether a problem has profiles to choose from, 3 layers or more, and a colocation."""
    try:
        if not problem.candidates:
            return False
    except InstanceError:
        return False
    return len(problem.model.ids) >= 3 and any(c.type == "colocation" for c in problem.constraints)


SEEDS = [seed for seed in range(400) if three_layers_one_colocated(random_problem(seed))]


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_shrinks_to_what_is_needed(seed: int) -> None:
    """Of a problem that needs 3 layers and a colocation, these and one device are left."""
    small = shrink(random_problem(seed), three_layers_one_colocated)
    assert len(small.model.ids) == 3
    assert [constraint.type for constraint in small.constraints] == ["colocation"]
    assert small.cluster.device_count == 1
    assert len(small.cluster.network.levels) == 1
    assert len(small.model.layer_types) == 1
    assert len(small.candidates) == 1


def test_leaves_alone_what_does_not_hold() -> None:
    """A problem of which the statement is false comes back as it was."""
    problem = random_problem(0)
    assert shrink(problem, lambda _: False) is problem


def test_parameters_of_a_users_constraint() -> None:
    """Names of layers that are gone leave their arrays; nothing else changes."""
    ids = random_problem(0).model.ids
    assert len(ids) > 1
    entry = {"type": "user", "name": "any", "parameters": {"layers": list(ids), "most": 37}}
    small = shrink(
        build(Problem, {**random_data(0), "constraints": [entry]}, "problem"),
        lambda problem: len(problem.constraints) > 0,
    )
    assert len(small.model.ids) == 1
    (constraint,) = small.model_dump()["constraints"]
    assert constraint["parameters"] == {"layers": list(small.model.ids), "most": 37}


def test_built_in_constraints_get_plainer() -> None:
    """Arrays get shorter and numbers smaller as far as they are still valid."""
    data = random_data(0)
    names = list(random_problem(0).model.ids)
    data["constraints"] = [
        {"type": "anti-colocation", "layers": names},
        {"type": "degree-limit", "degree": "dp", "at_most": 37},
    ]
    small = shrink(build(Problem, data, "problem"), lambda problem: len(problem.constraints) == 2)
    apart, limit = small.model_dump(exclude_none=True)["constraints"]
    assert len(apart["layers"]) == 2
    assert limit["at_most"] == 1


def test_the_search_space_goes_back_to_its_defaults() -> None:
    """Every dimension is dropped that the statement does without, the newer ones too."""
    data = random_data(0)
    data["search"] = {
        "microbatch": [1],
        "order": ["pp-inner"],
        "schedule": ["gpipe"],
        "chunks": [2],
        "cp": [1],
    }
    problem = build(Problem, data, "narrow")
    small = shrink(problem, lambda each: each.search.schedule == ("gpipe",))
    assert small.search.model_dump(exclude_defaults=True) == {"schedule": ("gpipe",)}
    for field, value in (("zero", (0, 2)), ("per_stage", ("tp",))):
        wide = build(Problem, {**random_data(0), "search": {field: list(value)}}, "wide")
        assert shrink(wide, lambda _: True).search == type(small.search)()
        kept = shrink(wide, lambda each, name=field: bool(getattr(each.search, name)))
        assert len(kept.model.ids) == 1
