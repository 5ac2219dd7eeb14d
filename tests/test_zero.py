"""ZeRO levels: by hand, among each other, and found alike by all that search them."""

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from agreement import compare, solved
from cli_running import run, run_json, write
from click import UsageError
from milp_agreement import compare_fixed, exact_coefficients, placement_count
from milp_instances import whole_number_data
from random_instances import random_data, random_sharded_data
from seeds import enough, thinned

from nest_opt import InstanceError, Problem, solve
from nest_opt.cli.fix import fix, parse_fixes
from nest_opt.cost.build import build_cost_table
from nest_opt.cost.table_file import table_from_json, table_to_json
from nest_opt.errors import ModelError, PlanError
from nest_opt.milp.exact import exact
from nest_opt.plan import Placement
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.plan import Plan, plan_from_placement
from nest_opt.problem import Configuration, Zero
from nest_opt.problem.validation import build
from nest_opt.simulate.plan import simulate_plan, stage_times

LEVELS = (0, 1, 2, 3)
US = 10**6


def data_of(batch: int = 4, **search: Any) -> dict[str, Any]:
    """Return two blocks of 1,000 parameters for 2 devices, joined at 1 GB/s and 1 us."""
    profile = {
        "microbatch": 1,
        "forward_s": "1e-6",
        "backward_input_s": "1e-6",
        "backward_weight_s": "1e-6",
        "dense_parameters": 1000,
        "recompute": {"none": {"stash_bytes": 0, "work_bytes": 7}},
    }
    return {
        "name": "two blocks",
        "model": {
            "layer_types": {"block": {"output_bytes": {"1": 0}, "profiles": [profile]}},
            "layers": [{"id": "block", "type": "block", "repeat": 2}],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**6}},
            "devices": [{"kind": "device", "count": 2}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {"name": "l", "size": 2, "bandwidth_bytes_per_s": 10**9, "latency_s": "1e-6"}
                ],
            },
        },
        "job": {
            "global_batch": batch,
            "bytes_per_parameter": {"weights": 2, "gradients": 4, "optimizer": 12},
        },
        "search": {"tp": [1], "zero": list(LEVELS), **search},
    }


def problem_of(batch: int = 4, **search: Any) -> Problem:
    """Return that problem."""
    return build(Problem, data_of(batch, **search), "two blocks")


def nodes_of(**search: Any) -> dict[str, Any]:
    """Return the two blocks for 4 devices in two nodes, joined at 0.5 GB/s and 10 us."""
    data = data_of(8, **search)
    data["cluster"]["devices"][0]["count"] = 4
    data["cluster"]["network"]["levels"].append(
        {"name": "n", "size": 2, "bandwidth_bytes_per_s": 5 * 10**8, "latency_s": "1e-5"}
    )
    return data


def with_experts(data: dict[str, Any], parameters: int = 1000) -> dict[str, Any]:
    """Return a problem's data with expert parameters beside the dense ones."""
    (profile,) = data["model"]["layer_types"]["block"]["profiles"]
    profile["expert_parameters"] = parameters
    return data


def four(zero: Zero) -> Placement:
    """Return one stage of four replicas, two on each node."""
    one = Configuration(1, 1, 1, False)
    return Placement(1, (one,), 4, "pp-inner", 1, (2,), ("none",), zero=zero)


def both(zero: int) -> Placement:
    """Return one stage of two replicas at a level."""
    one = Configuration(1, 1, 1, False)
    return Placement(1, (one,), 2, "pp-inner", 1, (2,), ("none",), zero=Zero(zero, zero))


# A reduce-scatter of 4,000 bytes over 2 ranks takes 1 us + 2 us, an all-gather of 2,000 bytes
# 1 us + 1 us, an all-reduce of 4,000 bytes 2 us + 4 us; the first part once for both layers in Y.
@pytest.mark.parametrize(
    ("batch", "zero", "time_us", "sync_us", "states", "work"),
    [
        (4, 0, 6, 10, 36_000, 7),
        (4, 1, 6, 8, 24_000, 7),
        (4, 2, 6 + 2 * 3, 3, 20_000, 4_007),
        (4, 3, 6 + 2 * (2 + 2 + 3), 0, 18_000, 6_007),
        (2, 2, 6, 8, 20_000, 4_007),
        (2, 3, 6 + 2 * (2 + 2 + 3), 0, 18_000, 6_007),
    ],
)
def test_time_sync_and_memory_by_hand(
    batch: int, zero: int, time_us: int, sync_us: int, states: int, work: int
) -> None:
    """F, Y, states and work of two replicas are what paper and pencil give."""
    (stage,) = evaluate(Costs(problem_of(batch)), both(zero)).stages
    assert (stage.time_ps, stage.sync_ps) == (time_us * US, sync_us * US)
    assert stage.memory_terms_bytes == {"states": states, "stash": 0, "work": work, "reserve": 0}


# Inside a node as above; between two runs, an all-reduce of half of 4,000 bytes over 2 ranks
# takes 20 us + 4 us, the first part once for both layers.
@pytest.mark.parametrize(
    ("zero", "time_us", "sync_us", "states", "work"),
    [
        (1, 6, 5 + 3 + 28, 24_000, 7),
        (2, 6 + 2 * 3, 3 + 28, 20_000, 4_007),
        (3, 6 + 2 * (2 + 2 + 3), 28, 18_000, 6_007),
    ],
)
def test_two_runs_by_hand(zero: int, time_us: int, sync_us: int, states: int, work: int) -> None:
    """With a run of replicas on each node, gathers and scatters keep to it, a shard crosses."""
    problem = build(Problem, nodes_of(zero_instances=[2]), "two nodes")
    (stage,) = evaluate(Costs(problem), four(Zero(zero, zero, 2))).stages
    assert (stage.time_ps, stage.sync_ps) == (time_us * US, sync_us * US)
    assert stage.memory_terms_bytes == {"states": states, "stash": 0, "work": work, "reserve": 0}
    assert stage.levels["dense gradients between runs"] == 1


def test_classes_have_levels_of_their_own() -> None:
    """Levels of two classes cost and hold what each of them does by itself."""
    problem = build(Problem, with_experts(nodes_of(zero_expert=list(LEVELS))), "experts")
    costs = Costs(problem)
    of = {
        (dense, expert): evaluate(costs, four(Zero(dense, expert))).stages[0]
        for dense in LEVELS
        for expert in LEVELS
    }
    for dense in LEVELS:
        for expert in LEVELS:
            # Without tp and ep the two classes are alike.
            mixed, ours, theirs = of[dense, expert], of[dense, dense], of[expert, expert]
            assert 2 * (mixed.time_ps - 6 * US) == ours.time_ps + theirs.time_ps - 12 * US
            assert 2 * mixed.sync_ps == ours.sync_ps + theirs.sync_ps
            assert 2 * mixed.memory_bytes == ours.memory_bytes + theirs.memory_bytes


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_run_of_one_copy_shares_nothing(zero: int) -> None:
    """With as many runs as copies a level costs and holds what level 0 does."""
    problem = build(Problem, nodes_of(zero_instances=[1, 4]), "four runs")
    values = [
        evaluate(Costs(problem), four(each)).stages[0] for each in (Zero(), Zero(zero, zero, 4))
    ]
    assert len({(s.time_ps, s.sync_ps, s.memory_bytes) for s in values}) == 1


def test_what_makes_no_difference_is_one_choice() -> None:
    """Runs without levels, and levels of experts without any, are not searched twice."""
    search = {"zero": [0, 2], "zero_expert": [0, 1], "zero_instances": [2, 1]}
    without = build(Problem, nodes_of(**search), "without")
    assert without.zeros == (Zero(0, 0), Zero(2, 2), Zero(2, 2, 2))
    assert build(Problem, with_experts(nodes_of(**search)), "with").zeros == (
        Zero(0, 0, 1), Zero(0, 1, 1), Zero(0, 1, 2), Zero(2, 0, 1), Zero(2, 0, 2),
        Zero(2, 1, 1), Zero(2, 1, 2),
    )  # fmt: skip


def test_the_forward_has_one_of_the_two_gathers() -> None:
    """Simulated, a stage under level 3 gathers in its forward, and scatters in its backward."""
    costs = Costs(problem_of())
    evaluation = evaluate(costs, both(3))
    (times,) = stage_times(costs, both(3), evaluation)
    assert (times.forward_ps, times.backward_input_ps) == ((2 + 4) * US, (4 + 4 + 6) * US)
    assert simulate_plan(costs, both(3), evaluation).iteration_ps == evaluation.value_ps


def test_one_copy_has_nothing_to_share() -> None:
    """Without replicas all levels cost and hold the same, and ties go to the smallest."""
    problem = problem_of(dp=[1], pp=[1], zero=[3, 1, 2])
    found = solve(problem).plan
    assert found is not None
    assert found.zero == 1
    costs, one = Costs(problem), found.placement()
    values = [
        evaluate(costs, Placement(**{**vars(one), "zero": Zero(zero, zero)})).stages
        for zero in (1, 2, 3)
    ]
    assert values[0] == values[1] == values[2]


@pytest.mark.parametrize("seed", thinned(range(40)))
def test_every_level_is_found_by_all(seed: int) -> None:
    """With all levels open dynamic program, brute force and oracle agree, plan and terms."""
    data = random_data(3 * seed)
    data["search"]["zero"] = list(LEVELS)
    assert compare(data).difference is None


@pytest.mark.parametrize("seed", thinned(range(150)))
def test_classes_and_runs_are_found_by_all(seed: int) -> None:
    """With levels by class, in runs of replicas, all find the same plan and terms."""
    assert compare(random_sharded_data(seed)).difference is None


@pytest.mark.parametrize("seed", thinned(range(12)))
def test_open_levels_are_the_best_of_all(seed: int) -> None:
    """The optimum with all levels is the least of those with one; nothing fits if none does."""
    data = random_data(seed)

    def best(levels: tuple[int, ...]) -> int | None:
        data["search"]["zero"] = levels
        try:
            found = solve(build(Problem, data, "levels")).evaluation
        except InstanceError:
            return None
        return None if found is None else found.value_ps

    single = [value for level in LEVELS if (value := best((level,))) is not None]
    assert best(LEVELS) == min(single, default=None)


def test_programs_value_each_level_as_the_evaluator() -> None:
    """Fixed placements are feasible as the checker says, at the evaluator's value."""
    rng, seen, illegal = random.Random(1), 0, 0
    for seed in range(25):
        data = whole_number_data(seed)
        data["search"]["zero"] = [1, 2, 3]
        problem = build(Problem, data, "levels")
        cells = [k for k in exact_coefficients(problem) or () if placement_count(k) <= 20]
        found = compare_fixed(problem, rng.sample(cells, min(len(cells), 3)))
        assert found.difference is None
        seen, illegal = seen + found.placements, illegal + found.illegal
    assert seen > illegal > 0


def test_programs_find_the_best_level() -> None:
    """The integer program's optimum with all levels open is the dynamic program's."""
    compared = 0
    for seed in thinned(range(40, 50)):
        data = random_data(seed)
        data["search"]["zero"] = list(LEVELS)
        problem = build(Problem, data, "levels")
        try:
            expected = solve(problem).evaluation
        except InstanceError:
            continue
        assert exact(problem).value_ps == (None if expected is None else expected.value_ps)
        compared += expected is not None
    assert compared >= enough(3)


def test_programs_value_classes_and_runs_as_the_evaluator() -> None:
    """Fixed placements with levels by class in runs are valued as the evaluator does."""
    rng, seen = random.Random(2), 0
    for seed in thinned(range(40)):
        data = whole_number_data(seed)
        data["search"] |= {"zero": [1, 3], "zero_expert": [0, 2], "zero_instances": [2]}
        for kind in data["model"]["layer_types"].values():
            for profile in kind["profiles"]:
                profile["expert_parameters"] = profile.get("expert_parameters", 0) + 8
        problem = build(Problem, data, "levels")
        cells = [k for k in exact_coefficients(problem) or () if placement_count(k) <= 20]
        found = compare_fixed(problem, rng.sample(cells, min(len(cells), 3)))
        assert found.difference is None
        seen += found.placements
    assert seen >= enough(101)


@pytest.mark.parametrize("seed", thinned(range(30)))
def test_programs_find_the_best_classes_and_runs(seed: int) -> None:
    """The integer program's optimum with levels by class in runs is the dynamic program's."""
    problem = build(Problem, random_sharded_data(seed), "sharded")
    try:
        found = exact(problem).value_ps
    except InstanceError:
        found = None
    assert found == solved(problem)[0]


@pytest.mark.parametrize("zero", [1, 2, 3])
def test_a_diagnosis_names_the_least_memory(zero: int) -> None:
    """Where nothing fits, the bytes it names are enough, and one less is not."""
    data = data_of(zero=[zero], dp=[2], pp=[1])
    kind = data["cluster"]["device_kinds"]["device"]

    def status(memory_bytes: int) -> Any:
        kind["memory_bytes"] = memory_bytes
        return solve(build(Problem, data, "small"))

    result = status(1000)
    assert result.status == "infeasible"
    needed = result.diagnosis.memory_bytes
    assert needed == 24_007
    assert status(needed).status == "optimal"
    assert status(needed - 1).status == "infeasible"


def test_plan_file_keeps_the_level() -> None:
    """A plan is read back with its level, and one of another level than asked for is illegal."""
    plan = plan_from_placement(problem_of(), both(2), "fill-drain", 0)
    again = build(Plan, plan.model_dump(mode="json", by_alias=True, exclude_none=True), "plan")
    assert again.placement() == both(2)
    (violation,) = check(Costs(problem_of(zero=[0, 1])), both(2))
    assert (violation.rule, violation.found) == ("degrees", "zero 2")


@pytest.mark.parametrize(
    ("written", "zero"),
    [
        (2, Zero(2, 2)),
        ({"dense": 2, "expert": 2}, Zero(2, 2)),
        ({"dense": 0, "expert": 3}, Zero(0, 3)),
        ({"dense": 1, "expert": 1, "instances": 2}, Zero(1, 1, 2)),
    ],
)
def test_plan_files_say_it_in_two_forms(written: Any, zero: Zero) -> None:
    """A number stands for both classes over all copies, an object for anything; both read back."""
    problem = build(Problem, nodes_of(), "two nodes")
    plan = plan_from_placement(problem, four(zero), "fill-drain", 0)
    data = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    assert isinstance(data["zero"], int) == (zero == Zero(2, 2))
    assert build(Plan, data, "plan").placement() == four(zero)
    assert build(Plan, {**data, "zero": written}, "plan").placement() == four(zero)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (4, "zero: found 4, at most 3 is allowed"),
        ("1", 'zero: found "1", a whole number is needed'),
        ({"dense": 1}, "zero.expert: found nothing, a value is needed"),
        ({"dense": 1, "expert": 5}, "zero.expert: found 5, at most 3 is allowed"),
        ({"dense": 1, "expert": 1, "instances": 0}, "zero.instances: found 0, at least 1"),
    ],
)
def test_one_error_says_what_is_wrong_with_it(written: Any, message: str) -> None:
    """Of the two forms that a plan file may use, the error is about the one that is meant."""
    plan = plan_from_placement(problem_of(), both(2), "fill-drain", 0)
    data = plan.model_dump(mode="json", by_alias=True, exclude_none=True)
    with pytest.raises(InstanceError) as caught:
        build(Plan, {**data, "zero": written}, "plan")
    assert str(caught.value).startswith(f"plan: {message}")
    assert str(caught.value).count("found") == 1


def test_runs_that_do_not_divide_the_replicas_are_illegal() -> None:
    """The checker and the evaluator refuse 3 runs of 4 replicas, a search without any other d."""
    problem = build(Problem, nodes_of(zero=[1], zero_instances=[1, 3]), "three runs")
    placement = four(Zero(1, 1, 3))
    (violation,) = check(Costs(problem), placement)
    assert (violation.found, violation.allowed) == (
        "zero 1 x3",
        "instances that divide dp 4 are needed",
    )
    with pytest.raises(PlanError, match=r"zero.instances: found 3, a divisor of dp"):
        evaluate(Costs(problem), placement)
    with pytest.raises(InstanceError, match=r"search.zero_instances: found \[3\], .*\(4\)"):
        solve(build(Problem, nodes_of(zero=[1], zero_instances=[3], dp=[4]), "three runs"))


def test_tables_of_runs_are_read_back() -> None:
    """Syncs between runs are written with their shares, and all of them are needed."""
    data = with_experts(nodes_of(zero=[0, 1], zero_expert=[0, 3], zero_instances=[1, 2]))
    table = build_cost_table(build(Problem, data, "runs"))
    written = table_to_json(table)
    assert table_from_json(json.loads(json.dumps(written))) == table
    (between, *_) = [entry for entry in written["sync"] if "shares" in entry]
    assert (between["copies"], between["shares"]) == (2, 2)
    rest = [entry for entry in written["sync"] if entry != between]
    with pytest.raises(InstanceError, match="sync: found"):
        table_from_json({**written, "sync": rest})


def test_tables_with_levels_are_read_back() -> None:
    """A table with shards is the one that was written; without one of them it is refused."""
    table = build_cost_table(problem_of())
    written = table_to_json(table)
    assert table_from_json(written) == table
    with pytest.raises(InstanceError, match="shards: found 11 entries, 12 are needed"):
        table_from_json({**written, "shards": written["shards"][1:]})


def test_the_artifacts_costs_know_level_0_alone() -> None:
    """Levels above 0 are refused with the artifact's cost model."""
    data = data_of()
    data["job"] |= {"cost_model": "artifact"}
    with pytest.raises(InstanceError, match=r"search.zero: found 0, 1, 2, 3 with .*artifact"):
        build(Problem, data, "refused")


@pytest.mark.parametrize(
    ("asked", "found"), [({"zero": [0, 1, 2]}, "2"), ({"zero_instances": [1, 2]}, "1 x2, 2, 2 x2")]
)
def test_programs_of_stages_that_choose_know_levels_0_and_1(
    asked: dict[str, Any], found: str
) -> None:
    """Levels with collectives in rounds, and runs of replicas, are refused by the program alone."""
    data = data_of()
    data["search"] |= {"per_stage": ["tp"], "zero": [0, 1, 2], **asked}
    problem = build(Problem, data, "choosing")
    with pytest.raises(ModelError, match=f"search.zero: found {found} with search.per_stage"):
        exact(problem)


def test_the_command_line_narrows_levels() -> None:
    """`--fix zero=1` leaves one level, others than 0 to 3 are refused."""
    assert fix(problem_of(), parse_fixes(["zero=1"])).search.zero == (1,)
    with pytest.raises(UsageError, match="legal values are 0, 1, 2, 3"):
        parse_fixes(["zero=4"])
    fixes = parse_fixes(["zero=1", "zero_expert=0,3", "zero_instances=1,2"])
    found = fix(build(Problem, with_experts(nodes_of()), "fixed"), fixes)
    assert found.zeros == (Zero(1, 0, 1), Zero(1, 0, 2), Zero(1, 3, 1), Zero(1, 3, 2))


def test_reports_say_what_is_sharded(tmp_path: Path) -> None:
    """Reports and tables of plans have levels and runs, and only where something is sharded."""
    data = with_experts(nodes_of(zero=[1], zero_expert=[0], zero_instances=[2], dp=[4]))
    path = write(tmp_path / "problem.json", {"format": "nest-opt-problem", "version": 1, **data})
    assert ", zero 1/0 x2\n" in run("solve", path).stdout
    ranked = run("solve", path, "--top", 2).stdout
    assert re.search(r" pp +zero ", ranked)
    assert re.search(r" 4 +1 +1/0 x2 ", ranked)
    # What all rows share stands below the table.
    assert ", dp 4, pp 1, zero 1/0 x2\n" in run("solve", path, "--what-if", "dp=4").stdout
    varied = run("solve", path, "--what-if", "zero=2").stdout
    assert re.search(r"\(best plan\) .* 1/0 x2 ", varied)
    assert re.search(r" zero=2 .* 2/0 x2 ", varied)
    assert "zero" not in run("solve", path, "--top", 2, "--fix", "zero=0").stdout
    found = run_json("solve", path, "--what-if", "zero=2")
    assert found["plan"]["zero"] == {"dense": 1, "expert": 0, "instances": 2}
    (answer,) = found["what_if"]
    assert answer["degrees"]["zero"] == {"dense": 2, "expert": 0, "instances": 2}
