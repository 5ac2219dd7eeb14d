"""What a runtime can launch: each rule alone changes or refuses a plan."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cli_running import run, run_json, write
from samples import layer_type, problem_data

from nest_opt import InstanceError, Plan, Problem, exact, solve
from nest_opt.api import SolveResult
from nest_opt.certify.brute_force import brute_force, enumerate_cells
from nest_opt.cli.narrowing import RUNTIME_NAMES
from nest_opt.models.runtimes import RUNTIMES, Rule, for_runtime, keep
from nest_opt.problem.schedule import ONE_F_ONE_B, Schedule
from nest_opt.problem.validation import build

Alter = Callable[[dict[str, Any]], None]


def rich_data() -> dict[str, Any]:
    """Return a problem with tp, cp, ep and sp, whose fastest configuration tests choose."""
    kind = layer_type()
    (profile,) = kind["profiles"]
    kind["profiles"] = [
        {**copy.deepcopy(profile), "tp": tp, "cp": cp, "ep": ep, "sp": sp}
        for tp in (1, 2)
        for cp in (1, 2)
        for ep in (1, 2)
        for sp in (False, True)
        if tp > 1 or not sp
    ]
    data = problem_data(
        layers=3,
        sizes=(4, 2),
        search={"cp": [1, 2], "sp": [False, True], "microbatch": [1]},
        job={"sequence_length": 1024},
    )
    data["model"]["layer_types"] = {"block": kind}
    data["model"] |= {"attention_heads": 4, "experts": 4}
    return data


def make_best(data: dict[str, Any], **degrees: Any) -> None:
    """Make one configuration much faster than all others."""
    for profile in data["model"]["layer_types"]["block"]["profiles"]:
        if all(profile[name] == value for name, value in degrees.items()):
            profile["forward_s"] = profile["backward_input_s"] = 1e-5


def best(problem: Problem) -> Plan:
    """Return the best plan."""
    result = solve(problem)
    assert isinstance(result, SolveResult)
    assert result.plan is not None
    return result.plan


def rule_of(runtime: str, name: str) -> Rule:
    """Return a runtime's rule by its name."""
    (found,) = (rule for rule in RUNTIMES[runtime] if rule.name == name)
    return found


# For each rule, a problem whose best plan breaks it, and what of the plan shows that.
def _pitch(data: dict[str, Any]) -> None:
    data["search"] |= {"cp": [1], "dp": [2], "pp": [3], "tp": [1], "ep": [1], "order": ["pp-inner"]}
    data["cluster"]["network"]["levels"][1]["bandwidth_bytes_per_s"] = 10**4
    data["cluster"]["network"]["levels"][1]["latency_s"] = 1


def _pad(data: dict[str, Any]) -> None:
    data["job"] |= {"pad": True, "global_batch": 11}
    data["search"] |= {"cp": [1], "ep": [1], "tp": [1], "pp": [1]}


def _inner_stages(data: dict[str, Any]) -> None:
    data["search"] |= {"cp": [1], "dp": [4], "pp": [2], "tp": [1], "ep": [1]}
    block = data["model"]["layer_types"]["block"]
    block["output_bytes"]["1"] = 10**7
    for profile in block["profiles"]:
        profile["dense_parameters"] = 1


def _inner_stages_beside_experts(data: dict[str, Any]) -> None:
    _inner_stages(data)
    data["search"]["ep"] = [1, 2]


def _inner_stages_beside_contexts(data: dict[str, Any]) -> None:
    _inner_stages(data)
    data["search"]["cp"] = [1, 2]


def _heads(data: dict[str, Any]) -> None:
    data["model"]["attention_heads"] = 3
    data["search"]["tp"] = [1, 2]
    make_best(data, tp=2, cp=1, ep=1)


def _experts(data: dict[str, Any]) -> None:
    data["model"]["experts"] = 3
    data["search"]["ep"] = [1, 2]
    make_best(data, tp=1, ep=2)


def _sequence(data: dict[str, Any]) -> None:
    data["job"]["sequence_length"] = 1022
    make_best(data, tp=1, cp=2, ep=1)


def _favour(**degrees: Any) -> Alter:
    return lambda data: make_best(data, **degrees)


def _sequence_by_tp(data: dict[str, Any]) -> None:
    data["job"]["sequence_length"] = 1022
    make_best(data, tp=2, cp=1, ep=1)


def _one_stage(data: dict[str, Any], replicas: int, **search: Any) -> list[dict[str, Any]]:
    """Leave one stage of some replicas with ZeRO; return the profiles."""
    fixed = {"cp": [1], "tp": [1], "ep": [1], "sp": [False], "pp": [1], "dp": [replicas]}
    data["search"] |= {**fixed, **search}
    profiles: list[dict[str, Any]] = data["model"]["layer_types"]["block"]["profiles"]
    return profiles


def _experts_unlike_others(data: dict[str, Any]) -> None:
    # To gather weights costs more than to reduce gradients twice.
    data["job"]["bytes_per_parameter"] |= {"weights": 64, "gradients": 2}
    for profile in _one_stage(data, 4, zero=[1], zero_expert=[0, 1]):
        profile["expert_parameters"] = 1000


def _shared_gradients(data: dict[str, Any]) -> None:
    # Stashes fit beside gradients that are shared out; else the forward is slow to repeat.
    data["job"]["bytes_per_parameter"]["gradients"] = 64
    data["cluster"]["device_kinds"]["device"]["memory_bytes"] = 370 * 10**6
    for profile in _one_stage(data, 4, zero=[1, 2]):
        profile |= {"forward_s": 0.3, "dense_parameters": 5 * 10**5}
        profile["recompute"] = {
            "none": {"stash_bytes": 10**8},
            "full": {"stash_bytes": 0, "work_bytes": 10**8},
        }


def _runs_of_replicas(data: dict[str, Any]) -> None:
    _one_stage(data, 8, zero=[1], zero_instances=[1, 2])


CASES: list[tuple[str, str, Alter, Callable[[Plan], bool]]] = [
    ("deepspeed", "rank r runs on device r", _pitch, lambda p: p.pitch != 3),
    ("megatron", "data streams divide the global batch", _pad, lambda p: 11 % p.dp != 0),
    (
        "deepspeed",
        "stages are outermost in the order of ranks",
        _inner_stages,
        lambda p: p.order == "pp-inner",
    ),
    (
        "megatron",
        "stages are outermost in the order of ranks where cp or ep may exceed 1",
        _inner_stages_beside_experts,
        lambda p: p.order == "pp-inner",
    ),
    (
        "megatron",
        "stages are outermost in the order of ranks where cp or ep may exceed 1",
        _inner_stages_beside_contexts,
        lambda p: p.order == "pp-inner",
    ),
    ("megatron", "tp divides the attention heads", _heads, lambda p: p.tp == 2),
    ("megatron", "ep divides the experts", _experts, lambda p: p.ep == 2),
    ("megatron", "2 * cp divides the sequence", _sequence, lambda p: p.cp == 2),
    (
        "megatron",
        "tp and ep together need sp",
        _favour(tp=2, cp=1, ep=2, sp=False),
        lambda p: p.tp == p.ep == 2 and not p.sp,
    ),
    (
        "torchtitan",
        "cp and ep not both above 1",
        _favour(tp=1, cp=2, ep=2),
        lambda p: p.cp == p.ep == 2,
    ),
    (
        "torchtitan",
        "one ZeRO level for all parameters",
        _experts_unlike_others,
        lambda p: p.placement().zero.expert == 0,
    ),
    (
        "deepspeed",
        "pipelines shard optimizer states at most",
        _shared_gradients,
        lambda p: p.zero == 2,
    ),
    (
        "deepspeed",
        "states are shared out over all copies",
        _runs_of_replicas,
        lambda p: p.placement().zero.instances == 2,
    ),
    ("deepspeed", "no context parallelism", _favour(tp=1, cp=2, ep=1), lambda p: p.cp == 2),
    (
        "torchtitan",
        "2 * tp * cp divides the sequence",
        _sequence_by_tp,
        lambda p: p.tp == 2,
    ),
]


@pytest.mark.parametrize(("runtime", "name", "alter", "breaks"), CASES)
def test_a_rule_alone_changes_the_plan(
    runtime: str, name: str, alter: Alter, breaks: Callable[[Plan], bool]
) -> None:
    """The best plan breaks the rule; narrowed by the rule alone it keeps it, and costs more."""
    data = rich_data()
    alter(data)
    problem = build(Problem, data, "problem")
    narrowed = keep(problem, rule_of(runtime, name), runtime)
    before, after = best(problem), best(narrowed)
    assert breaks(before)
    assert not breaks(after)
    assert before.objective is not None
    assert after.objective is not None
    assert int(before.objective.value_ps) < int(after.objective.value_ps)


def test_every_rule_has_a_case() -> None:
    """Rules on stages and on schedules have tests of their own; all others are among the cases."""
    names = {rule.name for rules in RUNTIMES.values() for rule in rules}
    own = {"one configuration for all stages", *SCHEDULE_RULES.values()}
    assert names == {case[1] for case in CASES} | own


# For each runtime, its rule on schedules.
SCHEDULE_RULES = {
    "megatron": "schedules 1f1b and interleaved",
    "deepspeed": "schedule 1f1b",
    "torchtitan": "schedules 1f1b, gpipe and interleaved",
}


@pytest.mark.parametrize("runtime", list(RUNTIMES))
def test_a_schedule_that_is_not_launched_costs_time(runtime: str) -> None:
    """The best plan runs ZB-H1, for no memory more; what a runtime launches is slower."""
    data = rich_data()
    data["search"] |= {"cp": [1], "ep": [1], "tp": [1], "sp": [False], "pp": [2], "dp": [1]}
    data["search"]["schedule"] = ["zb-h1", "1f1b"]
    for profile in data["model"]["layer_types"]["block"]["profiles"]:
        profile["backward_input_s"] = profile["backward_weight_s"] = profile["forward_s"]
    problem = build(Problem, data, "problem")
    narrowed = keep(problem, rule_of(runtime, SCHEDULE_RULES[runtime]), runtime)
    before, after = brute_force(problem), brute_force(narrowed)
    assert before.placement is not None
    assert after.placement is not None
    assert before.placement.schedule == Schedule("zb-h1")
    assert after.placement.schedule == ONE_F_ONE_B
    assert before.value_ps is not None
    assert after.value_ps is not None
    assert before.value_ps < after.value_ps


def test_chunks_stay_for_runtimes_that_interleave() -> None:
    """Megatron-LM and torchtitan keep interleaving and its chunks, DeepSpeed 1F1B alone."""
    data = rich_data()
    data["search"] |= {"schedule": ["gpipe", "interleaved", "1f1b"], "chunks": [3]}
    problem = build(Problem, data, "problem")
    found = {name: for_runtime(problem, name).search.schedules for name in RUNTIMES}
    interleaved = Schedule("interleaved", 3)
    assert found == {
        "megatron": (ONE_F_ONE_B, interleaved),
        "deepspeed": (ONE_F_ONE_B,),
        "torchtitan": (ONE_F_ONE_B, Schedule("gpipe"), interleaved),
    }


def test_one_configuration_for_all_stages() -> None:
    """With per_stage open a plan's stages differ; for a runtime they do not."""
    data = rich_data()
    data["search"] |= {"cp": [1], "ep": [1], "sp": [False], "pp": [2], "per_stage": ["tp"]}
    data["model"]["layer_types"]["slow"] = copy.deepcopy(data["model"]["layer_types"]["block"])
    data["model"]["layers"][2]["type"] = "slow"
    for profile in data["model"]["layer_types"]["slow"]["profiles"]:
        profile["forward_s"] = 0.001 if profile["tp"] == 2 else 0.9
    for profile in data["model"]["layer_types"]["block"]["profiles"]:
        profile["forward_s"] = 0.001 if profile["tp"] == 1 else 0.9
    problem = build(Problem, data, "problem")
    assert not best(problem).placement().is_uniform
    assert best(for_runtime(problem, "torchtitan")).placement().is_uniform


@pytest.mark.parametrize("runtime", list(RUNTIMES))
def test_every_face_keeps_to_the_runtime(runtime: str) -> None:
    """Search, brute force and programs agree, and no cell breaks a rule."""
    data = rich_data()
    data["cluster"]["devices"][0]["count"] = 4
    data["cluster"]["network"]["levels"] = data["cluster"]["network"]["levels"][:1]
    problem = for_runtime(build(Problem, data, "problem"), runtime)
    result, brute, programs = solve(problem), brute_force(problem), exact(problem)
    assert isinstance(result, SolveResult)
    assert result.evaluation is not None
    assert programs.evaluation is not None
    assert result.evaluation.value_ps == brute.value_ps == programs.evaluation.value_ps
    for cell in enumerate_cells(problem):
        k, device_map = cell.configuration, cell.device_map
        assert k.cp == 1 or k.ep == 1
        assert device_map.pitch == k.block_size * (
            device_map.stages if device_map.order == "pp-inner" else device_map.replicas
        )


@pytest.mark.parametrize(
    ("runtime", "search", "message"),
    [
        ("megatron", {"pitch": ["level"]}, "found pitch level alone, .*rank r runs on device r"),
        ("torchtitan", {"order": ["pp-inner"]}, "found order pp-inner alone, .*outermost"),
        (
            "megatron",
            {"zero": [1], "zero_expert": [2]},
            "found zero 1 and zero_expert 2 alone, .*one ZeRO level",
        ),
        ("megatron", {"schedule": ["gpipe", "zb-h1"]}, "found schedule gpipe, zb-h1 alone, .*1f1b"),
        ("deepspeed", {"schedule": ["interleaved"]}, "found schedule interleaved alone, .*1f1b"),
        ("torchtitan", {"schedule": ["zb-h1"]}, "found schedule zb-h1 alone, .*gpipe"),
        ("deepspeed", {"cp": [2]}, "found tp=1 cp=2 .* alone, .*no context parallelism"),
    ],
)
def test_a_rule_that_leaves_nothing_is_named(
    runtime: str, search: dict[str, Any], message: str
) -> None:
    """What is asked for and the rule that forbids it are named."""
    data = rich_data()
    data["search"] |= search
    for profile in data["model"]["layer_types"]["block"]["profiles"]:
        profile["expert_parameters"] = 1
    with pytest.raises(InstanceError, match=f"runtime {runtime}: {message}"):
        for_runtime(build(Problem, data, "problem"), runtime)


def test_other_names_are_refused() -> None:
    """An unknown runtime is refused with the names that exist."""
    with pytest.raises(InstanceError, match="found 'ray', one of megatron, deepspeed, torchtitan"):
        for_runtime(build(Problem, rich_data(), "problem"), "ray")


def test_other_kinds_of_problems_are_refused() -> None:
    """A problem of the artifact's cost model has no runtime."""
    data = problem_data(job={"cost_model": "artifact"})
    with pytest.raises(InstanceError, match="found megatron for cost model artifact"):
        for_runtime(build(Problem, data, "problem"), "megatron")


def test_the_command_line_knows_every_runtime(tmp_path: Path) -> None:
    """The option has all names; --fix comes first, and the plan's problem says what it keeps to."""
    assert tuple(RUNTIMES) == RUNTIME_NAMES
    data = rich_data()
    _inner_stages(data)
    path = write(tmp_path / "problem.json", data)
    for command in ("solve", "exact"):
        plan = run_json(command, path, "--runtime", "deepspeed", "--fix", "cp=1")["plan"]
        assert plan["problem"]["search"]["order"] == ["dp-inner"]
        assert "the runtime deepspeed launches" in plan["problem"]["note"]
        assert plan["order"] == "dp-inner"


def test_the_free_family_has_no_runtime(tmp_path: Path) -> None:
    """Plans on any devices keep no order of ranks: the two options are refused together."""
    path = write(tmp_path / "problem.json", rich_data())
    result = run("exact", path, "--family", "free", "--runtime", "deepspeed")
    assert result.exit_code == 2
    assert "--runtime: found deepspeed with --family free" in result.stderr


def test_new_writes_a_narrowed_problem() -> None:
    """`new --runtime` derives the problem that `solve --runtime` searches."""
    options = ("--model", "mixtral-8x7b", "--cluster", "dgx-h100", "--devices", 16)
    data = run_json("new", *options, "--global-batch", 64, "--runtime", "megatron")["problem"]
    assert data["search"]["order"] == ["dp-inner"]
    profiles = data["model"]["layer_types"]["experts"]["profiles"]
    assert not [
        p for p in profiles if p.get("tp", 1) > 1 and p.get("ep", 1) > 1 and not p.get("sp")
    ]
