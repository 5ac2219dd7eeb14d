"""Problems of up to 24 layers and 32 devices: what an exact search settles in a minute.

    python benchmarks/small_instances.py --write

writes `instances/small/*.json`; `--check` compares them. A transformer of some
blocks between an embedding and a head, costs from its sizes by round figures,
on two or three network levels; each problem asks a question of its own.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "instances" / "small"

SEQUENCE, HIDDEN, WORDS = 4096, 4096, 32_000
FLOPS = 200 * 10**12
FAST = (("node", 8, 450 * 10**9, "0.000003"), ("cluster", 4, 50 * 10**9, "0.00001"))
SLOW = (("node", 8, 450 * 10**9, "0.000003"), ("cluster", 4, 125 * 10**8, "0.00002"))
ETHERNET = (("node", 8, 32 * 10**9, "0.000005"), ("cluster", 4, 3 * 10**9, "0.00005"))
PAIRS = (
    ("pair", 2, 450 * 10**9, "0.000003"),
    ("node", 4, 32 * 10**9, "0.000006"),
    ("cluster", 4, 125 * 10**8, "0.00002"),
)
QUADS = (
    ("quad", 4, 200 * 10**9, "0.000003"),
    ("node", 4, 32 * 10**9, "0.000006"),
    ("cluster", 2, 125 * 10**8, "0.00002"),
)
SIXES = (("node", 6, 300 * 10**9, "0.000003"), ("cluster", 4, 125 * 10**8, "0.00002"))

Levels = tuple[tuple[str, int, int, str], ...]


def problem(
    name: str,
    note: str,
    levels: Levels,
    *,
    blocks: int = 22,
    devices: int | None = None,
    memory_gb: int = 40,
    batch: int = 32,
    tp: tuple[int, ...] = (1, 2, 4),
    microbatches: tuple[int, ...] = (1,),
    experts: int = 0,
    objective: str = "fill-drain",
    **more: Any,
) -> dict[str, Any]:
    """Return a problem as JSON data."""
    count = 1
    for _, size, _, _ in levels:
        count *= size
    ep = (1, experts) if experts else (1,)
    degrees = [(b, t, e) for b in microbatches for t in tp for e in ep]
    block = 12 * HIDDEN**2
    kinds = {
        "embedding": _kind(degrees, WORDS * HIDDEN, 0, 0, False),
        "block": _kind(degrees, block, 2 * block * SEQUENCE, experts, True),
        "head": _kind(degrees, WORDS * HIDDEN, 2 * WORDS * HIDDEN * SEQUENCE, 0, False),
    }
    search: dict[str, Any] = {
        "microbatch": list(microbatches), "tp": list(tp), "ep": list(ep),
        **more.pop("search", {}),
    }  # fmt: skip
    return {
        "format": "nest-opt-problem",
        "version": 1,
        "name": name,
        "note": note,
        "model": {
            "layer_types": kinds,
            "layers": [
                {"id": "embedding", "type": "embedding"},
                {"id": "block", "type": "block", "repeat": blocks},
                {"id": "head", "type": "head"},
            ],
        },
        "cluster": {
            "device_kinds": {"gpu": {"memory_bytes": memory_gb * 10**9}},
            "devices": [{"kind": "gpu", "count": devices or count}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {"name": n, "size": s, "bandwidth_bytes_per_s": bw, "latency_s": latency}
                    for n, s, bw, latency in levels
                ],
            },
        },
        "job": {
            "global_batch": batch,
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
            "objective": objective,
        },
        "search": search,
        **more,
    }


def _kind(
    degrees: list[tuple[int, int, int]], parameters: int, flops: int, experts: int, inner: bool
) -> dict[str, Any]:
    """Return a layer type; with experts, two thirds of a block's parameters are one of these."""
    profiles = []
    for b, tp, ep in degrees:
        sent = b * SEQUENCE * HIDDEN * 2
        forward_us = max(1, round(b * flops / tp / FLOPS * 10**6 * (1.04 if tp > 1 else 1)))
        expert = parameters * 2 // 3 * experts if experts else 0
        calls = [
            {"phase": phase, "group": group, "operation": operation, "count": 2, "bytes": sent}
            for group, degree, operation in (("tp", tp, "all-reduce"), ("ep", ep, "all-to-all"))
            for phase in ("forward", "backward")
            if degree > 1 and inner
        ]
        stash = 17 * sent // tp if inner else sent // tp
        profiles.append(
            {
                "microbatch": b,
                "tp": tp,
                "ep": ep,
                "forward_s": f"{forward_us}e-6",
                "backward_input_s": f"{forward_us}e-6",
                "backward_weight_s": f"{forward_us}e-6",
                "dense_parameters": (parameters // 3 if experts and inner else parameters) // tp,
                "expert_parameters": expert // (tp * ep) if inner else 0,
                "collectives": calls,
                "recompute": {
                    "none": {"stash_bytes": stash, "work_bytes": 0},
                    "full": {"stash_bytes": sent // tp, "work_bytes": stash},
                },
            }
        )
    sizes = {str(b): b * SEQUENCE * HIDDEN * 2 for b, _, _ in degrees}
    return {"output_bytes": sizes, "profiles": profiles}


def _sharing_a_node() -> dict[str, Any]:
    """Return three layers on three nodes of 2, small enough to see the answer."""

    def layer(parameters: int, activation: int) -> dict[str, Any]:
        profile = {
            "microbatch": 1,
            "forward_s": 1,
            "backward_input_s": 1,
            "backward_weight_s": 1,
            "dense_parameters": parameters,
            "recompute": {"none": {"stash_bytes": 10**6}},
        }
        return {"output_bytes": {"1": activation}, "profiles": [profile]}

    return {
        "format": "nest-opt-problem",
        "version": 1,
        "name": "replicas-share-a-node",
        "note": "Only the first stage's gradients are exposed: its replicas belong in one node, "
        "and then each replica's next stages in one of their own. No aligned map does both.",
        "model": {
            "layer_types": {"embedding": layer(10**9, 10**6), "block": layer(10**8, 10**9)},
            "layers": [
                {"id": "embedding", "type": "embedding"},
                {"id": "block", "type": "block", "repeat": 2},
            ],
        },
        "cluster": {
            "device_kinds": {"gpu": {"memory_bytes": 80 * 10**9}},
            "devices": [{"kind": "gpu", "count": 6}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {"name": "node", "size": 2, "bandwidth_bytes_per_s": 100 * 10**9,
                     "latency_s": 0},
                    {"name": "cluster", "size": 3, "bandwidth_bytes_per_s": 10**9,
                     "latency_s": 0},
                ],
            },
        },
        "job": {
            "global_batch": 4,
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
        },
        "search": {"dp": [2], "pp": [3]},
    }  # fmt: skip


def problems() -> list[dict[str, Any]]:
    """Return all problems."""
    per_stage = {"per_stage": ["tp"]}
    return [
        _sharing_a_node(),
        problem(
            "four-fast-nodes",
            "24 layers on 4 nodes of 8 with fast links: the plain case.",
            FAST,
        ),
        problem(
            "four-slow-nodes",
            "The same with slow links between nodes, where hops and gradients cross at a price.",
            SLOW,
        ),
        problem(
            "tight-memory",
            "Devices of 6 GB: stages are short or recompute, and the first one suffers most.",
            SLOW,
            memory_gb=6,
        ),
        problem(
            "tp-by-stage",
            "Each stage has its own tensor parallelism: blocks of 1, 2 and 4 devices share nodes.",
            SLOW,
            memory_gb=24,
            blocks=14,
            search=per_stage,
        ),
        problem(
            "tp-by-stage-nest",
            "The same under the paper's objective, which charges the slowest stage alone.",
            SLOW,
            memory_gb=24,
            blocks=14,
            objective="nest",
            search=per_stage,
        ),
        problem(
            "three-levels",
            "Pairs with fast links in nodes of 8: three levels that pull replicas apart.",
            PAIRS,
        ),
        problem(
            "quads-in-nodes",
            "2 nodes of 4 groups of 4: tensor groups of 4 fill a group exactly.",
            QUADS,
            memory_gb=24,
        ),
        problem(
            "replicas-of-three-in-nodes-of-eight",
            "Four replicas of three stages and 2 devices each: a node holds one and a third.",
            ETHERNET,
            blocks=10,
            search={"dp": [4], "pp": [3], "tp": [2]},
            tp=(2,),
        ),
        problem(
            "nodes-of-six",
            "4 nodes of 6, whose size no power of two divides.",
            SIXES,
            memory_gb=24,
        ),
        problem(
            "colocated-layers",
            "Four layers in the middle, and the last three, must be together: stages are uneven.",
            SLOW,
            memory_gb=10,
            constraints=[
                {"type": "colocation", "layers": ["block.9", "block.10", "block.11", "block.12"]},
                {"type": "colocation", "layers": ["block.20", "block.21", "head"]},
            ],
        ),
        problem(
            "replicas-in-nodes-of-their-own",
            "No node may have devices of two replicas, so that a failure stops one.",
            SLOW,
            constraints=[{"type": "failure-domains", "level": "node", "at_most": 1}],
        ),
        problem(
            "bottleneck",
            "The steady state alone counts: where the slowest stage is, and its hops.",
            SLOW,
            memory_gb=24,
            objective="bottleneck",
        ),
        problem(
            "two-microbatches",
            "Microbatches of 1 or 2 sequences: fewer rounds against smaller memory.",
            ETHERNET,
            memory_gb=10,
            microbatches=(1, 2),
        ),
        problem(
            "experts",
            "Four experts a block, sharded over ep or not: gradients of two classes.",
            SLOW,
            blocks=14,
            memory_gb=80,
            tp=(1, 2),
            experts=4,
        ),
        problem(
            "one-node-is-short",
            "29 of 32 devices work: the last node has 5.",
            SLOW,
            memory_gb=24,
            devices=29,
        ),
    ]


def text(data: dict[str, Any]) -> str:
    """Return the text of a file."""
    return json.dumps(data, indent=1) + "\n"


def main() -> int:
    """Write the files, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--check", action="store_true")
    asked = parser.parse_args()
    differing = 0
    for data in problems():
        path = FOLDER / f"{data['name']}.json"
        if asked.write:
            path.write_text(text(data))
        elif not path.exists() or path.read_text() != text(data):
            differing += 1
            print(f"{path.name}: differs")
    return int(differing > 0)


if __name__ == "__main__":
    sys.exit(main())
