"""`nest-opt verify --simulate`: the simulation beside the objective's formula."""

import json
import re
from pathlib import Path

import pytest
from cli_page import PAGE, ROOT
from cli_running import run, run_json

from nest_opt import solve
from nest_opt.cli.value import formula
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.files import read_plan
from nest_opt.problem.files import read_problem
from nest_opt.problem.job import OBJECTIVES, Objective
from nest_opt.problem.schedule import ONE_F_ONE_B
from nest_opt.simulate import peak_in_flight
from nest_opt.simulate.plan import simulate_plan

PROBLEM = ROOT / "instances" / "tiny" / "spread-pitch-wins.json"


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
