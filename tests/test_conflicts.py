"""A problem without a plan gets a minimal set of requirements that rule all plans out."""

import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write
from free_brute_force import free_brute_force
from free_instances import free_data
from random_instances import MAKERS, WATTS, random_data
from samples import problem_data
from seeds import enough, thinned

import nest_opt
from nest_opt import InstanceError, Problem, exact, solve
from nest_opt.certify.brute_force import enumerate_cells, enumerate_plans
from nest_opt.conflicts import (
    BATCH,
    MEMORY,
    Conflict,
    Requirement,
    find_conflict,
    find_exact_conflict,
)
from nest_opt.dp.search import SearchResult
from nest_opt.dp.sources import cell_source
from nest_opt.errors import ConsistencyError
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.violation import Violation
from nest_opt.problem import rule_of
from nest_opt.problem.validation import build
from nest_opt.registry import unregister

NAME = "few-stages"
SEEDS = range(300)
FREE_SEEDS = (1, 20, 25)


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    """Leave no registration behind."""
    yield
    unregister(NAME)


def crowded(seed: int) -> dict[str, Any]:
    """Return the problem of a seed with several constraints more."""
    rng = random.Random(f"crowded {seed}")
    data = random_data(seed)
    data["cluster"]["device_kinds"]["device"]["watts"] = WATTS
    made = [rng.choice(list(MAKERS.values()))(rng, data) for _ in range(rng.randint(1, 4))]
    data["constraints"] = [*data.get("constraints", ()), *filter(None, made)]
    return data


def infeasible(seeds: Iterable[int]) -> Iterator[tuple[dict[str, Any], Problem, Conflict]]:
    """Yield the problems of some seeds that have no plan, with the conflict that is told."""
    for seed in seeds:
        data = crowded(seed)
        try:
            problem = build(Problem, data, f"seed {seed}")
            result = solve(problem)
        except InstanceError:
            continue
        if result.status == "infeasible":
            assert result.conflict is not None
            assert result.diagnosis is not None
            # Memory is named exactly if more of it would help.
            assert (MEMORY in result.conflict.members) == (result.diagnosis.heaviest is not None)
            yield data, problem, result.conflict


def requirements(problem: Problem) -> set[Requirement]:
    """Return all that a problem asks for."""
    constraints = {
        Requirement(rule_of(each), place) for place, each in enumerate(problem.constraints)
    }
    return {MEMORY, BATCH} | constraints


def with_requirements(data: dict[str, Any], kept: Collection[Requirement]) -> Problem:
    """Return a problem with some of its requirements."""
    places = {requirement.place for requirement in kept}
    constraints = [c for place, c in enumerate(data.get("constraints", ())) if place in places]
    kind = dict(data["cluster"]["device_kinds"]["device"])
    if MEMORY not in kept:
        kind["memory_bytes"] = 10**14
    cluster = {**data["cluster"], "device_kinds": {"device": kind}}
    job = {**data["job"], "pad": BATCH not in kept or data["job"].get("pad", False)}
    changed = {**data, "constraints": constraints, "cluster": cluster, "job": job}
    return build(Problem, changed, "some requirements")


def has_plan(data: dict[str, Any], kept: set[Requirement]) -> bool:
    """Whether enumeration finds a plan that keeps some requirements."""
    costs = Costs(with_requirements(data, kept))
    return any(
        not check(costs, cell.placement(plan.ends, tuple(s.recompute for s in plan.stages)))
        for cell in enumerate_cells(costs.problem)
        for plan in enumerate_plans(costs, cell)
    )


def test_conflicts_are_sufficient_and_minimal() -> None:
    """By enumeration no plan keeps a conflict, one keeps all of it but any one; and who cures."""
    seen = 0
    for data, problem, conflict in infeasible(thinned(SEEDS)):
        members, every = set(conflict.members), requirements(problem)
        assert not has_plan(data, members), problem.name
        for member in members:
            assert has_plan(data, members - {member}), (problem.name, member)
            assert has_plan(data, every - {member}) == (member in conflict.curing)
        seen += 1
    assert seen >= enough(100)


def test_conflicts_of_all_sorts_are_told() -> None:
    """The seeds have conflicts of one and of several members, of every kind, cured and half."""
    sizes: Counter[int] = Counter()
    rules: Counter[str] = Counter()
    partly = 0
    for _, _, conflict in infeasible(SEEDS):
        sizes[len(conflict.members)] += 1
        partly += len(conflict.curing) < len(conflict.members)
        rules.update(member.rule for member in conflict.members)
    assert sum(sizes.values()) >= 100
    assert sum(count for size, count in sizes.items() if size > 1) >= 30
    assert partly >= 5
    assert {"memory", "batch", "colocation", "hop-latency", *MAKERS} <= set(rules)


def test_a_plan_that_fits_is_a_defect() -> None:
    """Asked why a problem that has a plan has none, the search contradicts itself."""
    costs = Costs(build(Problem, problem_data(), "problem"))
    with pytest.raises(ConsistencyError, match="please report"):
        find_conflict(costs, cell_source(costs))


APART = {"type": "anti-colocation", "layers": ["layer-0", "layer-1"]}
TOGETHER = {"type": "colocation", "layers": ["layer-0", "layer-2"]}
NO_HOPS = {"type": "hop-latency", "limit_s": 0}
TWO_STAGES = {"type": "degree-limit", "degree": "pp", "at_least": 2}
ONE_STAGE = {"type": "user", "name": NAME, "parameters": {"most": 1}}


def few_stages(constraint: Any, costs: Any, placement: Any, evaluation: Any) -> Iterator[Violation]:
    """Refuse more stages than a parameter says."""
    if placement.stages > constraint.parameters["most"]:
        yield Violation(f"user:{NAME}", f"{placement.stages} stages", "fewer", "use fewer")


def few_stages_rows(constraint: Any, model: Any, costs: Any, k: Any, name: str) -> None:
    """Add a row that no plan of more stages keeps."""
    import pyomo.environ as pyo

    rows = pyo.ConstraintList()
    model.add_component(name, rows)
    if k.stages > constraint.parameters["most"]:
        rows.add(model.a[0, 0] == 0)


@pytest.mark.parametrize(
    ("constraints", "told"),
    [
        (
            [NO_HOPS, APART],
            "constraints[0] (hop-latency) and constraints[1] (anti-colocation) together rule out "
            "every plan, and no fewer of them do; without any one of them there is a plan",
        ),
        (
            [APART, NO_HOPS, TOGETHER],
            "constraints[0] (anti-colocation) and constraints[2] (colocation) together rule out "
            "every plan, and no fewer of them do; without constraints[0] (anti-colocation) there "
            "is a plan",
        ),
        (
            [{"type": "degree-limit", "degree": "pp", "at_least": 9}],
            "constraints[0] (degree-limit) alone rules out every plan; without it there is a plan",
        ),
        (
            [{"type": "degree-limit", "degree": "dp", "multiple_of": 3}],
            "constraints[0] (degree-limit) and batch together rule out every plan, and no fewer "
            "of them do; without any one of them there is a plan",
        ),
        (
            [TWO_STAGES, NO_HOPS, {"type": "degree-limit", "degree": "pp", "at_least": 9}],
            "constraints[2] (degree-limit) alone rules out every plan; other constraints rule out "
            "every plan too",
        ),
    ],
)
def test_the_command_line_names_the_conflict(
    tmp_path: Path, constraints: list[dict[str, Any]], told: str
) -> None:
    """`solve` and `exact` print the same conflict, and the same fields in JSON."""
    path = write(tmp_path / "problem.json", problem_data(constraints=constraints))
    for command in ("solve", "exact"):
        lines = run(command, path, width=400).output.splitlines()
        assert [line.split(maxsplit=1)[1] for line in lines if line[:8] == "conflict"] == [told]
        conflict = run_json(command, path)["diagnosis"]["conflict"]
        named = [
            f"constraints[{each['constraint']}] ({each['rule']})"
            if each["constraint"] is not None
            else each["rule"]
            for each in conflict["members"]
        ]
        assert [told.find(name) for name in named] == sorted(told.find(name) for name in named)
        assert all(name in told for name in named)
        assert conflict["left_out"] == []


def test_memory_and_a_constraint(tmp_path: Path) -> None:
    """What memory asks for, several stages, a constraint forbids: both are named."""
    data = problem_data(memory_bytes=40_000, constraints=[NO_HOPS], search={"dp": [1]})
    output = run("solve", write(tmp_path / "problem.json", data), width=400).output
    assert "stage 0 of 1 needs" in output
    assert "memory and constraints[0] (hop-latency) together rule out every plan" in output


def test_memory_alone_is_not_told_twice(tmp_path: Path) -> None:
    """Without constraints the report on the heaviest stage says it all; JSON has the conflict."""
    path = write(tmp_path / "problem.json", problem_data(memory_bytes=100))
    assert "conflict" not in run("solve", path).output
    conflict = run_json("solve", path)["diagnosis"]["conflict"]
    memory = {"rule": "memory", "constraint": None}
    assert conflict == {"members": [memory], "curing": [memory], "left_out": []}


def test_the_search_space_alone() -> None:
    """Where nothing that may be left out is to blame, the conflict is empty."""
    search = {"dp": [3], "order": ["pp-inner"], "pitch": ["level"]}
    data = problem_data(sizes=(3,), global_batch=9, search=search)
    result = solve(build(Problem, data, "problem"))
    assert result.status == "infeasible"
    assert result.conflict == Conflict((), ())


def test_constraints_without_a_rule_are_the_programs_business(tmp_path: Path) -> None:
    """`solve` leaves them out of the conflict and says so; `exact` finds those that they are in."""
    nest_opt.register(NAME, few_stages, milp=few_stages_rows)
    user = Requirement(f"user:{NAME}", 1)

    result = solve(
        build(Problem, problem_data(constraints=[NO_HOPS, ONE_STAGE, APART]), "left out")
    )
    assert result.conflict is not None
    assert [each.place for each in result.conflict.members] == [0, 2]
    assert result.conflict.left_out == (user,)

    data = problem_data(constraints=[TWO_STAGES, ONE_STAGE])
    found = exact(build(Problem, data, "exact"))
    assert (found.start.status, found.status) == ("relaxed", "infeasible")
    members = (Requirement("degree-limit", 0), user)
    assert found.conflict == Conflict(members, members)
    path = write(tmp_path / "problem.json", data)
    assert (
        "and constraints[1] (user:few-stages) together rule out"
        in run("exact", path, width=400).output
    )
    told = run_json("exact", path)
    assert "broken" not in told
    assert [each["constraint"] for each in told["diagnosis"]["conflict"]["members"]] == [0, 1]


def test_memory_against_a_constraint_without_a_rule() -> None:
    """The programs are asked without memory too; out of time, there is no conflict to tell."""
    nest_opt.register(NAME, few_stages, milp=few_stages_rows)
    data = problem_data(memory_bytes=40_000, constraints=[ONE_STAGE], search={"dp": [1]})
    problem = build(Problem, data, "memory")
    found = exact(problem)
    assert found.conflict is not None
    assert found.conflict.members == (MEMORY, Requirement(f"user:{NAME}", 0))
    costs = Costs(problem)
    assert find_exact_conflict(costs, cell_source(costs), time_limit_s=0) is None


def free_without_plan(seed: int) -> dict[str, Any]:
    """Return the problem of a seed with two constraints more."""
    rng = random.Random(seed)
    data = free_data(seed)
    for make in rng.choices(list(MAKERS.values()), k=2):
        made = make(rng, data)
        data["constraints"] = [*data.get("constraints", ()), *([made] if made else [])]
    return data


@pytest.mark.parametrize("seed", FREE_SEEDS)
def test_conflicts_of_the_free_family(seed: int) -> None:
    """By enumeration no free plan keeps them, and one keeps all of them but any one."""
    data = free_without_plan(seed)
    problem = build(Problem, data, f"seed {seed}")
    found = exact(problem, family="free")
    assert found.status == "infeasible"
    assert found.conflict is not None
    assert found.start.conflict is not None
    # The aligned family has fewer plans: of these, less rules out every one.
    assert set(found.start.conflict.members) < set(found.conflict.members)
    members = set(found.conflict.members)
    for kept in (members, *(members - {member} for member in members)):
        best = free_brute_force(with_requirements(data, kept))
        assert best is not None
        assert (best.value_ps is None) == (kept == members)


def test_a_free_plan_where_there_is_no_aligned_one(tmp_path: Path) -> None:
    """Then there is neither a conflict nor a diagnosis."""
    data = problem_data(
        sizes=(4, 2),
        global_batch=4,
        constraints=[{"type": "hop-latency", "limit_s": 1e-6}],
        search={"dp": [2], "pp": [3], "pitch": ["tight"]},
    )
    found = exact(build(Problem, data, "free alone"), family="free")
    assert (found.start.status, found.status) == ("infeasible", "optimal")
    assert found.conflict is None
    told = run_json("exact", write(tmp_path / "problem.json", data), "--family", "free")
    assert (told["status"], "diagnosis" in told) == ("optimal", False)


def test_neither_family_has_a_plan(tmp_path: Path) -> None:
    """`exact --family free` says so, with the conflict of that family."""
    path = write(tmp_path / "problem.json", problem_data(constraints=[APART, TOGETHER]))
    output = run("exact", path, "--family", "free", width=400).output
    assert output.startswith("infeasible: the free family has no plan\n")
    assert "constraints[0] (anti-colocation) and constraints[1] (colocation) together" in output


def test_an_interrupt_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search of stages that differ, stopped before it has a plan, does not say there is none."""
    data = free_without_plan(20)
    data["search"]["per_stage"] = ["tp"]
    costs = Costs(build(Problem, data, "interrupted"))
    stopped = SearchResult("interrupted", None, None, 0, 1, 0)
    monkeypatch.setattr("nest_opt.conflicts.search_all", lambda *_: stopped)
    # As where memory suffices, and it depends on the device map whether there is a plan.
    monkeypatch.setattr("nest_opt.conflicts.staged_fits", lambda *_: None)
    assert find_exact_conflict(costs, cell_source(costs), None) is None


def stop(_: int, __: int, value_ps: int | None) -> None:
    """Interrupt: a progress callback."""
    raise KeyboardInterrupt


@pytest.mark.parametrize("per_stage", [[], ["tp"]])
def test_an_interrupt_keeps_that_there_is_no_plan(per_stage: list[str]) -> None:
    """Ctrl-C at any step of diagnosis and conflict leaves `infeasible`, and what was known."""
    data = free_without_plan(20)
    data["search"]["per_stage"] = per_stage
    problem = build(Problem, data, "interrupted")
    whole = solve(problem)
    assert whole.status == "infeasible"
    assert not whole.cut_short
    assert whole.diagnosis is not None
    steps: list[int] = []
    solve(problem, lambda *_: steps.append(1))
    seen = []
    for last in range(1, len(steps) + 1):
        left = iter(range(last))

        def count(*step: Any, left: Iterator[int] = left, last: int = last) -> None:
            if next(left) == last - 1:
                stop(*step)

        result = solve(problem, count)
        if result.status == "interrupted":
            continue
        assert result.status == "infeasible"
        assert result.cut_short
        assert result.conflict is None
        assert result.diagnosis is not None
        if result.diagnosis.complete:
            assert result.diagnosis == whole.diagnosis
        seen.append(result.diagnosis.complete)
        exactly = exact(problem, start=result)
        assert (exactly.status, exactly.bound_vouched_by) == ("infeasible", "dynamic program")
    assert set(seen) == {True, False}


def test_an_interrupted_diagnosis_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """After Ctrl-C in the diagnosis the report says that there is no plan, and not why."""
    path = write(tmp_path / "problem.json", problem_data(constraints=[APART, TOGETHER]))
    known = run_json("solve", path)["diagnosis"]
    assert known["complete"]
    monkeypatch.setattr("nest_opt.dp.infeasible._compare", stop)
    text = run("solve", path, width=300).output
    assert text.startswith("infeasible: there is no plan; why was not found before the search")
    assert "conflict   not known: the search for it was cut short" in text
    data = run_json("solve", path)
    assert (data["status"], data["diagnosis"]["reason"]) == ("infeasible", "unknown")
    assert not data["diagnosis"]["complete"]
