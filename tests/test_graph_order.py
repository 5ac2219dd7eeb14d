"""Orders of the devices of a graph, levels derived under them, and cuts."""

import random
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, pairwise, product
from math import prod

import numpy as np
import pytest

from nest_opt.errors import InstanceError
from nest_opt.network import HierarchicalNetwork
from nest_opt.network.cuts import crossing_bytes, cut_bound, order_sides
from nest_opt.network.derived import Traffic, derived_hierarchy
from nest_opt.network.distances import pair_table
from nest_opt.network.flows import Flow, ring_flows
from nest_opt.network.graph import LinkGraph, LinkKind
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.order import REFERENCE_BYTES, device_order
from nest_opt.network.pairs import LevelPairs
from nest_opt.network.topologies import (
    Edge,
    dragonfly,
    graph_of_edges,
    rails,
    torus,
    torus_distance,
    tree,
)
from nest_opt.network.torus_order import torus_order
from nest_opt.problem import HierarchicalSpec
from nest_opt.problem.profile import Operation
from tests.graph_samples import ICI, SAMPLES, racks, random_graph, spec

OPERATIONS: tuple[Operation, ...] = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
LEVELS = [(4, 900e9, 1e-6), (3, 50e9, 2e-6), (2, 25e9, 5e-6)]


def renumbered(graph: LinkGraph, seed: int) -> tuple[LinkGraph, list[int]]:
    """Return the graph with its devices shuffled, and the new number of each."""
    numbers = list(range(graph.device_count))
    random.Random(seed).shuffle(numbers)
    new = [*numbers, *range(graph.device_count, graph.vertex_count)]
    names = [""] * graph.vertex_count
    for old, name in enumerate(graph.names):
        names[new[old]] = name
    links = tuple(
        replace(link, source=new[link.source], target=new[link.target]) for link in graph.links
    )
    return replace(graph, names=tuple(names), links=links), numbers


def figures(found: HierarchicalSpec) -> list[tuple[int, Fraction, Fraction]]:
    """Return (size, bytes/s, latency) of every level."""
    return [
        (level.size, Fraction(level.bandwidth_bytes_per_s), Fraction(level.latency_s))
        for level in found.levels
    ]


@pytest.mark.parametrize("seed", range(3))
def test_the_levels_of_a_tree_are_found_whatever_the_numbers(seed: int) -> None:
    """Devices of a node, and of a leaf switch, come together again, and levels are the tree's."""
    graph, numbers = renumbered(tree(spec(*LEVELS)), seed)
    order = device_order(graph)
    assert order.sizes == (4, 12)
    old = {new: number for number, new in enumerate(numbers)}
    for size in order.sizes:
        for start in range(0, 24, size):
            assert len({old[device] // size for device in order.devices[start : start + size]}) == 1
    for traffic in ("alone", "rings", "any"):
        found = derived_hierarchy(GraphNetwork(graph), order.devices, order.sizes, traffic)
        assert figures(found) == figures(spec(*LEVELS))


def test_racks_that_are_not_full_come_last() -> None:
    """Racks of 2, 4 and 4 are groups of 4, the rack of 2 at the end."""
    order = device_order(racks(2, 4, 4))
    assert order.sizes == (4,)
    assert {*order.devices[:4]} in ({2, 3, 4, 5}, {6, 7, 8, 9})
    assert {*order.devices[8:]} == {0, 1}


def test_racks_of_no_common_size_leave_no_level() -> None:
    """Racks of 3, 5 and 4 have no groups of equal size; of 2, 4 and 6, pairs."""
    assert device_order(racks(3, 5, 4)).sizes == ()
    assert device_order(racks(2, 4, 6)).sizes == (2,)


def test_a_torus_is_cut_into_cubes() -> None:
    """A torus of 4 x 4 x 4 has groups of 8, each no wider than a cube: pairs are 48 links apart.

    (A ring of 4 is as wide as a square, so that two rings side by side are as good.)
    """
    order = device_order(torus((4, 4, 4), (ICI,) * 3))
    assert order.sizes == (8,)
    for start in range(0, 64, 8):
        group = order.devices[start : start + 8]
        places = [(device // 16, device // 4 % 4, device % 4) for device in group]
        apart = [torus_distance((4, 4, 4), (True,) * 3, *pair) for pair in combinations(places, 2)]
        assert sum(apart) == 48


@pytest.mark.parametrize(
    ("shape", "boxes"),
    [((4, 4, 4), None), ((6, 4), None), ((8, 8), [(2, 4)]), ((5,), None), ((2, 1, 9), None)],
)
def test_boxes_of_a_torus_are_groups(shape: tuple, boxes: list | None) -> None:
    """Every device once; every group is a box; consecutive boxes are side by side."""
    order = torus_order(shape, boxes)
    assert sorted(order.devices) == list(range(prod(shape)))
    places = list(product(*map(range, shape)))
    for size in order.sizes:
        corners = []
        for start in range(0, prod(shape), size):
            group = [places[device] for device in order.devices[start : start + size]]
            spans = [sorted({place[axis] for place in group}) for axis in range(len(shape))]
            assert all(span == list(range(span[0], span[-1] + 1)) for span in spans)
            assert prod(map(len, spans)) == size
            corners.append(([span[0] for span in spans], [len(span) for span in spans]))
        outer = next((other for other in order.sizes if other > size), prod(shape))
        for place, ((one, box), (other, _)) in enumerate(pairwise(corners)):
            moved = [abs(a - b) // n for a, b, n in zip(one, other, box, strict=True)]
            # Boxes of one group follow a snake; from one group to the next it begins anew.
            assert sum(moved) == 1 or (place + 1) % (outer // size) == 0


def test_boxes_keep_rings_from_sharing_links() -> None:
    """On 4 x 4 x 4, steps of rings over cubes get half of the links, and all inside a cube."""
    order = torus_order((4, 4, 4))
    assert order.sizes == (8,)
    network = GraphNetwork(torus((4, 4, 4), (ICI,) * 3))
    found = derived_hierarchy(network, order.devices, order.sizes, "rings")
    assert [float(x.bandwidth_bytes_per_s) for x in found.levels] == [45e9, 22.5e9]


@pytest.mark.parametrize("boxes", [[(3, 2)], [(2, 2), (2, 1)], [(2,)], [(0, 1)]])
def test_boxes_that_do_not_nest_are_refused(boxes: list) -> None:
    """The message has both."""
    with pytest.raises(InstanceError, match="boxes: found"):
        torus_order((4, 4), boxes)


@pytest.mark.parametrize("name", SAMPLES)
def test_what_an_order_states_is_what_it_has(name: str) -> None:
    """Every device once; times are sums over pairs; equal seeds give equal orders."""
    graph = SAMPLES[name]
    order = device_order(graph, seed=3)
    assert sorted(order.devices) == list(range(graph.device_count))
    assert order == device_order(graph, seed=3)
    table = pair_table(graph)
    times = table.times_ps(REFERENCE_BYTES)

    def time(one: int, other: int) -> int:
        return int(times[table.site_of[one], table.site_of[other]])

    scale = 1 + 4 * int(times.max()) * graph.device_count**2 // 2**62
    assert scale > 1 or order.inside_ps == sum(
        time(*pair)
        for size in order.sizes
        for start in range(0, graph.device_count, size)
        for pair in combinations(order.devices[start : start + size], 2)
    )
    assert scale > 1 or order.chain_ps == sum(
        time(*pair) for pair in zip(order.devices[:-1], order.devices[1:], strict=True)
    )


def test_the_local_search_only_improves() -> None:
    """Without passes the time inside groups is no less, on graphs with no structure either."""
    for seed in range(6):
        graph = dragonfly(5, 3, 2, ICI, ICI, LinkKind.of(10e9, 3e-6)) if seed == 5 else None
        graph = graph or torus((3, 4 + seed), (ICI, LinkKind.of(20e9, 1e-6)), (False, True))
        sizes = (3,) if seed < 5 else (3, 6)
        still, moved = (device_order(graph, sizes, seed=seed, passes=n) for n in (0, 10))
        assert moved.inside_ps <= still.inside_ps


def test_sites_are_ordered_as_wholes_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """With too many devices to compare one by one, those of a router stay together."""
    graph = dragonfly(5, 4, 3, ICI, ICI, LinkKind.of(10e9, 3e-6))
    wanted = device_order(graph)
    monkeypatch.setattr("nest_opt.network.order.MAX_SITES", 40)
    order = device_order(graph)
    assert order.sizes == wanted.sizes == (3, 12)
    for size in order.sizes:
        for start in range(0, 60, size):
            assert len({device // size for device in order.devices[start : start + size]}) == 1
    with pytest.raises(InstanceError, match="60 devices, at most 40"):
        device_order(graph, (4,))


@pytest.mark.parametrize(
    ("sizes", "message"), [((1,), "found 1"), ((24,), "found 24"), ((4, 6), "4 and then 6")]
)
def test_sizes_that_do_not_nest_are_refused(sizes: tuple, message: str) -> None:
    """The message has the size found."""
    graph = tree(spec(*LEVELS))
    with pytest.raises(InstanceError, match=message):
        device_order(graph, sizes)
    with pytest.raises(InstanceError, match="sizes: found"):
        derived_hierarchy(GraphNetwork(graph), range(24), sizes)
    with pytest.raises(InstanceError, match="each of the 24 devices once"):
        derived_hierarchy(GraphNetwork(graph), [0] * 24, ())


CASES = [
    *((graph, sharing) for graph in SAMPLES.values() for sharing in (False, True)),
    *((random_graph(seed), seed % 2 == 1) for seed in range(40, 52)),
]


@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("traffic", ["alone", "rings", "any"])
def test_levels_are_never_faster_than_the_graph(case: int, traffic: Traffic) -> None:
    """Hops take as long as any pair of the level, and at once, what the traffic promises."""
    graph, sharing = CASES[case]
    network = GraphNetwork(graph, sharing=sharing)
    order = device_order(graph)
    devices, count = order.devices, graph.device_count
    levels = HierarchicalNetwork(derived_hierarchy(network, devices, order.sizes, traffic))
    pairs = LevelPairs(levels, count)
    for one, other in product(range(count), repeat=2):
        alone = network.transfer_s(devices[one], devices[other], 10**6)
        assert pairs.transfer_s(one, other, 10**6) >= alone
    chance = random.Random(case)
    for level, size in enumerate([*order.sizes, count]):
        batches: list[list[tuple[int, int]]] = []
        groups = [range(start, min(start + size, count)) for start in range(0, count, size)]
        if traffic == "rings":
            for stride in {1, *order.sizes[:level]}:
                rings = [group[first::stride] for group in groups for first in range(stride)]
                batches.append(
                    [(x, y) for r in rings for x, y in zip(r, (*r[1:], *r[:1]), strict=True)]
                )
        elif traffic == "any":
            for _ in range(5):
                batch = []
                for group in groups:
                    batch += zip(group, chance.sample(group, len(group)), strict=True)
                batches.append(chance.sample(batch, chance.randint(1, len(batch))))
        for batch in batches:
            flows = [
                Flow(devices[one], devices[other], 10**6) for one, other in batch if one != other
            ]
            assert network.concurrent_s(flows) <= levels.hop_s(Fraction(10**6), level)


def test_what_is_shared_slows_levels_by_what_is_under_way() -> None:
    """Twelve devices share a way up of three at 4 to 1; alone none of them notices."""
    network = GraphNetwork(tree(spec(*LEVELS), (1, 1, 4)))
    top = {
        traffic: figures(derived_hierarchy(network, range(24), (4, 12), traffic))[-1][1]  # type: ignore[arg-type]
        for traffic in ("alone", "rings", "any")
    }
    assert top == {"alone": 25 * 10**9, "rings": 25 * 10**9 // 4, "any": 25 * 10**9 // 4}


def test_uneven_groups_take_the_places_that_there_are() -> None:
    """Ten devices in groups of 4 are 3 groups, 12 places."""
    found = derived_hierarchy(GraphNetwork(racks(4, 4, 2)), range(10), (4,))
    assert [level.size for level in found.levels] == [4, 3]
    assert figures(found)[0] == (4, 100, 2)
    assert figures(derived_hierarchy(GraphNetwork(graph_of_edges("a", [])), [0], ()))[0][0] == 1


def test_pair_by_pair_has_a_limit() -> None:
    """`any` refuses more devices than it can route, and says what to take."""
    network = GraphNetwork(torus((23, 23), (ICI, ICI)))
    with pytest.raises(InstanceError, match=r"529 devices.*'alone' or 'rings'"):
        derived_hierarchy(network, range(529), (), "any")


@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_no_ring_beats_a_cut(name: str, operation: Operation) -> None:
    """The steps of a ring take longer than what any cut says, drawn either way."""
    graph = SAMPLES[name]
    network, order = GraphNetwork(graph), device_order(graph)
    count = graph.device_count
    rounds = (count - 1) * (2 if operation == "all-reduce" else 1)
    size = 10**9
    if operation == "all-to-all":
        time = sum(
            network.concurrent_s(
                [Flow(d, (d + shift) % count, Fraction(size, count)) for d in range(count)]
            )
            for shift in range(1, count)
        )
    else:
        time = rounds * network.concurrent_s(ring_flows(order.devices, Fraction(size, count)))
    sides = list(order_sides(order.devices, order.sizes))
    moved = cut_bound(graph, operation, range(count), size, sides)
    assert moved.seconds <= time
    if name in ("torus", "racks", "mesh"):
        exact = cut_bound(graph, operation, range(count), size, sides, max_flow=True)
        assert exact.seconds <= time


@pytest.mark.parametrize("seed", range(10))
def test_a_cut_by_flow_is_the_least_of_all_cuts(seed: int) -> None:
    """Of all ways to put the other vertices on a side, none carries less; moves carry no less."""
    graph = random_graph(seed)
    found = cut_bound(graph, "all-reduce", (0, 1), 100, max_flow=True)
    least = {}
    for source, target in ((0, 1), (1, 0)):
        capacities = []
        for free in product((False, True), repeat=graph.vertex_count - 2):
            side = {source, *(2 + place for place, inside in enumerate(free) if inside)}
            capacities.append(
                sum(x.capacity for x in graph.links if x.source in side and x.target not in side)
            )
        least[source, target] = min(capacities)
    assert found.capacity in least.values()
    moved = cut_bound(graph, "all-reduce", (0, 1), 100)
    assert moved.capacity >= min(least.values())


def test_cuts_of_a_torus_are_the_known_ones() -> None:
    """A chip of 4 x 4 has 4 links out, half of them 8; a group at 4 to 1 those of 3 devices."""
    size = 45 * 10**9
    graph = torus((4, 4), (ICI, ICI))
    half = [range(8)]
    reduce, exchange = (cut_bound(graph, op, range(16), size, half) for op in OPERATIONS[::3])
    assert reduce.seconds == Fraction(1, 4) + ICI.latency_s
    assert exchange.seconds == Fraction(8 * 8, 16 * 8) + ICI.latency_s
    up = cut_bound(tree(spec(*LEVELS), (1, 1, 4)), "all-reduce", range(24), size, [range(12)])
    assert up.capacity == 3 * 25 * 10**9
    assert len(up.side) in (12 + 3 + 1, 12 + 3 + 2)


def test_cuts_take_the_switches_of_a_group_along() -> None:
    """Between two halves of a dragonfly lie the global links alone, though no single move helps."""
    graph = dragonfly(4, 6, 2, ICI, ICI, ICI, 2)
    found = cut_bound(graph, "all-to-all", range(48), 10**6, [range(24)])
    assert found.capacity == 2 * 2 * 2 * ICI.capacity
    assert found == cut_bound(graph, "all-to-all", range(48), 10**6, [range(24)], max_flow=True)


def test_what_must_cross_is_what_rings_send() -> None:
    """Two halves of 4: all, half, half, and 16 parts of an eighth of the buffer."""
    assert [crossing_bytes(op, 4, 4, 80) for op in OPERATIONS] == [80, 40, 40, 160]
    with pytest.raises(InstanceError, match="found 1"):
        cut_bound(torus((3,), (ICI,)), "all-reduce", [1], 5)


def test_rails_are_levels_of_their_own() -> None:
    """Nodes and rail groups are found; at worst a transfer crosses its node first."""
    graph = rails(spec((4, 450e9, 1e-6), (3, 50e9, 4e-6), (2, 50e9, 8e-6)), 4)
    order = device_order(graph)
    found = derived_hierarchy(GraphNetwork(graph), order.devices, order.sizes)
    assert figures(found) == [
        (4, 450 * 10**9, Fraction(1, 10**6)),
        (3, 50 * 10**9, Fraction(5, 10**6)),
        (2, 50 * 10**9, Fraction(8, 10**6)),
    ]


def test_huge_times_stay_in_range() -> None:
    """Links of 0.001 bytes/s and 10^6 s order like any others."""
    slow = LinkKind.of("0.001", 10**6)
    edges = [Edge(f"d{place}", f"s{place % 2}", LinkKind.of(1, 0)) for place in range(8)]
    order = device_order(
        graph_of_edges([f"d{n}" for n in range(8)], [*edges, Edge("s0", "s1", slow)])
    )
    assert order.sizes == (4,)
    assert {device % 2 for device in order.devices[:4]} in ({0}, {1})
    assert isinstance(order.inside_ps, int)
    assert not isinstance(order.inside_ps, np.integer)
