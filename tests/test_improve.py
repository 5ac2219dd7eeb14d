"""What to change first of a configuration, against every plan there is."""

import json
import random
from collections.abc import Iterator
from functools import cache
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import pytest
from random_graphs import random_graph_data
from random_instances import random_artifact_data, random_problem, random_sharded_data
from samples import sample
from seeds import thinned

from nest_opt import InstanceError, Plan, Problem, improve, solve, verify
from nest_opt.certify.brute_force import enumerate_cells, enumerate_plans
from nest_opt.improvement import DIMENSIONS, Improvement, batch_terms
from nest_opt.improvement.changes import open_dimensions
from nest_opt.improvement.dimensions import NOT_CHANGED, known_values
from nest_opt.improvement.spaces import Searches
from nest_opt.improvement.spaces import space as part_of
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Placement
from nest_opt.plan.plan import plan_from_placement
from nest_opt.problem import SearchSpace
from nest_opt.problem.constraints import UserConstraint
from nest_opt.problem.files import read_problem
from nest_opt.problem.validation import build

ROOT = Path(__file__).resolve().parent.parent
# From SHARDED on, problems with ZeRO levels of each class and runs of replicas.
SHARDED = 1000
SEEDS = (*range(70), *range(SHARDED, SHARDED + 20))
MOST_PLANS = 6_000
DEGREES = ("microbatch", "tp", "cp", "ep", "sp", "dp", "pp", "schedule", "chunks")
ZERO = ("zero", "zero_expert", "zero_instances")
MOVE_BOUNDARIES = {"boundaries", "pp", "schedule", "chunks"}
Valued = tuple[Placement, int]


@cache
def drawn_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    if seed < SHARDED:
        return random_problem(seed)
    return build(Problem, random_sharded_data(seed - SHARDED), f"seed {seed}")


def narrowed(problem: Problem, **values: Any) -> Problem:
    """Return the problem with fields of its search space replaced."""
    search = {name: getattr(problem.search, name) for name in problem.search.model_fields_set}
    return problem.model_copy(update={"search": SearchSpace(**{**search, **values})})


@cache
def legal_plans(seed: int, orders: tuple[str, ...], pitches: tuple[str, ...]) -> list[Valued]:
    """Return every legal plan of a seed's problem with these orders and pitches, and its value."""
    problem = narrowed(drawn_problem(seed), order=orders, pitch=pitches)
    return list(every_plan(problem))


def every_plan(problem: Problem) -> Iterator[Valued]:
    """Yield every legal plan with its value."""
    costs = Costs(problem)
    for cell in enumerate_cells(problem):
        for plan in enumerate_plans(costs, cell):
            modes = tuple(stage.recompute for stage in plan.stages)
            placement = cell.placement(plan.ends, modes)
            if not problem.constraints or not check(costs, placement):
                yield placement, plan.value_ps


def degrees(problem: Problem, placement: Placement) -> dict[str, Any]:
    """Return the degrees of a placement by name."""
    named = problem.has_experts and problem.search.zero_expert is not None
    k = placement.configurations[0]
    return {
        "microbatch": placement.microbatch,
        **k._asdict(),
        "dp": placement.replicas,
        "pp": placement.stages,
        "zero": placement.zero.dense,
        **({"zero_instances": placement.zero.instances} if placement.zero else {}),
        **({"zero_expert": placement.zero.expert} if named else {}),
        "schedule": placement.schedule.name,
        **({"chunks": placement.schedule.chunks} if placement.schedule.is_interleaved else {}),
    }


def is_profiled(problem: Problem, values: dict[str, Any]) -> bool:
    """Whether a pair of the search space has these values, of what profiles are keyed by."""
    rows = [{"microbatch": b, **k._asdict()} for b, k in problem.candidates]
    asked = {name: value for name, value in values.items() if name in rows[0]}
    return any(asked.items() <= row.items() for row in rows)


def keeps(
    problem: Problem, held: dict[str, Any], released: tuple[str, ...], placement: Placement
) -> bool:
    """Whether a plan differs from what is held in what is released alone."""
    found = degrees(problem, placement)
    open_too = {"chunks"} if "schedule" in released else set()
    fixed = {
        name: value
        for name, value in held.items()
        if name in (*DEGREES, *ZERO) and name not in {*released, *open_too}
    }
    differing = {name for name, value in fixed.items() if found.get(name, value) != value}
    if differing == {"sp"} and "tp" in released:
        # Sequence parallelism ends where there is nothing to share.
        changed = {name: found[name] for name in released if name in found}
        if is_profiled(problem, {**fixed, **changed}):
            return False
    elif differing:
        return False
    stages_held = "boundaries" in held and not MOVE_BOUNDARIES & set(released)
    if stages_held and placement.ends != held["boundaries"]:
        return False
    if "recompute" in held and "recompute" not in released:
        if stages_held:
            return placement.recompute == held["recompute"]
        return set(placement.recompute) <= set(held["recompute"])
    return True


def expected(
    seed: int, held: dict[str, Any], released: tuple[str, ...], trade: bool = True
) -> int | None:
    """Return the least value of what a change reaches, by trying every plan."""
    problem = drawn_problem(seed)
    asked = {
        name: (held[name],)
        if name in held and name not in released
        else getattr(problem.search, name)
        for name in ("order", "pitch")
    }
    values = [
        value
        for placement, value in legal_plans(seed, asked["order"], asked["pitch"])
        if keeps(problem, held, released, placement)
        and (len(released) < 2 or not trade or traded(problem, held, released, placement))
    ]
    return min(values, default=None)


def traded(
    problem: Problem, held: dict[str, Any], released: tuple[str, ...], placement: Placement
) -> bool:
    """Whether two degrees differ, and their product does not."""
    first, second = released
    found = degrees(problem, placement)
    return (
        found[first] != held[first] and found[first] * found[second] == held[first] * held[second]
    )


def drawn(seed: int) -> tuple[random.Random, Problem, list[Valued]] | None:
    """Return a seed's problem and its legal plans, None if there are none or too many."""
    problem = drawn_problem(seed)
    try:
        if solve(problem).status != "optimal":
            return None
    except InstanceError:
        return None
    plans = legal_plans(seed, problem.search.order, problem.search.pitch)
    if len(plans) > MOST_PLANS:
        return None
    return random.Random(f"improve {seed}"), problem, plans


def held_plan(problem: Problem, placement: Placement, value_ps: int) -> Plan:
    """Return the plan file of a placement."""
    return plan_from_placement(problem, placement, problem.job.objective, value_ps)


def agree(seed: int, result: Improvement, held: dict[str, Any]) -> None:
    """Hold every single change against every plan, and the path against itself."""
    names = open_dimensions(result.problem, held)
    assert {each.released for each in result.changes} >= {(name,) for name in names}
    for each in result.changes:
        assert each.value_ps == expected(seed, held, each.released), (seed, each.released)
    best = [each.value_ps for each in result.changes if each.helps]
    if best:
        assert result.path[0].value_ps == min(best)
    elif result.before_ps is None:
        pairs = [expected(seed, held, both, trade=False) for both in combinations(names, 2)]
        reached = [value for value in pairs if value is not None]
        assert [each.value_ps for each in result.path[:1]] == sorted(reached)[:1]
    else:
        assert not result.path
    check_plans(result)
    check_path(result)
    assert result.optimum is not None
    assert result.optimum.evaluation == solve(result.problem).evaluation


def check_plans(result: Improvement) -> None:
    """Hold the plan of every change against the evaluator, the checker and its terms."""
    for each in (*result.changes, *result.path):
        if each.plan is None:
            continue
        checked = verify(each.plan.plan)
        assert not checked.violations
        assert checked.evaluation == each.plan.evaluation
        assert sum(batch_terms(each.plan.evaluation).values()) == each.value_ps
        if each.term_changes_ps is not None:
            assert each.gain_ps == -sum(each.term_changes_ps.values())


def check_path(result: Improvement) -> None:
    """Hold the values of a path against each other and against the optimum."""
    assert result.optimum is not None
    assert result.optimum.evaluation is not None
    values = [result.before_ps] if result.before_ps is not None else []
    for each in result.path:
        assert each.value_ps is not None
        values.append(each.value_ps)
    assert all(after < before for before, after in pairwise(values))
    least = result.optimum.evaluation.value_ps
    assert all(value >= least for value in values)
    at_the_end = values[-1] if values else None
    assert (result.rest is None) == (at_the_end == least)


@pytest.mark.parametrize("seed", thinned(SEEDS))
def test_single_changes_of_a_plan_are_the_best_there_are(seed: int) -> None:
    """Each change of a plan file reaches what brute force finds of that part of the space."""
    found = drawn(seed)
    if found is None:
        return
    rng, problem, plans = found
    placement, value_ps = rng.choice(plans)
    plan = held_plan(problem, placement, value_ps)
    result = improve(plan)
    held = {
        **degrees(problem, placement),
        "recompute": placement.recompute,
        "boundaries": placement.ends,
        **{name: result.given.configuration.held[name] for name in ("order", "pitch")},
    }
    checked = verify(plan).evaluation
    assert checked is not None
    assert result.before_ps == value_ps == checked.value_ps
    assert result.given.configuration.held == held
    agree(seed, result, held)
    # From the first step on, the path is that of the plan which that step leads to.
    if len(result.path) > 1 and result.path[0].plan is not None:
        again = improve(result.path[0].plan.plan)
        same = {"pitch": held["pitch"]}.items() <= again.given.configuration.held.items()
        assert not same or again.path[0].value_ps == result.path[1].value_ps


@pytest.mark.parametrize("seed", thinned(SEEDS))
def test_single_changes_of_stated_degrees_are_the_best_there_are(seed: int) -> None:
    """What is not stated takes its best values, before a change and after it."""
    found = drawn(seed)
    if found is None:
        return
    rng, problem, plans = found
    values = degrees(problem, rng.choice(plans)[0])
    if rng.random() < 0.5:
        # Other degrees, which may fit nowhere.
        values = {name: rng.choice(known_values(problem, name)) for name in values}
        if not is_profiled(problem, values):
            return
    names = rng.sample(sorted(values), rng.randint(2, len(values)))
    held = {name: values[name] for name in names}
    stated = dict(held)
    if rng.random() < 0.5:
        mode = rng.choice(known_values(problem, "recompute"))
        held["recompute"], stated["recompute"] = (mode,), mode
    result = improve(problem, stated)
    assert result.before_ps == expected(seed, held, ())
    assert dict(result.given.configuration.held) == held
    told = result.given.violations or result.given.refusal or result.given.search
    assert (result.before_ps is None) == bool(told)
    agree(seed, result, held)


def test_the_random_problems_tell_the_cases_apart() -> None:
    """Among them are plans that gain by each kind of change, and degrees that fit nowhere."""
    gaining: set[tuple[str, ...]] = set()
    lengths: set[int] = set()
    for seed in SEEDS[::2]:
        found = drawn(seed)
        if found is not None:
            rng, problem, plans = found
            result = improve(held_plan(problem, *rng.choice(plans)))
            gaining |= {each.released for each in result.path}
            lengths.add(len(result.path))
    singles = {names[0] for names in gaining if len(names) == 1}
    assert singles >= {"microbatch", "dp", "pp", "recompute", "boundaries", "order", "pitch"}
    assert {len(names) for names in gaining} == {1, 2}
    assert {1, 2, 3} <= lengths


# Definite cases


def paper(name: str) -> Problem:
    """Return a problem of the paper's models."""
    return read_problem(ROOT / "instances" / "paper" / f"{name}.json")


BERT = paper("bert-large-dgx-h100-64")
STATED = {"microbatch": 1, "tp": 8, "sp": True, "dp": 2, "pp": 4, "recompute": "full"}


def test_every_dimension_of_the_search_space_can_be_changed() -> None:
    """The table has a line for each field of `SearchSpace` but those that it says are none."""
    names = {each.name for each in DIMENSIONS if each.searched}
    assert names == set(SearchSpace.model_fields) - set(NOT_CHANGED)


def test_sequence_parallelism_ends_where_tp_does() -> None:
    """Changing tp keeps sp where layers have profiles with it, and gives it up elsewhere."""
    data = json.loads((ROOT / "instances" / "paper" / "bert-large-dgx-h100-64.json").read_text())
    for kind in data["model"]["layer_types"].values():
        for profile in kind["profiles"]:
            for call in profile.get("collectives", ()):
                # Behind launches tp would cost next to nothing.
                call.pop("hidden_s", None)
    problem = build(Problem, data, "charged")
    result = improve(problem, STATED)
    by_name = {each.released: each for each in result.changes}
    held = {name: (value,) for name, value in STATED.items()}
    values = []
    for tp in (1, 2, 4, 8):
        found = solve(narrowed(problem, **{**held, "tp": (tp,), "sp": (tp > 1,)}))
        assert found.evaluation is not None
        values.append(found.evaluation.value_ps)
    assert by_name["tp",].value_ps == min(values)
    assert values.index(min(values)) == 0
    assert [str(move) for move in by_name["tp",].moves] == ["tp 8 -> 1", "sp on -> off"]


def test_degrees_without_a_held_mode_are_passed_over() -> None:
    """Where some microbatch has no footprint of the mode that is held, the others are searched."""
    data = json.loads((ROOT / "instances" / "paper" / "bert-large-dgx-h100-64.json").read_text())
    for kind in data["model"]["layer_types"].values():
        for profile in kind["profiles"]:
            if profile["microbatch"] in (2, 8):
                del profile["recompute"]["full"]
    problem = build(Problem, data, "modes")
    held = {name: (value,) for name, value in STATED.items()}
    values = []
    for microbatch in (1, 4):
        found = solve(narrowed(problem, **{**held, "microbatch": (microbatch,)}))
        assert found.evaluation is not None
        values.append(found.evaluation.value_ps)
    by_name = {each.released: each for each in improve(problem, STATED).changes}
    assert by_name["microbatch",].value_ps == min(values)


def test_stages_without_room_are_no_plan() -> None:
    """Given stages that no degrees have room for are passed over, whatever bundle they are in."""
    space = {"schedule": ["gpipe"]}
    problem = sample(
        layers=6, sizes=(4, 2), memory_bytes=50_000, search=space, job={"global_batch": 64}
    )
    held = {"pp": 2, "boundaries": (3, 6), "recompute": ("none", "none")}
    assert Searches(problem).best(part_of(held)) is None


def test_given_stages_are_tried_under_every_level() -> None:
    """With stages and modes given, each ZeRO level that is held has its own plan."""
    problem = sample(layers=6, sizes=(4, 2), search={"zero": [0, 1, 2, 3]})
    held = {"pp": 2, "dp": 2, "boundaries": (3, 6), "recompute": ("none", "none")}
    for level in range(4):
        found = Searches(problem).best(part_of({**held, "zero": level}))
        assert found is not None
        assert found.plan.placement().zero.dense == level


def test_a_trade_keeps_the_devices() -> None:
    """What two degrees traded reach uses as many devices as the configuration."""
    result = improve(BERT, STATED)
    trades = [each for each in result.changes if len(each.released) == 2 and each.plan]
    assert {each.released for each in trades} == {("tp", "dp"), ("tp", "pp"), ("dp", "pp")}
    for each in trades:
        assert each.plan is not None
        assert each.plan.plan.placement().device_map.devices_used == 64


def test_the_path_of_a_launched_configuration_ends_at_the_optimum() -> None:
    """Greedy steps lead to the optimum here, and the shares of the gap add up to all of it."""
    result = improve(BERT, STATED)
    assert result.status == "complete"
    shares = [result.closed(each) for each in result.path]
    assert shares == sorted(shares, key=lambda share: share or 0)
    assert shares[-1] == 1
    assert result.rest is None


def test_a_plan_with_gaps_is_changed_where_its_devices_are() -> None:
    """A plan that lists its devices is held at the order and pitch that the family has for them."""
    problem = read_problem(ROOT / "instances" / "tiny" / "spread-pitch-wins.json")
    found = solve(problem)
    assert found.plan is not None
    blocks = found.plan.placement().device_map
    listed = found.plan.model_copy(
        update={
            "order": "listed",
            "pitch": None,
            "stages": tuple(
                stage.model_copy(
                    update={
                        "devices": tuple(
                            tuple(blocks.block(replica, number))
                            for replica in range(blocks.replicas)
                        )
                    }
                )
                for number, stage in enumerate(found.plan.stages)
            ),
        }
    )
    result = improve(listed)
    held = result.given.configuration.held
    assert (held["order"], held["pitch"]) == (found.plan.order, "spread")
    assert result.before_ps == solve(problem).bound_ps
    assert (result.path, result.rest) == ((), None)


def test_degrees_that_need_more_devices_say_how_many() -> None:
    """The violation counts the devices, and the first step is a change that makes it fit."""
    result = improve(BERT, {**STATED, "dp": 64})
    (broken,) = result.given.violations
    assert broken.rule == "devices"
    assert "2048" in broken.found
    assert "64" in broken.allowed
    assert result.before_ps is None
    assert result.path[0].helps
    assert result.path[0].gain_ps is None
    assert result.gap_ps is None


def test_a_configuration_too_large_names_the_memory_term() -> None:
    """Where memory is short the diagnosis has the stage's terms, and one change makes it fit."""
    problem = paper("llama-3-70b-dgx-h100-64")
    result = improve(problem, {"tp": 8, "sp": True, "dp": 8, "pp": 1, "microbatch": 1})
    assert result.given.search is not None
    diagnosis = result.given.search.diagnosis
    assert diagnosis is not None
    assert diagnosis.heaviest is not None
    terms = diagnosis.heaviest.memory_terms_bytes
    assert max(terms, key=lambda name: terms[name]) == "states"
    fitting = [each for each in result.changes if each.helps]
    assert result.path[0] == fitting[0]
    assert "pp" in result.path[0].released


def test_a_plan_that_does_not_fit_is_a_beginning_too() -> None:
    """A plan file that breaks memory keeps its violations, and its changes are legal plans."""
    problem = paper("llama-3-70b-dgx-h100-64")
    found = solve(narrowed(problem, recompute=("full",)))
    assert found.plan is not None
    stages = tuple(
        stage.model_copy(update={"layers": layers, "recompute": "none"})
        for stage, layers in zip(
            found.plan.stages,
            (problem.model.ids[:-1], problem.model.ids[-1:]),
            strict=False,
        )
    )
    plan = found.plan.model_copy(
        update={"problem": problem, "stages": stages, "order": "dp-inner", "objective": None}
    )
    result = improve(plan)
    assert {each.rule for each in result.given.violations} == {"memory"}
    assert result.given.evaluation is not None
    assert result.before_ps is None
    assert result.path
    check_plans(result)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"tp": 3}, "found tp 3, which the search space does not have (it has 1, 2, 4, 8)"),
        ({"recompute": "all"}, "found recompute all, which the search space does not have"),
        ({"recompute": "selective"}, "does not have (it has none, full)"),
        ({"zero": 1}, "found zero 1, which the search space does not have (it has 0)"),
        ({"depth": 3}, "found 'depth', one of microbatch, tp,"),
        ({"per_stage": "tp"}, "is needed (all stages are alike)"),
        ({"pp": 1000}, "found pp 1000"),
        ({}, "found a problem without a configuration, one is needed"),
    ],
)
def test_a_configuration_outside_the_space_is_refused(stated: dict[str, Any], words: str) -> None:
    """The message names the dimension, the value found, those allowed and the remedy."""
    with pytest.raises(InstanceError) as caught:
        improve(BERT, stated)
    assert words in str(caught.value)


def test_stages_that_differ_are_refused() -> None:
    """A plan of several configurations is not changed one dimension at a time."""
    found = solve(read_problem(ROOT / "instances" / "small" / "tp-by-stage.json"))
    assert found.plan is not None
    first, *others = found.plan.stages
    half = first.model_copy(update={"tp": found.plan.tp // 2})
    staged = found.plan.model_copy(update={"stages": (half, *others)})
    with pytest.raises(InstanceError, match="one configuration for all of them is needed"):
        improve(staged)


def test_a_plan_outside_the_family_is_refused() -> None:
    """A legal plan whose pitch the search space lacks names it."""
    problem = read_problem(ROOT / "instances" / "tiny" / "spread-pitch-wins.json")
    found = solve(problem)
    assert found.plan is not None
    narrow = found.plan.model_copy(update={"problem": narrowed(problem, pitch=("tight",))})
    with pytest.raises(InstanceError, match="found order pp-inner, pitch 4, which the search"):
        improve(narrow)


def test_a_constraint_without_a_rule_is_refused() -> None:
    """A constraint that the search would leave out is named: no change could be trusted."""
    user = UserConstraint(type="user", name="not-registered", parameters={})
    with pytest.raises(InstanceError, match="user:not-registered, which has no rule"):
        improve(BERT.model_copy(update={"constraints": (user,)}), STATED)


@pytest.mark.parametrize("kind", ["graph", "artifact", "any order"])
def test_problems_of_another_kind_are_refused(kind: str) -> None:
    """Placement graphs, the artifact's cost model and other orders are told what else there is."""
    if kind == "graph":
        problem, found = build(Problem, random_graph_data(1), "graph"), "a placement graph"
    elif kind == "artifact":
        problem = build(Problem, random_artifact_data(1), "artifact")
        found = "job.cost_model artifact"
    else:
        problem = sample(layers=3, search={"layer_order": "any"})
        found = "search.layer_order any"
    with pytest.raises(InstanceError, match=f"found {found}"):
        improve(problem, {"dp": 1})


def test_an_interrupt_keeps_what_was_found() -> None:
    """Interrupted among the single changes, those found so far are ranked and legal."""
    whole = improve(BERT, STATED)
    calls: list[int] = []

    def interrupt(done: int, total: int, best_ps: int | None) -> None:
        if total == len(whole.changes):
            calls.append(done)
            if done == 3:
                raise KeyboardInterrupt

    result = improve(BERT, STATED, interrupt)
    assert calls == [0, 1, 2, 3]
    assert result.status == "interrupted"
    assert result.before_ps == whole.before_ps
    assert len(result.changes) == 3
    assert all(each in whole.changes for each in result.changes)
    assert result.path == ()
    check_plans(result)
