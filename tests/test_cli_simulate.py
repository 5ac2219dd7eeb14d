"""`nest-opt verify --simulate`: the simulation beside the objective's formula."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from cli_page import PAGE, ROOT
from cli_running import run, run_json

from nest_opt import solve
from nest_opt.cli.value import formula
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.files import read_plan
from nest_opt.problem.files import read_problem
from nest_opt.problem.job import OBJECTIVES, Objective
from nest_opt.problem.schedule import ONE_F_ONE_B, SCHEDULES, ScheduleName
from nest_opt.simulate import peak_in_flight
from nest_opt.simulate.plan import simulate_plan

PROBLEM = ROOT / "instances" / "tiny" / "spread-pitch-wins.json"
THIRTY_LAYERS = ROOT / "instances" / "tiny" / "thirty-layers-on-four-stages.json"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def plan_path(tmp_path: Path) -> Path:
    """Return the plan of the command line's page."""
    path = tmp_path / "plan.json"
    assert run("solve", PROBLEM, "-o", path).exit_code == 0
    return path


def test_the_page_shows_what_is_printed(plan_path: Path) -> None:
    """The report ends with the sample of the page, and begins as without --simulate."""
    result = run("verify", plan_path, "--simulate")
    assert result.exit_code == 0
    section = PAGE.read_text(encoding="utf-8").split("### The simulated time")[1]
    sample = re.search(r"```text\n(.*?)```", section, re.DOTALL)
    assert sample is not None
    assert result.stdout.startswith(run("verify", plan_path).stdout)
    assert result.stdout.endswith(sample.group(1))


def test_json_has_the_simulation(plan_path: Path) -> None:
    """Every number of the field is the simulator's; without the option there is no field."""
    plan = read_plan(plan_path)
    costs, placement = Costs(plan.problem), plan.placement()
    evaluation = evaluate(costs, placement)
    found = simulate_plan(costs, placement, evaluation)
    data = run_json("verify", plan_path, "--simulate")["simulation"]
    assert data["iteration_ps"] == str(found.iteration_ps)
    assert data["compute_ps"] == str(found.compute_ps)
    assert data["difference"] == (evaluation.value_ps - found.iteration_ps) / found.iteration_ps
    assert [stage["bubble_ps"] for stage in data["stages"]] == [str(b) for b in found.bubble_ps]
    assert [stage["bubble_rate"] for stage in data["stages"]] == list(found.bubble_rate)
    assert [stage["busy_ps"] for stage in data["stages"]] == [str(b) for b in found.busy_ps]
    assert [stage["sync_end_ps"] for stage in data["stages"]] == [
        str(end) for end in found.sync_end_ps
    ]
    peaks = tuple(stage["peak_in_flight"] for stage in data["stages"])
    assert peaks == peak_in_flight(found.schedule)
    assert data["peak_in_flight"] == max(peaks)
    assert data["span_ps"] == str(found.span_ps)
    assert data["bubble_rate"] == pytest.approx(sum(found.bubble_rate) / len(peaks))
    assert (data["hops"], data["sync"]) == ("blocking", "stage")
    assert "simulation" not in run_json("verify", plan_path)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_difference_is_to_the_plan_s_objective(tmp_path: Path, objective: Objective) -> None:
    """The formula named is the objective's, longer or shorter than the simulation by its share."""
    data = json.loads(PROBLEM.read_text())
    data["job"]["objective"] = objective
    problem, path = tmp_path / "problem.json", tmp_path / "plan.json"
    problem.write_text(json.dumps(data))
    assert solve(read_problem(problem)).plan is not None
    assert run("solve", problem, "-o", path).exit_code == 0
    text = " ".join(run("verify", path, "--simulate", width=120).stdout.split())
    assert f"({objective}: {formula(objective, ONE_F_ONE_B)})" in text
    share = run_json("verify", path, "--simulate")["simulation"]["difference"]
    word = "longer" if share > 0 else "shorter"
    assert f"the formula is {abs(share):.2%} {word} than the simulation" in text


def test_a_plan_that_is_not_evaluated_is_not_simulated(plan_path: Path) -> None:
    """A broken form is told of, and the field is null."""
    data = json.loads(plan_path.read_text())
    data["dp"] = 3
    plan_path.write_text(json.dumps(data))
    result = run("verify", plan_path, "--simulate")
    assert "not simulated: the plan is not evaluated" in result.stdout
    assert run_json("verify", plan_path, "--simulate")["simulation"] is None


def test_the_timeline_is_for_few_rounds(plan_path: Path) -> None:
    """With 10 rounds there is a line per stage, with 11 and more there is none."""
    data = json.loads(plan_path.read_text())
    for batch, drawn in ((40, True), (44, False)):
        data["problem"]["job"]["global_batch"] = batch
        plan_path.write_text(json.dumps(data))
        assert ("digits: forward" in run("verify", plan_path, "--simulate").stdout) == drawn


def test_too_many_operations_are_refused(plan_path: Path) -> None:
    """With a global batch that would take hours, and the message has both numbers."""
    data = json.loads(plan_path.read_text())
    data["problem"]["job"]["global_batch"] *= 2**20
    del data["objective"]
    plan_path.write_text(json.dumps(data))
    told = run("verify", plan_path, "--simulate")
    assert told.exit_code == 2
    assert "found 25,165,824 operations" in told.stderr
    assert "at most 1,048,576 are run" in told.stderr
    assert run("verify", plan_path).exit_code == 0


def test_hops_and_syncs_may_overlap(plan_path: Path) -> None:
    """The run is the simulator's with the same choice, which report, JSON and timeline name."""
    plan = read_plan(plan_path)
    costs, placement = Costs(plan.problem), plan.placement()
    found = simulate_plan(
        costs, placement, evaluate(costs, placement), hops="delay", sync="gradients"
    )
    options = ("--simulate", "--hops", "delay", "--sync", "gradients")
    data = run_json("verify", plan_path, *options)["simulation"]
    assert (data["hops"], data["sync"]) == ("delay", "gradients")
    assert data["iteration_ps"] == str(found.iteration_ps)
    blocking = run_json("verify", plan_path, "--simulate")["simulation"]
    assert found.iteration_ps < int(blocking["iteration_ps"])
    text = run("verify", plan_path, *options, width=120).stdout
    assert "delay: data is under way" in text
    assert "gradients: a stage's begins with its last gradients" in text


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_timelines_are_written(tmp_path: Path, schedule: ScheduleName) -> None:
    """Of every schedule: a file has each event and sync, the picture a box for each of them."""
    plan_path, data_path, picture = (tmp_path / name for name in ("p.json", "t.json", "t.svg"))
    options = ("--fix", f"schedule={schedule}", "--fix", "chunks=2", "--fix", "pp=2")
    assert run("solve", THIRTY_LAYERS, *options, "-o", plan_path).exit_code == 0
    files = ("--timeline", data_path, "--timeline", picture)
    result = run("verify", plan_path, "--simulate", "--no-bounds", *files, width=400)
    assert f"written     {data_path}, {picture}" in result.stdout
    plan = read_plan(plan_path)
    costs, placement = Costs(plan.problem), plan.placement()
    found = simulate_plan(costs, placement, evaluate(costs, placement))
    data = json.loads(data_path.read_text())
    assert (data["format"], data["version"]) == ("nest-opt-timeline", 1)
    assert (data["schedule"], data["rounds"]) == (schedule, found.schedule.rounds)
    assert data["iteration_ps"] == str(found.iteration_ps)
    for device, timeline, syncs in zip(data["devices"], found.timelines, found.syncs, strict=True):
        assert [
            (e["kind"], e["microbatch"], e["chunk"], int(e["start_ps"]), int(e["end_ps"]))
            for e in device["events"]
        ] == [(e.kind, e.microbatch, e.chunk, e.start_ps, e.end_ps) for e in timeline]
        assert [int(e["receive_ps"]) for e in device["events"]] == [e.receive_ps for e in timeline]
        assert [(s["chunk"], int(s["start_ps"]), int(s["end_ps"])) for s in device["syncs"]] == [
            tuple(sync) for sync in syncs
        ]
    titles = [title.text or "" for title in ElementTree.parse(picture).iter(f"{SVG}title")]
    events = sum(map(len, found.timelines))
    assert sum(" of microbatch " in t and not t.startswith("receive") for t in titles) == events
    shown = [sync for syncs in found.syncs for sync in syncs if sync.end_ps > sync.start_ps]
    assert sum(t.startswith("sync of chunk") for t in titles) == len(shown)


def test_timelines_that_cannot_be_are_refused(plan_path: Path) -> None:
    """Another kind of file, the plan's own, too many operations, and options of no simulation."""
    folder = plan_path.parent
    for name, message in (
        ("t.png", "--timeline: found .*t.png, a name that ends in .json or .svg is needed"),
        ("plan.json", "is the input file itself"),
        ("no/t.svg", "no directory .*: create it first"),
    ):
        told = run("verify", plan_path, "--simulate", "--timeline", folder / name)
        assert told.exit_code == 2
        assert re.search(message, told.stderr), name
    for option in (("--timeline", folder / "t.svg"), ("--hops", "delay"), ("--sync", "stage")):
        told = run("verify", plan_path, *option)
        assert told.exit_code == 2
        assert f"{option[0]}: found without --simulate" in told.stderr
    data = json.loads(plan_path.read_text())
    data["problem"]["job"]["global_batch"] *= 2**10
    del data["objective"]
    plan_path.write_text(json.dumps(data))
    files = ("--timeline", folder / "t.json", "--timeline", folder / "t.svg")
    told = run("verify", plan_path, "--simulate", "--no-bounds", *files)
    assert told.exit_code == 2
    assert "found 24,576 operations, at most 20,000 are drawn" in told.stderr
    assert not (folder / "t.json").exists()
