"""`solve --top` and `solve --front`: more plans than the best one."""

import json
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write
from samples import problem_data

from nest_opt import memory_front
from nest_opt.cli.progress import SearchProgress
from nest_opt.cli.solve_command import DEFAULT_POINTS

OPTIONS = ("--model", "bert-large", "--cluster", "dgx-h100", "--devices", 8, "--global-batch", 64)


def values(plans: list[dict[str, Any]]) -> list[int]:
    """Return the values of plans in picoseconds."""
    return [int(each["value_ps"]) for each in plans]


def test_the_ranking_in_json(tmp_path: Path) -> None:
    """The first is the best plan, -o writes it, values rise, and each plan verifies as it is."""
    path = tmp_path / "plan.json"
    data = run_json("solve", *OPTIONS, "--top", 4, "-o", path)
    assert data["status"] == "optimal"
    plans = data["plans"]
    assert len(plans) == 4
    assert json.loads(path.read_text()) == data["plan"]
    assert values(plans)[0] == int(data["objective"]["value_ps"])
    assert values(plans) == sorted(values(plans))
    assert int(data["rest_bound_ps"]) == values(plans)[-1]
    problem = data["plan"].pop("problem")
    assert plans[0]["plan"] == data["plan"]
    for number, each in enumerate(plans):
        file = write(tmp_path / f"{number}.json", {**each["plan"], "problem": problem})
        verified = run_json("verify", file)
        assert verified["violations"] == []
        assert verified["objective"]["value_ps"] == each["value_ps"]
        stages = verified["stages"]
        assert each["peak_bytes"] == max(stage["memory_bytes"] for stage in stages)
        assert each["free_bytes"] == min(s["usable_bytes"] - s["memory_bytes"] for s in stages)
        assert verified["degrees"] == each["degrees"]
        assert verified["devices"] == each["devices"]


def test_fewer_plans_than_asked_for(tmp_path: Path) -> None:
    """Where there are fewer cells with plans than asked for, report and JSON say so."""
    data = problem_data(layers=2, sizes=(2,), search={"dp": [1], "pp": [1, 2]})
    path = write(tmp_path / "problem.json", data)
    found = run_json("solve", path, "--top", 9)
    assert (len(found["plans"]), found["rest_bound_ps"]) == (2, None)
    text = run("solve", path, "--top", 9).stdout
    assert "2 plans: no other degrees or device maps have any" in text


def test_without_the_options_there_is_no_list() -> None:
    """The fields are there only when asked for."""
    assert not {"plans", "rest_bound_ps", "front"} & set(run_json("solve", *OPTIONS))


def test_the_front_in_json() -> None:
    """Values rise and peaks fall; its first plan has the best plan's value."""
    data = run_json("solve", *OPTIONS, "--front", "--front-points", 4)
    found = data["front"]
    peaks = [each["peak_bytes"] for each in found["plans"]]
    assert found["status"] == "capped"
    assert values(found["plans"])[0] == int(data["objective"]["value_ps"])
    assert sorted(set(values(found["plans"]))) == values(found["plans"])
    assert sorted(set(peaks), reverse=True) == peaks
    assert len(peaks) == 4 < found["searches"]
    text = run("solve", *OPTIONS, "--front", "--front-points", 4).stdout
    assert "front of 4 plans, as many as were asked for" in text


def test_the_front_is_100_plans_at_most_unless_told() -> None:
    """The number in the help is that of the search."""
    assert DEFAULT_POINTS == memory_front.DEFAULT_POINTS == 100


@pytest.mark.parametrize("option", [("--top", 3), ("--front",)])
def test_where_nothing_fits_there_is_no_list(tmp_path: Path, option: tuple[object, ...]) -> None:
    """An infeasible problem has its diagnosis, and empty lists in JSON."""
    path = write(tmp_path / "problem.json", problem_data(memory_bytes=10))
    data = run_json("solve", path, *option)
    assert data["status"] == "infeasible"
    assert data["diagnosis"]["reason"] == "memory"
    assert (data["plans"] if "plans" in data else data["front"]["plans"]) == []
    assert "infeasible: " in run("solve", path, *option).stdout


@pytest.mark.parametrize(("option", "most"), [(("--top", 30), 3), (("--front",), 20)])
def test_an_interrupt_keeps_what_there_is(
    monkeypatch: pytest.MonkeyPatch, option: tuple[object, ...], most: int
) -> None:
    """After Ctrl-C the plans found so far are listed, and what is not known is said."""
    calls = 0

    def stop(self: SearchProgress, done: int, total: int, best_ps: int | None) -> None:
        nonlocal calls
        calls += best_ps is not None or "--front" in option
        if calls > most:
            raise KeyboardInterrupt

    monkeypatch.setattr(SearchProgress, "__call__", stop)
    result = run("solve", *OPTIONS, *option)
    assert result.exit_code == 0
    if option[0] == "--front":
        assert "interrupted: of less than" in " ".join(result.stdout.split())
    else:
        assert "interrupted: " in result.stdout
        assert "none takes less than" in result.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--top", 0), "top: found 0, 1 to 10,000 plans are possible"),
        (("--front", "--front-points", 0), "front: found 0 points"),
        (("--front-points", 5), "--front-points: found 5 without --front"),
        (("--top", 2, "--front"), "--top: found --front beside it"),
        (("--top", 2, "--fix", "per_stage=tp"), "top: found 2 with search.per_stage tp"),
    ],
)
def test_refusals(options: tuple[object, ...], message: str) -> None:
    """What makes no sense is refused with what was found and what to do."""
    result = run("solve", *OPTIONS, *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_smallest_has_one_plan() -> None:
    """With --smallest there is neither ranking nor front."""
    options = ("--model", "bert-large", "--cluster", "dgx-h100", "--global-batch", 64)
    result = run("solve", *options, "--smallest", "--top", 2)
    assert (result.exit_code, "--top: found --smallest beside it" in result.stderr) == (2, True)
