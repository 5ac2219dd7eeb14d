"""How far plans for the levels of an order of a graph are from the best placement on the graph.

    python benchmarks/graph_gaps.py
    python benchmarks/graph_gaps.py --graphs 4 --nodes 2000
    python benchmarks/graph_gaps.py --write docs/graph_placement

Small seeded graphs of 8 to 16 devices: random regular ones, racks of unequal sizes, tori and
meshes with links that are missing or slow. On each, a small model with its choices of tp, pp
and dp: the plan of the dynamic program on the derived levels of the order of devices, valued
under the costs of pairs; what the local search makes of it, alone and with other starts; and the
optimum of the free family by integer programs, or the bound that they prove within the limits.
"""

import argparse
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import networkx as nx
from plotting import new_figure, save_figure, save_rows

from nest_opt import Problem
from nest_opt.milp.limits import SearchLimits
from nest_opt.milp.on_pairs import exact_on_pairs
from nest_opt.network.graph import LinkGraph, LinkKind, with_links, without_links
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.pair_levels import PairLevels
from nest_opt.network.topologies import Edge, graph_of_edges, torus
from nest_opt.placing import improve_placement, place_on_graph
from nest_opt.placing.starts import derived_starts
from nest_opt.plan.placement import Placement
from nest_opt.problem.validation import build

FAST, SLOW = LinkKind.of(50e9, 2e-6), LinkKind.of(12.5e9, 2e-6)
NVLINK = LinkKind.of(300e9, 2e-6)
CABLES = (LinkKind.of(50e9, 5e-6), LinkKind.of(25e9, 5e-6), LinkKind.of(12.5e9, 10e-6))


def regular(rng: random.Random) -> tuple[str, LinkGraph]:
    """Return a random 3-regular graph of devices that forward, some links slow."""
    devices = rng.choice((8, 10, 12, 14))
    while True:
        drawn = nx.random_regular_graph(3, devices, seed=rng.randrange(10**6))
        if nx.is_connected(drawn):
            break
    names = [f"d{place}" for place in range(devices)]
    edges = [
        Edge(names[u], names[v], SLOW if rng.random() < 0.25 else FAST)
        for u, v in sorted(map(sorted, drawn.edges))
    ]
    return f"regular, {devices}", graph_of_edges(names, edges, devices_forward=True)


def clustered(rng: random.Random) -> tuple[str, LinkGraph]:
    """Return racks of 2 to 6 devices, each on one core switch by a cable of its own speed."""
    sizes: list[int] = []
    while sum(sizes) < 8 or (sum(sizes) < 13 and rng.random() < 0.6):
        sizes.append(rng.randint(2, min(6, 16 - sum(sizes))))
    names = [f"d{place}" for place in range(sum(sizes))]
    left = iter(names)
    edges = []
    for rack, size in enumerate(sizes):
        edges += [Edge(next(left), f"rack-{rack}", NVLINK) for _ in range(size)]
        edges.append(Edge(f"rack-{rack}", "core", rng.choice(CABLES)))
    return f"racks {'+'.join(map(str, sizes))}", graph_of_edges(names, edges)


def worn_torus(rng: random.Random) -> tuple[str, LinkGraph]:
    """Return a small torus or mesh with links that are missing or slow."""
    shape = rng.choice(((2, 4), (3, 3), (2, 5), (3, 4), (2, 6), (4, 4)))
    wraps = [size > 2 and rng.random() < 0.6 for size in shape]
    graph = torus(shape, (FAST, FAST), wraps)
    name = f"{'torus' if any(wraps) else 'mesh'} {shape[0]} x {shape[1]}"
    gone, slow = rng.choice(((0, 2), (1, 0), (1, 2), (2, 1), (0, 4)))
    cables = sorted({tuple(sorted(ends)) for ends in _ends(graph)})
    rng.shuffle(cables)
    removed = 0
    for one, other in cables:
        if removed == gone:
            break
        without = without_links(graph, [(one, other), (other, one)])
        if nx.is_strongly_connected(nx.DiGraph(_ends(without))):
            graph, removed = without, removed + 1
    for one, other in [ends for ends in cables if ends in set(_ends(graph))][:slow]:
        graph = with_links(graph, {(one, other): SLOW, (other, one): SLOW})
    return f"{name}, {removed} gone, {slow} slow", graph


def _ends(graph: LinkGraph) -> list[tuple[str, str]]:
    return [(graph.names[link.source], graph.names[link.target]) for link in graph.links]


MAKERS = (regular, clustered, worn_torus)


def problem_of(seed: int, devices: int) -> Problem:
    """Return 4 to 8 layers: an embedding, transformer blocks with tp 1 or 2, and a head.

    A block has 200 million parameters, and takes 12 ms for a sequence without tp.
    """
    rng = random.Random(f"model {seed}")
    blocks = rng.randint(2, 6)
    data: dict[str, Any] = {
        "name": f"graph-gaps-{seed}",
        "model": {
            "layer_types": {
                "embedding": _type(0.5, 100, reduced=1),
                "block": _type(4, 200, reduced=2),
                "head": _type(3, 100, reduced=1),
            },
            "layers": [
                {"id": "embedding", "type": "embedding"},
                *({"id": f"block-{place}", "type": "block"} for place in range(blocks)),
                {"id": "head", "type": "head"},
            ],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": rng.choice((8, 12, 24)) * 10**9}},
            "devices": [{"kind": "device", "count": devices}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {"name": "all", "size": devices, "bandwidth_bytes_per_s": 1, "latency_s": 0}
                ],
            },
        },
        "job": {
            "global_batch": rng.choice((12, 16, 24)),
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
        },
        "search": {"microbatch": [1], "tp": [1, 2]},
    }
    return build(Problem, data, data["name"])


def _type(forward_ms: float, million: int, reduced: int) -> dict[str, Any]:
    tensor = 32 * 10**6
    return {
        "output_bytes": {"1": tensor},
        "profiles": [
            {
                "microbatch": 1,
                "tp": tp,
                "forward_s": f"{forward_ms / tp}e-3",
                "backward_input_s": f"{forward_ms / tp}e-3",
                "backward_weight_s": f"{forward_ms / tp}e-3",
                "dense_parameters": million * 10**6 // tp,
                "collectives": [
                    {"phase": phase, "group": "tp", "operation": "all-reduce", "bytes": tensor,
                     "count": reduced}
                    for phase in ("forward", "backward")
                    if tp > 1
                ],
                "recompute": {
                    "none": {"stash_bytes": 12 * tensor // tp},
                    "full": {"stash_bytes": tensor, "work_bytes": 12 * tensor // tp},
                },
            }
            for tp in (1, 2)
        ],
    }  # fmt: skip


@dataclass(frozen=True)
class Row:
    """What was found on one graph; times in ps, `bound_ps` the value where it is proved."""

    name: str
    devices: int
    layers: int
    levels: int
    dp_degrees: str
    best_degrees: str
    dp_ps: int
    alone_ps: int
    local_ps: int
    best_ps: int
    bound_ps: int
    proved: bool
    search_s: float
    exact_s: float
    nodes: int

    @property
    def values(self) -> tuple[int, int, int]:
        """The dynamic program's value, that of its plan after a search, and of all searched."""
        return self.dp_ps, self.alone_ps, self.local_ps

    def above(self, value_ps: int) -> float:
        """Return how far a value is above the bound, in percent of the bound."""
        return 100 * (value_ps / self.bound_ps - 1)


def study(number: int, nodes: int, time_limit_s: float) -> Row:
    """Return what is found on one graph."""
    rng = random.Random(f"graph {number}")
    name, graph = MAKERS[number % len(MAKERS)](rng)
    network = GraphNetwork(graph)
    problem = problem_of(number, graph.device_count)
    begin = time.perf_counter()
    placed = place_on_graph(problem, network)
    search_s = time.perf_counter() - begin
    costs = placed.costs
    assert isinstance(costs.network, PairLevels)
    (start,) = derived_starts(problem, network)
    alone = improve_placement(costs, start, evaluations=2_500)
    begin = time.perf_counter()
    limits = SearchLimits(time_limit_s, nodes)
    best = exact_on_pairs(problem, network, start=placed.found.placement, limits=limits)
    assert best.value_ps is not None
    assert best.bound_ps is not None
    assert best.placement is not None
    return Row(
        name, graph.device_count, len(problem.model.ids), costs.network.level_count - 1,
        _degrees(start), _degrees(best.placement), placed.derived_ps, alone.value_ps,
        placed.found.value_ps, best.value_ps, best.bound_ps, best.status == "optimal", search_s,
        time.perf_counter() - begin, best.nodes,
    )  # fmt: skip


def _degrees(placement: Placement) -> str:
    return f"{placement.configurations[0].tp}/{placement.stages}/{placement.replicas}"


HEADER = (
    "graph", "devices", "layers", "levels", "tp/pp/dp of DP", "tp/pp/dp of best", "DP (ps)",
    "its plan searched (ps)", "all searched (ps)", "best (ps)", "bound (ps)",
)  # fmt: skip


def cells(row: Row) -> tuple[object, ...]:
    """Return a row of the data behind the figure."""
    return (
        row.name, row.devices, row.layers, row.levels, row.dp_degrees, row.best_degrees, row.dp_ps,
        row.alone_ps, row.local_ps, row.best_ps, row.bound_ps,
    )  # fmt: skip


def told(number: int, row: Row) -> str:
    """Return a row of the table, as Markdown."""
    above = " | ".join(f"{row.above(value):.2f}" for value in row.values)
    proof = "yes" if row.proved else f"{row.above(row.best_ps):.2f}%"
    return (
        f"| {number} | {row.name} | {row.devices} | {row.layers} | {row.levels} | "
        f"{row.dp_degrees} | {row.best_degrees} | {above} | {row.best_ps / 1e9:.3f} | {proof} | "
        f"{row.search_s:.0f} | {row.exact_s:.0f} | {row.nodes:,} |"
    )


def summary(rows: list[Row]) -> Iterator[str]:
    """Yield the distribution of gaps, over the graphs that are proved and over all."""
    for name, some in (("proved", [row for row in rows if row.proved]), ("all", rows)):
        for place, what in enumerate(("DP", "its plan searched", "all searched")):
            gaps = sorted(row.above(row.values[place]) for row in some)
            closed = sum(gap < 0.005 for gap in gaps)
            yield (
                f"{name} ({len(some)}), {what}: {closed} at 0.00%, median {median(gaps):.2f}%, "
                f"mean {mean(gaps):.2f}%, largest {gaps[-1]:.2f}%"
            )


def draw(rows: list[Row], folder: Path) -> None:
    """Write the data and the figure: gaps of each step, sorted by themselves."""
    save_rows(folder / "graph_gaps.csv", HEADER, map(cells, rows))
    figure, axes = new_figure()
    for place, what in enumerate(
        ("dynamic program", "its plan, searched", "plans of both levels, searched")
    ):
        gaps = sorted(row.above(row.values[place]) for row in rows)
        axes.step(range(1, len(gaps) + 1), gaps, where="mid", label=what)
    axes.set_xlabel("graphs, by their gap")
    axes.set_ylabel("above the bound (%)")
    axes.legend(frameon=False)
    save_figure(figure, folder / "graph_gaps.svg")


def main() -> None:
    """Run the study."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--graphs", type=int, default=36)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--nodes", type=int, default=3000, help="of each program")
    parser.add_argument("--seconds", type=float, default=20, help="of each graph's programs")
    parser.add_argument("--write", type=Path, help="folder for the data and the figure")
    asked = parser.parse_args()
    rows = []
    print(
        "| | graph | devices | layers | levels | tp/pp/dp of DP | of the best | DP (% above) | "
        "its plan searched | all searched | best (ms) | proved | search (s) | programs (s) | "
        "nodes |\n|" + "---|" * 15
    )
    for number in range(asked.first, asked.first + asked.graphs):
        rows.append(study(number, asked.nodes, asked.seconds))
        print(told(number, rows[-1]), flush=True)
    print(*summary(rows), sep="\n")
    if asked.write:
        draw(rows, asked.write)


if __name__ == "__main__":
    main()
