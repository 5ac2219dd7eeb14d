"""Placement graphs as problems: what the format says of them, and what coefficients come of it."""

from typing import Any

import pytest
from random_graphs import random_graph, random_graph_data

from nest_opt import InstanceError, Problem
from nest_opt.api import solve_pipeline
from nest_opt.cost.graph_build import build_graph_table, merged_classes
from nest_opt.problem.files import problem_digest, to_json_text
from nest_opt.problem.validation import build, parse_json

Data = dict[str, Any]


def profile(kind: str | None = None, **changes: Any) -> Data:
    """Return a profile of 10 ps that takes 5 bytes."""
    data: Data = {
        "microbatch": 1,
        "forward_s": "10e-12",
        "backward_input_s": 0,
        "backward_weight_s": 0,
        "recompute": {"none": {"stash_bytes": 5}},
        **changes,
    }
    return data if kind is None else {**data, "kind": kind}


def graph_data(**job: Any) -> Data:
    """Return a chain of three layers on two accelerators and a host."""
    kind = {"output_bytes": {"1": 7}, "profiles": [profile("gpu"), profile("host")]}
    return {
        "name": "graph",
        "model": {
            "layer_types": {"layer": kind},
            "layers": [{"id": name, "type": "layer"} for name in "abc"],
        },
        "cluster": {
            "device_kinds": {
                "gpu": {"memory_bytes": 100, "reserve_bytes": 10},
                "host": {"memory_bytes": 1000, "pays_transfers": False},
            },
            "devices": [
                {"kind": "gpu", "count": 1},
                {"kind": "host", "count": 1},
                {"kind": "gpu", "count": 1},
            ],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {
                        "name": "link",
                        "size": 4,
                        "bandwidth_bytes_per_s": 2 * 10**12,
                        "latency_s": "1e-12",
                    }
                ],
            },
        },
        "job": {
            "global_batch": 1,
            "bytes_per_parameter": {"weights": 1, "gradients": "0.5", "optimizer": 0},
            "objective": "bottleneck",
            "transfer": "sender-once",
            **job,
        },
    }


def read(data: Data) -> Problem:
    """Return the problem of JSON data."""
    return build(Problem, data, "test")


def test_devices_are_numbered_over_all_groups_and_kinds_keep_the_groups_order() -> None:
    """A kind's devices are those of all its groups; reserves are not usable."""
    table = build_graph_table(read(graph_data()))
    assert [(kind.name, kind.devices) for kind in table.kinds] == [("gpu", (0, 2)), ("host", (1,))]
    assert [kind.usable_bytes for kind in table.kinds] == [90, 1000]
    assert [kind.pays_transfers for kind in table.kinds] == [True, False]


def test_a_layers_passes_are_rounded_together() -> None:
    """Three times of 0.4 ps are 1.2 ps, which is 1: they are rounded once, not each to 0."""
    data = graph_data()
    third = dict.fromkeys(("forward_s", "backward_input_s", "backward_weight_s"), "0.4e-12")
    data["model"]["layer_types"]["layer"]["profiles"][0] = profile("gpu", **third)
    assert build_graph_table(read(data)).kinds[0].time_ps == (1, 1, 1)


def test_size_is_states_stash_and_work() -> None:
    """States of dense and expert parameters are rounded up apart: 2 + 2 + 5 + 3 bytes."""
    data = graph_data()
    data["model"]["layer_types"]["layer"]["profiles"][0] = profile(
        "gpu",
        dense_parameters=1,
        expert_parameters=1,
        recompute={"none": {"stash_bytes": 5, "work_bytes": 3}},
    )
    table = build_graph_table(read(data))
    assert table.kinds[0].size_bytes == (12, 12, 12)
    assert table.kinds[1].size_bytes == (5, 5, 5)


def test_only_consumed_outputs_take_time() -> None:
    """7 bytes at 2 bytes a ps, and 1 ps of latency, are 4.5 ps: 5; the last layer sends nothing."""
    table = build_graph_table(read(graph_data()))
    assert table.transfer_ps == (5, 5, 0)
    assert table.edges == table.precedence == ((0, 1), (1, 2))


def test_a_kind_without_a_profile_takes_the_one_for_any_kind_or_supports_nothing() -> None:
    """The profile of a kind wins over the one without, whatever their order."""
    data = graph_data()
    data["model"]["layer_types"]["layer"]["profiles"] = [
        profile(forward_s="30e-12"),
        profile("host", forward_s="20e-12"),
    ]
    data["model"]["layer_types"]["host only"] = {
        "output_bytes": {"1": 7},
        "profiles": [profile("host")],
    }
    data["model"]["layers"][2]["type"] = "host only"
    gpu, host = build_graph_table(read(data)).kinds
    assert gpu.time_ps == (30, 30, None)
    assert host.time_ps == (20, 20, 10)


def test_order_is_of_forward_layers_and_of_order_only_edges() -> None:
    """Edges of backward layers are tensors without an order, order-only edges the reverse."""
    data = graph_data()
    data["model"]["layers"][2]["phase"] = "backward"
    data["model"]["edges"] = [
        {"source": "a", "target": "b"},
        {"source": "b", "target": "c"},
        {"source": "b", "target": "a", "order_only": True},
    ]
    table = build_graph_table(read(data))
    assert table.edges == ((0, 1), (1, 2))
    assert table.precedence == ((0, 1), (1, 0))


def test_colocation_constraints_with_a_layer_in_common_merge() -> None:
    """Classes are disjoint and sorted, whatever order the constraints come in."""
    assert merged_classes([[5, 1], [2, 3], [3, 5], [6, 7]]) == ((1, 2, 3, 5), (6, 7))
    assert merged_classes([]) == ()


def test_totals_are_limited() -> None:
    """Layers of 10^6 s each leave the range of the search."""
    data = graph_data()
    data["model"]["layer_types"]["layer"]["profiles"][0]["forward_s"] = 10**6
    with pytest.raises(InstanceError, match=r"profiles for kind 'gpu': found 3\.000e\+18 ps"):
        build_graph_table(read(data))


def test_the_interval_search_names_the_command_that_searches_any_placement_graph() -> None:
    """The interval search refuses: it would not see the graph."""
    with pytest.raises(InstanceError, match=r"a placement graph.*use `nest-opt exact`"):
        solve_pipeline(read(graph_data()))


def test_values_that_say_what_holds_anyway_are_allowed() -> None:
    """A search space of the one point that there is changes nothing."""
    data = {**graph_data(), "search": {"tp": [1], "dp": [1], "microbatch": [1], "sp": [False]}}
    assert build_graph_table(read(data)) == build_graph_table(read(graph_data()))


def test_a_graph_of_two_thousand_one_hundred_layers_is_read() -> None:
    """The limit of a pipeline, which is of its search, is not that of a placement graph."""
    data = graph_data()
    data["model"]["layers"] = [
        {"id": "a", "type": "layer", "repeat": 2000},
        {"id": "b", "type": "layer", "repeat": 100},
    ]
    assert len(build_graph_table(read(data)).layers) == 2100


@pytest.mark.parametrize("seed", range(20))
def test_a_file_reads_back(seed: int) -> None:
    """A written problem is the same problem, to its digest."""
    problem = random_graph(seed)
    again = read(parse_json(to_json_text(problem), "text"))
    assert again == problem
    assert problem_digest(again) == problem_digest(problem)


def test_random_graphs_have_every_feature() -> None:
    """Fifty seeds have both splits, both phases, classes, orders, and layers that no kind lacks."""
    problems = [build(Problem, random_graph_data(seed), "seed") for seed in range(50)]
    tables = [build_graph_table(problem) for problem in problems]
    assert {table.contiguous for table in tables} == {True, False}
    assert any("backward" in problem.model.phases for problem in problems)
    assert any(table.classes for table in tables)
    assert any(edge.order_only for problem in problems for edge in problem.model.all_edges)
    assert any(None in kind.time_ps for table in tables for kind in table.kinds)
    assert any(len(table.kinds) == 3 for table in tables)
    assert any(not kind.pays_transfers for table in tables for kind in table.kinds)
    assert any(sum(kind.size_bytes) > kind.usable_bytes for t in tables for kind in t.kinds)


def test_the_first_wrong_edge_is_enough() -> None:
    """However many edges are wrong, the first is told and no other is looked at."""
    data = graph_data()
    data["model"]["edges"] = [{"source": "a"}] * 1000
    with pytest.raises(InstanceError) as error:
        read(data)
    assert str(error.value) == (
        "test: model.edges[0].target: found nothing, a value is needed: add the field"
    )
