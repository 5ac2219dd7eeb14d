"""Every network of a problem file reaches costs, search and device names through its levels."""

from fractions import Fraction
from typing import Any

import pytest
from graph_samples import spec
from samples import layer_type, problem_data

from nest_opt import Problem, solve
from nest_opt.cost.build import build_cost_table
from nest_opt.errors import InstanceError
from nest_opt.network import device_names, distances, planned_levels
from nest_opt.network.planned import device_vertices, link_graph, network_of_graph
from nest_opt.network.topologies import tree
from nest_opt.problem import networks
from nest_opt.problem.files import to_json_data
from nest_opt.problem.hierarchical import HierarchicalSpec
from nest_opt.problem.validation import build

LINK = {"bandwidth_bytes_per_s": 45e9, "latency_s": 1e-6}
TORUS = {"type": "torus", "axes": [{"size": 4, **LINK}, {"size": 2, **LINK, "wrap": False}]}
DRAGONFLY = {
    "type": "dragonfly",
    **{"groups": 2, "routers": 2, "devices": 2},
    **{"device_link": LINK, "local_link": LINK, "global_link": LINK},
}
RAILS = {
    "type": "rails",
    "rails": 2,
    "levels": [
        {"name": "node", "size": 2, "bandwidth_bytes_per_s": 4e11, "latency_s": 1e-6},
        {"name": "rack", "size": 4, "bandwidth_bytes_per_s": 5e10, "latency_s": 5e-6},
    ],
}
GRAPH = {
    "type": "graph",
    "devices": [f"gpu-{number}" for number in range(8)],
    "switches": ["left", "right"],
    "links": [
        *(
            {"source": f"gpu-{number}", "target": "left" if number % 2 else "right", **LINK}
            for number in range(8)
        ),
        {"source": "left", "target": "right", **LINK},
    ],
}


def on(network: Any, count: int = 8, **parts: Any) -> Problem:
    """Return a small problem on a network."""
    data = problem_data(layers=6, sizes=(count,), **parts)
    data["model"]["layer_types"]["block"] = layer_type(output_bytes=10**8, parameters=10**7)
    data["cluster"]["network"] = (
        network if isinstance(network, dict) else network.model_dump(mode="json")
    )
    return build(Problem, data, "sample")


def levels_of(network: Any, count: int = 8) -> list[tuple[int, float]]:
    """Return sizes and bandwidths of the levels of a network."""
    found = planned_levels(on(network, count).cluster).levels
    return [(level.size, float(level.bandwidth_bytes_per_s)) for level in found]


def test_a_graph_that_is_a_tree_costs_what_the_hierarchy_does() -> None:
    """The graph of a tree has its levels found, and the same cost table and the same plan."""
    levels = spec((4, 450e9, 3e-6), (2, 50e9, 1e-5), (2, 25e9, 2e-5))
    hierarchy = on(levels, 16)
    graph = on(network_of_graph(tree(levels)), 16)
    assert build_cost_table(graph) == build_cost_table(hierarchy)
    found, same = solve(graph), solve(hierarchy)
    assert found.plan is not None
    assert same.plan is not None
    assert found.evaluation == same.evaluation
    assert found.plan.placement() == same.plan.placement()
    assert found.plan.problem.cluster.network.type == "graph"


@pytest.mark.parametrize("ratio", [1, 3, 4])
def test_oversubscription_divides_what_a_tree_gives_any_traffic(ratio: int) -> None:
    """Levels of an oversubscribed hierarchy are those of its graph under traffic `any`."""
    levels = spec((2, 100e9, 1e-6), (4, 50e9, 2e-6))
    outer = levels.levels[1].model_copy(update={"oversubscription": ratio})
    hierarchy = levels.model_copy(update={"levels": (levels.levels[0], outer)})
    assert isinstance(hierarchy, HierarchicalSpec)
    graph = network_of_graph(link_graph(hierarchy), traffic="any")
    assert build_cost_table(on(graph)) == build_cost_table(on(hierarchy))
    assert planned_levels(on(hierarchy).cluster).levels[1].bandwidth_bytes_per_s <= Fraction(
        50 * 10**9, ratio
    )


@pytest.mark.parametrize(
    ("network", "found"),
    [
        (TORUS, [(4, 45e9), (2, 22.5e9)]),
        ({**TORUS, "boxes": [[2, 1]]}, [(2, 45e9), (4, 22.5e9)]),
        (DRAGONFLY, [(2, 45e9), (2, 22.5e9), (2, 11.25e9)]),
        (RAILS, [(2, 4e11), (4, 5e10)]),
        (GRAPH, [(4, 45e9), (2, 11.25e9)]),
        ({**GRAPH, "level_sizes": [2], "traffic": "alone"}, [(2, 45e9), (4, 45e9)]),
    ],
    ids=["torus", "boxes", "dragonfly", "rails", "graph", "sizes"],
)
def test_levels_are_those_of_the_shape(network: Any, found: list[tuple[int, float]]) -> None:
    """Each kind of network has groups of its own and the bandwidth of its rings."""
    assert levels_of(network) == found


def test_plans_are_found_and_written_on_every_kind() -> None:
    """A plan on each kind keeps the network of its problem, which reads back to the same."""
    for network in (TORUS, DRAGONFLY, RAILS, GRAPH):
        found = solve(on(network))
        assert found.status == "best-on-links"
        assert found.plan is not None
        data = to_json_data(found.plan)
        assert data["problem"]["cluster"]["network"]["type"] == network["type"]
        assert build(Problem, data["problem"], "plan") == found.plan.problem


def test_device_names_follow_the_order() -> None:
    """A plan's device numbers are places of the order: boxes, names that are given, or found."""
    assert device_names(on(TORUS).cluster)[:4] == ("0-0", "0-1", "1-1", "1-0")
    odd_first = [f"gpu-{number}" for number in (1, 3, 5, 7, 0, 2, 4, 6)]
    given = on({**GRAPH, "order": odd_first}, 5)
    assert list(device_names(given.cluster)) == odd_first[:5]
    assert device_vertices(given.cluster) == (1, 3, 5, 7, 0)
    assert planned_levels(given.cluster) == planned_levels(on(GRAPH).cluster)
    found = device_names(on(GRAPH).cluster)
    assert {int(name[-1]) % 2 for name in found[:4]} in ({0}, {1})
    assert device_names(on(spec((8, 1e9, 0)), 3).cluster) == ("0", "1", "2")


@pytest.mark.parametrize(
    ("network", "wrong"),
    [
        ({**TORUS, "level_sizes": [3, 4]}, "level_sizes: found 4 after 3"),
        ({**TORUS, "boxes": [[3, 1]]}, r"boxes: found \[3, 1\] in \[4, 2\]"),
        ({**TORUS, "order": ["0-0"]}, "order: found 1 names, each of the 8 devices"),
        ({**TORUS, "axes": [{"size": 2**17, **LINK}] * 2}, "at most 131,072 are allowed"),
        ({**DRAGONFLY, "routers": 2**12}, "at most 2,097,152 are allowed"),
        ({**RAILS, "rails": 3}, "rails: found 3"),
        ({**GRAPH, "order": ["gpu-0"] * 8}, "order: found 'gpu-0' twice"),
        ({**GRAPH, "switches": ["left"]}, "'right', which is neither among devices nor"),
        ({**GRAPH, "devices": ["left", "right"]}, "found 2 named 'left'"),
        ({"type": "ring"}, "'hierarchical', 'torus', 'dragonfly', 'rails', 'graph'"),
        (
            {**GRAPH, "links": [{"source": "gpu-0", "target": "left", **LINK,
                                 "capacity_bytes_per_s": 1}]},
            "capacity_bytes_per_s: found 1 bytes/s, at least the bandwidth",
        ),
    ],
)  # fmt: skip
def test_networks_that_make_no_sense_are_refused_when_read(network: Any, wrong: str) -> None:
    """Each message names the field, what was found and what is allowed."""
    with pytest.raises(InstanceError, match=wrong):
        on(network)


@pytest.mark.parametrize(
    ("network", "wrong"),
    [
        ({**GRAPH, "links": GRAPH["links"][:-1]}, "no route from device 'gpu-0' to 'gpu-1'"),
        ({**TORUS, "missing_links": [{"source": "0-0", "target": "2-0"}]}, "'0-0' -> '2-0'"),
        ({**TORUS, "changed_links": [{"source": "0-0", "target": "9-9", **LINK}]}, "'9-9'"),
        ({**TORUS, "order": ["0-0"] + [f"{n}" for n in range(7)]}, "order: .*found '0', which"),
    ],
)
def test_what_only_the_graph_shows_is_refused_by_name(network: Any, wrong: str) -> None:
    """A device without a route, and a link or a name that the shape does not have."""
    with pytest.raises(InstanceError, match=wrong):
        planned_levels(on(network).cluster)


def test_a_missing_and_a_slow_link_change_the_levels() -> None:
    """Without a link the way round counts, and a slow link gives its rate to its levels."""
    missing = on({**TORUS, "missing_links": [{"source": "0-0", "target": "0-1"}]})
    latencies = [
        planned_levels(problem.cluster).levels[0].latency_s for problem in (on(TORUS), missing)
    ]
    assert [float(latency) for latency in latencies] == [2e-6, 3e-6]
    slow = {"source": "0-0", "target": "0-1", "bandwidth_bytes_per_s": 1e9, "latency_s": 1e-6}
    assert levels_of({**TORUS, "changed_links": [slow]}) == [(4, 1e9), (2, 1e9)]


def test_constraints_name_levels_that_the_file_shows() -> None:
    """A box of a torus can be named; levels of a graph only where the file gives their sizes."""

    def inside(network: Any, level: str) -> Problem:
        return on(network, constraints=[{"type": "tp-inside-node", "level": level}])

    assert solve(inside(TORUS, "2x2"), rank_by="levels").status == "optimal"
    with pytest.raises(InstanceError, match="give cluster"):
        inside(GRAPH, "level-0")
    assert solve(inside({**GRAPH, "level_sizes": [4]}, "level-0")).plan is not None


AXIS = {"size": 2**17, **LINK}
ENDS = {"source": "0-0", "target": "0-0"}


@pytest.mark.parametrize(
    ("network", "wrong"),
    [
        ({"type": "torus", "axes": [AXIS]}, r"network\.devices: found 131,072, at most 4,096"),
        ({**RAILS, "rails": 0}, r"network\.rails: found 0, at least 1"),
        ({**RAILS, "levels": []}, r"network\.levels: found"),
        ({**RAILS, "rails": 3}, r"network\.rails: found 3, 2 to 2"),
        ({**TORUS, "missing_links": [ENDS]}, r"missing_links\[0\]\.target: found '0-0'"),
        ({**TORUS, "changed_links": [{**ENDS, **LINK}]}, r"changed_links\[0\]\.target: found"),
        ({**GRAPH, "links": [{**ENDS, **LINK}]}, r"network\.links\[0\]\.target: found '0-0'"),
    ],
)
def test_what_no_network_can_be_is_refused_where_it_stands(network: Any, wrong: str) -> None:
    """Too many devices to compare, links to themselves, fields called as their network is."""
    with pytest.raises(InstanceError, match=wrong):
        on(network)


def test_sites_that_a_file_may_have_are_those_that_are_compared() -> None:
    """The limit of the format is that of the table of pairs."""
    assert networks.MAX_SITES == distances.MAX_SITES
