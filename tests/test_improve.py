"""What to change first of a configuration, against every plan there is."""

import random
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from random_instances import random_problem

import nest_opt
from nest_opt import InstanceError, Plan, Problem, improve, solve, verify
from nest_opt.certify.brute_force import enumerate_cells, enumerate_plans
from nest_opt.improvement import DIMENSIONS, Change, Improvement, batch_terms
from nest_opt.improvement.dimensions import NOT_CHANGED, known_values, values_of
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Placement
from nest_opt.plan.plan import plan_from_placement
from nest_opt.problem import SearchSpace
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
SEEDS = range(0, 160)
MOST_PLANS = 20_000
Valued = tuple[Placement, int]


def narrowed(problem: Problem, **values: Any) -> Problem:
    """Return the problem with fields of its search space replaced."""
    search = {name: getattr(problem.search, name) for name in problem.search.model_fields_set}
    return problem.model_copy(update={"search": SearchSpace(**{**search, **values})})


@cache
def legal_plans(seed: int, orders: tuple[str, ...], pitches: tuple[str, ...]) -> list[Valued]:
    """Return every legal plan of a seed's problem with these orders and pitches, and its value."""
    problem = narrowed(random_problem(seed), order=orders, pitch=pitches)
    return list(every_plan(problem))


def every_plan(problem: Problem) -> Iterator[Valued]:
    """Yield every legal plan with its value."""
    costs = Costs(problem)
    for cell in enumerate_cells(problem):
        for plan in enumerate_plans(costs, cell):
            modes = tuple(stage.recompute for stage in plan.stages)
            placement = cell.placement(plan.ends, modes)
            if not problem.constraints or not check(costs, placement):
                yield placement, plan.value_ps


def degrees(placement: Placement) -> dict[str, Any]:
    """Return the degrees of a placement by name."""
    k = placement.configurations[0]
    return {
        "microbatch": placement.microbatch,
        **k._asdict(),
        "dp": placement.replicas,
        "pp": placement.stages,
        "zero": placement.zero,
    }


def is_profiled(problem: Problem, values: dict[str, Any]) -> bool:
    """Whether a pair of the search space has these values, of what profiles are keyed by."""
    asked = {name: values[name] for name in values if name not in ("dp", "pp", "zero")}
    return any(
        asked.items() <= {"microbatch": b, **k._asdict()}.items() for b, k in problem.candidates
    )


def keeps(
    problem: Problem, held: dict[str, Any], released: tuple[str, ...], placement: Placement
) -> bool:
    """Whether a plan differs from what is held in what is released alone."""
    found = degrees(placement)
    fixed = {name: held[name] for name in held if name in found and name not in released}
    differing = {name for name in fixed if found[name] != fixed[name]}
    if differing == {"sp"} and "tp" in released:
        # Sequence parallelism ends where there is nothing to share.
        changed = {name: found[name] for name in released if name in found}
        if is_profiled(problem, {**fixed, **changed}):
            return False
    elif differing:
        return False
    stages_held = "boundaries" in held and not {"boundaries", "pp"} & set(released)
    if stages_held and placement.ends != held["boundaries"]:
        return False
    if "recompute" in held and "recompute" not in released:
        if stages_held:
            return placement.recompute == held["recompute"]
        return set(placement.recompute) <= set(held["recompute"])
    return True


def expected(seed: int, held: dict[str, Any], released: tuple[str, ...]) -> int | None:
    """Return the least value of what a change reaches, by trying every plan."""
    problem = random_problem(seed)
    asked = {
        name: (held[name],)
        if name in held and name not in released
        else getattr(problem.search, name)
        for name in ("order", "pitch")
    }
    values = [
        value
        for placement, value in legal_plans(seed, asked["order"], asked["pitch"])
        if keeps(problem, held, released, placement)
        and (len(released) < 2 or traded(held, released, placement))
    ]
    return min(values, default=None)


def traded(held: dict[str, Any], released: tuple[str, ...], placement: Placement) -> bool:
    """Whether two degrees differ, and their product does not."""
    first, second = released
    found = degrees(placement)
    return (
        found[first] != held[first] and found[first] * found[second] == held[first] * held[second]
    )


def drawn(seed: int) -> tuple[random.Random, Problem, list[Valued]] | None:
    """Return a seed's problem and its legal plans, None if there are none or too many."""
    problem = random_problem(seed)
    if not any(True for _ in problem.candidates):
        return None
    plans = legal_plans(seed, problem.search.order, problem.search.pitch)
    if not 0 < len(plans) <= MOST_PLANS:
        return None
    return random.Random(f"improve {seed}"), problem, plans


def has_plans(seed: int) -> bool:
    """Whether the search of a seed's problem begins at all."""
    try:
        return solve(random_problem(seed)).status == "optimal"
    except InstanceError:
        return False


def held_plan(problem: Problem, placement: Placement, value_ps: int) -> Plan:
    """Return the plan file of a placement."""
    return plan_from_placement(problem, placement, problem.job.objective, value_ps)


def agree(seed: int, result: Improvement, held: dict[str, Any]) -> None:
    """Hold every single change against every plan, and the path against itself."""
    for each in result.changes:
        assert each.value_ps == expected(seed, held, each.released), (seed, each.released)
    check_path(result)
    optimum = solve(result.problem)
    assert result.optimum is not None and result.optimum.evaluation == optimum.evaluation
    for each in (*result.changes, *result.path):
        if each.plan is not None:
            checked = verify(each.plan.plan)
            assert not checked.violations
            assert checked.evaluation is not None
            assert checked.evaluation.value_ps == each.value_ps


def check_path(result: Improvement) -> None:
    """Hold the values of a path against each other and against the optimum."""
    values = [each.value_ps for each in result.path]
    assert result.optimum is not None and result.optimum.evaluation is not None
    least = result.optimum.evaluation.value_ps
    if result.before_ps is not None:
        values.insert(0, result.before_ps)
    assert all(after < before for before, after in zip(values, values[1:], strict=False))
    assert all(value is not None and value >= least for value in values)
    reached = not values or values[-1] == least
    assert (result.rest is None) == (reached and bool(values))
    if result.changes and result.path and len(result.path[0].released) == 1:
        assert result.path[0] == result.changes[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_single_changes_of_a_plan_are_the_best_there_are(seed: int) -> None:
    """Each change of a plan file reaches what brute force finds of that part of the space."""
    found = drawn(seed) if has_plans(seed) else None
    if found is None:
        return
    rng, problem, plans = found
    placement, value_ps = rng.choice(plans)
    result = improve(held_plan(problem, placement, value_ps))
    held = {
        **degrees(placement),
        "recompute": placement.recompute,
        "boundaries": placement.ends,
        **{name: result.given.configuration.held[name] for name in ("order", "pitch")},
    }
    assert result.before_ps == value_ps
    assert result.given.configuration.held == held
    agree(seed, result, held)


@pytest.mark.parametrize("seed", SEEDS)
def test_single_changes_of_stated_degrees_are_the_best_there_are(seed: int) -> None:
    """What is not stated takes its best values, before a change and after it."""
    found = drawn(seed) if has_plans(seed) else None
    if found is None:
        return
    rng, problem, plans = found
    values = degrees(rng.choice(plans)[0])
    if rng.random() < 0.3:
        # Other degrees, which may fit nowhere.
        values = {name: rng.choice(known_values(problem, name)) for name in values}
        if not is_profiled(problem, values):
            return
    names = rng.sample(sorted(values), rng.randint(2, len(values)))
    held = {name: values[name] for name in names}
    stated = dict(held)
    if rng.random() < 0.5:
        mode = rng.choice(problem.search.recompute)
        held["recompute"], stated["recompute"] = (mode,), mode
    result = improve(problem, stated)
    assert result.before_ps == expected(seed, held, ())
    agree(seed, result, held)
