"""`nest-opt improve`: what to change first, on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write

from nest_opt import improve
from nest_opt.cli.progress import SearchProgress
from nest_opt.cli.units import bytes_text, seconds_text
from nest_opt.plan.files import read_plan
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
PROBLEM = ROOT / "instances" / "paper" / "bert-large-dgx-h100-64.json"
STATED = "tp=8,sp=on,dp=2,pp=4,b=1,recompute=full"
VALUES = {"tp": 8, "sp": True, "dp": 2, "pp": 4, "microbatch": 1, "recompute": "full"}
NAMED = ("--model", "bert-large", "--cluster", "dgx-h100", "--devices", 64, "--global-batch", 4096)


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    """Return a plan file of some degrees, with the whole problem's search space."""
    path = tmp_path / "plan.json"
    run("solve", PROBLEM, "--fix", "tp=4", "--fix", "pp=2", "--fix", "recompute=none", "-o", path)
    data = json.loads(path.read_text())
    data["problem"]["search"] = json.loads(PROBLEM.read_text())["search"]
    return write(path, data)


def without_seconds(data: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON object without the seconds that searches took."""
    kept = {name: value for name, value in data.items() if name != "wall_s"}
    kept["optimum"] = {name: v for name, v in data["optimum"].items() if name != "search"}
    return kept


def test_json_has_what_python_returns() -> None:
    """Values, moves, gains, terms and plans are those of `nest_opt.improve`."""
    data = run_json("improve", PROBLEM, "--from", STATED)
    found = improve(read_problem(PROBLEM), VALUES)
    assert data["status"] == "complete"
    assert int(data["given"]["value_ps"]) == found.before_ps
    assert data["given"]["legal"]
    assert len(data["changes"]) == len(found.changes)
    assert len(data["path"]) == len(found.path) > 0
    for told, each in zip(
        (*data["changes"], *data["path"]), (*found.changes, *found.path), strict=True
    ):
        assert told["released"] == list(each.released)
        assert [move["dimension"] for move in told["moves"]] == [m.dimension for m in each.moves]
        assert int(told["value_ps"]) == each.value_ps
        assert int(told["gain_ps"]) == each.gain_ps
        assert told["gain"] == each.gain
        assert sum(map(int, told["terms_ps"].values())) == each.value_ps
        assert sum(map(int, told["term_changes_ps"].values())) == -each.gain_ps
        assert told["gap_closed"] == found.closed(each)
        assert each.plan is not None
        assert told["free_bytes"] == each.plan.free_bytes
        assert told["plan"]["tp"] == told["degrees"]["tp"] == each.plan.plan.tp
    assert data["path"][-1]["gap_closed"] == 1
    assert data["optimum"]["status"] == "optimal"
    assert data["rest"] is None


def test_the_report_has_every_step() -> None:
    """Each step's value, what it saves and its free memory are in the text, and the optimum."""
    text = run("improve", PROBLEM, "--from", STATED, width=240)
    found = improve(read_problem(PROBLEM), VALUES)
    assert text.exit_code == 0
    assert found.before_ps is not None
    assert text.stdout.startswith(f"given: {seconds_text(found.before_ps)} per batch")
    lines = text.stdout.splitlines()
    steps = [line for line in lines if line.lstrip().startswith(("first ", "then "))]
    # Once with what changes, once with the terms of the batch time.
    assert len(steps) == 2 * len(found.path)
    for line, each in zip(steps, found.path, strict=False):
        assert each.value_ps is not None
        assert each.plan is not None
        assert seconds_text(each.value_ps) in line
        assert bytes_text(each.plan.free_bytes) in line
        assert all(str(move) in line for move in each.moves)
    assert found.optimum is not None
    assert found.optimum.evaluation is not None
    (last,) = (line for line in lines if line.startswith("optimum"))
    assert seconds_text(found.optimum.evaluation.value_ps) in last


def test_a_plan_is_taken_as_it_is(plan_path: Path) -> None:
    """The value given is that of `verify`, and every dimension of the plan is held."""
    data = run_json("improve", plan_path)
    verified = run_json("verify", plan_path)
    assert data["given"]["value_ps"] == verified["objective"]["value_ps"]
    held = data["given"]["held"]
    for name in ("microbatch", "tp", "cp", "ep", "sp", "dp", "zero", "pp", "order"):
        assert held[name] == verified["degrees"][name]
    assert sum(len(stage["layers"]) for stage in verified["stages"]) == held["boundaries"][-1]
    assert improve(read_plan(plan_path)).before_ps == int(data["given"]["value_ps"])


def test_a_problem_may_be_named() -> None:
    """Names of a model and a cluster stand for the file of the problem that they derive."""
    data = run_json("improve", *NAMED, "--from", STATED)
    text = run("improve", *NAMED, "--from", STATED)
    assert data["status"] == "complete"
    assert data["path"]
    assert "dgx-h100: 64 x h100" in text.stdout


def test_stated_degrees_of_a_named_problem_have_profiles() -> None:
    """A microbatch and a cp that nobody asked for otherwise are derived besides the others."""
    data = run_json("improve", *NAMED, "--from", "b=16,cp=2,tp=1,pp=1,dp=32")
    assert data["given"]["held"] == {"microbatch": 16, "cp": 2, "tp": 1, "pp": 1, "dp": 32}
    released = {tuple(each["released"]): each for each in data["changes"]}
    assert released["microbatch",]["degrees"]["microbatch"] in (1, 2, 4, 8, 16)
    assert ("cp", "dp") in released


def test_fixes_and_the_runtime_narrow_the_changes(plan_path: Path) -> None:
    """No change leaves the values of --fix, or what the runtime launches."""
    data = run_json("improve", PROBLEM, "--from", STATED, "--fix", "tp=4,8")
    plans = [each["degrees"] for each in (*data["changes"], *data["path"]) if each["degrees"]]
    assert {each["tp"] for each in plans} == {4, 8}
    assert data["optimum"]["degrees"]["tp"] in (4, 8)
    # With gaps between replicas a plan is none that Megatron-LM launches.
    narrow = run_json("improve", plan_path, "--runtime", "megatron")
    assert all(each["released"] != ["pitch"] for each in narrow["changes"])
    assert narrow["given"]["held"]["pitch"] == "tight"


def test_a_configuration_that_fits_nowhere_has_a_diagnosis() -> None:
    """The report names stage, term and bytes, and the first step makes it fit."""
    problem = ROOT / "instances" / "paper" / "llama-3-70b-dgx-h100-64.json"
    stated = "tp=8,sp=on,dp=8,pp=1,b=1"
    data = run_json("improve", problem, "--from", stated)
    diagnosis = data["given"]["diagnosis"]
    assert not data["given"]["legal"]
    assert diagnosis["needed_bytes"] == sum(diagnosis["memory_terms_bytes"].values())
    assert diagnosis["needed_bytes"] > diagnosis["usable_bytes"]
    assert data["path"][0]["gain_ps"] is None
    assert data["path"][0]["term_changes_ps"] is None
    text = run("improve", problem, "--from", stated, width=200)
    assert text.exit_code == 0
    assert text.stdout.startswith("infeasible: stage 0 of 1 needs ")
    assert "its largest memory term is states" in text.stdout
    assert "no plan    " in text.stdout


def test_a_problem_without_a_plan_exits_with_1() -> None:
    """Where nothing fits there is nothing to change to."""
    problem = ROOT / "instances" / "tiny" / "infeasible-layer.json"
    result = run("improve", problem, "--from", "pp=1")
    assert result.exit_code == 1
    assert "no plan of the search space fits" in result.stdout
    assert run_json("improve", problem, "--from", "pp=1")["status"] == "infeasible"


def test_where_two_changes_are_too_few_the_optimum_is_told() -> None:
    """Without a step there is no way to show, but what differs from the optimum."""
    problem = ROOT / "instances" / "paper" / "gpt-3-175b-dgx-h100-64.json"
    stated = "tp=1,sp=off,dp=64,pp=1,b=8,recompute=none"
    data = run_json("improve", problem, "--from", stated)
    text = run("improve", problem, "--from", stated, width=200)
    assert (data["path"], data["rest"]["gain_ps"]) == ([], None)
    assert {move["dimension"] for move in data["rest"]["moves"]} >= {"tp", "dp", "pp"}
    assert "no two changes make it fit; the optimum differs in " in text.stdout
    assert "one change" not in text.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((PROBLEM,), "--from: found a problem without a configuration"),
        (NAMED, "--from: found a problem without a configuration"),
        ((PROBLEM, "--from", "tp=3"), "found tp 3, which the search space does not have"),
        ((PROBLEM, "--from", "sp=maybe"), "--from sp: found 'maybe', legal values are true, false"),
        ((PROBLEM, "--from", "depth=3"), "--from: found key 'depth'"),
        ((PROBLEM, "--from", "b=1,microbatch=2"), "--from: found microbatch 2 times"),
        ((PROBLEM, "--from", "tp=8,4"), "--from: found '4' without a '='"),
        ((PROBLEM, "--from", "tp=8", "--fix", "tp=1"), "found tp 8, which the search space"),
        ((), "Missing argument 'PROBLEM'"),
        ((ROOT / "nowhere.json",), "cannot be read"),
    ],
)
def test_wrong_input_is_told(arguments: tuple[object, ...], words: str) -> None:
    """A message that names item, found, allowed and remedy, and exit code 2, in JSON too."""
    result = run("improve", *arguments)
    assert result.exit_code == 2
    assert words in result.stderr
    assert run_json("improve", *arguments)["status"] == "error"


def test_a_plan_beside_a_configuration_is_refused(plan_path: Path) -> None:
    """--from is about a problem."""
    result = run("improve", plan_path, "--from", "tp=8")
    assert result.exit_code == 2
    assert "found a plan" in result.stderr


def test_an_interrupt_prints_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C among the changes keeps the value, the optimum and the changes so far."""
    whole = run_json("improve", PROBLEM, "--from", STATED)

    def interrupt(_: SearchProgress, done: int, total: int, best_ps: int | None) -> None:
        if total == len(whole["changes"]) and done == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(SearchProgress, "__call__", interrupt)
    data = run_json("improve", PROBLEM, "--from", STATED)
    text = run("improve", PROBLEM, "--from", STATED)
    assert data["status"] == "interrupted"
    assert data["given"] == whole["given"]
    assert len(data["changes"]) == 2
    assert all(each in whole["changes"] for each in data["changes"])
    assert data["optimum"]["objective"] == whole["optimum"]["objective"]
    assert text.exit_code == 0
    assert "interrupted: there may be better changes" in text.stdout


def test_an_interrupt_before_the_value_exits_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C while the problem is read leaves nothing to show."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nest_opt.problem.files.read_problem", stop)
    text = run("improve", PROBLEM, "--from", STATED)
    assert (text.exit_code, text.stdout) == (1, "interrupted: the configuration has no value yet\n")
    assert run_json("improve", PROBLEM, "--from", STATED)["status"] == "interrupted"


def test_the_same_question_has_the_same_answer() -> None:
    """Two runs differ in nothing but their seconds."""
    first, second = (run_json("improve", PROBLEM, "--from", STATED) for _ in range(2))
    assert without_seconds(first) == without_seconds(second)
