"""Solving end to end: exact values, refusals, infeasibility, interruption."""

from typing import Any

import pytest
from samples import layer_type, problem_data, sample

from nest_opt import InstanceError, Problem, solve, verify
from nest_opt.dp.rules import RULES
from nest_opt.problem.validation import build


def stage_sizes(problem: Problem) -> list[int]:
    """Return the number of layers in each stage of the best plan."""
    plan = solve(problem).plan
    assert plan is not None
    return [len(stage.layers) for stage in plan.stages]


@pytest.mark.parametrize(("layers", "stages", "heaviest"), [(30, 4, 8), (7, 2, 4)])
def test_equal_layers_are_spread_evenly(layers: int, stages: int, heaviest: int) -> None:
    """30 equal layers on 4 stages: heaviest 8; 7 on 2: heaviest 4."""
    sizes = stage_sizes(sample(layers=layers, search={"pp": [stages], "dp": [1]}))
    assert (len(sizes), max(sizes)) == (stages, heaviest)


@pytest.mark.parametrize(
    ("objective", "value_ps"),
    [("fill-drain", 11_424_500_000_000), ("nest", 11_806_000_000_000)],
)
def test_a_measured_run_of_uneven_stages(objective: str, value_ps: int) -> None:
    """Four stages, one microbatch: fill-drain adds them up, nest takes 4 times the slowest."""
    times = [2.9515, 2.8048, 2.7760, 2.8922]
    data = problem_data(layers=4, sizes=(4,), global_batch=1, search={"pp": [4]})
    data["model"]["layer_types"] = {
        f"stage-{place}": layer_type(forward_s=time, backward_s=0, output_bytes=0)
        for place, time in enumerate(times)
    }
    data["model"]["layers"] = [{"id": f"s{place}", "type": f"stage-{place}"} for place in range(4)]
    data["cluster"]["network"]["levels"][0]["latency_s"] = 0
    data["job"]["objective"] = objective
    result = solve(build(Problem, data, "run"))
    assert result.evaluation is not None
    assert result.evaluation.value_ps == value_ps


def test_a_batch_that_no_legal_degree_divides_names_the_legal_choices() -> None:
    """G = 7 with dp = 2 is refused, naming 7's divisors that fit."""
    message = (
        r"job.global_batch: found 7, which microbatch \* ep \* dp does not divide for dp \[2\]; "
        r"legal choices: microbatch=1 ep=1: dp 1, 7; "
    )
    with pytest.raises(InstanceError, match=message):
        solve(sample(global_batch=7, search={"dp": [2]}))


def test_padding_makes_such_a_batch_legal() -> None:
    """With pad, 7 sequences on 2 streams take 4 rounds."""
    job = {"pad": True, "global_batch": 7}
    result = solve(sample(search={"dp": [2]}, job=job))
    assert result.evaluation is not None
    assert result.evaluation.rounds == 4


@pytest.mark.parametrize("mode", [["none"], ["none", "full"]])
def test_the_smallest_change_of_memory_is_the_smallest(mode: list[str]) -> None:
    """With the memory that the diagnosis names something fits; with a byte less nothing does."""

    def with_memory(memory_bytes: int) -> Problem:
        return sample(layers=5, sizes=(2, 2), memory_bytes=memory_bytes, search={"recompute": mode})

    result = solve(with_memory(20_000))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    needed = result.diagnosis.memory_bytes
    assert needed is not None
    assert solve(with_memory(needed)).status == "optimal"
    assert solve(with_memory(needed - 1)).status == "infeasible"


def test_the_smallest_number_of_devices_is_the_smallest() -> None:
    """With as many devices as the diagnosis names something fits; with one less nothing does."""

    def with_devices(devices: int) -> Problem:
        data = problem_data(layers=6, sizes=(2, 4), memory_bytes=33_000)
        data["cluster"]["devices"][0]["count"] = devices
        return build(Problem, data, "devices")

    result = solve(with_devices(2))
    assert result.diagnosis is not None
    needed = result.diagnosis.devices
    assert needed is not None
    assert solve(with_devices(needed)).status == "optimal"
    assert solve(with_devices(needed - 1)).status == "infeasible"


def test_usable_share_counts_in_the_smallest_change() -> None:
    """The memory named is that of the device, not of its usable share."""
    data = problem_data(layers=1, sizes=(1,), memory_bytes=1000)
    kind = data["cluster"]["device_kinds"]["device"]
    kind["usable_share"] = 0.9
    result = solve(build(Problem, data, "share"))
    assert result.diagnosis is not None
    needed = result.diagnosis.memory_bytes
    assert needed is not None
    kind["memory_bytes"] = needed
    assert solve(build(Problem, data, "share")).status == "optimal"
    kind["memory_bytes"] = needed - 1
    assert solve(build(Problem, data, "share")).status == "infeasible"


def test_constraints_that_leave_nothing_are_told_from_memory() -> None:
    """A hop limit below every latency with pp = 2 leaves no placement, whatever the memory."""
    limits = [{"type": "hop-latency", "limit_s": 0}]
    result = solve(sample(search={"pp": [2]}, constraints=limits))
    assert result.status == "infeasible"
    assert result.diagnosis is not None
    assert result.diagnosis.case is None


def test_an_interrupted_search_keeps_its_incumbent() -> None:
    """A Ctrl-C after the first group leaves a legal plan and a bound that holds."""
    problem = sample(
        layers=8, sizes=(4, 4), job={"objective": "fill-drain"},
        model={"layer_types": {"block": layer_type(parameters=10**7)}},
    )  # fmt: skip
    optimum = solve(problem)
    assert optimum.evaluation is not None

    def stop(done: int, total: int, best_ps: int | None) -> None:
        if best_ps is not None:
            raise KeyboardInterrupt

    result = solve(problem, stop)
    assert result.status == "interrupted"
    assert result.plan is not None
    assert result.evaluation is not None
    assert result.bound_ps is not None
    assert result.bound_ps <= optimum.evaluation.value_ps <= result.evaluation.value_ps
    assert not verify(result.plan).violations


def test_an_interrupt_before_any_plan_returns_none() -> None:
    """A Ctrl-C at once leaves no plan, and a bound of the groups not looked at."""

    def stop(done: int, total: int, best_ps: int | None) -> None:
        raise KeyboardInterrupt

    result = solve(sample(), stop)
    assert (result.status, result.plan) == ("interrupted", None)


def with_claim(value_ps: str) -> dict[str, Any]:
    """Return the change that makes a plan claim a value."""
    return {"objective": {"name": "fill-drain", "value_ps": value_ps}}


def test_verify_finds_a_false_claim() -> None:
    """A plan that claims one picosecond less than it takes is caught."""
    plan = solve(sample()).plan
    assert plan is not None
    assert plan.objective is not None
    assert not verify(plan).violations
    less = str(int(plan.objective.value_ps) - 1)
    claim = plan.objective.model_copy(update={"value_ps": less})
    (violation,) = verify(plan.model_copy(update={"objective": claim})).violations
    assert violation.rule == "claim"


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        ({"dp": 3}, "batch"),
        ({"dp": 8, "pitch": 1}, "devices"),
        ({"pitch": 100}, "devices"),
    ],
)
def test_verify_finds_broken_form(change: dict[str, Any], rule: str) -> None:
    """Streams that do not divide the batch, overlapping and absent devices are caught."""
    plan = solve(sample(search={"pp": [2], "dp": [2], "order": ["pp-inner"]})).plan
    assert plan is not None
    violations = verify(plan.model_copy(update=change)).violations
    assert rule in {violation.rule for violation in violations}


def test_verify_finds_too_little_memory() -> None:
    """A plan moved to devices of a tenth of the memory breaks memory on every stage."""
    plan = solve(sample(search={"pp": [2], "dp": [1]})).plan
    assert plan is not None
    small = sample(memory_bytes=10_000, search={"pp": [2], "dp": [1]})
    violations = verify(plan.model_copy(update={"problem": small})).violations
    assert [violation.rule for violation in violations] == ["memory", "memory"]


def test_a_constraint_without_a_rule_is_left_out_of_the_search(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where the relaxed optimum keeps it, that is optimal; where not, there is a bound alone."""
    monkeypatch.delitem(RULES, "forbidden-boundary")
    kept = [{"type": "forbidden-boundary", "after": "layer-3"}]
    result = solve(sample(constraints=kept))
    assert (result.status, result.relaxed) == ("optimal", ("forbidden-boundary",))
    broken = [{"type": "forbidden-boundary", "after": "layer-1"}]
    result = solve(sample(search={"pp": [2]}, constraints=broken))
    assert (result.status, result.plan) == ("relaxed", None)
    assert result.bound_ps is not None
    assert [violation.rule for violation in result.broken] == ["forbidden-boundary"]


def test_a_tensor_without_bytes_is_refused_not_left_out() -> None:
    """Profiles for two microbatch sizes but output bytes for one: the edge and size are named."""
    data = problem_data()
    block = data["model"]["layer_types"]["block"]
    block["profiles"].append({**block["profiles"][0], "microbatch": 2})
    with pytest.raises(InstanceError, match="has no bytes for microbatch=2"):
        solve(build(Problem, data, "sizes"))


def test_more_stages_than_possible_are_refused() -> None:
    """Nine stages of four layers are refused with both numbers."""
    with pytest.raises(InstanceError, match=r"found \[9\], at most 4 stages are possible"):
        solve(sample(search={"pp": [9]}))
