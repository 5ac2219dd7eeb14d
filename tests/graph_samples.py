"""Graphs that several tests of networks build."""

import random

from nest_opt.network.graph import LinkGraph, LinkKind
from nest_opt.network.topologies import Edge, dragonfly, graph_of_edges, rails, torus, tree
from nest_opt.problem import HierarchicalSpec

ICI = LinkKind.of(45e9, 1e-6)


def spec(*levels: tuple[int, float, float]) -> HierarchicalSpec:
    """Return a hierarchical network of (size, bytes/s, latency in s) levels."""
    return HierarchicalSpec.model_validate(
        {
            "type": "hierarchical",
            "levels": [
                {
                    "name": f"level-{place}",
                    "size": size,
                    "bandwidth_bytes_per_s": bandwidth,
                    "latency_s": latency,
                }
                for place, (size, bandwidth, latency) in enumerate(levels)
            ],
        }
    )


def racks(*devices: int, uplink: float = 10) -> LinkGraph:
    """Return racks of so many devices each, numbered rack by rack, under one core switch."""
    edges = []
    names = []
    for rack, count in enumerate(devices):
        edges.append(Edge(f"rack-{rack}", "core", LinkKind.of(uplink, 1)))
        for _ in range(count):
            names.append(f"d{len(names)}")
            edges.append(Edge(names[-1], f"rack-{rack}", LinkKind.of(100, 1)))
    return graph_of_edges(names, edges)


def random_graph(seed: int) -> LinkGraph:
    """Return a small connected graph with ties, slow links, one-way and parallel links."""
    chance = random.Random(seed)
    devices = [f"d{place}" for place in range(chance.randint(2, 7))]
    switches = [f"s{place}" for place in range(chance.randint(1, 5))]

    def kind() -> LinkKind:
        bandwidth = chance.choice([1, 2, 5])
        return LinkKind.of(
            bandwidth, chance.choice([0, 1, 2]), bandwidth * chance.choice([1, 1, 3])
        )

    edges = [
        Edge(switches[place], switches[chance.randrange(place)], kind())
        for place in range(1, len(switches))
    ]
    edges += [Edge(device, chance.choice(switches), kind()) for device in devices]
    for _ in range(chance.randint(0, 12)):
        one, other = chance.sample([*devices, *switches], 2)
        edges.append(Edge(one, other, kind(), chance.random() < 0.5))
    return graph_of_edges(devices, edges, chance.random() < 0.5)


SAMPLES = {
    "tree": tree(spec((4, 900e9, 1e-6), (3, 50e9, 2e-6), (2, 25e9, 5e-6)), (1, 1, 4)),
    "rails": rails(spec((4, 450e9, 1e-6), (3, 50e9, 4e-6), (2, 50e9, 8e-6)), 4),
    "torus": torus((4, 4), (ICI, ICI)),
    "mesh": torus((3, 4), (ICI, LinkKind.of(20e9, 1e-6)), (False, True)),
    "dragonfly": dragonfly(5, 2, 2, ICI, ICI, LinkKind.of(25e9, 2e-6)),
    "racks": racks(4, 4, 2),
}
