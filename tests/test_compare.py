"""`nest-opt compare`: planners beside the optimum, and what makes the difference."""

import io
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write
from random_graphs import random_graph
from rich.console import Console
from samples import problem_data, sample

from nest_opt import InstanceError, compare, comparison, solve
from nest_opt.cli.compare_command import PLANNER_NAMES
from nest_opt.cli.progress import ComparisonProgress
from nest_opt.improvement.terms import TERMS
from nest_opt.planners import ManualPlanner, Outcome, planners
from nest_opt.problem import Problem
from nest_opt.problem.files import read_problem

INSTANCES = Path(__file__).resolve().parent.parent / "instances"
TINY = INSTANCES / "tiny"
SPREAD = TINY / "spread-pitch-wins.json"


def rows(data: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the objects of the planners by name."""
    return {row["planner"]: row for row in data["planners"]}


def test_help_names_the_planners_that_there_are() -> None:
    """The command's list, and so its help, is that of the package."""
    assert tuple(planners()) == PLANNER_NAMES
    assert ", ".join(PLANNER_NAMES) in " ".join(run("compare", "--help", width=200).stdout.split())


def test_rows_in_json(tmp_path: Path) -> None:
    """The search comes first, at gap 0; each plan verifies as it is, and its terms add up."""
    data = run_json("compare", SPREAD, "--budget", 40)
    assert data["status"] == "complete"
    assert [row["planner"] for row in data["planners"]] == ["solve", *PLANNER_NAMES]
    best = solve(read_problem(SPREAD))
    assert data["bound_ps"] == str(best.bound_ps)
    problem = problem_of(SPREAD)
    for name, row in rows(data).items():
        if row["plan"] is None:
            assert name == "alpa"
            assert "cover all devices" in row["reason"]
            assert row["gap"] is None
            continue
        value = int(row["objective"]["value_ps"])
        assert best.bound_ps is not None
        assert row["gap"] == pytest.approx((value - best.bound_ps) / value)
        assert sum(int(term) for term in row["terms_ps"].values()) == value
        verified = run_json(
            "verify", write(tmp_path / "plan.json", {**row["plan"], "problem": problem})
        )
        assert verified["violations"] == []
        assert verified["objective"]["value_ps"] == row["objective"]["value_ps"]
        assert verified["degrees"] == row["degrees"]
        assert row["free_bytes"] == min(
            stage["usable_bytes"] - stage["memory_bytes"] for stage in verified["stages"]
        )
    assert rows(data)["solve"]["gap"] == 0
    assert rows(data)["solve"]["mostly"] is None
    assert rows(data)["manual"]["mostly"] == "hops"


def problem_of(path: Path) -> Any:
    """Return a problem file's data, with defaults filled in."""
    return read_problem(path).model_dump(mode="json")


def test_a_diff_adds_up_and_names_the_term() -> None:
    """The changes of the terms are that of the value; the moves lead from one to the other."""
    data = run_json("compare", SPREAD, "--planners", "manual,phaze", "--diff", "solve,manual")
    between, by_name = data["diff"], rows(data)
    assert list(by_name) == ["solve", "manual", "phaze"]
    values = [int(by_name[name]["objective"]["value_ps"]) for name in ("solve", "manual")]
    assert int(between["change_ps"]) == values[1] - values[0]
    assert sum(int(term) for term in between["terms_ps"].values()) == values[1] - values[0]
    assert set(between["terms_ps"]) == set(TERMS)
    assert between["mostly"] == max(TERMS, key=lambda name: int(between["terms_ps"][name]))
    moved = {move["dimension"]: (move["before"], move["after"]) for move in between["moves"]}
    for name, (before, after) in moved.items():
        if name in ("order", "dp", "tp", "pp"):
            assert before == by_name["solve"]["degrees"][name]
            assert after == by_name["manual"]["degrees"][name]
    assert "order" in moved


def test_a_diff_the_other_way_has_the_opposite_signs() -> None:
    """From the slower plan to the faster one all changes are negated, and the term is the same."""
    found = compare(read_problem(SPREAD), ["manual"])
    there, back = found.diff("solve", "manual"), found.diff("manual", "solve")
    assert there is not None
    assert back is not None
    assert back.change_ps == -there.change_ps < 0
    assert back.terms_ps == {name: -change for name, change in there.terms_ps.items()}
    assert back.mostly == there.mostly
    same = found.diff("solve", "solve")
    assert same is not None
    assert (same.change_ps, same.mostly, same.moves) == (0, None, ())
    with pytest.raises(InstanceError, match="diff: found 'alpa', one of these is needed: solve"):
        found.diff("alpa", "solve")


def test_the_report() -> None:
    """Values, plans side by side, causes, and a sentence on each planner fit in 80 columns."""
    result = run("compare", SPREAD, "--budget", 40, "--diff", "manual,solve")
    assert result.exit_code == 0
    assert all(len(line) <= 80 for line in result.stdout.splitlines())
    text = " ".join(result.stdout.split())
    assert "over the best plan, mostly hops (+" in text
    assert "no plan: no submeshes of one shape cover all devices" in text
    assert "diff: manual -> solve" in text
    assert "order dp-inner -> pp-inner" in text
    assert "most of it" in text


def test_a_diff_with_a_planner_without_a_plan() -> None:
    """There is nothing to compare, which report and JSON say."""
    options = ("compare", SPREAD, "--planners", "alpa", "--diff", "alpa,solve")
    assert run_json(*options)["diff"] is None
    assert "one of the two has no plan" in run(*options).stdout


def test_where_nothing_fits() -> None:
    """Exit code 1, a reason for each planner, and `solve` to say why."""
    path = TINY / "infeasible-layer.json"
    result = run("compare", path, "--budget", 5)
    assert result.exit_code == 1
    text = " ".join(result.stdout.split())
    assert "infeasible: `nest-opt solve` says why" in text
    assert text.count("no plan: ") == len(PLANNER_NAMES)
    data = run_json("compare", path, "--budget", 5)
    assert data["bound_ps"] is None
    assert all(row["plan"] is None and row["reason"] for row in data["planners"])


def test_fixes_hold_for_all() -> None:
    """What --fix leaves is the search space of the search and of every planner."""
    data = run_json("compare", SPREAD, "--fix", "pp=1", "--budget", 20)
    degrees = [row["degrees"] for row in data["planners"] if row["degrees"]]
    assert len(degrees) > 2
    assert {each["pp"] for each in degrees} == {1}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--planners", "manual,megatron"), "planners: found 'megatron', the planners are manual"),
        (("--planners", "manual,manual"), "planners: found 'manual' twice, once is allowed"),
        (("--diff", "manual"), "--diff: found 'manual', two different names are needed"),
        (
            ("--planners", "phaze", "--diff", "manual,solve"),
            "--diff: found 'manual', one of solve, phaze is needed",
        ),
        (("--budget", 0), "budget: found 0, 1 at least is needed"),
    ],
)
def test_wrong_input(options: tuple[object, ...], message: str) -> None:
    """A wrong name or number is named, with what is allowed; exit code 2."""
    result = run("compare", SPREAD, *options, width=200)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_other_problems_are_refused() -> None:
    """The artifact's cost model and placement graphs are refused before any search."""
    search = {"recompute": ["none"], "order": ["pp-inner"], "pitch": ["tight"]}
    artifact = sample(job={"cost_model": "artifact"}, search=search)
    with pytest.raises(InstanceError, match="know the default cost model alone"):
        compare(artifact)
    with pytest.raises(InstanceError, match="the planners know pipelines alone"):
        compare(random_graph(0))


def test_an_interrupt_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in a planner's turn ends the comparison with the rows so far."""

    def stop(self: ManualPlanner, problem: Problem) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ManualPlanner, "plan", stop)
    found = compare(read_problem(SPREAD), ["phaze", "manual", "random"], budget=5)
    assert found.status == "interrupted"
    assert [row.planner for row in found.rows] == ["solve", "phaze"]
    result = run("compare", SPREAD, "--planners", "phaze,manual")
    assert result.exit_code == 0
    assert "interrupted: some planners had no turn" in " ".join(result.stdout.split())


def test_an_interrupted_search_is_all_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the search leaves its best plan so far, and no planner has a turn."""
    calls = 0

    def stop(self: ComparisonProgress, done: int, total: int, best_ps: int | None) -> None:
        nonlocal calls
        calls += best_ps is not None
        if calls:
            raise KeyboardInterrupt

    monkeypatch.setattr(ComparisonProgress, "__call__", stop)
    path = INSTANCES / "paper" / "bert-large-paper-h100-spineleaf-64.json"
    data = run_json("compare", path, "--planners", "manual")
    assert data["status"] == "interrupted"
    assert list(rows(data)) == ["solve"]
    assert rows(data)["solve"]["plan"] is not None
    assert rows(data)["solve"]["gap"] >= 0


def test_a_bar_tells_whose_turn_it_is() -> None:
    """One bar for the search and the planners after it, once they take a while."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=80)
    seconds = count(step=10)
    with ComparisonProgress(2, console, lambda: next(seconds)) as progress:
        progress(1, 2, None)
        for name in ("manual", "mcmc"):
            progress.planner(name)
    assert "planner mcmc" in stream.getvalue()
    assert "1/2" in stream.getvalue()


@dataclass(frozen=True)
class Liar:
    """A planner of one's own, whose plans say of themselves what they are told to."""

    pitch: int
    name: str = "liar"

    def plan(self, problem: Problem) -> Outcome:
        """Return the plan of `manual` with a pitch."""
        found = ManualPlanner().plan(problem)
        assert found.plan is not None
        plan = found.plan.model_copy(update={"pitch": self.pitch, "objective": None})
        return replace(found, planner=self.name, plan=plan)


def test_planners_of_ones_own_are_checked() -> None:
    """A legal plan is evaluated anew, an illegal one is none, and a name stands once."""
    problem = read_problem(SPREAD)
    plan = ManualPlanner().plan(problem).plan
    assert plan is not None
    assert plan.pitch is not None
    found = compare(problem, ["manual", Liar(plan.pitch)])
    values = [row.evaluation.value_ps for row in found.outcomes if row.evaluation]
    assert len(values) == 2
    assert values[0] == values[1]
    (illegal,) = compare(problem, [Liar(1)]).outcomes
    assert (illegal.plan, illegal.evaluation) == (None, None)
    assert illegal.reason is not None
    assert illegal.reason.startswith("its plan is illegal: devices")
    for name in ("solve", "manual"):
        with pytest.raises(InstanceError, match=f"planners: found '{name}' twice"):
            compare(problem, ["manual", Liar(1, name)])


def test_a_derived_problem() -> None:
    """Names of model and cluster do in place of a file."""
    options = ("--model", "bert-large", "--cluster", "dgx-h100", "--devices", 8)
    data = run_json("compare", *options, "--global-batch", 64, "--planners", "manual")
    assert rows(data)["manual"]["plan"] is not None
    assert comparison.SOLVE in rows(data)


def test_problem_data_is_not_changed(tmp_path: Path) -> None:
    """A file with defaults left out is compared as it is."""
    path = write(tmp_path / "problem.json", problem_data())
    assert run("compare", path, "--budget", 5).exit_code == 0
