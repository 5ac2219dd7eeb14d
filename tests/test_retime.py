"""A plan timed on its own network: against routed transfers, and against the levels."""

import random
from fractions import Fraction
from typing import Any

import pytest
from graph_samples import spec
from test_planned_networks import DRAGONFLY, GRAPH, TORUS, on

from nest_opt import Problem, SolveResult, solve
from nest_opt.cost.units import to_ps
from nest_opt.network.at_once import GraphAtOnce, TreeAtOnce
from nest_opt.network.flows import Flow, ring_flows
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.planned import device_vertices, link_graph, network_of_graph, routed
from nest_opt.network.topologies import tree
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.retime import Retiming, retime, retime_plan
from nest_opt.problem.hierarchical import HierarchicalSpec


def retimed(problem: Problem) -> tuple[SolveResult, Retiming]:
    """Return a problem's best plan and its times on the network."""
    result = solve(problem)
    assert result.plan is not None
    assert result.evaluation is not None
    found = retime_plan(result.plan, result.evaluation)
    assert found is not None
    return result, found


def oversubscribed(*ratios: int) -> HierarchicalSpec:
    """Return a tree of 16 devices with some ratios."""
    levels = spec((4, 100e9, 1e-6), (2, 50e9, 2e-6), (2, 50e9, 5e-6)).levels
    return HierarchicalSpec(
        type="hierarchical",
        levels=tuple(
            level.model_copy(update={"oversubscription": ratio})
            for level, ratio in zip(levels, ratios, strict=True)
        ),
    )


@pytest.mark.parametrize("seed", range(20))
def test_arithmetic_on_a_tree_is_what_its_graph_says(seed: int) -> None:
    """Any transfers at once have equal latencies and rates by arithmetic and by routes."""
    chance = random.Random(seed)
    network = oversubscribed(1, chance.choice([1, 3]), chance.choice([2, 4]))
    pairs = [(chance.randrange(16), chance.randrange(16)) for _ in range(chance.randint(1, 40))]
    graph = GraphAtOnce(GraphNetwork(link_graph(network)), range(16))
    assert TreeAtOnce(network).steps(pairs) == graph.steps(pairs)


@pytest.mark.parametrize("network", [TORUS, DRAGONFLY, GRAPH], ids=lambda each: each["type"])
def test_terms_are_the_times_of_the_real_flows(network: Any) -> None:
    """Hops of all replicas at once, and a ring step of all groups, take what the graph says."""
    problem = on(network, search={"dp": [2], "tp": [1]}, global_batch=8)
    result, found = retimed(problem)
    assert result.plan is not None
    placement = result.plan.placement()
    assert placement.stages > 1
    graph, vertices = routed(problem.cluster.network), device_vertices(problem.cluster)  # type: ignore[arg-type]

    def device(replica: int, stage: int) -> int:
        return vertices[placement.device_map.block(replica, stage)[0]]

    output = problem.model.types[0].output_bytes[str(placement.microbatch)]
    hops = [
        Flow(device(replica, stage), device(replica, stage + 1), output)
        for replica in range(2)
        for stage in range(placement.stages - 1)
    ]
    assert found.terms["hop in"].retimed_ps == to_ps(graph.concurrent_s(hops))

    parameters = [10**7 * len(stage.layers) for stage in found.stages]
    step = [
        flow
        for stage in range(placement.stages)
        for flow in ring_flows([device(0, stage), device(1, stage)], Fraction(parameters[0]))
    ]
    if len(set(parameters)) == 1:
        # An all-reduce of two ranks is two steps of half the gradients' 2 bytes each.
        assert found.terms["dense gradients"].retimed_ps == to_ps(2 * graph.concurrent_s(step))
    assert found.planned_ps == result.evaluation.value_ps  # type: ignore[union-attr]


def test_a_tree_that_is_not_oversubscribed_is_as_planned() -> None:
    """There the levels are exact, so that every stage and the value come out the same."""
    levels = spec((4, 450e9, 3e-6), (2, 50e9, 1e-5), (2, 25e9, 2e-5))
    result, found = retimed(on(network_of_graph(tree(levels)), 16))
    assert result.evaluation is not None
    assert found.value_ps == result.evaluation.value_ps
    assert found.stages == result.evaluation.stages
    assert solve(on(levels, 16)).evaluation == result.evaluation


def test_a_slow_link_that_a_plan_hardly_uses_costs_it_less_than_the_levels_say() -> None:
    """Levels give every pair the slow link's rate, the plan's transfers have their own."""
    slow = {"source": "1-0", "target": "1-1", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}
    _, found = retimed(on({**TORUS, "changed_links": [slow]}, memory_bytes=2 * 10**8))
    assert found.value_ps < found.planned_ps
    assert sum(stage.time_ps for stage in found.stages) > 0


def test_plain_levels_and_trees_of_algorithms_are_not_timed() -> None:
    """Nothing but levels is known of a plain hierarchy; other algorithms than rings are not."""
    for network in (
        spec((4, 100e9, 1e-6), (2, 50e9, 2e-6)),
        oversubscribed(1, 2, 2).model_copy(update={"algorithms": ("ring", "tree")}),
    ):
        result = solve(on(network))
        assert result.plan is not None
        assert result.evaluation is not None
        costs = Costs(result.problem)
        assert retime(costs, result.plan.placement(), result.evaluation) is None
