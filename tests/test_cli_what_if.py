"""`--what-if` and `--explain`: more about the best plan."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write
from samples import problem_data

from nest_opt import api
from nest_opt.cli.units import bytes_text, change_text, seconds_text
from nest_opt.dp.search import _Incumbents

OPTIONS = ("--model", "bert-large", "--cluster", "dgx-h100", "--devices", 8, "--global-batch", 64)


def questions(*texts: str) -> tuple[str, ...]:
    """Return the options that ask these questions."""
    return tuple(part for text in texts for part in ("--what-if", text))


@pytest.mark.parametrize(
    ("text", "fixes"),
    [
        ("tp=4", ("tp=4",)),
        ("pp=2", ("pp=2",)),
        ("b=1,2", ("microbatch=1,2",)),
        ("tp=2+pp=2", ("tp=2", "pp=2")),
        ("sp=true + recompute=full", ("sp=true", "recompute=full")),
    ],
)
def test_an_answer_is_the_search_with_that_fixed(text: str, fixes: tuple[str, ...]) -> None:
    """Value, degrees and memory are those of `solve --fix`; the change follows from the values."""
    data = run_json("solve", *OPTIONS, *questions(text))
    fixed = run_json("solve", *OPTIONS, *(part for fix in fixes for part in ("--fix", fix)))
    (answer,) = data["what_if"]
    best, value = (int(each["objective"]["value_ps"]) for each in (data, fixed))
    assert answer["what_if"] == text
    assert answer["status"] == "optimal"
    assert answer["objective"] == fixed["objective"]
    assert answer["throughput"] == fixed["throughput"]
    assert answer["change"] == pytest.approx((value - best) / best, rel=1e-12)
    assert answer["change"] >= 0
    plan = fixed["plan"]
    for name in ("microbatch", "tp", "cp", "ep", "sp", "dp", "order", "pitch"):
        assert answer["degrees"][name] == plan.get(name, answer["degrees"][name])
    assert answer["degrees"]["pp"] == len(plan["stages"])
    assert (answer["error"], answer["diagnosis"]) == (None, None)


def test_the_fullest_stage_is_that_of_verify(tmp_path: Path) -> None:
    """Number, bytes and free bytes are those of the stage that `verify` finds fullest."""
    (answer,) = run_json("solve", *OPTIONS, *questions("pp=3+tp=1"))["what_if"]
    path = tmp_path / "plan.json"
    run("solve", *OPTIONS, "--fix", "pp=3", "--fix", "tp=1", "-o", path)
    stages = run_json("verify", path)["stages"]
    fullest = max(stages, key=lambda stage: int(stage["memory_bytes"]))
    assert answer["fullest_stage"] == {
        "stage": fullest["stage"],
        "memory_bytes": fullest["memory_bytes"],
        "usable_bytes": fullest["usable_bytes"],
        "free_bytes": fullest["usable_bytes"] - fullest["memory_bytes"],
    }


def test_answers_are_rows_of_a_table() -> None:
    """Each row has the value, the change, the degrees and what is free, in 80 columns."""
    texts = ("tp=8", "pp=3", "tp=2+pp=2+dp=2")
    result = run("solve", *OPTIONS, *questions(*texts))
    data = run_json("solve", *OPTIONS, *questions(*texts))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    first = next(line.split() for line in lines if line.startswith(" (best plan)"))
    assert first[2:4] == seconds_text(int(data["objective"]["value_ps"])).split()
    for text, answer in zip(texts, data["what_if"], strict=True):
        row = next(line for line in lines if line.startswith(f" {text} ")).split()
        degrees = answer["degrees"]
        assert row == [
            text,
            *seconds_text(int(answer["objective"]["value_ps"])).split(),
            change_text(answer["change"]),
            *(str(degrees[name]) for name in ("microbatch", "tp", "cp", "ep")),
            "on" if degrees["sp"] else "off",
            *(str(degrees[name]) for name in ("dp", "pp")),
            *bytes_text(answer["fullest_stage"]["free_bytes"]).split(),
        ]


def test_reasons_come_with_answers_that_have_no_plan() -> None:
    """What does not fit has its diagnosis, what is no problem its error; the others stand."""
    options = ("--model", "llama-2-7b", *OPTIONS[2:])
    texts = ("dp=8", "tp=3", "dp=3", "tp=2")
    data = run_json("solve", *options, *questions(*texts))
    status = [answer["status"] for answer in data["what_if"]]
    assert status == ["infeasible", "refused", "refused", "optimal"]
    memory, unprofiled, undivided, fits = data["what_if"]
    assert memory["diagnosis"]["reason"] == "memory"
    assert memory["diagnosis"]["degrees"]["dp"] == 8
    assert "--what-if: tp=3 has no profile" in unprofiled["error"]
    assert "job.global_batch: found 64" in undivided["error"]
    assert fits["degrees"]["tp"] == 2
    for answer in (memory, unprofiled, undivided):
        assert answer["degrees"] is answer["change"] is answer["fullest_stage"] is None
        assert answer["objective"]["value_ps"] is None
    result = run("solve", *options, *questions(*texts), width=120)
    assert result.exit_code == 0
    assert "dp=8       infeasible: stage 0 of 1 needs" in result.stdout
    assert "tp=3       --what-if: tp=3 has no profile" in result.stdout


def test_a_question_replaces_what_is_fixed() -> None:
    """Of the dimension that both name the question's value counts, of others --fix stays."""
    data = run_json("solve", *OPTIONS, "--fix", "tp=1", "--fix", "pp=2", *questions("tp=4"))
    fixed = run_json("solve", *OPTIONS, "--fix", "tp=4", "--fix", "pp=2")
    (answer,) = data["what_if"]
    assert len(data["plan"]["stages"]) == answer["degrees"]["pp"] == 2
    assert answer["objective"] == fixed["objective"]
    assert answer["degrees"]["sp"] == fixed["plan"].get("sp", False)


def test_answers_stand_beside_an_infeasible_problem(tmp_path: Path) -> None:
    """Where --fix leaves no plan, a question may; there is no change to state."""
    path = write(
        tmp_path / "problem.json", problem_data(layers=4, sizes=(4, 1), memory_bytes=20_000)
    )
    result = run("solve", path, "--fix", "pp=2", *questions("pp=4"), "--json")
    data = json.loads(result.stdout)
    assert result.exit_code == 1
    assert data["status"] == "infeasible"
    assert data["what_if"][0]["status"] == "optimal"
    assert data["what_if"][0]["change"] is None
    text = run("solve", path, "--fix", "pp=2", *questions("pp=4")).stdout
    assert re.search(r"^ \(best plan\) +none$", text, re.MULTILINE)
    assert " pp=4 " in text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tp", "--what-if: found 'tp' without a '='"),
        ("tp=", "--what-if tp: found '', legal values are whole numbers from 1"),
        ("zz=1", "--what-if: found key 'zz', KEY=VALUE is needed"),
        ("tp=2+", "--what-if: found '' without a '='"),
        ("tp=2+tp=4", "--what-if: found tp 2 times, 1 is allowed"),
        ("recompute=some", "--what-if recompute: found 'some', legal values are none, selective"),
    ],
)
def test_malformed_questions_are_refused(text: str, message: str) -> None:
    """A question that cannot be read exits with 2 before any search."""
    result = run("solve", *OPTIONS, *questions("tp=1", text))
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


def test_no_questions_after_an_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that Ctrl-C ended is not followed by others, and one of those is the last."""
    true, add = api.solve_pipeline, _Incumbents.add

    # However few cells a search solves, it is ended by its first plan.
    def interrupt(*arguments: Any) -> None:
        add(*arguments)
        raise KeyboardInterrupt

    def second_is_interrupted(*arguments: Any) -> api.SolveResult:
        first = true(*arguments[:1])
        monkeypatch.setattr(_Incumbents, "add", interrupt)
        monkeypatch.setattr(api, "solve_pipeline", true)
        return first

    monkeypatch.setattr(api, "solve_pipeline", second_is_interrupted)
    asked = questions("pp=2,3,4", "pp=4")
    data = run_json("solve", *OPTIONS, *asked)
    assert data["status"] == "optimal"
    assert [answer["status"] for answer in data["what_if"]] == ["interrupted"]
    data = run_json("solve", *OPTIONS, *asked)
    assert data["status"] == "interrupted"
    assert "what_if" not in data


# --explain


def test_explain_is_what_verify_says(tmp_path: Path) -> None:
    """Terms of objective and stages are those of `verify`, in text and in JSON."""
    path = tmp_path / "plan.json"
    options = (*OPTIONS, "--fix", "pp=3")
    text = run("solve", *options, "--explain", "-o", path).stdout
    verified = run("verify", path).stdout
    terms = verified[verified.index("\nvalue ") : verified.index("\nlegal: no violation")]
    assert terms.count("\nstage ") == 3
    assert terms in text
    assert "stage 0:" not in run("solve", *options).stdout
    data, found = run_json("solve", *options, "--explain"), run_json("verify", path)
    for name in ("formula", "terms", "microbatches_per_pipeline", "stages"):
        assert data["explanation"][name] == found[name]


def test_explain_without_a_plan() -> None:
    """An infeasible problem has its diagnosis in place of an explanation."""
    options = ("--model", "llama-2-7b", *OPTIONS[2:4], "--devices", 1, *OPTIONS[6:])
    assert run_json("solve", *options, "--explain")["explanation"] is None
    assert run("solve", *options, "--explain").exit_code == 1
