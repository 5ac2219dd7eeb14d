"""The free family: any distinct devices. Program, brute force, evaluator and checker agree."""

from functools import cache
from pathlib import Path

import pyomo.environ as pyo
import pytest
from cli_running import run, write
from free_agreement import FreeComparison, compare_fixed
from free_brute_force import free_brute_force
from free_instances import free_data
from golden_models import FREE_CELL, golden_choice_data, golden_coefficients
from samples import problem_data
from seeds import enough, thinned

from nest_opt import InstanceError, Problem, exact, solve
from nest_opt.certify.brute_force import brute_force
from nest_opt.errors import ModelError, PlanError
from nest_opt.milp.build import build
from nest_opt.milp.exact import exact as programs
from nest_opt.problem.validation import build as build_problem
from nest_opt.solver.highs import HighsSession

OPTIMUM_SEEDS = range(180)
FIXED_SEEDS = range(1000, 1060)
STAGED_SEEDS = range(60)
MOST_ASSIGNMENTS = 3_000

Values = tuple[int, ...]


def free_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    return build_problem(Problem, free_data(seed), f"seed {seed}")


# Optima


@cache
def optimum(seed: int) -> tuple[Values, Values] | None:
    """Return the value of brute force and of the dynamic program, each if there is a plan.

    None if they were not compared. Status, value and bound of the program must be those of
    brute force.
    """
    problem = free_problem(seed)
    try:
        solved = solve(problem)
    except InstanceError:
        return None
    best = free_brute_force(problem, MOST_ASSIGNMENTS)
    if best is None:
        return None
    found = programs(problem, family="free")
    expected = "infeasible" if best.value_ps is None else "optimal"
    assert (found.status, found.value_ps) == (expected, best.value_ps), f"seed {seed}"
    assert found.bound_ps == best.value_ps, f"seed {seed}"
    aligned = (solved.evaluation.value_ps,) if solved.evaluation else ()
    return (() if best.value_ps is None else (best.value_ps,)), aligned


@pytest.mark.parametrize("first", range(OPTIMUM_SEEDS.start, OPTIMUM_SEEDS.stop, 10))
def test_program_equals_brute_force(first: int) -> None:
    """Value, bound and infeasibility are brute force's, and no aligned plan is better."""
    for seed in thinned(range(first, first + 10)):
        free, aligned = optimum(seed) or ((), ())
        # Where there is an aligned plan, there is a free one.
        assert len(free) >= len(aligned), f"seed {seed}"
        assert free[: len(aligned)] <= aligned, f"seed {seed}"


def test_free_plans_are_better_on_some_problems() -> None:
    """The comparisons say something: on some seeds the free optimum is below the aligned one."""
    values = [values for seed in thinned(OPTIMUM_SEEDS) if (values := optimum(seed))]
    assert len(values) >= enough(150)
    assert sum(bool(free) for free, _ in values) >= enough(100)
    assert sum(free[0] < aligned[0] for free, aligned in values if aligned) >= enough(10)


@pytest.mark.parametrize("first", range(STAGED_SEEDS.start, STAGED_SEEDS.stop, 10))
def test_aligned_cells_whose_stages_choose(first: int) -> None:
    """With tp and sp by stage, program, dynamic program and brute force agree; starts are taken."""
    for seed in thinned(range(first, first + 10)):
        problem = free_problem(seed)
        if not problem.search.per_stage:
            continue
        try:
            solved = solve(problem)
        except InstanceError:
            continue
        value = brute_force(problem).value_ps
        start = solved.plan.placement() if solved.plan and seed % 2 else None
        found = programs(problem, start=start)
        assert found.value_ps == found.bound_ps == value, f"seed {seed}"


# Every placement, fixed


def test_every_fixed_placement_is_judged_and_valued_alike() -> None:
    """Fixed in the program, a placement is feasible as the checker says, of the evaluator's value.

    Where the counted ranks of a slot are not in the order of their devices,
    the program's value may be lower, never higher.
    """
    told = FreeComparison()
    for seed in thinned(FIXED_SEEDS):
        compare_fixed(free_problem(seed), f"seed {seed}", told)
    assert told.problems >= enough(30)
    assert told.unsorted < told.placements / 2
    assert 0.1 < told.illegal / told.placements < 0.9


# The linear relaxation

# Least values in ps of the golden free cell, without devices and with them; then with
# integers relaxed.
PROGRAMS = {"fill-drain": (2620, 2688), "nest": (2632, 2700), "bottleneck": (1926, 1926)}
RELAXED = {
    "fill-drain": (2602.369, 2602.369),
    "nest": (2605.397, 2605.397),
    "bottleneck": (1909.161, 1909.161),
}


def least(objective: str, without_devices: bool, integers: bool) -> float:
    """Return the least value of a program of the golden free cell."""
    costs, k = golden_coefficients(objective, cell=FREE_CELL)
    formulation = build(costs, k, without_devices)
    if not integers:
        pyo.TransformationFactory("core.relax_integer_vars").apply_to(formulation.model)
    answer = HighsSession(formulation.model).solve()
    assert answer.solution is not None
    return round(answer.solution.objective, 3)


@pytest.mark.parametrize("objective", PROGRAMS)
def test_linear_relaxation_is_pinned(objective: str) -> None:
    """Bounds are what they were, and grow from relaxed to whole numbers and with devices."""
    whole = [least(objective, without, integers=True) for without in (True, False)]
    relaxed = [least(objective, without, integers=False) for without in (True, False)]
    assert tuple(whole) == PROGRAMS[objective]
    assert tuple(relaxed) == pytest.approx(RELAXED[objective], abs=1e-2)
    assert relaxed[0] <= relaxed[1] <= whole[1]
    assert relaxed[0] <= whole[0] <= whole[1]


# The driver


def test_a_constraint_of_the_users_own_is_refused() -> None:
    """It has rows of the aligned family at most, and the message says what to do."""
    data = free_data(0)
    data["constraints"] = [{"type": "user", "name": "mine"}]
    problem = build_problem(Problem, data, "user")
    with pytest.raises(ModelError, match="program of the free family has rows for"):
        programs(problem, family="free")


def test_a_start_outside_the_search_space_is_refused() -> None:
    """Any devices will do, not any degrees."""
    plan = next(
        solved.plan for seed in range(40) if (solved := solve(free_problem(seed))).plan is not None
    )
    data = plan.problem.model_dump(mode="json", exclude_defaults=True)
    data["search"]["pp"] = [len(plan.stages) + 1]
    other = build_problem(Problem, data, "other stages")
    with pytest.raises(PlanError, match="start from a plan of the free family"):
        programs(other, start=plan.placement(), family="free")


def test_a_time_limit_leaves_the_aligned_plan_and_a_bound() -> None:
    """Without time left the dynamic program's plan stands, with a bound that holds."""
    problem = build_problem(Problem, golden_choice_data(), "golden")
    best = exact(problem, family="free")
    found = exact(problem, family="free", time_limit_s=0)
    assert (found.family, found.status) == ("free", "feasible")
    assert found.plan == found.start.plan
    assert best.bound_ps is not None
    assert found.bound_ps is not None
    assert 0 < found.bound_ps <= best.bound_ps


def test_too_many_devices_are_refused(tmp_path: Path) -> None:
    """Before any search, with their number, the most there can be, and the remedy."""
    data = problem_data(sizes=(8, 33), global_batch=4)
    with pytest.raises(ModelError, match=r"found 264 devices.*at most 256: use the aligned"):
        exact(build_problem(Problem, data, "large"), family="free")
    result = run("exact", write(tmp_path / "problem.json", data), "--family", "free")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "cluster.devices: found 264 devices" in result.stderr
