"""The command line: what it prints, what it refuses, and its exit codes."""

import json
import os
import random
import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from typing import Any

import click
import pytest
from cli_page import PAGE, lay_out, printed, samples
from cli_running import run, write
from rich.console import Console
from samples import layer_type, problem_data

from nest_opt import Problem, api
from nest_opt.cli import command_line
from nest_opt.cli.fix import DIMENSIONS
from nest_opt.cli.import_formats import FORMATS
from nest_opt.cli.output_files import write_text
from nest_opt.cli.picture import Block, device_blocks, fold_rows, series_text
from nest_opt.cli.progress import SearchProgress
from nest_opt.cli.units import (
    bytes_text,
    exact_bytes_text,
    exact_seconds_text,
    gap_text,
    number_text,
    seconds_text,
    time_text,
)
from nest_opt.cli.value import objective_terms, sequences_per_s
from nest_opt.errors import ConsistencyError, InstanceError, NestOptError, PlanError
from nest_opt.milp.result import ProgramProgress
from nest_opt.plan.files import read_plan
from nest_opt.plan.placement import DeviceMap
from nest_opt.problem.files import read_problem, to_json_text
from nest_opt.problem.validation import build

ROOT = Path(__file__).resolve().parent.parent
TINY = sorted((ROOT / "instances" / "tiny").glob("*.json"))
OBJECTIVES = ("fill-drain", "nest", "bottleneck")


def start(*arguments: object, **options: Any) -> "subprocess.Popen[str]":
    """Run the command line, or other Python, in a process of its own."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        text=True,
        stdout=options.pop("stdout", subprocess.PIPE),
        stderr=subprocess.PIPE,
        **options,
    )


RUN_MAIN = "from nest_opt.cli import main; main()"


@pytest.fixture
def problem_path(tmp_path: Path) -> Path:
    """Return the file of a problem whose search improves its first plan."""
    data = problem_data(layers=8, sizes=(4, 2), global_batch=16)
    types = {"block": layer_type(parameters=3 * 10**6, output_bytes=10**7)}
    data["model"]["layer_types"] = types
    return write(tmp_path / "problem.json", data)


@pytest.fixture
def plan_path(problem_path: Path) -> Path:
    """Return the file of that problem's best plan with two stages."""
    path = problem_path.with_name("plan.json")
    assert run("solve", problem_path, "--fix", "pp=2", "--fix", "dp=2", "-o", path).exit_code == 0
    return path


def altered(path: Path, change: dict[str, Any]) -> Path:
    """Return a copy of a plan file with fields replaced."""
    return write(path.with_name("altered.json"), {**json.loads(path.read_text()), **change})


# Units


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (time_text(0), "0 s"),
        (time_text(28 * 10**12), "28 s"),
        (time_text(1_234_567_890_123), "1.235 s"),
        (time_text(999_960_000_000), "1.000 s"),
        (time_text(62_330_000_000), "62.33 ms"),
        (time_text(6_444_444), "6.444 us"),
        (time_text(1_500), "1.500 ns"),
        (time_text(7), "7 ps"),
        (seconds_text(12_540_054_000_000), "12.5401 s"),
        (seconds_text(32_109_345_000_000_000), "32,109.3 s"),
        (seconds_text(12_000_000), "1.2e-05 s"),
        (exact_seconds_text(2_266_460_651_712), "2.266460651712 s"),
        (bytes_text(80 * 10**9), "80 GB"),
        (bytes_text(80 * 10**9 - 1), "80.00 GB"),
        (bytes_text(62_138_000_000), "62.14 GB"),
        (bytes_text(999), "999 B"),
        (bytes_text(0), "0 B"),
        (exact_bytes_text(1_500), "1.500 kB (1,500 bytes)"),
        (exact_bytes_text(17), "17 B"),
        (number_text(12345.6), "12,346"),
        (number_text(0.000123456), "0.0001235"),
        (gap_text(0.0), "0%"),
        (gap_text(1e-9), "1e-07%"),
        (gap_text(0.0312), "3.12%"),
    ],
)
def test_units(text: str, expected: str) -> None:
    """Numbers read as expected, whole multiples without decimals and never without a unit."""
    assert text == expected


# solve


def test_solve_prints_what_decides(problem_path: Path) -> None:
    """The report states status, value, objective, throughput, bound, gap, devices and stages."""
    result = run("solve", problem_path, "--fix", "pp=2", "--fix", "dp=2")
    found = api.solve(
        build(
            Problem,
            {**json.loads(problem_path.read_text()), "search": {"pp": [2], "dp": [2]}},
            "problem",
        )
    )
    assert found.evaluation is not None
    assert found.plan is not None
    value = seconds_text(found.evaluation.value_ps)
    rate = number_text(16 * 10**12 / found.evaluation.value_ps)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"optimal: {value} per batch (objective fill-drain), {rate} sequences/s"
    assert f"bound      {value}, gap 0%" in result.stdout
    assert "microbatch 1, tp 1, cp 1, ep 1, sp off, dp 2, pp 2" in result.stdout
    assert "4 of 8 used, 4 idle; 1 GB of memory usable on each" in result.stdout
    assert f"{found.cells} cells, {found.cells_pruned} pruned, " in result.stdout
    for stage in found.evaluation.stages:
        assert time_text(stage.time_ps) in result.stdout
        assert bytes_text(stage.memory_bytes) in result.stdout
    assert result.stderr == ""


def test_solve_json_is_the_contract(problem_path: Path) -> None:
    """The object has every promised field, and its picoseconds are decimal strings."""
    result = run("solve", problem_path, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["status"] == "optimal"
    assert data["family"] == "aligned"
    assert data["objective"]["name"] == "fill-drain"
    value = int(data["objective"]["value_ps"])
    assert data["objective"]["value_s"] == value / 10**12
    assert data["bound_ps"] == data["objective"]["value_ps"]
    assert data["bound_s"] == data["objective"]["value_s"]
    assert data["gap"] == 0
    assert data["throughput"]["sequences_per_s"] == pytest.approx(16 * 10**12 / value, rel=1e-15)
    assert data["plan"]["objective"]["value_ps"] == data["objective"]["value_ps"]
    assert data["search"]["cells"] >= data["search"]["cells_pruned"] > 0
    assert data["search"]["wall_s"] > 0


def test_solve_writes_the_plan_that_it_prints(problem_path: Path, tmp_path: Path) -> None:
    """The file of -o holds the object of `plan`, and verifies as legal."""
    path = tmp_path / "plan.json"
    data = json.loads(run("solve", problem_path, "--json", "-o", path).stdout)
    assert json.loads(path.read_text()) == data["plan"]
    assert run("verify", path).exit_code == 0


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_throughput_and_terms_of_every_objective(problem_path: Path, objective: str) -> None:
    """Terms add up to the value; throughput is G over it, or the steady rate of `bottleneck`."""
    data = {**json.loads(problem_path.read_text())}
    data["job"]["objective"] = objective
    data["search"] = {"pp": [3], "dp": [2]}
    found = api.solve(build(Problem, data, "problem"))
    plan, evaluation = found.plan, found.evaluation
    assert plan is not None
    assert evaluation is not None
    assert sum(objective_terms(evaluation).values()) == evaluation.value_ps
    sequences, time = 16, evaluation.value_ps
    if objective == "bottleneck":
        sequences, time = 2, max(stage.time_ps for stage in evaluation.stages)
    assert sequences_per_s(plan, evaluation) == pytest.approx(sequences * 10**12 / time, rel=1e-15)


@pytest.mark.parametrize(
    ("fixes", "search"),
    [
        (("dp=2", "pp=2,3"), {"dp": (2,), "pp": (2, 3)}),
        (("b=1", "tp=1", "cp=1", "ep=1"), {"microbatch": (1,), "tp": (1,), "cp": (1,), "ep": (1,)}),
        (("sp=false",), {"sp": (False,)}),
        (("recompute=full",), {"recompute": ("full",)}),
        (("order=dp-inner", "pitch=tight,spread"), {"order": ("dp-inner",)}),
    ],
)
def test_fix_narrows_the_search_space(
    problem_path: Path, fixes: tuple[str, ...], search: dict[str, Any]
) -> None:
    """Each --fix replaces one dimension, and the plan's own problem says so."""
    flags = [part for fix in fixes for part in ("--fix", fix)]
    result = run("solve", problem_path, *flags, "--json")
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)["plan"]
    problem = build(Problem, plan["problem"], "plan")
    for name, values in search.items():
        assert getattr(problem.search, name) == values
    assert plan["dp"] in (problem.search.dp or [plan["dp"]])
    assert len(plan["stages"]) in (problem.search.pp or [len(plan["stages"])])


def test_fix_leaves_other_dimensions_as_they_are(tmp_path: Path) -> None:
    """Dimensions of the file's search space that no --fix names stay in force."""
    search = {"recompute": ["full"], "dp": [2, 4], "pp": [1]}
    path = write(tmp_path / "problem.json", problem_data(search=search))
    plan = json.loads(run("solve", path, "--fix", "pp=2", "--json").stdout)["plan"]
    assert plan["problem"]["search"] == {"recompute": ["full"], "dp": [2, 4], "pp": [2]}
    assert [stage["recompute"] for stage in plan["stages"]] == ["full", "full"]


@pytest.mark.parametrize(
    ("fixes", "message"),
    [
        (["zz=1"], ", ".join(DIMENSIONS)),
        (["tp"], "without a '='"),
        (["tp=x"], "--fix tp: found 'x', legal values are whole numbers from 1"),
        (["tp=0"], "found '0', legal values are whole numbers from 1"),
        (["tp=9999999999999"], "legal values are whole numbers from 1"),
        (["tp=1,"], "found '', legal values"),
        (["recompute=some"], "legal values are none, selective, full"),
        (["order=pp-inner-reversed"], "legal values are pp-inner, dp-inner"),
        (["pitch=5"], "legal values are tight, level, spread"),
        (["sp=maybe"], "legal values are true, false"),
        (["dp=2", "dp=4"], "--fix: found dp 2 times, 1 is allowed"),
        (["dp=2,2"], "found the value 2 twice, once is allowed"),
        (["tp=2097152"], "tp[0]: found 2097152"),
        (["tp=2"], "has no profile"),
        (["dp=3"], "global_batch: found 16"),
    ],
)
def test_fix_refuses(problem_path: Path, fixes: list[str], message: str) -> None:
    """A wrong --fix exits with 2 and names what is legal."""
    result = run("solve", problem_path, *(part for fix in fixes for part in ("--fix", fix)))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert result.stdout == ""


def memory_starved(tmp_path: Path) -> Path:
    """Return a problem of 4 layers of 16 kB of states each on 2 devices of 20 kB."""
    return write(
        tmp_path / "starved.json", problem_data(layers=4, sizes=(2, 1), memory_bytes=20_000)
    )


def test_infeasible_names_stage_term_and_smallest_change(tmp_path: Path) -> None:
    """An infeasible problem exits with 1; its diagnosis agrees with sums done by hand."""
    path = memory_starved(tmp_path)
    result = run("solve", path, "--json", "-o", tmp_path / "plan.json")
    assert result.exit_code == 1
    data = json.loads(result.stdout)
    assert data["status"] == "infeasible"
    assert data["plan"] is None
    assert data["objective"] == {"name": "fill-drain", "value_s": None, "value_ps": None}
    assert data["bound_ps"] is None
    why = data["diagnosis"]
    assert why["reason"] == "memory"
    assert why["usable_bytes"] == 20_000
    halves = [["layer-0", "layer-1"], ["layer-2", "layer-3"]]
    assert why["layers"] == halves[why["stage"]]
    assert why["memory_terms_bytes"]["states"] == 2 * 16_000
    assert why["needed_bytes"] == sum(why["memory_terms_bytes"].values())
    assert why["smallest_change"]["memory_bytes"] == why["needed_bytes"]
    assert why["smallest_change"]["devices"] == 4
    assert not (tmp_path / "plan.json").exists()


def test_the_smallest_changes_suffice(tmp_path: Path) -> None:
    """With the memory, or the devices, that the diagnosis asks for, there is a plan."""
    why = json.loads(run("solve", memory_starved(tmp_path), "--json").stdout)["diagnosis"]
    memory, devices = (why["smallest_change"][name] for name in ("memory_bytes", "devices"))
    enough = write(
        tmp_path / "memory.json", problem_data(layers=4, sizes=(2, 1), memory_bytes=memory)
    )
    less = write(
        tmp_path / "less.json", problem_data(layers=4, sizes=(2, 1), memory_bytes=memory - 1)
    )
    more = write(
        tmp_path / "more.json", problem_data(layers=4, sizes=(devices, 1), memory_bytes=20_000)
    )
    assert [run("solve", path).exit_code for path in (enough, less, more)] == [0, 1, 0]


def test_infeasible_text_gives_bytes_and_remedies(tmp_path: Path) -> None:
    """The text names stage, term, sizes in bytes and in their unit, and both changes."""
    path = memory_starved(tmp_path)
    why = json.loads(run("solve", path, "--json").stdout)["diagnosis"]
    result = run("solve", path, width=200)
    needed, usable = exact_bytes_text(why["needed_bytes"]), exact_bytes_text(20_000)
    assert result.exit_code == 1
    assert (
        f"infeasible: stage {why['stage']} of 2 needs {needed} on each device, but {usable} are "
        "usable; its largest memory term is states, 32 kB (32,000 bytes)" in result.stdout
    )
    assert f"devices with {needed} of memory or more instead of 20 kB" in result.stdout
    assert "or 4 devices or more like these, in a larger network, instead of 2" in result.stdout


def test_conflicting_constraints_are_named_as_such(tmp_path: Path) -> None:
    """Where no memory would help, the diagnosis says constraints and has no stage."""
    path = write(
        tmp_path / "conflict.json",
        problem_data(
            search={"pp": [2]},
            constraints=[{"type": "colocation", "layers": ["layer-0", "layer-3"]}],
        ),
    )
    why = json.loads(run("solve", path, "--json").stdout)["diagnosis"]
    text = run("solve", path, width=200)
    assert why["reason"] == "constraints"
    assert why["stage"] is None
    assert why["memory_terms_bytes"] is None
    assert why["smallest_change"] == {"memory_bytes": None, "devices": None}
    assert text.exit_code == 1
    assert "whatever their memory; allow more degrees, or take a constraint away" in text.stdout


# Interruption and progress


def interrupt(_: SearchProgress, done: int, total: int, best_ps: int | None) -> None:
    if best_ps is not None:
        raise KeyboardInterrupt


def test_interruption_keeps_the_incumbent(
    problem_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interrupted search prints its legal incumbent with bound and gap, and exits with 0."""
    best = json.loads(run("solve", problem_path, "--json").stdout)
    monkeypatch.setattr(SearchProgress, "__call__", interrupt)
    path = tmp_path / "incumbent.json"
    result = run("solve", problem_path, "--json", "-o", path)
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["status"] == "interrupted"
    value, bound = int(data["objective"]["value_ps"]), int(data["bound_ps"])
    assert bound <= int(best["objective"]["value_ps"]) < value
    assert data["gap"] == pytest.approx((value - bound) / value, rel=1e-12)
    assert run("verify", path).exit_code == 0
    text = run("solve", problem_path, width=200)
    assert text.exit_code == 0
    assert text.stdout.startswith(f"interrupted: {seconds_text(value)} per batch")
    assert "no plan of the aligned family is faster than the bound" in text.stdout


@pytest.mark.parametrize("place", ["search", "reading"])
def test_interruption_without_a_plan(
    problem_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """Interrupted before there is a plan, `solve` says so and exits with 1."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    if place == "search":
        monkeypatch.setattr(SearchProgress, "__call__", stop)
    else:
        monkeypatch.setattr("nest_opt.problem.files.read_problem", stop)
    result = run("solve", problem_path, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["status"] == "interrupted"
    assert data["plan"] is None
    assert data["objective"]["value_ps"] is None
    text = run("solve", problem_path)
    assert text.exit_code == 1
    assert text.stdout.startswith("interrupted: no plan yet")


def test_a_real_signal_prints_the_incumbent(problem_path: Path) -> None:
    """SIGINT in the middle of a search ends it with a plan, exit code 0 and no traceback."""
    program = (
        "import os, signal\n"
        "from nest_opt.cli.progress import SearchProgress\n"
        "def call(self, done, total, best_ps):\n"
        "    if best_ps is not None:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "SearchProgress.__call__ = call\n" + RUN_MAIN
    )
    process = start("-c", program, "solve", problem_path, "--json")
    output, errors = process.communicate()
    data = json.loads(output)
    assert process.returncode == 0
    assert data["status"] == "interrupted"
    assert data["plan"] is not None
    assert errors == ""


class Clock:
    """A clock that tests set."""

    now_s = 0.0

    def __call__(self) -> float:
        """Return the time that was set."""
        return self.now_s


def test_progress_shows_the_best_so_far_once_it_takes_long() -> None:
    """Nothing is drawn for two seconds; then the bar has counts and the best value."""
    text, clock = StringIO(), Clock()
    console = Console(file=text, force_terminal=True, width=120)
    with SearchProgress(console, clock) as progress:
        progress(1, 10, None)
        clock.now_s = 1.9
        progress(2, 10, 3 * 10**12)
        assert text.getvalue() == ""
        clock.now_s = 2.1
        progress(3, 10, None)
        clock.now_s = 2.3
        progress(4, 10, 5 * 10**12)
    assert "no plan yet" in text.getvalue()
    assert "best so far 5 s" in text.getvalue()
    assert "4/10" in text.getvalue()


def test_progress_shows_bound_and_gap_of_a_running_program() -> None:
    """While a program runs, the bar keeps its counts and shows value, bound, gap and seconds."""
    text, clock = StringIO(), Clock()
    with SearchProgress(Console(file=text, force_terminal=True, width=120), clock) as progress:
        progress(3, 10, None)
        clock.now_s = 3
        progress.program(ProgramProgress(None, 4 * 10**12, 0, 1.0))
        assert "no plan yet, bound 4 s;" in text.getvalue()
        clock.now_s = 4
        progress.program(ProgramProgress(5 * 10**12, 4 * 10**12, 7, 12.3))
    assert "program, 12 s" in text.getvalue()
    assert "3/10" in text.getvalue()
    assert "best so far 5 s, gap 20.0%, bound 4 s" in text.getvalue()


def test_progress_is_silent_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """However long it takes, nothing is drawn where nobody looks."""
    clock = Clock()
    with SearchProgress(clock=clock) as progress:
        clock.now_s = 100
        progress(1, 10, 5)
    assert capsys.readouterr() == ("", "")


# verify


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_verify_explains_every_term(problem_path: Path, tmp_path: Path, objective: str) -> None:
    """Terms of time, sync and memory add up, and give the value by the objective's formula."""
    data = json.loads(problem_path.read_text())
    data["job"]["objective"] = objective
    write(problem_path, data)
    path = tmp_path / "plan.json"
    run("solve", problem_path, "--fix", "pp=3", "--fix", "dp=2", "-o", path)
    result = run("verify", path, "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    for stage in found["stages"]:
        assert sum(map(int, stage["time_terms_ps"].values())) == int(stage["time_ps"])
        assert sum(map(int, stage["sync_terms_ps"].values())) == int(stage["sync_ps"]) > 0
        assert sum(stage["memory_terms_bytes"].values()) == stage["memory_bytes"]
    times, syncs, exposed = (
        [int(stage[name]) for stage in found["stages"]]
        for name in ("time_ps", "sync_ps", "exposed_sync_ps")
    )
    m = found["microbatches_per_pipeline"]
    by_hand = {
        "fill-drain": sum(times) + (m - 1) * max(times) + max(exposed),
        "nest": (m + 2) * max(times) + max(syncs),
        "bottleneck": m * max(times),
    }
    assert m == 8
    assert int(found["objective"]["value_ps"]) == by_hand[objective]
    assert sum(int(term["value_ps"]) for term in found["terms"]) == by_hand[objective]
    assert found["claimed"] == found["objective"]


def test_verify_names_levels_and_units(plan_path: Path) -> None:
    """The text has a line for every term, with the level that a hop or a sync group spans."""
    plan = read_plan(plan_path)
    evaluation = api.verify(plan).evaluation
    assert evaluation is not None
    text = run("verify", plan_path).stdout
    assert "legal: no violation found" in text
    assert f"claimed    {exact_seconds_text(evaluation.value_ps)} (fill-drain): the same" in text
    assert f"value  {'':18}  {exact_seconds_text(evaluation.value_ps)}" in text
    levels = plan.problem.cluster.network.levels
    for number, stage in enumerate(evaluation.stages):
        hop = "hop out" if number == 0 else "hop in"
        value, level = time_text(stage.time_terms_ps[hop]), levels[stage.levels[hop]].name
        assert re.search(rf"    {hop} +{value}  over {level}\n", text)
        stash = bytes_text(stage.memory_terms_bytes["stash"])
        assert re.search(rf"    stash +{stash}  {stage.in_flight} in flight\n", text)
    assert re.search(r"    dense gradients +[0-9.]+ m?s  over level-[01]\n", text)


def test_sync_levels_match_the_cost_table(tmp_path: Path) -> None:
    """The level named for a sync group is one whose cost the evaluator charged."""
    data = problem_data(layers=4, sizes=(2, 2), global_batch=8, search={"dp": [2], "pp": [2]})
    data["cluster"]["network"]["levels"][1]["bandwidth_bytes_per_s"] = 1000
    for order, level in (("pp-inner", "level-1"), ("dp-inner", "level-0")):
        path = tmp_path / f"{order}.json"
        data["search"].update(order=[order], pitch=["tight"])
        run("solve", write(tmp_path / "problem.json", data), "-o", path)
        stage = json.loads(run("verify", path, "--json").stdout)["stages"][0]
        assert stage["levels"]["dense gradients"] == level
        slow = int(stage["sync_terms_ps"]["dense gradients"]) > 10**12
        assert slow == (level == "level-1")


def test_sync_levels_are_those_of_each_stage_and_rank(tmp_path: Path) -> None:
    """Levels named are those of the worst rank's groups, found by hand.

    Nodes have 3 devices. Blocks of ep = 2 are 0-1 and 2-3 for stage 0, 4-5 and
    6-7 for stage 1: all four ranks share dense parameters, ranks 0 and 2 (in
    one node), 1 and 3, 4 and 6, 5 and 7 share experts.
    """
    data = problem_data(layers=2, sizes=(3, 3), global_batch=8)
    data["model"]["layer_types"]["block"] = layer_type(ep=2, expert_parameters=10)
    data["search"] = {"ep": [2], "dp": [2], "pp": [2], "order": ["dp-inner"], "pitch": ["tight"]}
    path = tmp_path / "plan.json"
    run("solve", write(tmp_path / "problem.json", data), "-o", path)
    stages = json.loads(run("verify", path, "--json").stdout)["stages"]
    assert [stage["levels"]["dense gradients"] for stage in stages] == ["level-1", "level-1"]
    experts = [stage["levels"]["expert gradients"] for stage in stages]
    assert experts == ["level-1", "level-1"]


def violation_rules(path: Path, command: str = "verify") -> list[str]:
    """Return the rules that a plan file breaks, and check the exit code."""
    result = run(command, path, "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == (1 if data["violations"] else 0)
    assert data["status"] == ("violations" if data["violations"] else "legal")
    text = run(command, path)
    assert text.exit_code == result.exit_code
    for violation in data["violations"]:
        assert violation["rule"] in text.stdout
    return [violation["rule"] for violation in data["violations"]]


@pytest.mark.parametrize("command", ["verify", "show"])
def test_violations_exit_with_1(plan_path: Path, command: str) -> None:
    """A wrong claim, too little memory and overlapping blocks are each found and named."""
    plan = json.loads(plan_path.read_text())
    assert violation_rules(plan_path, command) == []
    claim = {"objective": {"name": "nest", "value_ps": "5"}}
    assert violation_rules(altered(plan_path, claim), command) == ["claim"]
    overlap = violation_rules(altered(plan_path, {"pitch": 1}), command)
    assert overlap == ["devices"]
    outside = violation_rules(altered(plan_path, {"pitch": 8}), command)
    assert outside == ["devices"]
    plan["problem"]["cluster"]["device_kinds"]["device"]["memory_bytes"] = 1000
    memory = violation_rules(altered(plan_path, plan), command)
    assert memory == ["memory", "memory"]


def test_verify_of_broken_form_has_no_value(plan_path: Path) -> None:
    """A plan that cannot be evaluated has null values, and the text says why."""
    path = altered(plan_path, {"pitch": 1})
    data = json.loads(run("verify", path, "--json").stdout)
    assert data["objective"] == {"name": "fill-drain", "value_s": None, "value_ps": None}
    assert data["terms"] == []
    assert "not evaluated: the plan's form is broken" in run("verify", path).stdout


# show


def device_maps(seed: int, count: int) -> list[tuple[DeviceMap, int]]:
    """Return random device maps of the aligned family with a number of devices for each."""
    generator = random.Random(seed)
    maps = []
    for _ in range(count):
        a, d, s = (generator.randint(1, 5) for _ in range(3))
        order = generator.choice(("pp-inner", "dp-inner", "pp-inner-reversed"))
        inner, outer = (d, s) if order == "dp-inner" else (s, d)
        pitch = inner * a + generator.randint(0, 3)
        used = (outer - 1) * pitch + inner * a
        maps.append((DeviceMap(a, d, s, order, pitch), used + generator.randint(0, 9)))
    return maps


def test_folding_rows_loses_nothing() -> None:
    """Unfolding the folded rows gives every device its stage and replica back."""
    for device_map, count in device_maps(seed=11, count=300):
        owners = device_blocks(device_map, count)
        assert sum(owner is not None for owner in owners) == device_map.devices_used
        assert not any(owner.disputed for owner in owners if owner)
        for length in (1, 3, 8):
            unfolded: dict[int, list[Block | None]] = {}
            for row in fold_rows(owners, length):
                replicas = row.replicas or (0,) * len(row.rows)
                for number, least in zip(row.rows, replicas, strict=True):
                    unfolded[number] = [
                        cell and Block(cell.stage, cell.replica + least) for cell in row.cells
                    ]
            assert [cell for number in sorted(unfolded) for cell in unfolded[number]] == owners


def test_equal_rows_are_one_row_with_a_count() -> None:
    """16 replicas of 8 stages of 8 devices are 8 rows of the picture, 16 times each."""
    rows = fold_rows(device_blocks(DeviceMap(8, 16, 8, "pp-inner", 64), 1024), 8)
    assert len(rows) == 8
    assert all(row.replicas == tuple(range(16)) for row in rows)
    assert rows[1].rows == tuple(range(1, 128, 8))


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ((4,), "4"),
        ((4, 9), "4, 9"),
        ((0, 1, 2, 3), "0-3"),
        ((0, 8, 16, 24), "0, 8 .. 24"),
        ((0, 3, 5), "0, 3, 5"),
        ((0, 3, 5, 9), "0, 3, 5 .."),
    ],
)
def test_series_in_short(numbers: tuple[int, ...], text: str) -> None:
    """Ranges, steps and irregular numbers each have their short form."""
    assert series_text(numbers) == text


def test_show_draws_the_devices(tmp_path: Path) -> None:
    """The picture has a row per node, a cell per device and dots for idle devices."""
    data = problem_data(layers=3, sizes=(4, 3), search={"dp": [2], "pp": [3], "pitch": ["tight"]})
    data["search"]["order"] = ["pp-inner"]
    path = tmp_path / "plan.json"
    run("solve", write(tmp_path / "problem.json", data), "-o", path)
    text = run("show", path).stdout
    picture = [line.split() for line in text.splitlines() if re.match(r"^\d.*(/|\.  )", line)]
    assert picture == [
        ["0", "1", "0/0", "1/0", "2/0", "0/1"],
        ["1", "1", "1/1", "2/1", ".", "."],
        ["2", "1", ".", ".", ".", "."],
    ]
    assert "a row is one 'level-0' group of 4 devices" in text


def test_show_marks_disputed_devices(plan_path: Path) -> None:
    """Devices that several blocks claim are marked in picture and legend."""
    text = run("show", altered(plan_path, {"pitch": 1}), width=200).stdout
    assert "0/0 !!  1/1 ." in text
    assert "!!: claimed by several blocks" in text


def test_show_json_lists_every_block(plan_path: Path) -> None:
    """Blocks are those of the plan's device map, stage by stage of each replica."""
    data = json.loads(run("show", plan_path, "--json").stdout)
    device_map = read_plan(plan_path).placement().device_map
    expected = [
        {
            "replica": replica,
            "stage": stage,
            "devices": list(device_map.block(replica, stage)),
        }
        for replica in range(2)
        for stage in range(2)
    ]
    assert data["blocks"] == expected


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("sizes", [(8, 16, 8), (1024,), (72, 4), (1, 6, 5)])
def test_reports_fit_the_terminal(tmp_path: Path, width: int, sizes: tuple[int, ...]) -> None:
    """No line of any report is wider than the terminal or cut, at up to 1,024 devices."""
    data = problem_data(
        layers=6, sizes=sizes, global_batch=2**10 * 9, search={"pp": [3]}, job={"pad": True}
    )
    data["cluster"]["network"]["levels"] = data["cluster"]["network"]["levels"][: len(sizes)]
    problem, plan = write(tmp_path / "problem.json", data), tmp_path / "plan.json"
    texts = [run("solve", problem, "-o", plan, width=width).stdout]
    texts += [run(command, plan, width=width).stdout for command in ("verify", "show")]
    for text in texts:
        lines = [line for line in text.splitlines() if str(tmp_path) not in line]
        assert len(lines) > 5
        assert "\u2026" not in text  # nothing is cut off to make it fit
        assert max(map(len, lines)) <= width


# import


ARTIFACT: dict[str, Any] = {
    "ep_degree": 1,
    "maxMemoryPerDevice": 1000,
    "maxDevices": 2,
    "bws": [10, 5],
    "latency_per_level": [0, 0.5],
    "devices_per_level": [1, 2],
    "mbsInBatch": 4,
    "activationRecomputation": False,
    "optimizerAlgorithm": "SGD",
    "nodes": {
        "1": [
            {
                "id": place,
                "activationSize": 8,
                "parameterSize": 16,
                "optimalLatencyFw": 1,
                "optimalLatencyBw": 2,
            }
            for place in range(2)
        ]
    },
    "edges": {"1": [{"sourceId": 0, "destId": 1, "communicationCost": 10}]},
}


def test_import_prints_or_writes_the_same_problem(tmp_path: Path) -> None:
    """Standard output, the file of -o and the JSON object carry one problem, which solves."""
    source, path = write(tmp_path / "in.json", ARTIFACT), tmp_path / "out.json"
    printed = run("import", "nest-artifact", source, "--microbatch", 2)
    written = run("import", "nest-artifact", source, "--microbatch", 2, "-o", path)
    data = json.loads(
        run("import", "nest-artifact", source, "--microbatch", 2, "--json", "-o", path).stdout
    )
    assert printed.stdout == path.read_text()
    assert json.loads(printed.stdout) == data["problem"]
    assert (data["status"], data["format"]) == ("imported", "nest-artifact")
    assert data["output"] == str(path)
    assert data["problem"]["job"]["global_batch"] == 8
    assert written.stdout == (
        f"wrote {path}: problem 'in', 2 layers, 2 devices, a global batch of 8 sequences\n"
    )
    assert run("solve", path).exit_code == 0


def test_import_of_a_published_input(shared_data: Path, tmp_path: Path) -> None:
    """A real input of the artifact imports, solves, verifies and shows."""
    source = shared_data / "nest" / "inputs" / "h100_spineLeaf__llama3__mbs1__128.json"
    problem, plan = tmp_path / "problem.json", tmp_path / "plan.json"
    codes = [
        run("import", "nest-artifact", source, "-o", problem).exit_code,
        run("solve", problem, "-o", plan).exit_code,
        run("verify", plan).exit_code,
        run("show", plan).exit_code,
    ]
    assert codes == [0, 0, 0, 0]


def test_import_refuses(tmp_path: Path) -> None:
    """An unknown format, a wrong option and a malformed file each exit with 2."""
    source = write(tmp_path / "in.json", {"nodes": 3})
    for arguments, message in (
        (("nest-artefact", source), "found format 'nest-artefact', one of these is needed: "),
        (("nest-artifact", source, "--microbatch", 0), "0 is not in the range"),
        (("nest-artifact", source), "ep_degree: found nothing"),
        (("nest-artifact",), "Missing argument 'FILE'"),
    ):
        result = run("import", *arguments)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stderr.startswith("error: ")


# Errors, files, streams


def test_wrong_files_get_clear_messages(problem_path: Path, plan_path: Path) -> None:
    """Each kind of wrong input exits with 2 and one message, which --json prints as well."""
    missing = problem_path.with_name("missing.json")
    proof = write(problem_path.with_name("proof.json"), {"format": "nest-opt-certificate"})
    bare = json.loads(plan_path.read_text())
    bare["stages"][0]["layers"] = ["nobody"]
    unknown = write(problem_path.with_name("unknown.json"), bare)
    for arguments, message in (
        (("solve", missing), "cannot be read (No such file or directory)"),
        (("solve", plan_path), "found a plan (format nest-opt-plan), a problem is needed"),
        (("solve", proof), "found a certificate (format nest-opt-certificate), a problem is"),
        (("verify", proof), "found a certificate (format nest-opt-certificate), a plan is"),
        (("verify", problem_path), "found a problem (format nest-opt-problem), a plan is needed"),
        (("show", problem_path), "found a problem (format nest-opt-problem), a plan is needed"),
        (("verify", unknown), "stages[0]: names layer 'nobody'"),
        (("show", unknown), "stages[0]: names layer 'nobody'"),
        (("solve",), "Missing argument 'PROBLEM'"),
        (("solve", problem_path, "--nope"), "No such option"),
        (
            ("dissolve",),
            "found command 'dissolve', one of these is needed: bound, check, compare, crosscheck",
        ),
    ):
        plain, as_json = run(*arguments), run(*arguments, "--json")
        assert plain.exit_code == as_json.exit_code == 2
        assert plain.stdout == ""
        assert plain.stderr.startswith("error: ")
        assert message in plain.stderr
        assert json.loads(as_json.stdout)["status"] == "error"
        assert message in json.loads(as_json.stdout)["error"]
        assert message in as_json.stderr


def test_output_paths_that_cannot_be_written(problem_path: Path, tmp_path: Path) -> None:
    """A bad -o is refused before the search, and the input file is never overwritten."""
    before = problem_path.read_text()
    for output, message in (
        (tmp_path / "nowhere" / "plan.json", "no directory"),
        (tmp_path, "found a directory, a file is needed"),
        (problem_path, "is the input file itself"),
        (tmp_path / "x" / ".." / "problem.json", "no directory"),
    ):
        result = run("solve", problem_path, "-o", output)
        assert result.exit_code == 2
        assert message in result.stderr
        assert result.stdout == ""
    assert problem_path.read_text() == before


def test_files_are_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write that fails leaves the old file as it was, and nothing beside it."""
    path = tmp_path / "plan.json"
    write_text(path, "old")
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_mask()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(NestOptError, match="cannot be written \\(No space left on device\\)"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def current_mask() -> int:
    """Return the process's file mode mask."""
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_output_through_a_link_and_to_a_pipe(problem_path: Path, tmp_path: Path) -> None:
    """A link stays a link to the new plan; a device is written to, not replaced."""
    link, target = tmp_path / "link.json", tmp_path / "target.json"
    target.write_text("old")
    link.symlink_to(target)
    assert run("solve", problem_path, "-o", link).exit_code == 0
    assert link.is_symlink()
    assert read_plan(target).dp > 0
    assert run("solve", problem_path, "-o", "/dev/null").exit_code == 0
    assert not Path("/dev/null").is_file()


def test_a_defect_exits_with_3(problem_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A contradiction inside the package is reported as such, without a traceback."""

    def contradict(*_: object, **__: object) -> None:
        raise ConsistencyError("7 is not 8")

    monkeypatch.setattr(api, "solve_pipeline", contradict)
    result = run("solve", problem_path, "--json")
    assert result.exit_code == 3
    assert "error: 7 is not 8 (a defect of nest-opt; please report it" in result.stderr
    assert json.loads(result.stdout)["status"] == "error"


def test_other_exceptions_are_not_hidden(
    problem_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What nobody expected is shown in full, never turned into a wrong input."""

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(api, "solve_pipeline", fail)
    assert isinstance(run("solve", problem_path).exception, ZeroDivisionError)


def test_interrupted_verify_exits_with_130(
    plan_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C in a command without an incumbent is one word, and the shell's exit code."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(api, "verify", stop)
    result = run("verify", plan_path)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_closed_pipe_is_silent(plan_path: Path, flags: list[str]) -> None:
    """Output that nobody reads any more ends the program without a word."""
    reader, writer = os.pipe()
    os.close(reader)
    process = start("-c", RUN_MAIN, "show", plan_path, *flags, stdout=writer)
    os.close(writer)
    assert process.communicate()[1] == ""
    assert process.returncode == 141


def test_names_cannot_take_over_the_terminal(tmp_path: Path) -> None:
    """Escapes and markup in names are printed, not obeyed, in whatever encoding there is."""
    data = problem_data(layers=1, sizes=(2, 1))
    name = "\x1b[31m[red]\u4e2d"
    data["model"]["layers"][0]["id"] = name
    path = write(tmp_path / "problem.json", data)
    for encoding, shown in (("utf-8", "\u4e2d"), ("latin-1", "\\u4e2d")):
        environment = {**os.environ, "PYTHONIOENCODING": encoding, "COLUMNS": "120"}
        process = start("-c", RUN_MAIN, "solve", path, env=environment, encoding=encoding)
        output, errors = process.communicate()
        assert process.returncode == 0, errors
        assert f"\\x1b[31m[red]{shown} (1)" in output
        assert "\x1b" not in output


def test_help_and_version() -> None:
    """Both answer at once with exit code 0; no command at all prints the help."""
    assert run("--version").stdout.startswith("nest-opt 0.")
    assert run().stdout == run("--help").stdout
    for command in (
        *("new", "solve", "exact", "bound", "verify", "check", "show", "import", "export", "list"),
    ):
        result = run(command, "--help")
        assert result.exit_code == 0
        assert result.stdout.startswith(f"Usage: nest-opt {command}")


@pytest.mark.parametrize(
    "arguments",
    [
        ["solve"],
        ["new"],
        ["exact"],
        ["bound"],
        ["verify"],
        ["check"],
        ["export", "lp"],
        ["list", "models"],
        ["import", "hf-config"],
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_help_does_not_load_the_engine(arguments: list[str]) -> None:
    """The command line itself imports neither numpy, pydantic nor rich to print its help."""
    program = (
        "import sys, types\n"
        "package = types.ModuleType('nest_opt')\n"
        f"package.__path__ = [{str(ROOT / 'nest_opt')!r}]\n"
        "sys.modules['nest_opt'] = package\n"
        "from nest_opt.cli import command_line\n"
        f"command_line({[*arguments, '--help']!r}, standalone_mode=False)\n"
        "heavy = {'numpy', 'pydantic', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    process = start("-c", program)
    _, errors = process.communicate()
    assert process.returncode == 0, errors


# Plan files


def test_plan_files_read_back(plan_path: Path) -> None:
    """A plan file reads back to the entity whose text it is."""
    plan = read_plan(plan_path)
    assert to_json_text(plan) == plan_path.read_text()
    assert plan.problem.name == "sample"


def test_plan_files_of_the_wrong_form(plan_path: Path) -> None:
    """A problem, another version and a missing field are plan errors that name the fault."""
    plan = json.loads(plan_path.read_text())
    for data, message in (
        (plan["problem"], "found a problem"),
        ({k: v for k, v in plan["problem"].items() if k != "format"}, "found a problem"),
        ({**plan, "version": 2}, "version"),
        ({**plan, "stages": []}, "stages"),
        ({k: v for k, v in plan.items() if k != "dp"}, "dp: found nothing, a value is needed"),
        ([], "found a JSON array, an object is needed"),
    ):
        path = write(plan_path.with_name("wrong.json"), data)
        with pytest.raises(PlanError, match=re.escape(message)):
            read_plan(path)
    with pytest.raises(InstanceError, match="cannot be read"):
        read_plan(plan_path.with_name("missing.json"))


# The instances and the page


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_every_tiny_instance_goes_all_the_way(path: Path, tmp_path: Path) -> None:
    """Solved, a tiny instance has a plan that verifies and shows, or a diagnosis."""
    plan = tmp_path / "plan.json"
    result = run("solve", path, "--json", "-o", plan)
    data = json.loads(result.stdout)
    if data["status"] == "infeasible":
        assert result.exit_code == 1
        assert run("solve", path).stdout.startswith("infeasible: ")
        return
    assert result.exit_code == 0
    verified, shown = run("verify", plan), run("show", plan)
    assert (verified.exit_code, shown.exit_code) == (0, 0)
    assert verified.stdout.splitlines()[0] == shown.stdout.splitlines()[0]
    assert read_plan(plan).problem == read_problem(path)


def comparable(text: str) -> object:
    """Return output without the size and time of the search."""
    if text.startswith("{"):
        data = json.loads(text)
        if "search" in data:
            data["search"] = sorted(data["search"])
        data.pop("wall_s", None)
        return data
    # A row of `compare` ends in its planner's seconds.
    rows = r"^( (?:solve|manual|mcmc|phaze|alpa|random) .*?) +[\d.]+ s$"
    lines = re.sub(rows, r"\1 ? s", text, flags=re.MULTILINE).rstrip("\n").splitlines()
    told = ("pruned", "beside the optimum's", "search     ", "checked    ")
    return [
        re.sub(r"\d[\d.,e-]*", "?", line) if any(word in line for word in told) else line
        for line in lines
    ]


def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sample of docs/cli.md is what its command prints in 80 columns."""
    lay_out(tmp_path)
    monkeypatch.chdir(tmp_path)
    every = samples()
    assert len(every) >= 12
    for command, output in every:
        assert comparable(printed(command)) == comparable(output), command


def commands(group: click.Group, path: str) -> dict[str, click.Command]:
    """Return every command below a group by its full name."""
    found: dict[str, click.Command] = {}
    for name, command in group.commands.items():
        found[f"{path} {name}"] = command
        if isinstance(command, click.Group):
            found.update(commands(command, f"{path} {name}"))
    return found


def test_the_page_names_every_command_and_option() -> None:
    """docs/cli.md mentions each command, option, format and search dimension."""
    page = PAGE.read_text()
    known = commands(command_line, "nest-opt")
    assert {"nest-opt solve", *(f"nest-opt import {name}" for name in FORMATS)} <= set(known)
    for name, command in known.items():
        assert f"`{name}" in page
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert all(f"`{option}" in page for option in parameter.opts)
    for name in DIMENSIONS:
        assert f"`{name}`" in page
