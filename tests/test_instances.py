"""The tiny instances: each shows what its note says, with and without the feature."""

import json
from pathlib import Path
from typing import Any

import pytest

import nest_opt
from nest_opt import Problem, SolveResult
from nest_opt.cost.build import cut_bytes
from nest_opt.plan.evaluate import Costs, evaluate
from nest_opt.plan.placement import Placement
from nest_opt.problem.files import read_problem

ROOT = Path(__file__).resolve().parent.parent
TINY = ROOT / "instances" / "tiny"
PS_PER_S = 10**12


def tiny(name: str) -> Problem:
    """Return a tiny instance."""
    return read_problem(TINY / f"{name}.json")


def changed(problem: Problem, **values: Any) -> Problem:
    """Return a problem with other values at dotted places (`__` stands for a dot)."""
    data = json.loads(problem.model_dump_json(exclude_defaults=True))
    data.setdefault("search", {})
    for place, value in values.items():
        *parents, last = place.split("__")
        entity = data
        for part in parents:
            entity = entity[int(part) if isinstance(entity, list) else part]
        entity[int(last) if isinstance(entity, list) else last] = value
    return Problem.model_validate(data)


def best(problem: Problem) -> SolveResult:
    """Return the result of a problem that has an optimum."""
    result = nest_opt.solve(problem)
    assert result.status == "optimal"
    return result


def value(problem: Problem) -> int:
    """Return the optimum in picoseconds."""
    evaluation = best(problem).evaluation
    assert evaluation is not None
    return evaluation.value_ps


def placement(result: SolveResult) -> Placement:
    """Return the placement of a result that has a plan."""
    assert result.plan is not None
    return result.plan.placement()


def sizes(problem: Problem) -> list[int]:
    """Return the number of layers of each stage of the best plan."""
    return [high - low for ((low, high),) in placement(best(problem)).intervals]


@pytest.mark.parametrize("path", sorted(TINY.glob("*.json")), ids=lambda path: path.stem)
def test_every_tiny_instance_says_why_it_is_there(path: Path) -> None:
    """A tiny instance has a note of at least a sentence, and is readable (under 100 lines)."""
    assert len(read_problem(path).note) > 60
    assert len(path.read_text(encoding="utf-8").splitlines()) < 100


def test_thirty_layers_on_four_stages() -> None:
    """30 equal layers on 4 stages: the heaviest has 8, the smallest ends come first."""
    problem = tiny("thirty-layers-on-four-stages")
    assert sizes(problem) == [6, 8, 8, 8]
    assert value(problem) == (30 * 3 + 7 * 8 * 3) * PS_PER_S


def test_seven_layers_on_two_stages() -> None:
    """7 equal layers on 2 stages: the heaviest has 4, the smaller end comes first."""
    problem = tiny("seven-layers-on-two-stages")
    assert sizes(problem) == [3, 4]
    assert value(problem) == (7 * 3 + 7 * 4 * 3) * PS_PER_S


def test_four_measured_stages() -> None:
    """The same four stages take 11.4245 s under fill-drain and 11.806 s under nest."""
    assert value(tiny("four-measured-stages")) == 11_424_500_000_000
    assert value(tiny("four-measured-stages-nest")) == 11_806_000_000_000
    fill_drain, nest = tiny("four-measured-stages"), tiny("four-measured-stages-nest")
    assert changed(fill_drain, job__objective="nest").job == nest.job
    assert fill_drain.model == nest.model


def test_bottleneck_optimal_plan_is_not_enough() -> None:
    """The one plan with the least bottleneck is worse under nest than the optimum."""
    problem = tiny("sync-against-bottleneck")
    costs = Costs(problem)
    balanced = placement(best(changed(problem, job__objective="bottleneck")))
    assert balanced.ends == (1, 3)
    assert evaluate(costs, balanced).value_ps == 37 * PS_PER_S
    assert placement(best(problem)).ends == (2, 3)
    assert value(problem) == 32 * PS_PER_S


def test_bandwidth_that_rises_outward_is_that_of_the_level_below() -> None:
    """A rack of 400 GB/s behind nodes of 100 GB/s is worth 100; the plan depends on it."""
    problem = tiny("bandwidth-rises-outward")
    evaluation = best(problem).evaluation
    assert evaluation is not None
    assert evaluation.stages[0].sync_terms_ps
    limited = changed(problem, cluster__network__levels__2__bandwidth_bytes_per_s=100 * 10**9)
    assert value(limited) == evaluation.value_ps
    widened = changed(problem, cluster__network__levels__1__bandwidth_bytes_per_s=400 * 10**9)
    assert value(widened) < evaluation.value_ps


def test_straddling_replica_is_charged_for_both_nodes() -> None:
    """Replica 0 is inside a node, replica 1 is not, and the plan pays for replica 1."""
    problem = tiny("straddling-replica")
    result = best(problem)
    blocks = placement(result).device_map
    assert [list(blocks.block(r, 0)) for r in range(3)] == [[0, 1], [2, 3], [4, 5]]
    assert result.evaluation is not None
    assert result.evaluation.stages[0].levels == {"tp": 1}
    assert value(problem) == 10 * PS_PER_S
    assert value(changed(problem, search__dp=[2])) == 12 * PS_PER_S
    assert value(changed(problem, cluster__network__levels__0__size=4)) == 8 * PS_PER_S


def test_level_pitch_wins() -> None:
    """Without pitches rounded up to whole nodes the optimum is strictly worse."""
    problem = tiny("level-pitch-wins")
    assert value(changed(problem, search__pitch=["level"])) == value(problem)
    assert value(changed(problem, search__pitch=["tight", "spread"])) > value(problem)


def test_spread_pitch_wins() -> None:
    """Without the pitch that spreads replicas evenly the optimum is strictly worse."""
    problem = tiny("spread-pitch-wins")
    assert value(changed(problem, search__pitch=["spread"])) == value(problem)
    assert value(changed(problem, search__pitch=["tight", "level"])) > value(problem)
    assert placement(best(problem)).pitch == 4


def test_dp_inner_wins() -> None:
    """With rank order pp-inner only the optimum is strictly worse."""
    problem = tiny("dp-inner-wins")
    assert placement(best(problem)).order == "dp-inner"
    assert value(changed(problem, search__order=["pp-inner"])) > value(problem)


def test_recompute_in_first_stage_only() -> None:
    """Modes chosen per stage beat one mode for all, whichever it is."""
    problem = tiny("recompute-in-first-stage")
    assert placement(best(problem)).recompute == ("full", "none")
    assert value(problem) == 70 * PS_PER_S
    assert value(changed(problem, search__recompute=["none"])) == 75 * PS_PER_S
    assert value(changed(problem, search__recompute=["full"])) == 72 * PS_PER_S


def test_infeasible_layer_needs_larger_devices() -> None:
    """The diagnosis names the layer's stage and the exact least memory; a byte less is too few."""
    problem = tiny("infeasible-layer")
    result = nest_opt.solve(problem)
    assert result.status == "infeasible"
    diagnosis = result.diagnosis
    assert diagnosis is not None
    assert diagnosis.devices is None
    assert diagnosis.heaviest is not None
    assert diagnosis.heaviest.intervals == ((1, 2),)
    assert diagnosis.heaviest.memory_terms_bytes["states"] == 160 * 10**9
    place = "cluster__device_kinds__gpu__memory_bytes"
    assert best(changed(problem, **{place: diagnosis.memory_bytes}))
    less = (diagnosis.memory_bytes or 0) - 1
    assert nest_opt.solve(changed(problem, **{place: less})).status == "infeasible"


def test_infeasible_devices_needs_one_more() -> None:
    """The diagnosis asks for 3 devices, with which the instance is feasible."""
    problem = tiny("infeasible-devices")
    diagnosis = nest_opt.solve(problem).diagnosis
    assert diagnosis is not None
    assert diagnosis.devices == 3
    assert best(changed(problem, cluster__devices__0__count=3))


def test_infeasible_conflict_is_of_three() -> None:
    """Memory, colocation and hop latency are named; without any one of them there is a plan."""
    problem = tiny("infeasible-conflict")
    conflict = nest_opt.solve(problem).conflict
    assert conflict is not None
    assert [str(member) for member in conflict.members] == [
        "memory",
        "constraints[1] (colocation)",
        "constraints[2] (hop-latency)",
    ]
    _, colocation, hop_latency = problem.model_dump()["constraints"]
    assert best(changed(problem, cluster__device_kinds__gpu__memory_bytes=10**12))
    assert best(changed(problem, constraints=[colocation]))
    assert best(changed(problem, constraints=[hop_latency]))


def test_expert_parallelism_wins() -> None:
    """With the experts replicated (ep = 1), or half sharded, the optimum is strictly worse."""
    problem = tiny("expert-parallel")
    assert placement(best(problem)).configurations[0].ep == 4
    for degree in (1, 2):
        assert value(changed(problem, search__ep=[degree])) > value(problem)


def test_skip_tensor_is_relayed_and_moves_the_cut() -> None:
    """Every cut between its ends carries the skip tensor once; without it the even cut wins."""
    problem = tiny("skip-tensor")
    mega, giga = 10**6, 3 * 10**9
    assert cut_bytes(problem, 1, 1)[1:-1] == (mega, giga, giga + mega, giga + mega, mega)
    assert sizes(problem) == [1, 5]
    edges = [edge for edge in problem.model.edges or () if str(edge) != "'b' -> 'e'"]
    chain = changed(problem, model__edges=[edge.model_dump() for edge in edges])
    assert sizes(chain) == [3, 3]
    assert value(chain) < value(problem)


def test_relayed_tensor_is_paid_at_both_boundaries() -> None:
    """With three stages the middle one receives and forwards a tensor that it does not use."""
    problem = changed(
        tiny("skip-tensor"),
        search__pp=[3],
        cluster__devices__0__count=3,
        cluster__network__levels__0__size=3,
        constraints=[
            {"type": "colocation", "layers": ["a", "b"]},
            {"type": "colocation", "layers": ["e", "f"]},
        ],
    )
    result = best(problem)
    assert placement(result).ends == (2, 4, 6)
    assert result.evaluation is not None
    middle = result.evaluation.stages[1].time_terms_ps
    assert middle["hop in"] == 3 * PS_PER_S
    assert middle["hop out"] == 3 * PS_PER_S + PS_PER_S // 1000


@pytest.mark.parametrize(
    "name",
    [
        "colocation",
        "anti-colocation",
        "pinned-layers",
        "forbidden-boundary",
        "hop-latency-limit",
        "degree-limit",
        "tp-inside-node",
        "failure-domains",
        "power-limit",
    ],
)
def test_constraint_changes_the_answer(name: str) -> None:
    """Without its constraint the instance has another, strictly better plan."""
    problem = tiny(name)
    free = changed(problem, constraints=[])
    assert value(free) < value(problem)
    assert placement(best(free)) != placement(best(problem))


def test_failure_domains_keep_replicas_in_nodes_of_their_own() -> None:
    """With the constraint no node has devices of both replicas, without it both nodes have."""
    problem = tiny("failure-domains")
    for constrained, shared in ((problem, 1), (changed(problem, constraints=[]), 2)):
        device_map = placement(best(constrained)).device_map
        for node in (0, 1):
            held = {
                replica
                for replica in range(2)
                for stage in range(2)
                if device_map.block(replica, stage).start // 2 == node
            }
            assert len(held) == shared


def test_power_limit_feeds_one_device_a_node() -> None:
    """A watt less than two devices draw leaves one of each node; two devices' watts leave both."""
    problem = tiny("power-limit")
    for limit, devices in ((1399, 2), (1400, 4)):
        limited = changed(problem, constraints__0__limit_w=limit)
        assert placement(best(limited)).device_map.devices_used == devices


def test_hop_latency_limit_decides_what_crosses_the_nodes() -> None:
    """With the limit hops stay inside a node and gradients cross, without it the reverse."""
    for constraints, order, crossing in (
        (None, "pp-inner", "dense gradients"),
        ([], "dp-inner", "hop out"),
    ):
        problem = tiny("hop-latency-limit")
        result = best(problem if constraints is None else changed(problem, constraints=constraints))
        assert placement(result).order == order
        assert result.evaluation is not None
        levels = result.evaluation.stages[0].levels
        assert {name for name, level in levels.items() if level == 1} == {crossing}


def test_padding_makes_two_replicas_legal() -> None:
    """Without pad the optimum is strictly worse, and uses one device."""
    problem = tiny("padded-batch")
    assert placement(best(problem)).replicas == 2
    strict = changed(problem, job__pad=False)
    assert placement(best(strict)).replicas == 1
    assert value(strict) > value(problem)


def test_idle_devices_are_better_than_slow_links() -> None:
    """One device is the best; two or more, as replicas or stages, are strictly worse."""
    problem = tiny("idle-devices")
    assert placement(best(problem)).device_map.devices_used == 1
    for dimension in ("search__dp", "search__pp"):
        assert value(changed(problem, **{dimension: [2, 4]})) > value(problem)


def test_sequence_parallel_hops_are_smaller() -> None:
    """With sp a hop moves half the bytes, and that alone makes the difference."""
    problem = tiny("sequence-parallel-hops")
    assert placement(best(problem)).configurations[0].sp
    without = changed(problem, search__sp=[False])
    # Two hops in sum F and one in each of the 7 further rounds, 0.05 s less each.
    assert value(without) - value(problem) == 9 * PS_PER_S // 20


def test_microbatch_in_the_middle_wins() -> None:
    """Microbatch sizes 1, 2 and 4 take 27, 25 and 27 s."""
    problem = tiny("microbatch-choice")
    times = [value(changed(problem, search__microbatch=[size])) for size in (1, 2, 4)]
    assert times == [27 * PS_PER_S, 25 * PS_PER_S, 27 * PS_PER_S]
    assert value(problem) == 25 * PS_PER_S
