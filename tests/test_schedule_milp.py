"""Schedules in the integer program: plans and values are those of all that checks them."""

from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyomo.environ as pyo
import pytest
from agreement import solved
from free_agreement import FreeComparison
from free_agreement import compare_fixed as compare_free_fixed
from free_brute_force import free_brute_force
from golden_models import (
    FREE_ZERO_BUBBLE_CELL,
    INTERLEAVED_CELL,
    ZERO_BUBBLE_CELL,
    golden_coefficients,
    golden_data,
)
from milp_agreement import compare_fixed, exact_coefficients, placement_count, placements
from schedule_instances import choosing_problem, scheduled_data, scheduled_free_problem
from seeds import enough, of_all_seeds, thinned

from nest_opt import InstanceError, Problem
from nest_opt.api import exact_pipeline
from nest_opt.certify.brute_force import brute_force, enumerate_cells, enumerate_plans
from nest_opt.errors import ModelError
from nest_opt.milp.bounds import bound_ps
from nest_opt.milp.build import build
from nest_opt.milp.cells import ProgramCell, aligned_cells
from nest_opt.milp.coefficients import CellCoefficients, CoefficientSource
from nest_opt.milp.constraints import FAMILIES as CONSTRAINT_FAMILIES
from nest_opt.milp.exact import exact
from nest_opt.milp.export import export
from nest_opt.milp.limits import cutoff_ps, value_ps
from nest_opt.milp.memory import forbid_overfull
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.problem.schedule import SCHEDULES
from nest_opt.problem.validation import build as build_problem
from nest_opt.solver.highs import HighsSession

FIXED_SEEDS = range(180)
MOST_FIXED = 16
OPTIMUM_SEEDS = range(1000, 1080)
MOST_PLACEMENTS = 2_000
FREE_SEEDS = range(70)
FREE_FIXED_SEEDS = range(1000, 1030)
MOST_ASSIGNMENTS = 500
OBJECTIVES = ("fill-drain", "nest", "bottleneck")


def scheduled_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    return build_problem(Problem, scheduled_data(seed), f"seed {seed}")


def small_cells(cells: list[CellCoefficients], most: int) -> list[CellCoefficients]:
    """Return cells of few placements in all, some of each schedule."""
    kept, left = [], dict.fromkeys(SCHEDULES, most)
    for k in reversed(cells):
        name = k.cell.schedule.name
        if placement_count(k) <= left[name]:
            kept.append(k)
            left[name] -= placement_count(k)
    return kept


# Every placement, fixed


def test_every_fixed_placement_is_judged_and_valued_alike() -> None:
    """Fixed in the program, a placement is feasible as the checker says, of the evaluator's value.

    Chunks may be of any sizes: the checker wants equal ones, and so do the rows.
    """
    problems = count = illegal = 0
    seen: Counter[tuple[str, str]] = Counter()
    for seed in FIXED_SEEDS:
        problem = scheduled_problem(seed)
        cells = small_cells(exact_coefficients(problem) or [], MOST_FIXED)
        if not cells:
            continue
        found = compare_fixed(problem, cells)
        assert found.difference is None, f"seed {seed}"
        problems, count, illegal = problems + 1, count + found.placements, illegal + found.illegal
        seen.update({(k.cell.schedule.name, k.objective) for k in cells})
    assert problems >= 60
    assert 0.2 < illegal / count < 0.8
    others = [name for name in SCHEDULES if name != "1f1b"]
    assert all(seen[name, objective] >= 3 for name in others for objective in OBJECTIVES), seen


# On stages of two chunks each: by hand, so that each is kept by some plans and broken by others.
CONSTRAINTS: tuple[dict[str, Any], ...] = (
    {"type": "colocation", "layers": ["second", "third"]},
    {"type": "colocation", "layers": ["first", "third"]},
    {"type": "colocation", "layers": ["fifth", "second", "sixth"]},
    {"type": "anti-colocation", "layers": ["first", "fourth"]},
    {"type": "anti-colocation", "layers": ["sixth", "third"]},
    {"type": "pinned-layers", "layers": ["third"], "stage": 0},
    {"type": "pinned-layers", "layers": ["second", "fifth"], "stage": -1},
    {"type": "forbidden-boundary", "after": "fourth"},
    {"type": "hop-latency", "limit_s": "1e-12"},
    {"type": "hop-latency", "limit_s": "3e-12"},
)


@pytest.mark.parametrize("constraint", CONSTRAINTS, ids=lambda c: c["type"])
def test_constraints_on_stages_of_several_chunks(constraint: dict[str, Any]) -> None:
    """Some plans break the constraint alone: there, and only there, the program is infeasible."""
    costs, k = golden_coefficients(constraint=constraint, cell=INTERLEAVED_CELL)
    assert compare_fixed(costs.problem, [k]).difference is None
    rules = [{violation.rule for violation in check(costs, p)} for p in placements(k)]
    is_met = constraint.get("limit_s") == "3e-12"
    assert ({constraint["type"]} in rules) != is_met
    assert (set() in rules) == (constraint["type"] != "hop-latency" or is_met)


# Optima


@pytest.mark.parametrize("first", range(OPTIMUM_SEEDS.start, OPTIMUM_SEEDS.stop, 10))
def test_program_equals_brute_force(first: int) -> None:
    """Value, bound and infeasibility are those of brute force, from a start or without."""
    for seed in thinned(range(first, first + 10)):
        problem = scheduled_problem(seed)
        cells = exact_coefficients(problem) or []
        if not 0 < sum(map(placement_count, cells)) <= MOST_PLACEMENTS:
            continue
        best = brute_force(problem)
        found = exact(problem, start=best.placement if seed % 4 == 0 else None)
        status = "infeasible" if best.value_ps is None else "optimal"
        assert (found.status, found.value_ps) == (status, best.value_ps), f"seed {seed}"
        assert found.bound_ps == best.value_ps, f"seed {seed}"


def test_program_equals_dynamic_program() -> None:
    """Started from the search's plan, the program proves its value, or that there is no plan."""
    plans = 0
    for seed in thinned(range(5000, 5040)):
        problem = scheduled_problem(seed)
        cells = exact_coefficients(problem) or []
        if 0 < sum(map(placement_count, cells)) <= MOST_PLACEMENTS:
            found = exact_pipeline(problem)
            assert found.status == found.start.status, f"seed {seed}"
            assert found.bound_ps == found.start.bound_ps, f"seed {seed}"
            plans += found.plan is not None
    assert plans >= enough(8)


@of_all_seeds
def test_optima_are_compared_under_every_schedule() -> None:
    """The comparisons say something: each schedule has cells in many of the problems."""
    names: Counter[str] = Counter()
    for seed in OPTIMUM_SEEDS:
        cells = exact_coefficients(scheduled_problem(seed)) or []
        if 0 < sum(map(placement_count, cells)) <= MOST_PLACEMENTS:
            names.update({k.cell.schedule.name for k in cells})
    assert all(names[name] >= 8 for name in SCHEDULES if name != "1f1b"), names


@pytest.mark.parametrize("chunks", [1, 2, 3, 7])
def test_the_cutoff_parts_values_below_a_threshold_from_all_others(chunks: int) -> None:
    """An objective is below the cutoff exactly if its value, rounded up, is below the threshold."""
    for threshold in (1, 50):
        for scaled in range(60 * chunks):
            objective = Fraction(scaled, chunks)
            value = value_ps(float(objective), chunks)
            assert value - 1 < objective <= value
            assert (objective < cutoff_ps(threshold, chunks)) == (value < threshold)


def test_a_start_one_above_the_optimum_is_improved() -> None:
    """From a plan of v chunks a stage that is worse by least, the search finds the best."""
    improved = 0
    for seed in thinned(range(1000, 1200)):
        data = scheduled_data(seed)
        if data["search"]["schedule"] != ["interleaved"]:
            continue
        problem = build_problem(Problem, data, f"seed {seed}")
        cells = exact_coefficients(problem) or []
        if not 0 < sum(map(placement_count, cells)) <= 300:
            continue
        costs = Costs(problem)
        legal = [
            (evaluate(costs, placement).value_ps, placement)
            for k in cells
            for placement in placements(k)
            if not check(costs, placement)
        ]
        values = sorted({value for value, _ in legal})
        if len(values) < 2:
            continue
        second = next(placement for value, placement in legal if value == values[1])
        found = exact(problem, start=second)
        assert (found.value_ps, found.bound_ps) == (values[0], values[0]), f"seed {seed}"
        improved += 1
    assert improved >= enough(5)


# Cells and their bounds


def test_cells_are_those_of_brute_force() -> None:
    """The cells of the family, schedules and chunks among them, are those that trying finds."""
    kinds: Counter[str] = Counter()
    for seed in thinned(range(40)):
        problem = scheduled_problem(seed)
        try:
            ours = list(aligned_cells(Costs(problem)))
        except InstanceError:
            continue
        assert sorted(map(repr, ours)) == sorted(map(repr, enumerate_cells(problem))), seed
        kinds.update({cell.schedule.name for cell in ours})
    assert all(kinds[name] >= enough(3) for name in SCHEDULES), kinds


def test_closed_form_bounds_hold() -> None:
    """No plan is below its cell's bound; many bounds are above half of the best plan."""
    cells: Counter[str] = Counter()
    close: Counter[str] = Counter()
    for seed in thinned(range(80)):
        problem = scheduled_problem(seed)
        costs = Costs(problem)
        source = CoefficientSource(costs)
        try:
            found = [source.of(cell) for cell in aligned_cells(costs)]
        except InstanceError:
            continue
        for k in small_cells(found, 60):
            values = [plan.value_ps for plan in enumerate_plans(costs, k.cell)]
            if values:
                bound = bound_ps(k)
                assert bound is not None, f"seed {seed}"
                assert bound <= min(values), f"seed {seed}"
                cells[k.cell.schedule.name] += 1
                close[k.cell.schedule.name] += 2 * bound > min(values)
    assert all(cells[name] >= enough(20) for name in SCHEDULES), cells
    assert all(close[name] > cells[name] / 2 for name in SCHEDULES), (cells, close)


# The linear relaxation

# Least values in ps of the golden cells of schedules, and of their relaxed programs.
PROGRAMS = {
    ("zb-h1", "fill-drain"): (2380, 1892.024),
    ("zb-h1", "nest"): (2592, 1894.939),
    ("zb-h1", "bottleneck"): (1956, 1406.538),
    ("interleaved", "fill-drain"): (2820, 2819.931),
    ("interleaved", "nest"): (2836, 2836),
    ("interleaved", "bottleneck"): (2192, 2192),
    ("free zb-h1", "fill-drain"): (2322, 2235.45),
    ("free zb-h1", "nest"): (2326, 2235.357),
    ("free zb-h1", "bottleneck"): (1926, 1909.161),
}
CELLS: dict[str, ProgramCell] = {
    "zb-h1": ZERO_BUBBLE_CELL,
    "interleaved": INTERLEAVED_CELL,
    "free zb-h1": FREE_ZERO_BUBBLE_CELL,
}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("objective", OBJECTIVES)
def test_linear_relaxation_is_pinned(name: str, objective: str) -> None:
    """Optimum and relaxed bound of each golden cell are what they were, in this order."""
    costs, k = golden_coefficients(objective, cell=CELLS[name])
    formulation = build(costs, k)
    best = HighsSession(formulation.model).solve()
    pyo.TransformationFactory("core.relax_integer_vars").apply_to(formulation.model)
    relaxed = HighsSession(formulation.model).solve()
    assert best.solution is not None
    assert relaxed.solution is not None
    found = round(best.solution.objective, 3), round(relaxed.solution.objective, 3)
    assert found == pytest.approx(PROGRAMS[name, objective], abs=1e-2)
    assert found[1] <= found[0]
    if not name.startswith("free"):
        values = [evaluate(costs, p).value_ps for p in placements(k) if not check(costs, p)]
        assert value_ps(best.solution.objective, k.cell.schedule.chunks) == min(values)


def test_a_larger_fill_never_pays() -> None:
    """The fill is only bounded from below: pushed up, the least objective never falls."""
    for objective in ("fill-drain", "nest"):
        costs, k = golden_coefficients(objective, cell=ZERO_BUBBLE_CELL)
        formulation = build(costs, k)
        values = []
        for push in (0, 1, 50, 400, 1000):
            for fill in formulation.model.f.values():
                fill.setlb(push)
            answer = HighsSession(formulation.model).solve()
            assert answer.solution is not None
            values.append(round(answer.solution.objective, 4))
        assert values == sorted(values)
        assert values[0] < values[-1]


# Memory


def large_problem(memory_bytes: int) -> Problem:
    """Return an interleaved problem with sizes of some 1e10 bytes and without recomputation."""
    data = golden_data()
    data["search"].update(recompute=["none"], pp=[2], dp=[1], schedule=["interleaved"], chunks=[2])
    for kind in data["model"]["layer_types"].values():
        plain = kind["profiles"][0]["recompute"]["none"]
        kind["profiles"][0]["recompute"] = {
            "none": {**plain, "stash_bytes": 10**10 + plain["stash_bytes"]}
        }
    data["model"]["layers"] += [{"id": name, "type": "fourth"} for name in ("fifth", "sixth")]
    data["cluster"]["device_kinds"]["device"]["memory_bytes"] = memory_bytes
    return build_problem(Problem, data, "large")


def test_one_byte_of_ten_to_the_ten_counts_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the solver cannot see of chunks is seen afterwards, and the search goes on without."""
    forbidden: list[tuple[Any, ...]] = []

    def spy(*arguments: Any) -> None:
        forbidden.append(arguments)
        forbid_overfull(*arguments)

    monkeypatch.setattr("nest_opt.milp.driver.forbid_overfull", spy)
    roomy = exact(large_problem(10**13))
    assert roomy.evaluation is not None
    need = max(stage.memory_bytes for stage in roomy.evaluation.stages)
    assert need > 3 * 10**10
    assert exact(large_problem(need)).value_ps == roomy.value_ps
    assert not forbidden
    tight = exact(large_problem(need - 1))
    best = brute_force(large_problem(need - 1))
    assert forbidden
    assert tight.bound_ps == tight.value_ps == best.value_ps != roomy.value_ps


# The free family


@pytest.mark.parametrize("first", range(FREE_SEEDS.start, FREE_SEEDS.stop, 10))
def test_free_program_equals_brute_force(first: int) -> None:
    """With GPipe and ZB-H1, value, bound and infeasibility are those of trying all devices."""
    for seed in thinned(range(first, first + 10)):
        problem = scheduled_free_problem(seed)
        best = free_brute_force(problem, MOST_ASSIGNMENTS)
        if best is None:
            continue
        try:
            found = exact(problem, start=best.placement if seed % 4 == 0 else None, family="free")
        except InstanceError:
            assert best.value_ps is None, f"seed {seed}"
            continue
        status = "infeasible" if best.value_ps is None else "optimal"
        assert (found.status, found.value_ps) == (status, best.value_ps), f"seed {seed}"
        assert found.bound_ps == best.value_ps, f"seed {seed}"


def test_aligned_cells_whose_stages_choose_run_schedules() -> None:
    """With tp or sp by stage, the aligned program's value is brute force's under schedules."""
    compared = 0
    for seed in thinned(range(60)):
        problem = scheduled_free_problem(seed)
        if not problem.search.per_stage or compared == 12:
            continue
        best = brute_force(problem)
        found = exact(problem)
        assert found.value_ps == found.bound_ps == best.value_ps, f"seed {seed}"
        compared += 1
    assert compared == 12


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_stages_that_choose_run_schedules_and_share_out_optimizer_states(first: int) -> None:
    """With ZeRO levels 0 and 1 too, value and bound are those of search and brute force."""
    for seed in thinned(range(first, first + 10)):
        problem = choosing_problem(seed)
        best = brute_force(problem)
        assert solved(problem)[0] == best.value_ps, f"seed {seed}"
        try:
            found = exact(problem)
        except InstanceError:
            assert best.value_ps is None, f"seed {seed}"
            continue
        assert found.value_ps == found.bound_ps == best.value_ps, f"seed {seed}"


def test_fixed_free_placements_are_judged_and_valued_alike() -> None:
    """Fixed in the free program, a placement is judged and valued as by checker and evaluator."""
    told = FreeComparison()
    for seed in thinned(FREE_FIXED_SEEDS):
        compare_free_fixed(scheduled_free_problem(seed), f"seed {seed}", told)
    assert told.problems >= enough(20)
    assert 0.1 < told.illegal / told.placements < 0.9
    names = Counter(schedule.name for schedule in told.schedules)
    assert all(names[name] >= enough(20) for name in SCHEDULES if name != "interleaved"), names


# What is refused, and files


def test_interleaved_is_refused_in_the_free_family() -> None:
    """Its programs know one chunk a stage, and the message says what to do."""
    data = golden_data()
    data["search"]["schedule"] = ["1f1b", "interleaved"]
    problem = build_problem(Problem, data, "interleaved")
    with pytest.raises(ModelError, match=r"search\.schedule: found interleaved.*aligned family"):
        exact(problem, family="free")


def test_rows_of_a_users_own_are_refused_in_interleaved_cells(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are written for one chunk a stage: with several, they would say something else."""
    monkeypatch.setitem(CONSTRAINT_FAMILIES, "user:mine", lambda *_: None)
    costs, k = golden_coefficients(
        constraint={"type": "user", "name": "mine"}, cell=INTERLEAVED_CELL
    )
    with pytest.raises(ModelError, match=r"constraints\[0\]: found 'user:mine' with schedule"):
        build(costs, k)
    costs, k = golden_coefficients(
        constraint={"type": "user", "name": "mine"}, cell=ZERO_BUBBLE_CELL
    )
    assert build(costs, k).rows["constraints"] == ()


@pytest.mark.parametrize("file_format", ["lp", "mps"])
@pytest.mark.parametrize("name", ["zb-h1", "interleaved"])
def test_exported_files_read_back(name: str, file_format: Any, tmp_path: Path) -> None:
    """HiGHS reads the exported file of a schedule's cell and finds the optimum in it."""
    costs, k = golden_coefficients("fill-drain", cell=CELLS[name])
    path = tmp_path / f"cell.{file_format}"
    formulation = export(costs, k.cell, path, file_format)
    assert formulation.units.exact
    assert name in formulation.model.name
    highspy = pytest.importorskip("highspy")
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("mip_rel_gap", 0.0)
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    engine.run()
    values = [evaluate(costs, p).value_ps for p in placements(k) if not check(costs, p)]
    objective = engine.getInfo().objective_function_value
    assert value_ps(objective, k.cell.schedule.chunks) == min(values)
