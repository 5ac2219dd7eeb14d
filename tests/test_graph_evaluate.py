"""Loads, violations and brute force of placement graphs, against hand-made answers."""

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from random_graphs import random_graph
from test_graph_problem import graph_data, profile, read

import nest_opt
from nest_opt import GraphPlan, PlanError, Problem
from nest_opt.certify.graph_brute_force import enumerate_assignments, graph_brute_force
from nest_opt.cost.graph_build import build_graph_table
from nest_opt.cost.graph_table import GraphTable
from nest_opt.plan.graph_check import check_graph
from nest_opt.plan.graph_evaluate import evaluate_graph
from nest_opt.plan.graph_placement import GraphPlacement, GraphStage
from nest_opt.plan.graph_plan import graph_plan_from_placement

Data = dict[str, Any]

# Graphs whose assignments a test may write out.
SMALL = [seed for seed in range(30) if len(random_graph(seed).model.ids) <= 6]
# Above every load.
NO_PLAN = 10**9


def diamond_data(**job: Any) -> Data:
    """Return a diamond a, b, c, d: times 100, 20, 30, 40 ps, outputs of 1, 2, 4, 8 ps.

    Devices 0 and 2 are accelerators of 90 bytes, each layer takes 40; device
    1 is a host on which everything takes ten times as long.
    """
    data = graph_data(**job)
    data["cluster"]["device_kinds"]["gpu"]["reserve_bytes"] = 10
    data["cluster"]["network"]["levels"][0].update(bandwidth_bytes_per_s=10**12, latency_s=0)
    data["model"] = {
        "layer_types": {
            name: {
                "output_bytes": {"1": size},
                "profiles": [
                    profile(
                        "gpu",
                        forward_s=f"{time_ps}e-12",
                        recompute={"none": {"stash_bytes": 40}},
                    ),
                    profile("host", forward_s=f"{10 * time_ps}e-12"),
                ],
            }
            for name, time_ps, size in (("a", 100, 1), ("b", 20, 2), ("c", 30, 4), ("d", 40, 8))
        },
        "layers": [{"id": name, "type": name} for name in "abcd"],
        "edges": [{"source": u, "target": v} for u, v in ("ab", "ac", "bd", "cd")],
    }
    return data


def placed(*stages: tuple[int, str]) -> GraphPlacement:
    """Return the placement of (device, layers) of the diamond."""
    return GraphPlacement(
        tuple(GraphStage(device, tuple("abcd".index(x) for x in names)) for device, names in stages)
    )


def table_of(data: Data) -> GraphTable:
    """Return the coefficients of JSON data."""
    return build_graph_table(read(data))


def test_an_output_is_paid_once_by_its_sender_and_once_by_each_receiver() -> None:
    """Layer a has two consumers on device 2: it sends 1 ps once, and device 2 receives it once."""
    found = evaluate_graph(table_of(diamond_data()), placed((0, "a"), (2, "bc"), (1, "d")))
    first, second, host = found.stages
    assert first.time_terms_ps == {"layers": 100, "received": 0, "sent": 1}
    assert second.time_terms_ps == {"layers": 50, "received": 1, "sent": 6}
    assert host.time_terms_ps == {"layers": 400}
    assert found.value_ps == host.time_ps == 400


def test_two_receivers_pay_each_and_the_sender_still_once() -> None:
    """Consumers of a on two devices: both receive it, a is sent once."""
    found = evaluate_graph(table_of(diamond_data()), placed((0, "a"), (2, "bd"), (1, "c")))
    assert found.stages[0].time_terms_ps["sent"] == 1
    assert found.stages[1].time_terms_ps == {"layers": 60, "received": 1 + 4, "sent": 0}


def test_memory_is_the_sum_over_a_device_up_to_what_is_usable() -> None:
    """Two layers of 40 bytes fit 90, three do not; on the host, layers take 5."""
    table = table_of(diamond_data())
    assert check_graph(table, placed((0, "ab"), (2, "cd"))) == []
    (violation,) = check_graph(table, placed((0, "abc"), (2, "d")))
    assert violation.rule == "memory"
    assert "120 bytes on device 0" in violation.found
    assert "30 bytes" in violation.remedy
    assert evaluate_graph(table, placed((1, "abcd"))).stages[0].memory_bytes == 20


def _unsupported(data: Data) -> None:
    data["model"]["layer_types"]["b"]["profiles"].pop(0)


def _colocated(data: Data) -> None:
    data["constraints"] = [{"type": "colocation", "layers": ["a", "d"]}]


def _nothing(data: Data) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "stages", "rule", "words"),
    [
        (_nothing, [(0, "ab"), (2, "c")], "layers", "'d' in 0 places"),
        (_nothing, [(0, "ab"), (2, "bcd")], "layers", "'b' in 2 places"),
        (_nothing, [(0, "aab"), (2, "cd")], "layers", "'a' in 2 places"),
        (_nothing, [(0, "ab"), (3, "cd")], "devices", "device 3 in use"),
        (_nothing, [(0, "ab"), (0, "cd")], "devices", "device 0 in 2 stages"),
        (_unsupported, [(0, "ab"), (2, "cd")], "support", "'b' on device 0"),
        (_nothing, [(0, "a"), (2, "bcd")], "memory", "120 bytes"),
        (_colocated, [(0, "ab"), (2, "cd")], "colocation", "layers 'a', 'd' in stages 0, 1"),
        (_nothing, [(0, "bc"), (2, "ad")], "contiguous", "'a' in stage 1"),
    ],
)
def test_each_rule_is_broken_alone(
    change: Callable[[Data], None], stages: list[tuple[int, str]], rule: str, words: str
) -> None:
    """A placement that breaks one rule is found to break that rule and no other."""
    data = diamond_data()
    change(data)
    broken = check_graph(table_of(data), placed(*stages))
    assert {violation.rule for violation in broken} == {rule}
    assert words in broken[0].found


def test_a_split_of_any_kind_has_no_order() -> None:
    """What is out of order in a contiguous split is legal where the split may be any."""
    back_and_forth = placed((0, "ad"), (2, "bc"))
    assert check_graph(table_of(diamond_data()), back_and_forth) != []
    assert check_graph(table_of(diamond_data(split="any")), back_and_forth) == []


def test_backward_layers_follow_colocation_and_no_order() -> None:
    """A backward layer may be in a stage before that of its producer."""
    data = diamond_data()
    data["model"]["layers"][3]["phase"] = "backward"
    assert check_graph(table_of(data), placed((0, "ad"), (2, "bc"))) == []


def test_order_only_edges_that_form_a_cycle_keep_their_layers_together() -> None:
    """With b before c before b, one stage has both."""
    data = diamond_data()
    data["model"]["edges"] += [
        {"source": u, "target": v, "order_only": True} for u, v in ("bc", "cb")
    ]
    table = table_of(data)
    assert check_graph(table, placed((0, "a"), (2, "bc"), (1, "d"))) == []
    for stages in ([(0, "ab"), (2, "cd")], [(0, "ac"), (2, "bd")]):
        assert {v.rule for v in check_graph(table, placed(*stages))} == {"contiguous"}


@pytest.mark.parametrize(
    ("split", "value", "stages"),
    [
        # Two layers a device; a with b sends 1 + 2 ps, c with d receives as much.
        ("contiguous", 123, {"ab", "cd"}),
        ("any", 123, {"ab", "cd"}),
    ],
)
def test_brute_force_knows_the_diamond(split: str, value: int, stages: set[str]) -> None:
    """Its best split, found by hand: 100 + 20 on one device, 30 + 40 on the other, 3 ps between."""
    result = graph_brute_force(read(diamond_data(split=split)))
    assert result.value_ps == value
    assert result.placement is not None
    found = {"".join("abcd"[layer] for layer in s.layers) for s in result.placement.stages}
    assert found == stages


def test_brute_force_sees_what_contiguity_costs() -> None:
    """With a and d colocated, b and c between them have to come along: to the host."""
    data = diamond_data()
    _colocated(data)
    data["model"]["layer_types"]["a"]["profiles"][0]["forward_s"] = "20e-12"
    free = graph_brute_force(read({**data, "job": {**data["job"], "split": "any"}}))
    # a with d: 60 ps, sends a's 1 ps, receives b's and c's 6 ps.
    assert free.value_ps == 20 + 40 + 1 + 2 + 4
    # In order, all four are in one stage, for which no accelerator has the memory.
    assert graph_brute_force(read(data)).value_ps == 10 * (100 + 20 + 30 + 40)


def test_brute_force_says_when_nothing_is_legal() -> None:
    """Without a host, four layers that share a device do not fit."""
    data = diamond_data()
    data["constraints"] = [{"type": "colocation", "layers": list("abcd")}]
    data["cluster"]["devices"] = [{"kind": "gpu", "count": 2}]
    result = graph_brute_force(read(data))
    assert (result.value_ps, result.placement, result.placements) == (None, None, 0)


@pytest.mark.parametrize("seed", SMALL)
def test_assignments_stand_for_all_that_there_are(seed: int) -> None:
    """Every assignment is one of those enumerated, up to names of devices of one kind."""
    table = build_graph_table(random_graph(seed))
    kind_of = {device: kind.name for kind in table.kinds for device in kind.devices}

    def form(devices: tuple[int, ...]) -> tuple[tuple[str, int], ...]:
        first: dict[int, int] = {}
        for layer, device in enumerate(devices):
            first.setdefault(device, layer)
        return tuple((kind_of[device], first[device]) for device in devices)

    listed = [form(devices) for devices in enumerate_assignments(table)]
    assert len(set(listed)) == len(listed)
    assert set(listed) == {form(d) for d in product(kind_of, repeat=len(table.layers))}


@pytest.mark.parametrize("seed", SMALL)
def test_any_split_is_never_worse_and_more_memory_helps(seed: int) -> None:
    """Brute force, with a rule less or more memory, finds no worse value."""
    problem = random_graph(seed)
    values = [
        graph_brute_force(changed).value_ps
        for changed in (_with_split(problem, "contiguous"), _with_split(problem, "any"))
    ]
    values.append(graph_brute_force(_with_memory(_with_split(problem, "any"))).value_ps)
    contiguous, any_split, roomy = (NO_PLAN if value is None else value for value in values)
    assert roomy <= any_split <= contiguous


def _with_split(problem: Problem, split: str) -> Problem:
    return problem.model_copy(update={"job": problem.job.model_copy(update={"split": split})})


def _with_memory(problem: Problem) -> Problem:
    cluster = problem.cluster
    kinds = {
        name: kind.model_copy(update={"memory_bytes": 10**9})
        for name, kind in cluster.device_kinds.items()
    }
    return problem.model_copy(
        update={"cluster": cluster.model_copy(update={"device_kinds": kinds})}
    )


@pytest.mark.parametrize("seed", range(10))
def test_exact_finds_what_brute_force_does(seed: int) -> None:
    """Value, status and bound of the integer program are those of trying every assignment."""
    problem = random_graph(seed)
    expected = graph_brute_force(problem)
    result = nest_opt.exact(problem)
    assert isinstance(result, nest_opt.GraphExactResult)
    assert result.family == problem.job.split
    if expected.value_ps is None:
        assert (result.status, result.plan, result.bound_ps) == ("infeasible", None, None)
        return
    assert result.status == "optimal"
    assert result.evaluation is not None
    assert result.evaluation.value_ps == expected.value_ps == result.bound_ps
    assert result.plan is not None
    verified = nest_opt.verify(result.plan)
    assert verified.violations == ()
    assert verified.claim_ps == expected.value_ps


def test_a_plan_carries_its_placement() -> None:
    """Layers of a stage may come in any order in the file; placements hold them sorted."""
    problem = read(diamond_data())
    placement = placed((2, "ab"), (0, "cd"))
    plan = graph_plan_from_placement(problem, placement, 123)
    assert plan.placement() == placement
    shuffled = plan.model_copy(
        update={"stages": ({"device": 2, "layers": ["b", "a"]}, plan.stages[1])}
    )
    assert shuffled.placement() == placement


def test_a_wrong_claim_is_a_violation() -> None:
    """Value and name of the objective are compared with what the plan evaluates to."""
    problem = read(diamond_data())
    plan = graph_plan_from_placement(problem, placed((0, "ab"), (2, "cd")), 123)
    assert nest_opt.verify(plan).violations == ()
    for claim in ({"name": "bottleneck", "value_ps": "122"}, {"name": "nest", "value_ps": "123"}):
        result = nest_opt.verify(plan.model_copy(update={"objective": claim}))
        (violation,) = result.violations
        assert violation.rule == "claim"
        assert "bottleneck of 123 ps" in violation.allowed


def test_an_unknown_layer_is_refused() -> None:
    """A name that the problem does not have is no placement at all."""
    plan = GraphPlan(problem=read(diamond_data()), stages=({"device": 0, "layers": ["a", "z"]},))
    with pytest.raises(PlanError, match=r"stages\[0\]: names layer 'z'"):
        plan.placement()


def test_a_plan_of_a_pipeline_is_refused() -> None:
    """Devices and layers alone do not say what a pipeline's plan must."""
    data = diamond_data()
    data["job"] = {"global_batch": 1, "bytes_per_parameter": data["job"]["bytes_per_parameter"]}
    data["cluster"]["devices"] = [{"kind": "gpu", "count": 2}]
    data["cluster"]["device_kinds"]["host"].pop("pays_transfers")
    for layer_type in data["model"]["layer_types"].values():
        layer_type["profiles"] = [{**profile()}]
    with pytest.raises(ValueError, match="'sender-once' is needed"):
        GraphPlan(problem=read(data), stages=({"device": 0, "layers": ["a"]},))
