"""Constraints of a user's own: registered by one call, refused or relaxed honestly without."""

import contextlib
import io
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_running import run
from samples import problem_data
from test_docs import ROOT, blocks

import nest_opt
from nest_opt import InstanceError, NestOptError, Problem
from nest_opt.agreement import Disagreement
from nest_opt.certify.brute_force import brute_force
from nest_opt.dp.rules import Restriction
from nest_opt.errors import SolverError
from nest_opt.milp.exact import exact
from nest_opt.plan.violation import Violation
from nest_opt.problem import DegreeLimit
from nest_opt.problem.files import to_json_text
from nest_opt.problem.validation import build, parse_json
from nest_opt.registry import unregister

NAME = "few-stages"


def few_stages(constraint: Any, costs: Any, placement: Any, evaluation: Any) -> Iterator[Violation]:
    """Refuse more stages than a parameter says."""
    if placement.stages > constraint.parameters["most"]:
        yield Violation(f"user:{NAME}", f"{placement.stages} stages", "fewer", "use fewer")


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Leave no registration behind."""
    yield
    for name in (NAME, "short-stages"):
        unregister(name)


def problem(most: int, **search: Any) -> Problem:
    """Return a problem with the constraint, whose best plan has 2 stages if pp is fixed to 2."""
    entry = {"type": "user", "name": NAME, "parameters": {"most": most}}
    data = problem_data(search={"dp": [1], **search}, constraints=[entry])
    return build(Problem, data, "problem")


def test_the_page_runs_and_prints_what_it_shows() -> None:
    """The blocks of docs/adding_a_constraint.md are one program, with its output below each."""
    names: dict[str, Any] = {"__name__": "page"}
    printed, texts = "", 0
    for language, text in blocks(ROOT / "docs" / "adding_a_constraint.md"):
        if language == "python":
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                exec(compile(text, "docs/adding_a_constraint.md", "exec"), names)
            printed = output.getvalue()
        else:
            assert printed == text
            texts += 1
    assert texts == 4


def test_a_name_that_is_not_registered_is_refused() -> None:
    """Solving, verifying and brute force name the constraint and what would mend it."""
    told = r"constraints\[0\].name: found 'few-stages', a registered one is needed \(none\): run"
    for use in (nest_opt.solve, brute_force):
        with pytest.raises(InstanceError, match=told):
            use(problem(1))
    nest_opt.register(NAME, few_stages)
    plan = nest_opt.solve(problem(9)).plan
    assert plan is not None
    unregister(NAME)
    with pytest.raises(InstanceError, match=told):
        nest_opt.verify(plan)


def test_a_relaxed_optimum_that_keeps_the_constraint_is_optimal() -> None:
    """Without a rule, a best plan that the checker passes is as good as brute force finds."""
    nest_opt.register(NAME, few_stages)
    result = nest_opt.solve(problem(2, pp=[2]))
    assert (result.status, result.relaxed, result.broken) == ("optimal", (f"user:{NAME}",), ())
    assert result.evaluation is not None
    assert result.evaluation.value_ps == brute_force(problem(2, pp=[2])).value_ps


def test_a_relaxed_optimum_that_breaks_the_constraint_is_a_bound() -> None:
    """Without a rule, no plan is claimed; the bound is below the best legal plan's value."""
    nest_opt.register(NAME, few_stages)
    result = nest_opt.solve(problem(1))
    best = brute_force(problem(1)).value_ps
    assert (result.status, result.plan, result.evaluation) == ("relaxed", None, None)
    assert [violation.rule for violation in result.broken] == [f"user:{NAME}"]
    assert result.bound_ps is not None
    assert best is not None
    assert result.bound_ps < best


def test_a_rule_makes_the_search_exact() -> None:
    """With the rule the value is that of brute force, and nothing is relaxed."""
    nest_opt.register(NAME, few_stages, dp_rule=lambda c, p: Restriction(
        cuts=frozenset(range(1, len(p.model.ids))) if c.parameters["most"] == 1 else frozenset()
    ))  # fmt: skip
    result = nest_opt.solve(problem(1))
    assert (result.status, result.relaxed) == ("optimal", ())
    assert result.evaluation is not None
    assert result.evaluation.value_ps == brute_force(problem(1)).value_ps


def some_stages(rng: random.Random, problem: Problem) -> dict[str, Any]:
    """Return a parameter for `few_stages`."""
    return {"most": rng.randint(1, 3)}


def assert_smallest(found: Disagreement) -> None:
    """Assert that a problem was shrunk to almost nothing, and from something."""
    problem, original = found.problem, found.original
    assert original is not None
    assert len(problem.model.ids) <= 2 < len(original.model.ids)
    assert problem.cluster.device_count <= 2
    assert len(problem.candidates) == len(problem.constraints) == 1
    assert problem.job.global_batch <= 3
    assert all(kind.output_bytes == {"1": 0} for kind in problem.model.used_types)


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (lambda c, p: Restriction(), "which is illegal"),
        (lambda c, p: Restriction(cuts=frozenset(range(1, len(p.model.ids)))), "brute force"),
    ],
)
def test_the_crosscheck_finds_a_wrong_rule(rule: Any, told: str) -> None:
    """A rule that takes too little, or too much, disagrees; the first is shrunk."""
    nest_opt.register(NAME, few_stages, dp_rule=rule)
    found = nest_opt.crosscheck(NAME, some_stages, count=30)
    assert 5 <= found.binding < found.problems == 30
    first, *others = found.disagreements
    assert others
    assert {each.face for each in found.disagreements} == {"search"}
    assert told in str(first)
    assert_smallest(first)
    assert all(each.original is None for each in others)
    sizes = [len(each.problem.model.ids) for each in found.disagreements]
    assert sizes == sorted(sizes)
    best = brute_force(first.problem).value_ps
    try:
        evaluation = nest_opt.solve(first.problem).evaluation
    except NestOptError:
        assert told == "which is illegal"
    else:
        assert best != (evaluation and evaluation.value_ps)


@pytest.mark.parametrize(("allowance", "told"), [(1, "which is illegal"), (-1, "brute force")])
def test_the_crosscheck_finds_wrong_rows(allowance: int, told: str) -> None:
    """Rows that forbid too little or too much disagree, though the rule of the search is right."""

    def rows(constraint: Any, model: Any, costs: Any, k: Any, name: str) -> None:
        import pyomo.environ as pyo

        component = pyo.ConstraintList()
        model.add_component(name, component)
        if k.stages > constraint.parameters["most"] + allowance:
            component.add(model.a[0, 0] == 0)

    nest_opt.register(NAME, few_stages, dp_rule=at_most_stages, milp=rows)
    found = nest_opt.crosscheck(NAME, some_stages, count=12)
    assert {each.face for each in found.disagreements} == {"program"}
    first = found.disagreements[0]
    assert told in first.told
    assert_smallest(first)
    best = brute_force(first.problem).value_ps
    try:
        assert exact(first.problem).value_ps != best
    except SolverError:
        assert told == "which is illegal"


def at_most_stages(constraint: Any, problem: Problem) -> Restriction:
    """Return the right rule of `few_stages`: a limit of pp."""
    most = constraint.parameters["most"]
    return Restriction(degrees=(DegreeLimit(type="degree-limit", degree="pp", at_most=most),))


def test_the_crosscheck_without_a_rule_checks_the_bound() -> None:
    """Without a rule some results are relaxed, and none of the bounds is above a legal plan."""
    nest_opt.register(NAME, few_stages)
    found = nest_opt.crosscheck(NAME, lambda rng, p: {"most": 1}, count=30)
    assert found.relaxed >= 5
    assert not found.disagreements
    with pytest.raises(InstanceError, match="call register first"):
        nest_opt.crosscheck("another", lambda rng, p: {})


def test_a_rule_that_takes_too_little_is_a_defect_that_is_told() -> None:
    """A rule that lets through what the checker refuses does not pass for an answer."""
    nest_opt.register(NAME, few_stages, dp_rule=lambda c, p: Restriction())
    with pytest.raises(NestOptError, match="which is illegal"):
        nest_opt.solve(problem(1))


def test_the_command_line_tells_a_relaxed_result(tmp_path: Path) -> None:
    """Status, bound and what breaks are printed and in the JSON; there is no plan."""
    nest_opt.register(NAME, few_stages)
    path = tmp_path / "problem.json"
    path.write_text(to_json_text(problem(1)), encoding="utf-8")
    text = run("solve", str(path)).output
    assert "relaxed: the best plan without user:few-stages breaks it" in text
    data = json.loads(run("solve", str(path), "--json").stdout)
    assert (data["status"], data["plan"]) == ("relaxed", None)
    assert data["bound_ps"] is not None
    assert len(data["broken"]) == 1


def test_parameters_survive_a_file() -> None:
    """Whole numbers, exact ones, texts, flags and arrays are read as they were written."""
    parameters = '{"a": 1, "b": 0.25, "c": "x", "d": true, "e": [1, 0.5, "y"]}'
    text = json.dumps(problem_data())[:-1]
    text += f', "constraints": [{{"type": "user", "name": "n", "parameters": {parameters}}}]}}'
    once = build(Problem, parse_json(text, "text"), "once")
    again = build(Problem, parse_json(to_json_text(once), "text"), "again")
    assert once == again
    assert isinstance(once.constraints[0].parameters["d"], bool)  # type: ignore[union-attr]


@pytest.mark.parametrize("value", [None, {}, [None], [[1]]])
def test_other_parameters_are_refused(value: Any) -> None:
    """Null, objects and arrays in arrays are no parameters."""
    entry = {"type": "user", "name": NAME, "parameters": {"most": value}}
    with pytest.raises(InstanceError, match=r"constraints\[0\].*most.*number, text"):
        build(Problem, problem_data(constraints=[entry]), "problem")


@pytest.mark.parametrize("name", ["", "Upper", "two words", "1st"])
def test_names_of_another_form_are_refused(name: str) -> None:
    """A name must be lower-case letters, digits and hyphens."""
    with pytest.raises(NestOptError, match="lower-case letters"):
        nest_opt.register(name, few_stages)


def nothing(*arguments: Any) -> None:
    """Return nothing, where something is needed."""


@pytest.mark.parametrize(
    ("face", "function"),
    [
        ("checker", lambda constraint: ()),
        ("dp_rule", lambda constraint: Restriction()),
        ("milp", lambda constraint, model: None),
        ("parameters", lambda source: {}),
    ],
)
def test_faces_of_other_arguments_are_refused(face: str, function: Any) -> None:
    """When they are registered, with the arguments that they would be called with."""
    faces = {"checker": lambda *_: (), face: function}
    with pytest.raises(NestOptError, match=rf"{face} of '{NAME}' that does not take \d arg"):
        nest_opt.register(NAME, **faces)


@pytest.mark.parametrize(
    ("face", "function", "told"),
    [
        ("checker", nothing, "checker of '{}': returned None, an iterable"),
        ("checker", lambda *_: ["a fault"], "checker of '{}': yielded 'a fault', a Violation"),
        ("dp_rule", nothing, "dp_rule of '{}': returned None, a Restriction"),
        ("parameters", nothing, "parameters of '{}': returned None, a Mapping"),
    ],
)
def test_faces_that_return_something_else_are_refused(face: str, function: Any, told: str) -> None:
    """When they are called, instead of an error of the package's own."""
    faces = {"checker": lambda *_: (), "parameters": lambda *_: {}, face: function}
    nest_opt.register(NAME, **faces)
    with pytest.raises(NestOptError, match=told.format(NAME)):
        nest_opt.crosscheck(NAME, count=1)
