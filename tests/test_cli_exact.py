"""The exact search from Python and from the command line, and what it exports."""

import json
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from cli_running import run, run_json, write
from random_instances import random_problem
from test_cli import RUN_MAIN, start

from nest_opt import InstanceError, exact, solve, verify
from nest_opt.api import Family, outside_family
from nest_opt.cli.fix import fix
from nest_opt.cli.progress import SearchProgress
from nest_opt.conflicts import Conflict
from nest_opt.errors import ConsistencyError
from nest_opt.milp import exact as programs
from nest_opt.milp.cells import aligned_cells
from nest_opt.milp.export import export
from nest_opt.milp.result import ExactSearch, ProgramProgress
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.files import read_plan
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
TINY = sorted((ROOT / "instances" / "tiny").glob("*.json"))
# Its closed-form bounds do not settle it: programs run.
HOPS = ROOT / "instances" / "tiny" / "hop-latency-limit.json"
INFEASIBLE = ROOT / "instances" / "tiny" / "infeasible-layer.json"


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_every_tiny_instance_is_confirmed(path: Path) -> None:
    """The exact search proves what `solve` claims: the value, or that there is none."""
    solved, result = solve(read_problem(path)), exact(read_problem(path))
    assert result.status == solved.status
    assert result.bound_ps == solved.bound_ps
    assert (result.plan is None) == (solved.plan is None)
    if result.plan and result.evaluation:
        assert result.gap == 0
        assert evaluate(Costs(result.problem), result.plan.placement()) == result.evaluation


def test_the_solver_vouches_where_it_took_part() -> None:
    """`solver` stands exactly where programs were run; others name the closed form."""
    vouchers = set()
    for path in TINY:
        result = exact(read_problem(path))
        vouchers.add(result.bound_vouched_by)
        assert (result.bound_vouched_by == "solver") == (result.cells_solved > 0)
    assert vouchers == {"solver", "closed form"}


@pytest.mark.parametrize("claim", ["too-high", "none"])
def test_a_disagreement_is_a_defect(claim: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan below the dynamic program's bound, or where it says there is none, exits with 3."""
    problem = read_problem(HOPS)
    true = solve(problem)
    narrow = solve(fix(problem, {"dp": (1,)}))
    assert true.bound_ps is not None
    assert narrow.bound_ps is not None
    assert narrow.bound_ps > true.bound_ps
    wrong = replace(narrow, problem=problem)
    if claim == "none":
        none = replace(wrong, status="infeasible", plan=None, evaluation=None, bound_ps=None)
        wrong = replace(none, conflict=Conflict((), ()))
    monkeypatch.setattr("nest_opt.verbs.pipeline.exact.solve_pipeline", lambda *_: wrong)
    with pytest.raises(ConsistencyError, match="the dynamic program says that none"):
        exact(problem)
    assert run("exact", HOPS).exit_code == 3


def test_json_is_the_contract_of_solve() -> None:
    """The fields of `solve` keep names and values; who vouches for the bound is added."""
    solved, found = run_json("solve", HOPS), run_json("exact", HOPS)
    assert set(found) - set(solved) == {"bound_vouched_by", "exact_units", "dynamic_program"}
    assert found["bound_vouched_by"] == "solver"
    for name in set(solved) - {"search", "plan"}:
        assert found[name] == solved[name], name
    assert found["dynamic_program"]["value_ps"] == solved["objective"]["value_ps"]
    search = found["search"]
    assert search["cells"] == search["cells_pruned"] + search["cells_solved"]
    assert search["cells_solved"] > 0


def test_the_plan_is_written_and_fix_narrows(tmp_path: Path) -> None:
    """`-o` writes a legal plan of the printed value; `--fix` narrows as in `solve`."""
    path = tmp_path / "plan.json"
    found = run_json("exact", HOPS, "--fix", "dp=1", "-o", path)
    assert read_plan(path).dp == 1
    assert run_json("verify", path)["objective"] == found["objective"]
    assert found["objective"] == run_json("solve", HOPS, "--fix", "dp=1")["objective"]


def test_an_infeasible_problem_has_its_diagnosis() -> None:
    """Without a plan the exit code is 1, and the report is the one of `solve`."""
    found = run("exact", INFEASIBLE)
    assert found.exit_code == 1
    assert found.stdout.splitlines()[0] == run("solve", INFEASIBLE).stdout.splitlines()[0]
    data = run_json("exact", INFEASIBLE)
    assert data["status"] == "infeasible"
    assert data["diagnosis"] == run_json("solve", INFEASIBLE)["diagnosis"]


def test_no_time_leaves_incumbent_and_bound() -> None:
    """With no time left the plan of `solve` stands, with a bound below it and open cells."""
    data = run_json("exact", HOPS, "--time-limit", "0")
    assert data["status"] == "feasible"
    assert data["bound_vouched_by"] == "closed form"
    assert 0 < int(data["bound_ps"]) < int(data["objective"]["value_ps"])
    assert 0 < data["gap"] < 1
    assert data["search"]["cells_pruned"] < data["search"]["cells"]
    assert run("exact", HOPS, "--time-limit", "0").exit_code == 0


def test_a_gap_ends_the_search_early() -> None:
    """A plan within the gap asked for is optimal by that measure, without a program."""
    wide = run_json("exact", HOPS, "--gap", "0.9")
    assert wide["status"] == "optimal"
    assert wide["search"]["cells_solved"] == 0
    assert 0 < wide["gap"] <= 0.9


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--family", "loose"], "'loose'"),
        (["--gap", "1"], "gap: found 1"),
        (["--gap", "x"], "a number such as 1.25 is needed"),
        (["--time-limit", "-1"], "a number such as 1.25 is needed"),
        (["--fix", "dp=7"], "search.dp: found [7]"),
    ],
)
def test_exact_refuses(arguments: list[str], message: str) -> None:
    """Wrong options exit with 2 and say what is needed."""
    result = run("exact", HOPS, *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_the_artifact_cost_model_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The artifact's costs have no programs: exit code 2, before any search."""
    monkeypatch.setattr(Costs, "is_artifact", True)
    monkeypatch.setattr(
        "nest_opt.verbs.pipeline.exact.solve_pipeline", lambda *_: pytest.fail("searched")
    )
    result = run("exact", HOPS)
    assert result.exit_code == 2
    assert "job.cost_model: found 'artifact'" in result.stderr


@pytest.mark.parametrize("turn", ["dynamic program", "programs"])
def test_interruption_keeps_incumbent_and_bound(turn: str) -> None:
    """SIGINT ends either search with a plan, a bound and exit code 0, without a traceback."""
    # The exact search counts cells; the dynamic program's last group ends before it.
    when = "total != 10" if turn == "dynamic program" else "total == 10"
    program = (
        "import os, signal\n"
        "from nest_opt.cli.progress import SearchProgress\n"
        "def call(self, done, total, best_ps):\n"
        f"    if best_ps is not None and {when}:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "SearchProgress.__call__ = call\n" + RUN_MAIN
    )
    process = start("-c", program, "exact", HOPS, "--json")
    output, errors = process.communicate()
    data = json.loads(output)
    assert (process.returncode, errors) == (0, "")
    assert data["status"] == "interrupted"
    assert data["plan"] is not None
    assert int(data["bound_ps"]) <= int(data["objective"]["value_ps"])
    vouchers = {"dynamic program": "dynamic program", "programs": "dynamic program"}
    assert data["bound_vouched_by"] == vouchers[turn]


def test_interruption_before_any_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted at the start, it says so and exits with 1."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SearchProgress, "__call__", stop)
    assert run("exact", HOPS).stdout.startswith("interrupted: no plan yet")
    monkeypatch.setattr("nest_opt.problem.files.read_problem", stop)
    result = run("exact", HOPS, "--family", "free", "--json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert (data["status"], data["bound_vouched_by"]) == ("interrupted", None)
    assert data["family"] == "free"


def test_interruption_between_the_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted before the programs' turn, the dynamic program's plan and bound stand."""

    def stop(*_: object, **__: object) -> ExactSearch:
        raise KeyboardInterrupt

    monkeypatch.setattr("nest_opt.milp.exact.exact", stop)
    result = exact(read_problem(HOPS))
    assert result.status == "interrupted"
    assert result.plan == result.start.plan
    assert (result.bound_ps, result.bound_vouched_by) == (result.start.bound_ps, "dynamic program")


def test_a_running_program_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """While programs run, the bound told is never above the optimum, the value never below."""
    monkeypatch.setattr("nest_opt.solver.highs.REPORT_S", 0.0)
    told = 0
    for seed in range(25):
        seen: list[ProgramProgress] = []
        try:
            best = programs.exact(random_problem(seed), watch=seen.append).value_ps
        except InstanceError:
            continue
        told += len(seen)
        for each in seen:
            assert best is None or each.bound_ps <= best
            # As the solver has it, with its tolerance.
            assert each.value_ps is None or best is None or each.value_ps >= best * (1 - 1e-6)
    assert told >= 10


def test_cells_that_are_bounded_are_counted() -> None:
    """Progress counts the cells while they are bounded, then those settled, of the same number."""
    seen: list[tuple[int, int]] = []
    found = programs.exact(
        read_problem(HOPS), progress=lambda done, cells, _: seen.append((done, cells))
    )
    assert {cells for _, cells in seen} == {found.cells}
    done = [done for done, _ in seen]
    assert done[: found.cells] == list(range(found.cells))
    settled = done[found.cells :]
    assert len(settled) == found.cells_solved
    assert settled == sorted(settled)


# Problems that are derived

DERIVED = (
    *("--model", "bert-large", "--cluster", "dgx-h100", "--devices", "4"),
    *("--global-batch", "8", "--seq-len", "512", "--microbatch", "1"),
)


def test_a_derived_problem_is_that_of_new(tmp_path: Path) -> None:
    """`exact` and `export` take the options of `new` in place of its file, with equal results."""
    path = tmp_path / "problem.json"
    run("new", *DERIVED, "-o", path)
    fixed = ("--fix", "pp=1", "--fix", "tp=1,2")
    found, expected = run_json("exact", *DERIVED, *fixed), run_json("exact", path, *fixed)
    assert found["derived_from"]["model"]["name"] == "bert-large"
    assert "derived_from" not in expected
    assert (found["status"], found["bound_ps"]) == ("optimal", expected["bound_ps"])
    assert found["plan"] == expected["plan"]
    assert "bert-large (bert): 24 blocks" in run("exact", *DERIVED, *fixed).stdout
    for source, name in ((DERIVED, "derived.lp"), ((path,), "file.lp")):
        run("export", "lp", *source, "-o", tmp_path / name, "--cell", "pp=2")
    assert (tmp_path / "derived.lp").read_text() == (tmp_path / "file.lp").read_text()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((HOPS, *DERIVED), "found a problem file and --model"),
        ((), "Missing argument 'PROBLEM'"),
        (DERIVED[:4], "--devices: found nothing, a number of devices is needed"),
        ((*DERIVED, "--smallest"), "No such option '--smallest'"),
    ],
)
@pytest.mark.parametrize("command", [("exact",), ("export", "lp", "-o", "never-written.lp")])
def test_sources_that_are_refused(
    command: tuple[str, ...], arguments: tuple[object, ...], told: str
) -> None:
    """File and options together, or neither, are refused, as are missing and unknown options."""
    result = run(*command, *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


# The free family

SHARING = ROOT / "instances" / "small" / "replicas-share-a-node.json"


def test_the_free_family_from_the_command_line(tmp_path: Path) -> None:
    """`--family free` finds the better plan, lists its devices, and the file verifies."""
    path = tmp_path / "plan.json"
    aligned, free = run_json("exact", SHARING), run_json("exact", SHARING, "--family", "free")
    assert (aligned["family"], free["family"]) == ("aligned", "free")
    assert int(free["objective"]["value_ps"]) < int(aligned["objective"]["value_ps"])
    assert free["status"] == "optimal"
    assert free["dynamic_program"]["value_ps"] == aligned["objective"]["value_ps"]
    assert run("exact", SHARING, "--family", "free", "-o", path).exit_code == 0
    assert read_plan(path).order == "listed"
    found = run_json("verify", path, "--exact")
    assert found["objective"] == free["objective"]
    assert found["exact"]["plan_gap"] < 0 == found["exact_free"]["plan_gap"]
    text = run("verify", path, "--exact").stdout
    assert "faster than every plan of the aligned family" in text
    assert "no plan of the free family is faster" in text


def test_verify_leaves_the_free_family_out_where_it_is_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On more devices than are worth trying the text says so, and the JSON has null."""
    path = tmp_path / "plan.json"
    run("solve", HOPS, "-o", path)
    assert run_json("verify", path, "--exact")["exact_free"]["status"] == "optimal"
    # The package's attribute of that name is the command.
    monkeypatch.setattr(import_module("nest_opt.cli.verify_command"), "FREE_DEVICES", 3)
    assert run_json("verify", path, "--exact")["exact_free"] is None
    assert "not searched: 4 devices are more than 3" in run("verify", path, "--exact").stdout


def test_verify_leaves_the_free_family_out_where_its_programs_do_not_know_it(
    tmp_path: Path,
) -> None:
    """With chunks in the search space the aligned optimum comes alone, with why; z is no reason."""
    path = tmp_path / "plan.json"
    run("solve", HOPS, "--fix", "zero=0,1", "-o", path)
    assert run_json("verify", path, "--exact")["exact_free"]["status"] == "optimal"
    told = import_module("nest_opt.cli.verify_command").free_is_skipped
    problem = read_problem(HOPS)
    assert told(problem) is None
    assert told(fix(problem, {"schedule": ("gpipe", "zb-h1")})) is None
    interleaved = fix(problem, {"schedule": ("1f1b", "interleaved")})
    assert told(interleaved) == "not searched: its programs know one chunk a stage alone"


def test_a_bound_above_a_known_plan_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the free family, a bound above the dynamic program's plan is refused."""
    from nest_opt.milp import exact as programs

    real = programs.exact

    def wrong(*arguments: object, **names: object) -> ExactSearch:
        found = real(*arguments, **names)  # type: ignore[arg-type]
        return replace(found, bound_ps=10**15)

    monkeypatch.setattr("nest_opt.milp.exact.exact", wrong)
    with pytest.raises(ConsistencyError, match="claims a bound of"):
        exact(read_problem(HOPS), family="free")


def test_interrupted_before_the_programs_the_free_bound_is_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The dynamic program's bound is one of the aligned family, so the free one's is 0."""

    def stop(*_: object, **__: object) -> ExactSearch:
        raise KeyboardInterrupt

    monkeypatch.setattr("nest_opt.milp.exact.exact", stop)
    result = exact(read_problem(HOPS), family="free")
    assert (result.family, result.status, result.bound_ps) == ("free", "interrupted", 0)
    assert result.plan == result.start.plan


def test_the_free_program_is_exported_with_its_devices(tmp_path: Path) -> None:
    """`--family free` writes counts of ranks in groups, which the aligned program has not."""
    for family in ("aligned", "free"):
        about = run_json("export", "lp", SHARING, "-o", tmp_path / family, "--family", family)
        assert (about["cell"]["pitch"] is None) == (family == "free")
    assert " n(" in (tmp_path / "free").read_text()
    assert " n(" not in (tmp_path / "aligned").read_text()


# verify --exact


def test_verify_exact_gives_the_gap_of_the_plan(tmp_path: Path) -> None:
    """A worse plan's gap is its distance from the optimum of the problem that it carries."""
    path = tmp_path / "plan.json"
    run("solve", HOPS, "--fix", "dp=1", "-o", path)
    data = json.loads(path.read_text())
    data["problem"] = json.loads(HOPS.read_text())
    write(path, data)
    found = run_json("verify", path, "--exact")
    value, best = int(found["objective"]["value_ps"]), solve(read_problem(HOPS)).bound_ps
    assert best is not None
    assert best < value
    about = found["exact"]
    assert about["status"] == "optimal"
    assert about["bound_vouched_by"] == "solver"
    assert int(about["value_ps"]) == int(about["bound_ps"]) == best
    assert int(about["dynamic_program"]["value_ps"]) == best
    assert about["plan_gap"] == pytest.approx((value - best) / value, rel=1e-12)
    text = run("verify", path, "--exact").stdout
    assert "of its time could be saved within the aligned family" in text
    limited = run_json("verify", path, "--exact", "--time-limit", "0")["exact"]
    assert limited["status"] == "feasible"
    assert int(limited["bound_ps"]) < best
    assert limited["plan_gap"] > about["plan_gap"]


def test_a_plan_outside_the_family_may_be_faster(tmp_path: Path) -> None:
    """A plan below the bound has a negative gap; what puts it outside the family is said."""
    path = tmp_path / "plan.json"
    run("solve", HOPS, "-o", path)
    data = json.loads(path.read_text())
    data["problem"]["search"] = {"order": ["dp-inner"]}
    write(path, data)
    about = run_json("verify", path, "--exact")
    value, bound = int(about["objective"]["value_ps"]), int(about["exact"]["bound_ps"])
    assert about["exact"]["outside"] == "order pp-inner, pitch 2"
    assert about["exact"]["plan_gap"] == pytest.approx((value - bound) / value, rel=1e-12)
    assert about["exact"]["plan_gap"] < 0
    text = run("verify", path, "--exact").stdout
    assert "faster than every plan of the aligned family" in text
    assert "aligned, and the plan is outside it: order pp-inner, pitch 2" in text
    assert "free, and the plan is a member" in text


def test_a_member_below_the_bound_is_a_defect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of the family that is better than its bound is told of as one, with exit code 3."""
    path = tmp_path / "plan.json"
    run("solve", HOPS, "-o", path)
    optimum = exact(read_problem(HOPS))
    assert optimum.bound_ps is not None
    assert outside_family(verify(read_plan(path)), optimum) is None
    wrong = replace(optimum, bound_ps=optimum.bound_ps + 1)
    monkeypatch.setattr("nest_opt.api.exact_pipeline", lambda *_, **__: wrong)
    result = run("verify", path, "--exact")
    assert result.exit_code == 3
    assert f"none is below {optimum.bound_ps + 1} ps" in result.stderr


def test_verify_exact_of_an_illegal_plan(tmp_path: Path) -> None:
    """An illegal plan has no gap: null, said in the text, and the exit code stays 1."""
    path = tmp_path / "plan.json"
    run("solve", HOPS, "-o", path)
    data = json.loads(path.read_text())
    data["objective"]["value_ps"] = "1"
    write(path, data)
    assert run_json("verify", path, "--exact")["exact"] is None
    result = run("verify", path, "--exact")
    assert result.exit_code == 1
    assert "not searched: the plan is not legal" in result.stdout


def test_verify_needs_exact_for_a_time_limit(tmp_path: Path) -> None:
    """`--time-limit` without `--exact` is refused."""
    result = run("verify", tmp_path / "plan.json", "--time-limit", "1")
    assert result.exit_code == 2
    assert "add --exact" in result.stderr


# export


@pytest.mark.parametrize("file_format", ["lp", "mps"])
def test_export_writes_the_cell_that_it_names(file_format: str, tmp_path: Path) -> None:
    """The file is the program of the one cell with the degrees asked for, and says which."""
    path = tmp_path / "program"
    asked = "dp=1,pp=2,order=pp-inner,pitch=tight"
    data = run_json("export", file_format, HOPS, "-o", path, "--cell", asked)
    assert (data["cell"]["dp"], data["cell"]["pp"]) == (1, 2)
    costs = Costs(read_problem(HOPS))
    cells = [
        cell
        for cell in aligned_cells(costs)
        if (cell.device_map.replicas, cell.device_map.stages) == (1, 2)
        and (cell.device_map.order, cell.device_map.pitch) == ("pp-inner", data["cell"]["pitch"])
    ]
    assert len(cells) == 1
    other = tmp_path / f"expected.{file_format}"
    export(costs, cells[0], other, "lp" if file_format == "lp" else "mps")
    assert path.read_text() == other.read_text()
    assert data["name"] in path.read_text()
    assert data["rows"] > 0


@pytest.mark.parametrize(("schedule", "chunks"), [("gpipe", 1), ("zb-h1", 1), ("interleaved", 2)])
def test_export_writes_the_cell_of_a_schedule(schedule: str, chunks: int, tmp_path: Path) -> None:
    """`--cell` names a schedule like any degree; program, JSON and text say which it is."""
    path = tmp_path / "program.lp"
    asked = f"pp=2,schedule={schedule},chunks=2"
    data = run_json("export", "lp", HOPS, "-o", path, "--cell", asked)
    assert (data["cell"]["schedule"], data["cell"]["chunks"]) == (schedule, chunks)
    assert f"_{schedule}" in data["name"]
    assert data["name"] in path.read_text()
    result = run("export", "lp", HOPS, "-o", path, "--cell", asked, width=200)
    assert f", schedule {schedule}" in result.stdout


def test_export_without_a_cell_takes_the_first(tmp_path: Path) -> None:
    """Without `--cell` it is the cell that a search would solve first; the text names it."""
    path = tmp_path / "program.lp"
    result = run("export", "lp", HOPS, "-o", path, width=200)
    assert result.exit_code == 0
    data = run_json("export", "lp", HOPS, "-o", path)
    assert result.stdout.startswith(f"wrote {path}: program {data['name']}")
    assert f"dp {data['cell']['dp']}, pp {data['cell']['pp']}" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lp", HOPS], "Missing option '-o'"),
        (["lp", HOPS, "-o", HOPS], "is the input file itself"),
        (["lp", HOPS, "-o", "x.lp", "--cell", "dp=1,2"], "--cell: found '2' without a '='"),
        (["lp", HOPS, "-o", "x.lp", "--cell", "dp=0"], "--cell dp: found '0'"),
        (["mps", INFEASIBLE, "-o", "x.mps"], "no cell to export"),
        (["nl", HOPS, "-o", "x.nl"], "one of these is needed: lp, mps"),
    ],
)
def test_export_refuses(
    arguments: list[object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong formats, paths and cells exit with 2, and no file is left."""
    monkeypatch.chdir(tmp_path)
    result = run("export", *arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("family", ["aligned", "free"])
def test_a_time_limit_cuts_the_bounds_of_cells(
    family: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Out of time before all cells have a bound, the plan of `solve` is kept, with its bound."""
    problem = read_problem(HOPS)
    whole = exact(problem)
    monkeypatch.setattr("nest_opt.milp.driver._BOUNDED_AT_LEAST", 1)
    found = exact(problem, time_limit_s=0, family=family)
    assert (found.status, found.evaluation) == ("feasible", whole.evaluation)
    assert found.cells <= 1
    if family == "aligned":
        assert (found.bound_ps, found.bound_vouched_by) == (whole.bound_ps, "dynamic program")
    else:
        assert (found.bound_ps, found.bound_vouched_by) == (0, "closed form")


def test_a_time_limit_cuts_the_dynamic_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of time in the dynamic program, its plan so far is kept, or that there is none yet."""
    monkeypatch.setattr("nest_opt.verbs.deadline.STEPS_AT_LEAST", 0)
    found = exact(read_problem(HOPS), time_limit_s=0)
    assert (found.status, found.plan, found.cells_solved) == ("no-solution", None, 0)
    monkeypatch.setattr("nest_opt.verbs.deadline.STEPS_AT_LEAST", 1)
    found = exact(read_problem(HOPS), time_limit_s=0)
    assert found.status == "feasible"
    assert found.evaluation is not None
    assert found.bound_ps is not None
    assert found.bound_ps <= found.evaluation.value_ps
