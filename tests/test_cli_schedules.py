"""Reports on plans of every schedule: terms, tables, JSON and the simulated time."""

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from cli_running import run, run_json, write
from samples import problem_data

from nest_opt import Problem
from nest_opt.certify.brute_force import brute_force
from nest_opt.cli.fix import fix, parse_fixes
from nest_opt.cli.plan_table import degree_cells, degree_names
from nest_opt.cli.value import objective_terms
from nest_opt.cli.what_if import parse_questions
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.problem.files import to_json_data
from nest_opt.problem.job import OBJECTIVES, Objective
from nest_opt.problem.schedule import SCHEDULES, Schedule, ScheduleName
from nest_opt.problem.validation import build
from nest_opt.simulate.plan import simulate_plan


def best_plan(
    name: ScheduleName, objective: Objective = "fill-drain", layers: int = 7, **search: Any
) -> Plan:
    """Return the best plan of two stages under a schedule, found by brute force."""
    data = problem_data(layers=layers)
    (profile,) = data["model"]["layer_types"]["block"]["profiles"]
    # Of primes, so that two chunks do not divide them.
    profile |= {
        "forward_s": 1e-12 * 10_007,
        "backward_input_s": 1e-12 * 10_009,
        "backward_weight_s": 1e-12 * 7_001,
    }
    for level in data["cluster"]["network"]["levels"]:
        level["latency_s"] = 0
    data["job"]["objective"] = objective
    data["search"] = {"pp": [2], "dp": [1], "schedule": [name], "chunks": [2], **search}
    problem = build(Problem, data, "problem")
    placement = brute_force(problem).placement
    assert placement is not None
    value = evaluate(Costs(problem), placement).value_ps
    return plan_from_placement(problem, placement, objective, value)


PLAIN = {
    "fill-drain": ["sum F", "(m - 1) max F", "max X"],
    "nest": ["(m + S - 1) max F", "max Y"],
    "bottleneck": ["m max F"],
}
TERMS: dict[str, dict[str, list[str]]] = {
    objective: {
        "1f1b": terms,
        "gpipe": terms,
        "interleaved": {
            "fill-drain": ["sum F / v", "(m v - 1) max F / v", "max X"],
            "nest": ["(m v + S - 1) max F / v", "max Y"],
        }.get(objective, terms),
        "zb-h1": {
            "fill-drain": ["sum f", "max (m F - f)", "max X"],
            "nest": ["max (m F + (S - 1) f)", "max Y"],
        }.get(objective, terms),
    }
    for objective, terms in PLAIN.items()
}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("name", SCHEDULES)
def test_terms_add_up_to_the_value(
    name: ScheduleName, objective: Objective, tmp_path: Path
) -> None:
    """Of every objective and schedule, in Python and in JSON, under the formula's names."""
    plan = best_plan(name, objective)
    evaluation = evaluate(Costs(plan.problem), plan.placement())
    terms = objective_terms(evaluation)
    assert sum(terms.values()) == evaluation.value_ps
    assert [term for term in terms if term != "rounding"] == TERMS[objective][name]
    data = run_json("verify", write(tmp_path / "plan.json", to_json_data(plan)))
    assert [term["term"] for term in data["terms"]] == list(terms)
    assert sum(int(term["value_ps"]) for term in data["terms"]) == evaluation.value_ps


def test_what_rounding_adds_is_a_term_of_its_own() -> None:
    """Where v divides neither term, one ps is named, and less than v in all."""
    plan = best_plan("interleaved", pp=[2], recompute=["none"])
    evaluation = evaluate(Costs(plan.problem), plan.placement())
    assert any(stage.time_ps % 2 for stage in evaluation.stages)
    assert objective_terms(evaluation)["rounding"] == 1


def test_schedules_can_be_fixed() -> None:
    """--fix and --what-if narrow schedules and chunks; one chunk is none of them."""
    problem = best_plan("1f1b").problem
    (question,) = parse_questions(["schedule=zb-h1,interleaved+chunks=3"])
    fixed = fix(problem, question.fixes)
    assert fixed.search.schedules == (Schedule("interleaved", 3), Schedule("zb-h1"))
    for text, found in (("chunks=1", "'1'"), ("schedule=zb-h2", "'zb-h2'")):
        with pytest.raises(click.UsageError, match=f"found {found}"):
            parse_fixes([text])


def test_the_picture_says_that_chunks_take_turns(tmp_path: Path) -> None:
    """Under a picture of an interleaved plan it says how many chunks a stage has."""
    for name in SCHEDULES:
        path = write(tmp_path / "plan.json", to_json_data(best_plan(name)))
        told = "2 on each stage, in turn" in run("show", path, width=120).stdout
        assert told == (name == "interleaved")


def test_chunks_are_named_with_their_layers(tmp_path: Path) -> None:
    """Stage table, term report and JSON have the layers of each chunk of a stage."""
    plan = best_plan("interleaved")
    sizes = [stage.chunks for stage in plan.stages]
    path = write(tmp_path / "plan.json", to_json_data(plan))
    for command in ("show", "verify"):
        text = run(command, path, width=120).stdout
        for stage in plan.stages:
            assert stage.chunks is not None
            first = stage.layers[: stage.chunks[0]]
            second = stage.layers[stage.chunks[0] :]
            parts = [of[0] if len(of) == 1 else f"{of[0]} .. {of[-1]}" for of in (first, second)]
            assert ", ".join(parts) in text
        assert "schedule interleaved, 2 chunks" in text
    verified = run(command, path, width=120).stdout
    assert "S = 2 and v = 2" in verified
    assert "in flight, each as the chunk with the largest" in verified
    data = run_json("verify", path)
    assert data["degrees"]["schedule"] == "interleaved"
    assert data["degrees"]["chunks"] == 2
    intervals = [stage["intervals"] for stage in data["stages"]]
    assert intervals == [list(map(list, chunks)) for chunks in plan.placement().intervals]
    assert [tuple(high - low for low, high in chunks) for chunks in intervals] == sizes


def test_zb_h1_names_weight_gradients_and_fills(tmp_path: Path) -> None:
    """W and f of a stage are in the report, and no sync is hidden."""
    plan = best_plan("zb-h1", dp=[2])
    path = write(tmp_path / "plan.json", to_json_data(plan))
    text = run("verify", path, width=120).stdout
    assert "f = max(0, F - 2 W)" in text
    assert "F less twice W" in text
    assert "all of Y: the stages end at about the same time" in text
    assert "of backward before it" not in text
    for stage in run_json("verify", path)["stages"]:
        assert int(stage["weight_gradient_ps"]) == 7_001 * len(stage["layers"])
        assert stage["exposed_sync_ps"] == stage["sync_ps"] != "0"


@pytest.mark.parametrize(
    ("name", "title", "chunks"),
    [
        ("1f1b", "1F1B of 2 stages", 1),
        ("gpipe", "GPipe of 2 stages", 1),
        ("interleaved", "interleaved 1F1B with 2 chunks of 2 stages", 2),
        ("zb-h1", "ZB-H1 of 2 stages", 1),
    ],
)
def test_plans_are_simulated_under_their_schedule(
    name: ScheduleName, title: str, chunks: int, tmp_path: Path
) -> None:
    """The report and the JSON name the schedule, and the time is the simulator's."""
    plan = best_plan(name, layers=8)
    path = write(tmp_path / "plan.json", to_json_data(plan))
    text = run("verify", path, "--simulate", width=120).stdout
    assert f"({title} and 8 rounds, event by event)" in text
    data = run_json("verify", path, "--simulate")["simulation"]
    assert (data["schedule"], data["chunks"]) == (name, chunks)
    costs, placement = Costs(plan.problem), plan.placement()
    found = simulate_plan(costs, placement, evaluate(costs, placement))
    assert data["iteration_ps"] == str(found.iteration_ps)
    assert len(data["stages"]) == 2
    assert ("capitals: of the weights" in text) == (name == "zb-h1")


def test_operations_of_all_chunks_count(tmp_path: Path) -> None:
    """The most operations that are run are those of all chunks, and W is one of ZB-H1's."""
    for name, number, words in (
        ("interleaved", 4 * 2 * 2**18, "on 2 stages of 2 chunks"),
        ("zb-h1", 3 * 2 * 2**18, "a forward and two halves of a backward"),
    ):
        data = json.loads(json.dumps(to_json_data(best_plan(name))))  # type: ignore[arg-type]
        data["problem"]["job"]["global_batch"] = 2**18
        del data["objective"]
        told = run("verify", write(tmp_path / "plan.json", data), "--simulate", width=200)
        assert told.exit_code == 2
        assert f"found {number:,} operations" in told.stderr
        assert words in told.stderr


def test_tables_of_plans_name_schedules_where_they_differ() -> None:
    """A table of 1F1B plans has no such column; of others, an interleaved one says its chunks."""
    plans = [best_plan(name) for name in SCHEDULES]
    assert "schedule" not in degree_names([plans[0], None])
    names = degree_names(plans)
    assert names[-1] == "schedule"
    cells = [degree_cells(plan, names)[-1] for plan in plans]
    assert cells == ["1f1b", "gpipe", "interleaved x2", "zb-h1"]
    assert len(degree_cells(plans[0], names)) == len(names)


NAMED = ("--model", "llama-2-7b", "--cluster", "dgx-h100", "--devices", 32, "--global-batch", 256)
WIDE = (
    *(*NAMED, "--fix", "schedule=1f1b,interleaved,zb-h1", "--fix", "chunks=2,4"),
    *("--fix", "zero=0,1,3", "--fix", "zero_instances=1,2"),
)


@pytest.mark.parametrize(
    "asked",
    [
        ("--top", 12),
        ("--what-if", "schedule=interleaved+chunks=2", "--what-if", "dp=32+zero=0"),
    ],
)
def test_tables_too_wide_for_the_terminal_lose_nothing(asked: tuple[object, ...]) -> None:
    """In 80 columns every degree is in the table or below it, and no cell is cut."""
    narrow, wide = (run("solve", *WIDE, *asked, width=width) for width in (80, 200))
    assert narrow.exit_code == 0
    assert "…" not in narrow.stdout
    assert max(map(len, narrow.stdout.splitlines())) <= 80
    shared = [line for line in narrow.stdout.splitlines() if line.startswith("the same in all")]
    assert ["cp 1" in line for line in shared] == [True]
    assert "the same in all" not in wide.stdout
    assert "interleaved x2" in wide.stdout
    if "--what-if" not in asked:
        chunked = [len(re.findall(r"interleaved x\d", each.stdout)) for each in (narrow, wide)]
        assert chunked[0] == chunked[1]


def test_a_question_is_whole_in_a_narrow_table() -> None:
    """The column of what was asked folds, and keeps every character."""
    text = "schedule=interleaved+chunks=4+zero=3"
    report = run("solve", *WIDE, "--what-if", text).stdout
    lines = report.split("what if ")[1].split("the same in all")[0].splitlines()
    row = next(place for place, line in enumerate(lines) if line.startswith(" (best plan)"))
    width = lines[row].index(lines[row].removeprefix(" (best plan)").lstrip())
    assert "".join(line[:width].strip() for line in lines[row + 1 :]) == text


def test_a_change_from_nothing_names_its_value() -> None:
    """What was not sharded had no runs of replicas: only the new number is told."""
    report = run(
        "improve", *NAMED, "--fix", "zero=0,1", "--from", "tp=2,pp=4,dp=4,zero=0", width=120
    )
    assert report.exit_code == 0
    assert "zero 0 -> 1 (zero_instances 1)" in " ".join(report.stdout.split())


def test_values_without_an_option_are_told_where_they_belong() -> None:
    """A second KEY=VALUE after one --fix is refused, with what to write."""
    found = run("solve", *WIDE, "problem.json", "chunks=2,4", "zero=1")
    assert found.exit_code == 2
    assert "extra arguments (chunks=2,4 zero=1): write --fix before each KEY=VALUE" in found.stderr
    assert "(more): remove what is not needed" in run("list", "models", "more").stderr


def test_a_value_stated_twice_is_not_to_be_listed() -> None:
    """Where one value is needed, the remedy is not to give several."""
    found = run("export", "lp", "-o", "x.lp", *NAMED, "--cell", "tp=2,tp=4")
    assert found.exit_code == 2
    assert "--cell: found tp 2 times, 1 is allowed: keep one of its values" in found.stderr


def test_nothing_to_interleave_says_what_the_schedule_takes() -> None:
    """One stage, or more chunks than layers, is no placement; the report names the conditions."""
    for values in ("pp=1", "chunks=99"):
        found = run("solve", *NAMED, "--fix", "schedule=interleaved", "--fix", values, width=400)
        assert found.exit_code == 1
        assert "an interleaved schedule takes 2 stages or more" in found.stdout
    other = run("solve", *NAMED, "--fix", "pp=16", "--fix", "dp=4", width=400)
    assert other.exit_code == 1
    assert "interleaved" not in other.stdout
