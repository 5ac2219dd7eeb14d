"""What large networks cost: building them, routing a ring, ordering devices, deriving levels.

    python benchmarks/networks.py
    python benchmarks/networks.py torus-4096

Each network is a process of its own. Seconds are CPU seconds of each step;
peak memory is the operating system's account of the process after it.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator

from nest_opt.network.cuts import cut_bound, order_sides
from nest_opt.network.derived import derived_hierarchy
from nest_opt.network.flows import ring_flows
from nest_opt.network.graph import LinkGraph, LinkKind
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.order import device_order
from nest_opt.network.topologies import dragonfly, torus, tree
from nest_opt.network.torus_order import BoxOrder, torus_order
from nest_opt.problem import HierarchicalSpec

ICI = LinkKind.of(45e9, 1e-6)
NEAR, FAR = LinkKind.of(25e9, 1e-6), LinkKind.of(25e9, 2e-6)


def _superpod() -> LinkGraph:
    sizes = (8, 32, 16)
    figures = ((450e9, 1e-6), (50e9, 5e-6), (50e9, 9e-6))
    levels = [
        {"name": f"level-{n}", "size": size, "bandwidth_bytes_per_s": b, "latency_s": a}
        for n, (size, (b, a)) in enumerate(zip(sizes, figures, strict=True))
    ]
    return tree(HierarchicalSpec.model_validate({"type": "hierarchical", "levels": levels}))


NETWORKS: dict[str, Callable[[], LinkGraph]] = {
    "tree-4096": _superpod,
    "torus-4096": lambda: torus((16, 16, 16), (ICI,) * 3),
    "torus-4096-boxes": lambda: torus((16, 16, 16), (ICI,) * 3),
    "dragonfly-10000": lambda: dragonfly(50, 20, 10, NEAR, NEAR, FAR),
}
ORDERS: dict[str, Callable[[], BoxOrder]] = {"torus-4096-boxes": lambda: torus_order((16, 16, 16))}


def steps(name: str) -> Iterator[tuple[str, str]]:
    """Yield every step when it is done, and a few words on what came out."""
    graph = NETWORKS[name]()
    yield "build", f"{graph.device_count:,} devices, {len(graph.links):,} links"
    network = GraphNetwork(graph)
    yield "check that it is connected", ""
    flows = ring_flows(range(graph.device_count), 10**6)
    yield "route a ring", f"1 MB in {float(network.concurrent_s(flows)) * 1e6:.1f} us"
    order = ORDERS[name]() if name in ORDERS else device_order(graph)
    yield "order", f"groups of {order.sizes}"
    flows = ring_flows(order.devices, 10**6)
    yield "route its ring", f"1 MB in {float(network.concurrent_s(flows)) * 1e6:.1f} us"
    levels = derived_hierarchy(network, order.devices, order.sizes, "rings").levels
    yield (
        "levels",
        ", ".join(
            f"{level.size} at {float(level.bandwidth_bytes_per_s) / 1e9:.3g} GB/s and "
            f"{float(level.latency_s) * 1e6:.3g} us"
            for level in levels
        ),
    )
    sides = list(order_sides(order.devices, order.sizes[-1:]))
    bound = cut_bound(graph, "all-to-all", range(graph.device_count), 10**6, sides)
    yield "bound by cuts", f"all-to-all of 1 MB in at least {float(bound.seconds) * 1e6:.1f} us"


def measure(name: str) -> None:
    """Print the steps of one network."""
    print(name)
    before = time.process_time()
    for step, words in steps(name):
        now = time.process_time()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"  {step:28}{now - before:7.2f} s {peak:6.0f} MiB  {words}", flush=True)
        before = now


def main() -> int:
    """Measure every network named, or all, each in a process of its own."""
    parser = argparse.ArgumentParser(description="Measure what large networks cost.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NETWORKS)}")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in NETWORKS]:
        parser.error(f"no network {unknown[0]}: choose from {', '.join(NETWORKS)}")
    if len(names) == 1:
        measure(names[0])
        return 0
    return max(
        subprocess.run([sys.executable, __file__, name], check=False).returncode
        for name in names or NETWORKS
    )


if __name__ == "__main__":
    sys.exit(main())
