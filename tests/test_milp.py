"""The integer program: the same plans, values and limits as checker, evaluator, DP, brute force."""

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyomo.environ as pyo
import pytest
from golden_models import (
    CELL,
    CONSTRAINTS,
    GOLDEN,
    OBJECTIVES,
    family_lp,
    golden_coefficients,
    golden_data,
    golden_files,
)
from milp_agreement import (
    compare_fixed,
    compare_optimum,
    exact_coefficients,
    fixed_value,
    placement_count,
    placement_options,
    placements,
)
from milp_instances import whole_number_data
from random_instances import random_data, random_problem
from seeds import thinned

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import enumerate_cells, enumerate_plans
from nest_opt.errors import ModelError, PlanError, SolverError
from nest_opt.milp.bounds import bound_ps
from nest_opt.milp.build import FAMILIES, FREE_FAMILIES, PATH_FAMILIES, build
from nest_opt.milp.cells import aligned_cells
from nest_opt.milp.coefficients import CoefficientSource
from nest_opt.milp.constraints import FAMILIES as CONSTRAINT_FAMILIES
from nest_opt.milp.constraints import FREE_FAMILIES as FREE_CONSTRAINT_FAMILIES
from nest_opt.milp.exact import exact
from nest_opt.milp.export import export, first_cell
from nest_opt.milp.memory import forbid_overfull
from nest_opt.plan import Placement
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate, placement_cell
from nest_opt.plan.rules import CHECKERS
from nest_opt.problem import Configuration
from nest_opt.problem.validation import build as build_problem
from nest_opt.solver.highs import HighsSession

PAGE = Path(__file__).resolve().parent.parent / "docs" / "formulation.md"

FIXED_SEEDS = range(70)
MOST_PLACEMENTS = 150
OPTIMUM_SEEDS = range(500, 580)


def whole_number_problem(seed: int) -> Problem:
    """Return the problem of a seed in small integers."""
    return build_problem(Problem, whole_number_data(seed), f"seed {seed}")


# Every placement, fixed


def test_every_fixed_placement_is_judged_and_valued_alike() -> None:
    """Fixed in the program, a placement is feasible as the checker says, of the evaluator's value.

    `benchmarks/milp.py` does the same on as many problems as asked for.
    """
    problems = count = illegal = 0
    for seed in FIXED_SEEDS:
        problem = whole_number_problem(seed)
        cells = exact_coefficients(problem)
        if cells is None or not 0 < sum(map(placement_count, cells)) <= MOST_PLACEMENTS:
            continue
        found = compare_fixed(problem, cells)
        assert found.difference is None, f"seed {seed}"
        problems, count, illegal = problems + 1, count + found.placements, illegal + found.illegal
    assert problems >= 30
    assert 0.2 < illegal / count < 0.8


# Optima


@pytest.mark.parametrize("first", range(OPTIMUM_SEEDS.start, OPTIMUM_SEEDS.stop, 10))
def test_program_equals_dynamic_program_and_brute_force(first: int) -> None:
    """Value, bound and infeasibility are those of the dynamic program and of brute force."""
    for seed in thinned(range(first, first + 10)):
        comparison = compare_optimum(whole_number_problem(seed))
        assert comparison is None or comparison.difference is None, f"seed {seed}"


@pytest.mark.parametrize("seed", thinned(range(0, 40, 4)))
def test_program_equals_dynamic_program_on_large_numbers(seed: int) -> None:
    """With times of 1e12 ps, which are scaled for the solver, the values are still the same."""
    comparison = compare_optimum(random_problem(seed))
    assert comparison is None or comparison.difference is None


# With presolve on, HiGHS 1.16.0 carries these starts into the presolved program wrongly.
MISLEADING_STARTS = (118, 426, 1031)


@pytest.mark.parametrize("seed", MISLEADING_STARTS)
def test_a_start_does_not_mislead(seed: int) -> None:
    """Started from the best plan, the program of its cell has the value of that plan."""
    problem = whole_number_problem(seed)
    solved = solve(problem)
    assert solved.plan is not None
    assert solved.evaluation is not None
    placement = solved.plan.placement()
    costs = Costs(problem)
    cell = placement_cell(problem, placement)
    formulation = build(costs, CoefficientSource(costs).of(cell))
    start = formulation.decisions(placement.ends, placement_options(placement))
    answer = HighsSession(formulation.model).solve(start=start)
    assert "MIP start solution is feasible" in answer.report.log
    assert answer.solution is not None
    assert round(answer.solution.objective, 4) == solved.evaluation.value_ps


def small_cells(pitch: list[str] | None = None) -> Iterator[tuple[int, Problem]]:
    """Yield random problems with legal degrees, perhaps with only one sort of pitch."""
    for seed in range(60):
        data = random_data(seed)
        if pitch:
            data["search"]["pitch"] = pitch
        problem = build_problem(Problem, data, f"seed {seed}")
        try:
            next(aligned_cells(Costs(problem)), None)
        except InstanceError:
            continue
        yield seed, problem


@pytest.mark.parametrize("pitch", [None, ["tight"], ["level"], ["spread"]])
def test_cells_are_those_of_brute_force(pitch: list[str] | None) -> None:
    """The cells of the family are those that trying all numbers finds, for each sort of pitch."""
    for seed, problem in small_cells(pitch):
        ours = sorted(map(repr, aligned_cells(Costs(problem))))
        assert ours == sorted(map(repr, enumerate_cells(problem))), f"seed {seed}"


def test_closed_form_bounds_hold() -> None:
    """No plan is below its cell's bound; many bounds are above half of the best plan."""
    close = cells = 0
    for seed, problem in small_cells():
        costs = Costs(problem)
        source = CoefficientSource(costs)
        for cell in list(aligned_cells(costs))[::9]:
            values = [plan.value_ps for plan in enumerate_plans(costs, cell)]
            if values:
                bound = bound_ps(source.of(cell))
                assert bound is not None, f"seed {seed}"
                assert bound <= min(values), f"seed {seed}"
                cells += 1
                close += 2 * bound > min(values)
    assert cells >= 50
    assert close > cells / 2


# The linear relaxation

# Least values of the relaxed program of the golden cell, in ps.
RELAXED = {"fill-drain": 2385.757, "nest": 2385.757, "bottleneck": 1406.538}


def golden_optimum(objective: str) -> int:
    """Return the least value of the golden cell's legal placements, by trying all."""
    costs, k = golden_coefficients(objective)
    return min(
        evaluate(costs, placement).value_ps
        for placement in placements(k)
        if not check(costs, placement)
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_linear_relaxation_is_pinned(objective: str) -> None:
    """The bound of the relaxed program is what it was; another formulation gives another."""
    costs, k = golden_coefficients(objective)
    formulation = build(costs, k)
    best = HighsSession(formulation.model).solve()
    pyo.TransformationFactory("core.relax_integer_vars").apply_to(formulation.model)
    relaxed = HighsSession(formulation.model).solve()
    assert best.solution is not None
    assert relaxed.solution is not None
    assert round(best.solution.objective, 4) == golden_optimum(objective)
    assert relaxed.solution.objective == pytest.approx(RELAXED[objective], abs=1e-3)


# Each constraint alone


def lone_data(
    constraint: dict[str, Any] | None, memory_bytes: int = 800, kind: str = ""
) -> dict[str, Any]:
    """Return the golden problem with four stages of one layer each: a single placement.

    `kind` is the type of constraint that the placement shall be able to break.
    """
    data = golden_data()
    data["cluster"]["device_kinds"]["device"]["memory_bytes"] = memory_bytes
    data["search"] = {
        "microbatch": [1], "tp": [1], "dp": [1], "pp": [4], "recompute": ["none"],
        "order": ["pp-inner"], "pitch": ["tight"],
    }  # fmt: skip
    data["constraints"] = [constraint] if constraint else []
    if kind == "anti-colocation":
        # One stage of all layers, on a device with room for them.
        data["search"]["pp"] = [1]
        data["cluster"]["device_kinds"]["device"]["memory_bytes"] *= 10
    if kind in ("tp-inside-node", "failure-domains"):
        _widen(data, kind)
    return data


def _widen(data: dict[str, Any], kind: str) -> None:
    """Give eight devices to the placement: tensor pairs on nodes of one, or two replicas."""
    cluster, wide = data["cluster"], kind == "tp-inside-node"
    cluster["devices"][0]["count"] = 8
    for level, size in zip(cluster["network"]["levels"], (1, 8) if wide else (2, 4), strict=True):
        level["size"] = size
    if wide:
        for layer_type in data["model"]["layer_types"].values():
            layer_type["profiles"][0]["tp"] = 2
    data["search"].update({"tp": [2]} if wide else {"dp": [2]})


# The second stage of the placement takes 304 + 3 * 42 + 5 + 10 bytes.
VIOLATIONS: dict[str, dict[str, Any]] = {
    "memory": {"constraint": None, "memory_bytes": 444},
    **{name: {"constraint": constraint, "kind": name} for name, constraint in CONSTRAINTS.items()},
}


def test_every_constraint_has_rows_and_a_violation_here() -> None:
    """No checker is without a family of rows, none without a case below."""
    assert set(CONSTRAINT_FAMILIES) == set(CHECKERS) == set(CONSTRAINTS)
    assert set(VIOLATIONS) == {"memory", *CHECKERS}


@pytest.mark.parametrize("rule", VIOLATIONS)
def test_each_constraint_alone_is_rejected(rule: str) -> None:
    """One rule broken: checker, dynamic program and program refuse; without it all accept."""
    problem = build_problem(Problem, lone_data(**VIOLATIONS[rule]), rule)
    costs = Costs(problem)
    (cell,) = aligned_cells(costs)
    k = CoefficientSource(costs).of(cell)
    (placement,) = placements(k)
    assert {violation.rule for violation in check(costs, placement)} == {rule}
    assert solve(problem).status == "infeasible"
    assert exact(problem).status == "infeasible"
    formulation = build(costs, k)
    session = HighsSession(formulation.model)
    assert fixed_value(formulation, session, placement) is None

    free = build_problem(Problem, lone_data(None, 445, rule), "free")
    assert not check(Costs(free), placement)
    assert solve(free).status == "optimal"
    assert exact(free).status == "optimal"


@pytest.mark.parametrize("rule", VIOLATIONS)
def test_no_other_rows_reject_it(rule: str) -> None:
    """With the rows of the broken rule switched off, the placement is feasible."""
    problem = build_problem(Problem, lone_data(**VIOLATIONS[rule]), rule)
    costs = Costs(problem)
    (cell,) = aligned_cells(costs)
    k = CoefficientSource(costs).of(cell)
    (placement,) = placements(k)
    formulation = build(costs, k)
    family = "memory" if rule == "memory" else "constraints"
    for name in formulation.rows[family]:
        formulation.model.component(name).deactivate()
    value = fixed_value(formulation, HighsSession(formulation.model), placement)
    assert value == evaluate(costs, placement).value_ps


def large_problem(memory_bytes: int) -> Problem:
    """Return the golden problem with sizes of some 1e10 bytes and without recomputation."""
    data = golden_data()
    data["search"].update(recompute=["none"], pp=[2])
    for kind in data["model"]["layer_types"].values():
        plain = kind["profiles"][0]["recompute"]["none"]
        kind["profiles"][0]["recompute"] = {
            "none": {**plain, "stash_bytes": 10**10 + plain["stash_bytes"]}
        }
    data["cluster"]["device_kinds"]["device"]["memory_bytes"] = memory_bytes
    return build_problem(Problem, data, "large")


def test_one_byte_in_three_times_ten_to_the_ten_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the solver cannot see is seen afterwards, and the search goes on without it."""
    forbidden = []

    def spy(*arguments: Any) -> None:
        forbidden.append(arguments)
        forbid_overfull(*arguments)

    monkeypatch.setattr("nest_opt.milp.driver.forbid_overfull", spy)
    roomy = exact(large_problem(10**12))
    assert roomy.evaluation is not None
    need = max(stage.memory_bytes for stage in roomy.evaluation.stages)
    assert need > 3 * 10**10
    assert exact(large_problem(need)).value_ps == roomy.value_ps
    assert not forbidden
    tight = exact(large_problem(need - 1))
    solved = solve(large_problem(need - 1))
    assert forbidden
    assert tight.status == solved.status
    assert tight.bound_ps == solved.bound_ps != roomy.value_ps


# The files


@pytest.mark.parametrize("name", golden_files())
def test_golden_files(name: str) -> None:
    """The LP file of each family is the golden one (`tests/golden_models.py` writes them anew)."""
    assert family_lp(golden_files()[name]) == (GOLDEN / f"{name}.lp").read_text()


def test_no_family_is_without_a_golden_file() -> None:
    """Every family, objective and constraint has its file with at least one row, and no other."""
    files = {path.stem for path in GOLDEN.glob("*.lp")}
    assert files == set(golden_files())
    shown = {what.family for what in golden_files().values()}
    assert shown == {*FAMILIES, *FREE_FAMILIES, *PATH_FAMILIES, "constraints"}
    for name in files:
        assert re.search(r"^c_[elu]_", (GOLDEN / f"{name}.lp").read_text(), re.MULTILINE), name


def test_families_carry_their_equations() -> None:
    """Each family's docstring names the equation that the page's table places there."""
    rows = re.findall(r"^\| \((\d+)\) .*`(nest_opt\.milp\.[\w.]+)` \|$", PAGE.read_text(), re.M)
    # A family may serve several equations, of which it names one.
    placed = {(name, number) for number, name in rows if int(number) >= 23}
    programs = FAMILIES, FREE_FAMILIES, PATH_FAMILIES
    constraints = CONSTRAINT_FAMILIES, FREE_CONSTRAINT_FAMILIES
    for function in {f for group in (*programs, *constraints) for f in group.values()}:
        name = f"{function.__module__}.{function.__name__}"
        documented = inspect.getdoc(function)
        assert documented is not None
        number = re.match(r"Add \((\d+)\): ", documented)
        assert number is not None, name
        assert (name, number[1]) in placed, name


@pytest.mark.parametrize("file_format", ["lp", "mps"])
def test_exported_files_read_back(file_format: Any, tmp_path: Path) -> None:
    """HiGHS reads the exported file and finds the program's optimum in it."""
    costs, _ = golden_coefficients()
    path = tmp_path / f"cell.{file_format}"
    formulation = export(costs, CELL, path, file_format)
    assert formulation.units.exact
    highspy = pytest.importorskip("highspy")
    engine = highspy.Highs()
    engine.setOptionValue("output_flag", False)
    engine.setOptionValue("mip_rel_gap", 0.0)
    assert engine.readModel(str(path)) == highspy.HighsStatus.kOk
    engine.run()
    assert round(engine.getInfo().objective_function_value, 4) == golden_optimum("fill-drain")


def test_the_first_cell_is_the_one_of_the_least_bound() -> None:
    """The cell to export by default is the one that a search would solve first."""
    problem = build_problem(Problem, golden_data(), "golden")
    costs = Costs(problem)
    source = CoefficientSource(costs)
    bounds = [bound_ps(source.of(cell)) for cell in aligned_cells(costs)]
    assert bound_ps(source.of(first_cell(costs))) == min(b for b in bounds if b is not None)


# The driver


def driven_problem() -> Problem:
    """Return a problem of some dozens of cells."""
    data = golden_data("nest")
    data["search"] = {"microbatch": [1], "tp": [1]}
    return build_problem(Problem, data, "driven")


def test_an_exact_search_tells_who_vouches() -> None:
    """An optimum comes with its bound, the solver as its voucher, and times that add up."""
    found = exact(driven_problem())
    assert (found.family, found.status, found.limit) == ("aligned", "optimal", None)
    assert found.value_ps == found.bound_ps
    assert found.gap == 0
    assert found.bound_by == "solver"
    assert found.exact_units
    assert found.cells == found.cells_pruned + found.cells_solved
    times = found.times
    parts = times.bounds_s + times.build_s + times.handover_s + times.solve_s
    assert 0 < parts <= times.total_s


def test_a_start_is_the_first_incumbent() -> None:
    """With the optimum as start nothing better is found, and fewer programs are run."""
    problem = driven_problem()
    plan = solve(problem).plan
    assert plan is not None
    without, found = exact(problem), exact(problem, start=plan.placement())
    assert found.placement == plan.placement()
    assert found.value_ps == without.value_ps
    assert found.cells_solved <= without.cells_solved


def test_a_poor_start_is_improved() -> None:
    """From the worst legal placement the search reaches the optimum."""
    problem = driven_problem()
    costs = Costs(problem)
    source = CoefficientSource(costs)
    legal = [
        (evaluate(costs, placement).value_ps, placement)
        for cell in aligned_cells(costs)
        for placement in placements(source.of(cell))
        if not check(costs, placement)
    ]
    worst = max(legal, key=lambda entry: entry[0])
    found = exact(problem, start=worst[1])
    assert found.value_ps == min(value for value, _ in legal) < worst[0]


def test_an_illegal_start_is_refused() -> None:
    """A start that breaks a rule, or is of no cell of the family, is an error that says so."""
    data = golden_data()
    data["cluster"]["device_kinds"]["device"]["memory_bytes"] = 5000
    data["search"] = {"pitch": ["tight"]}
    roomy = build_problem(Problem, data, "roomy")
    none = Configuration(1, 1, 1, False)
    stray = Placement(1, (none,), 2, "pp-inner", 5, (4,), ("none",))
    with pytest.raises(PlanError, match="start: found order pp-inner, pitch 5"):
        exact(roomy, start=stray)
    crowded = build_problem(Problem, golden_data(), "crowded")
    with pytest.raises(PlanError, match="start: the placement is illegal"):
        exact(crowded, start=stray)


def test_a_time_limit_gives_incumbent_and_bound() -> None:
    """Without time left, the start is returned with the least closed-form bound."""
    problem = driven_problem()
    plan = solve(problem).plan
    assert plan is not None
    found = exact(problem, start=plan.placement(), time_limit_s=0)
    assert (found.status, found.limit) == ("feasible", "time")
    assert found.placement == plan.placement()
    assert found.bound_ps is not None
    assert found.value_ps is not None
    assert 0 < found.bound_ps < found.value_ps
    assert found.bound_by == "closed form"
    empty = exact(problem, time_limit_s=0)
    assert (empty.status, empty.placement) == ("no-solution", None)
    assert empty.bound_ps == found.bound_ps


def test_a_gap_ends_the_search_early() -> None:
    """A wide gap is met with fewer programs, and the bound keeps to it."""
    problem = driven_problem()
    proved, rough = exact(problem), exact(problem, gap=0.5)
    assert rough.status == "optimal"
    assert rough.cells_solved <= proved.cells_solved
    assert rough.bound_ps is not None
    assert rough.value_ps is not None
    assert proved.value_ps is not None
    assert rough.bound_ps <= proved.value_ps <= rough.value_ps
    assert rough.gap is not None
    assert rough.gap <= 0.5


@pytest.mark.parametrize("after", [0, 1])
def test_an_interrupt_between_programs_keeps_what_there_is(after: int) -> None:
    """Ctrl-C ends the search with the incumbent and a bound that holds."""
    problem = driven_problem()
    best = exact(problem).value_ps
    calls = []

    def progress(done: int, cells: int, value_ps: int | None) -> None:
        calls.append((done, cells, value_ps))
        if len(calls) > after:
            raise KeyboardInterrupt

    found = exact(problem, progress=progress)
    assert found.limit == "interrupt"
    assert found.status == ("feasible" if found.placement else "no-solution")
    assert found.bound_ps is not None
    assert best is not None
    assert found.bound_ps <= best


def test_impossible_limits_are_refused() -> None:
    """A gap of 1 or more, and a negative time limit, are errors that name the field."""
    with pytest.raises(SolverError, match="gap: found 1"):
        exact(driven_problem(), gap=1)
    with pytest.raises(SolverError, match="time_limit_s: found -1"):
        exact(driven_problem(), time_limit_s=-1)


def test_coefficients_too_far_apart_are_refused() -> None:
    """A layer of 1 ps beside one of 1e12 ps is beyond the solver, and the message says so."""
    data = golden_data()
    profiles = data["model"]["layer_types"]["first"]["profiles"][0]
    profiles["forward_s"] = 2000
    with pytest.raises(ModelError, match=r"coefficients of the integer program: found \d+ to"):
        exact(build_problem(Problem, data, "wide"))


def test_the_artifact_model_is_refused() -> None:
    """The program has the default cost model; another one is an error with a remedy."""
    data = golden_data("nest")
    data["job"]["cost_model"] = "artifact"
    try:
        problem = build_problem(Problem, data, "artifact")
    except InstanceError:
        pytest.skip("the golden problem is no artifact problem")
    with pytest.raises(ModelError, match="cost_model"):
        exact(problem)


@pytest.mark.parametrize(("seed", "status"), [(501, "no-solution"), (519, "feasible")])
def test_a_node_limit_leaves_a_bound_that_holds(seed: int, status: str) -> None:
    """Programs that a node limit ends leave a bound at most the optimum, and the limit is told."""
    problem = whole_number_problem(seed)
    best = exact(problem)
    found = exact(problem, node_limit=0)
    assert best.value_ps is not None
    assert found.bound_ps is not None
    assert found.bound_ps <= best.value_ps
    assert (found.status, found.limit) == (status, "nodes")


def test_an_interrupt_before_any_bound_claims_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while cells are bounded leaves the bound 0, which always holds."""

    def interrupted(_: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("nest_opt.milp.driver.bound_ps", interrupted)
    found = exact(driven_problem())
    assert (found.status, found.limit, found.bound_ps) == ("no-solution", "interrupt", 0)


def test_a_constraint_without_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A constraint that the program cannot state is an error: without it, it would be another."""
    problem = build_problem(Problem, golden_data(constraint="colocation"), "colocated")
    monkeypatch.delitem(CONSTRAINT_FAMILIES, "colocation")
    with pytest.raises(ModelError, match=r"constraints\[0\]: found 'colocation'"):
        exact(problem)


def test_nothing_to_export_is_an_error() -> None:
    """Where no cell can fit the memory there is no program to write."""
    problem = build_problem(Problem, lone_data(None, 100), "tiny memory")
    with pytest.raises(ModelError, match="no cell to export"):
        first_cell(Costs(problem))


def test_a_file_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    """A folder that does not exist is named."""
    costs, _ = golden_coefficients()
    with pytest.raises(ModelError, match="missing"):
        export(costs, CELL, tmp_path / "missing" / "cell.lp", "lp")
