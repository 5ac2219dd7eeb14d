"""Networks as graphs: shapes against closed forms, routes against other searches, shared links."""

import random
from fractions import Fraction
from itertools import permutations, product

import networkx as nx
import pytest

from nest_opt.errors import InstanceError
from nest_opt.network import HierarchicalNetwork
from nest_opt.network.distances import pair_table
from nest_opt.network.flows import Flow, chain_flows, crossings, ring_flows
from nest_opt.network.graph import LinkGraph, LinkKind, with_links, without_links
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.pairs import LevelPairs, PairNetwork
from nest_opt.network.routing import Metric, Router
from nest_opt.network.topologies import (
    Edge,
    dragonfly,
    graph_of_edges,
    graph_of_networkx,
    rails,
    torus,
    torus_distance,
    tree,
)
from tests.graph_samples import ICI, SAMPLES, racks, random_graph, spec

METRICS: tuple[Metric, ...] = ("latency", "links", "widest")


def line(*kinds: LinkKind) -> LinkGraph:
    """Return two devices with switches between them, over links of these kinds."""
    names = ["a", *(f"s{place}" for place in range(len(kinds) - 1)), "b"]
    return graph_of_edges(
        ["a", "b"],
        [Edge(*ends, kind) for *ends, kind in zip(names[:-1], names[1:], kinds, strict=True)],
    )


def path_of(graph: LinkGraph, numbers: list[int], source: int) -> list[int]:
    """Return the vertices of a path of links, put in order from its source."""
    onward = {graph.links[number].source: graph.links[number].target for number in numbers}
    vertices = [source]
    while vertices[-1] in onward:
        vertices.append(onward.pop(vertices[-1]))
    assert not onward
    return vertices


@pytest.mark.parametrize(
    "levels",
    [
        [(4, 900e9, 1e-6), (3, 50e9, 2e-6), (2, 25e9, 5e-6)],
        [(2, 900, 0), (2, 100, 0), (3, 400, 0)],
        [(3, 7, 0.1), (1, 3, 0.1), (2, 11, "0.30000000000000000000001")],
        [(5, 50e9, 1e-6)],
    ],
)
def test_a_tree_has_the_hops_of_the_hierarchical_network(levels: list) -> None:
    """Every two devices take exactly the hop at their level, for any bytes."""
    found: PairNetwork = GraphNetwork(tree(spec(*levels)))
    wanted: PairNetwork = LevelPairs(HierarchicalNetwork(spec(*levels)))
    assert found.device_count == wanted.device_count
    for one, other in product(range(found.device_count), repeat=2):
        for size in (0, 1, 10**9):
            assert found.transfer_s(one, other, size) == wanted.transfer_s(one, other, size)


def test_a_full_tree_carries_all_devices_at_once() -> None:
    """Nothing is oversubscribed: shifted by a group, all devices take the hop of one."""
    levels = spec((4, 900e9, 1e-6), (3, 50e9, 2e-6), (2, 25e9, 5e-6))
    for shift, network in product((1, 4, 12), (GraphNetwork(tree(levels)),)):
        flows = [Flow(device, (device + shift) % 24, 10**6) for device in range(24)]
        pairs = LevelPairs(HierarchicalNetwork(levels))
        assert network.concurrent_s(flows) == pairs.concurrent_s(flows)


def test_oversubscription_slows_what_shares_the_way_up() -> None:
    """At 4 to 1 one transfer still has its bandwidth, and twelve at once a quarter of it."""
    levels = spec((4, 900e9, 1e-6), (3, 50e9, 2e-6), (2, 25e9, 5e-6))
    network = GraphNetwork(tree(levels, (1, 1, 4)))
    size = 25 * 10**6
    assert network.transfer_s(0, 12, size) == Fraction(5, 10**6) + Fraction(1, 1000)
    flows = [Flow(device, 12 + device, size) for device in range(12)]
    assert network.concurrent_s(flows) == Fraction(5, 10**6) + Fraction(4, 1000)


@pytest.mark.parametrize(
    ("shape", "wrap"),
    [((5,), (True,)), ((2, 3), (True, True)), ((4, 3), (False, True)), ((3, 2, 4), (True,) * 3)],
)
def test_torus_distances_are_the_closed_form(shape: tuple, wrap: tuple) -> None:
    """Links of every route, and latency, are the shorter way round along each axis."""
    network = GraphNetwork(torus(shape, (ICI,) * len(shape), wrap))
    places = list(product(*map(range, shape)))
    for one, other in product(range(len(places)), repeat=2):
        route = network.route(one, other)
        distance = torus_distance(shape, wrap, places[one], places[other])
        assert len(route.shares) == distance
        assert route.latency_s == distance * ICI.latency_s


def test_a_torus_has_two_links_per_device_and_axis() -> None:
    """A wrapped axis has a link each way per device; without wrap-around one less a row."""
    assert len(torus((4, 4, 4), (ICI,) * 3).links) == 64 * 6
    assert len(torus((4, 3), (ICI,) * 2, (False, True)).links) == 2 * (3 * 3 + 4 * 3)
    assert len(torus((2, 3), (ICI,) * 2).links) == 6 * 4


@pytest.mark.parametrize(
    ("groups", "routers", "devices", "per_pair"),
    [(9, 4, 2, 1), (5, 2, 2, 1), (4, 4, 1, 3), (1, 3, 2, 1), (3, 1, 2, 2)],
)
def test_dragonfly(groups: int, routers: int, devices: int, per_pair: int) -> None:
    """Every two groups have their links, ports are dealt evenly, no device is 6 links away."""
    kind = LinkKind.of(1, 1)
    graph = dragonfly(groups, routers, devices, kind, kind, LinkKind.of(1, 2), per_pair)
    count = groups * routers * devices
    group_of = [v // devices // routers for v in range(count)] + [
        router // routers for router in range(groups * routers)
    ]
    between: dict[tuple[int, int], int] = {}
    ports: dict[int, int] = {}
    for link in graph.links:
        ends = group_of[link.source], group_of[link.target]
        if ends[0] != ends[1]:
            between[ends] = between.get(ends, 0) + 1
            ports[link.source] = ports.get(link.source, 0) + 1
    assert all(between[pair] == per_pair for pair in permutations(range(groups), 2))
    assert max(ports.values(), default=0) <= -(-per_pair * (groups - 1) // routers)
    network = GraphNetwork(graph, "links")
    longest = max(
        len(route.shares)
        for source in range(count)
        for route in network.routes(source, range(count))
    )
    assert longest == (5 if groups > 1 and routers > 1 and per_pair < routers else 3)


def test_rails_keep_to_their_own_switch() -> None:
    """Equal places of two nodes are one switch apart; others go through the device on the rail."""
    graph = rails(spec((4, 400, 1), (2, 50, 4)), 4)
    network = GraphNetwork(graph)
    same, across = network.route(1, 5), network.route(1, 6)
    assert (same.latency_s, same.rate, len(same.shares)) == (4, 50, 2)
    assert (across.latency_s, across.rate, len(across.shares)) == (5, 50, 4)
    with pytest.raises(InstanceError, match=r"no route from device '0' to '5'.*devices_forward"):
        GraphNetwork(rails(spec((4, 400, 1), (2, 50, 4)), 4, devices_forward=False))
    three = rails(spec((4, 400, 1), (2, 50, 4), (2, 50, 8)), 4, devices_forward=False)
    assert GraphNetwork(three).route(1, 6).latency_s == 8


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(12))
def test_routes_are_valid_and_best(seed: int, metric: Metric) -> None:
    """A path of links through what forwards, best by an exhaustive search of all paths."""
    graph = random_graph(seed)
    router = Router(graph, metric)
    for source, target in permutations(range(graph.device_count), 2):
        route = router.route(source, target)
        numbers = [number for number, _ in route.shares]
        vertices = path_of(graph, numbers, source)
        assert vertices[0] == source
        assert vertices[-1] == target
        assert all(graph.forwards(vertex) for vertex in vertices[1:-1])
        allowed = nx.MultiDiGraph()
        for number, link in enumerate(graph.links):
            if (graph.forwards(link.source) or link.source == source) and (
                graph.forwards(link.target) or link.target == target
            ):
                allowed.add_edge(link.source, link.target, key=number)
        keys = []
        for path in nx.all_simple_edge_paths(allowed, source, target):
            links = [graph.links[number] for *_, number in path]
            latency, width = sum(x.latency_s for x in links), min(x.bandwidth for x in links)
            keys.append(
                {
                    "latency": (latency, len(links), -width),
                    "links": (len(links), latency, -width),
                    "widest": (-width, latency, len(links)),
                }[metric]
            )
        own = {
            "latency": (route.latency_s, len(numbers), -route.rate),
            "links": (len(numbers), route.latency_s, -route.rate),
            "widest": (-route.rate, route.latency_s, len(numbers)),
        }[metric]
        assert own == min(keys)


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(12))
def test_shared_routes_conserve_bytes(seed: int, metric: Metric) -> None:
    """All that enters a vertex leaves it, 1 in all; a single path is one of those in use."""
    graph = random_graph(seed)
    shared, single = Router(graph, metric, sharing=True), Router(graph, metric)
    for source, target in permutations(range(graph.device_count), 2):
        route = shared.route(source, target)
        balance = [Fraction(0)] * graph.vertex_count
        leaving: dict[int, set[Fraction]] = {}
        for number, share in route.shares:
            link = graph.links[number]
            balance[link.source] -= share
            balance[link.target] += share
            leaving.setdefault(link.source, set()).add(share)
        assert (balance[source], balance[target]) == (-1, 1)
        assert not any(balance[v] for v in range(graph.vertex_count) if v not in (source, target))
        assert all(len(shares) == 1 for shares in leaving.values())
        used = {number for number, _ in route.shares}
        assert {number for number, _ in single.route(source, target).shares} <= used


def test_equal_costs_are_split_at_each_vertex() -> None:
    """Opposite corners of a square: half the bytes each way, at twice the rate."""
    network = GraphNetwork(torus((2, 2), (ICI, ICI), (False, False)), sharing=True)
    route = network.route(0, 3)
    assert [share for _, share in route.shares] == [Fraction(1, 2)] * 4
    assert network.transfer_s(0, 3, 90) == 2 * ICI.latency_s + Fraction(90) / (90 * 10**9)


def test_ties_are_decided_by_the_order_of_links() -> None:
    """Built twice, routes are the same; with the links listed backwards, the other ones tie."""
    edges = [Edge(device, switch, LinkKind.of(1, 1)) for device in "ab" for switch in ("s0", "s1")]
    one, again = (Router(graph_of_edges("ab", edges)).route(0, 1) for _ in range(2))
    assert one == again
    graph = graph_of_edges("ab", edges)
    assert graph.names[graph.links[one.shares[-1][0]].source] == "s0"


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(20))
def test_the_table_of_pairs_holds_what_routes_have(seed: int, metric: Metric) -> None:
    """Latency and bandwidth of every pair in the arrays are those of its route."""
    graph = random_graph(100 + seed)
    router, table = Router(graph, metric), pair_table(graph, metric)
    for source, target in permutations(range(graph.device_count), 2):
        route = router.route(source, target)
        at = table.site_of[source], table.site_of[target]
        assert route.latency_s * graph.latency_unit == table.latency[at]
        assert route.rate == graph.bandwidths[table.width[at]]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("seed", range(20))
def test_tabulated_routes_are_the_same(seed: int, metric: Metric) -> None:
    """Found all at once, every route has the very links that its own search finds."""
    graph = random_graph(seed) if seed < 15 else list(SAMPLES.values())[seed - 15]
    searched, tabulated = GraphNetwork(graph, metric), GraphNetwork(graph, metric)
    tabulated.tabulate()
    for pair in permutations(range(graph.device_count), 2):
        assert searched.route(*pair) == tabulated.route(*pair)


def test_the_table_of_pairs_is_exact_beyond_64_bits() -> None:
    """Latencies of 10^6 s and of 10^-30 s on one way add up exactly."""
    graph = line(LinkKind.of(1, 10**6), LinkKind.of(1, "1e-30"))
    assert pair_table(graph).latency[0, 1] == 10**36 + 1


def test_bandwidths_do_not_add_up_along_a_route() -> None:
    """Links pass bytes on as they arrive: latencies add, the narrowest link alone counts."""
    network = GraphNetwork(line(LinkKind.of(10, 1), LinkKind.of(2, "0.5"), LinkKind.of(5, 2)))
    assert network.transfer_s(0, 1, 30) == Fraction(7, 2) + 15
    assert network.transfer_s(0, 1, 0) == Fraction(7, 2)
    assert network.transfer_s(0, 0, 30) == 0


def test_10_ranks_on_3_racks_of_4_cross_twice_in_a_chain_and_3_times_in_a_ring() -> None:
    """Ranks numbered rack by rack leave a rack as often as racks follow one another."""
    graph = racks(4, 4, 2)
    rack_of = [rank // 4 for rank in range(10)]
    assert crossings(rack_of, chain_flows(range(10), 1)) == 2
    assert crossings(rack_of, ring_flows(range(10), 1)) == 3
    core = [number for number, link in enumerate(graph.links) if graph.names[link.source] == "core"]
    network = GraphNetwork(graph)
    for flows, count in ((chain_flows(range(10), 1), 2), (ring_flows(range(10), 1), 3)):
        load = network.link_loads(flows)
        assert sum(load.get(number, 0) for number in core) == count


def test_rings_of_neighbouring_ranks_share_the_uplink_of_their_nodes() -> None:
    """Four data-parallel rings over two nodes of 4 take four times what one takes."""
    network = GraphNetwork(racks(4, 4, uplink=50))
    alone = ring_flows([0, 4], 1000)
    together = [flow for rank in range(4) for flow in ring_flows([rank, rank + 4], 1000)]
    assert network.concurrent_s(alone) == 4 + Fraction(1000, 50)
    assert network.concurrent_s(together) == 4 + Fraction(4000, 50)


@pytest.mark.parametrize("sharing", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_flows_attain_their_times_at_once(seed: int, sharing: bool) -> None:
    """At its size over its time each, none is too fast for a link, and one is as fast as can be."""
    graph = random_graph(seed)
    network = GraphNetwork(graph, sharing=sharing)
    chance = random.Random(seed)
    devices = range(graph.device_count)
    flows = [Flow(*chance.sample(devices, 2), chance.randint(1, 9)) for _ in range(6)]
    rates: dict[int, Fraction] = {}
    full = False
    for flow, seconds in zip(flows, network.flow_times_s(flows), strict=True):
        route = network.route(flow.source, flow.target)
        rate = flow.size_bytes / (seconds - route.latency_s)
        for number, share in route.shares:
            rates[number] = rates.get(number, Fraction(0)) + rate * share
            assert rate * share <= graph.links[number].bandwidth
            full = full or rate * share == graph.links[number].bandwidth
    for number, rate in rates.items():
        assert rate <= graph.links[number].capacity
        full = full or rate == graph.links[number].capacity
    assert full
    assert network.concurrent_s(flows) >= max(
        network.transfer_s(flow.source, flow.target, flow.size_bytes) for flow in flows
    )


def test_routes_avoid_a_missing_link() -> None:
    """On a ring of 6 without one link, its ends are five links apart; the way back is not."""
    graph = without_links(torus((6,), (ICI,)), [("0", "1")])
    network = GraphNetwork(graph)
    assert len(network.route(0, 1).shares) == 5
    assert len(network.route(1, 0).shares) == 1


def test_a_slow_link_slows_and_the_widest_route_avoids_it() -> None:
    """A cable at a tenth is still the shortest way, and takes ten times as long."""
    graph = with_links(torus((6,), (ICI,)), {("0", "1"): LinkKind.of(4.5e9, 1e-6)})
    size = 45 * 10**9
    assert GraphNetwork(graph).transfer_s(0, 1, size) == 10 + Fraction(1, 10**6)
    assert GraphNetwork(graph, "widest").transfer_s(0, 1, size) == 1 + Fraction(5, 10**6)


@pytest.mark.parametrize("change", [without_links, with_links])
def test_links_that_are_not_there_cannot_change(change: object) -> None:
    """The message names the link or the vertex."""
    graph = torus((6,), (ICI,))
    for pair, message in ((("0", "2"), "'0' -> '2'"), (("0", "x"), "'x'")):
        with pytest.raises(InstanceError, match=message):
            change(graph, {pair: ICI})  # type: ignore[operator]


def test_devices_without_a_route_are_refused_by_name() -> None:
    """The message names who cannot reach whom, and how many."""
    graph = without_links(racks(2, 2), [("rack-1", "core")])
    with pytest.raises(InstanceError, match=r"from device 'd2' to 'd0', 'd1' \(2 of 4 devices\)"):
        GraphNetwork(graph)


def test_devices_pass_nothing_on_unless_they_forward() -> None:
    """A chain of devices is connected only if the middle one forwards."""
    edges = [Edge("a", "b", ICI), Edge("b", "c", ICI)]
    with pytest.raises(InstanceError, match=r"from device 'a' to 'c'.*devices_forward"):
        GraphNetwork(graph_of_edges("abc", edges))
    assert len(GraphNetwork(graph_of_edges("abc", edges, True)).route(0, 2).shares) == 2
    GraphNetwork(graph_of_edges("abc", [*edges, Edge("a", "c", ICI)]))


def test_one_device_alone_is_a_network() -> None:
    """It has nothing to send to."""
    network = GraphNetwork(graph_of_edges(["a"], []))
    assert network.concurrent_s([]) == 0
    assert network.concurrent_s(ring_flows([0], 5)) == 0


@pytest.mark.parametrize("make", [nx.Graph, nx.DiGraph, nx.MultiGraph, nx.MultiDiGraph])
def test_any_networkx_graph_is_a_network(make: type) -> None:
    """Undirected edges go both ways, parallel ones are several cables, names are texts."""
    graph = make()
    graph.add_node("switch", kind="switch")
    figures = {"bandwidth_bytes_per_s": 10, "latency_s": 0.5}
    for device in (1, 2, 3):
        for ends in ((device, "switch"), ("switch", device)):
            if graph.is_directed() or ends[0] == device:
                graph.add_edge(*ends, **figures)
                if graph.is_multigraph():
                    graph.add_edge(*ends, **figures, capacity_bytes_per_s=20)
    found = graph_of_networkx(graph)
    assert found.names == ("1", "2", "3", "switch")
    assert len(found.links) == (12 if graph.is_multigraph() else 6)
    assert GraphNetwork(found).transfer_s(0, 1, 20) == 3


@pytest.mark.parametrize(
    ("node", "edge", "message"),
    [
        ({"kind": "gpu"}, {}, "kind 'gpu'"),
        ({}, {"latency_s": 1}, "no bandwidth_bytes_per_s"),
        ({}, {"bandwidth_bytes_per_s": 1}, "no latency_s"),
        ({}, {"bandwidth_bytes_per_s": float("nan"), "latency_s": 0}, "finite"),
        ({}, {"bandwidth_bytes_per_s": [], "latency_s": 0}, "a number is needed"),
        ({}, {"bandwidth_bytes_per_s": 2, "latency_s": 0, "capacity_bytes_per_s": 1}, "capacity"),
    ],
)
def test_a_bad_networkx_graph_is_refused(node: dict, edge: dict, message: str) -> None:
    """The message names the node or edge and what is wrong."""
    graph = nx.Graph()
    graph.add_node("a", **node)
    graph.add_edge("a", "b", **edge)
    with pytest.raises(InstanceError, match=message):
        graph_of_networkx(graph)


@pytest.mark.parametrize(
    "numbers",
    [
        (0, 0),
        (-1, 0),
        (1, -1),
        ("nan", 0),
        ("inf", 0),
        (1, "1e300"),
        (1e16, 0),
        (True, 0),
        (1, None),
    ],
)
def test_bad_figures_of_links_are_refused(numbers: tuple) -> None:
    """Bandwidths are more than 0, latencies not less, both finite."""
    with pytest.raises(InstanceError, match="link"):
        LinkKind.of(*numbers)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: torus((0, 2), (ICI, ICI)), "size 0"),
        (lambda: torus((2**10, 2**10), (ICI, ICI)), "1,048,576 devices"),
        (lambda: torus((2,), (ICI, ICI)), "1 axes, 2 kinds"),
        (lambda: dragonfly(2**10, 2**5, 2**5, ICI, ICI, ICI), "devices"),
        (lambda: dragonfly(2, 2, 2, ICI, ICI, ICI, 0), "0 links"),
        (lambda: tree(spec((2, 1, 0)), (1, 1)), "2 numbers, 1"),
        (lambda: tree(spec((2, 1, 0)), (0.5,)), "oversubscription"),
        (lambda: rails(spec((4, 1, 0)), 4), "1 level"),
        (lambda: rails(spec((4, 1, 0), (2, 1, 0)), 3), "3 rails"),
        (lambda: graph_of_edges(["a", "a"], []), "2 named 'a'"),
        (lambda: graph_of_edges(["a"], [Edge("a", "a", ICI)]), "to itself"),
        (lambda: graph_of_edges(["a", ""], []), "0 characters"),
        (lambda: graph_of_edges([], []), "0, 1 to"),
        (lambda: GraphNetwork(torus((3,), (ICI,))).route(0, 3), "number 3"),
        (lambda: torus((3,), (ICI,)).device("9"), "'9'"),
    ],
)
def test_what_cannot_be_built_is_refused(build: object, message: str) -> None:
    """The message has the number found."""
    with pytest.raises(InstanceError, match=message):
        build()  # type: ignore[operator]


@pytest.mark.parametrize("name", SAMPLES)
def test_the_samples_are_connected(name: str) -> None:
    """Every pair of devices of every sample has a route both ways, of equal latency."""
    network = GraphNetwork(SAMPLES[name])
    for one, other in permutations(range(network.device_count), 2):
        assert network.route(one, other).latency_s == network.route(other, one).latency_s
