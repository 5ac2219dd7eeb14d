"""Seeded tiny placement graphs in small integers, on which every rule gets its turn.

Layers and outputs take about as long to run as to move, memory is near what
some split needs, and kinds of devices differ in speed, in what they support
and in who pays for transfers. Times are whole picoseconds up to 1e4 in all,
so that no tolerance of a solver can hide one.
"""

import random
from typing import Any

from nest_opt import Problem
from nest_opt.problem.validation import build

MOST_FORWARD = 5
MOST_TIME_PS = 600


def random_graph(seed: int) -> Problem:
    """Return the placement graph of a seed."""
    return build(Problem, random_graph_data(seed), f"graph seed {seed}")


def random_graph_data(seed: int) -> dict[str, Any]:
    """Return the placement graph of a seed as JSON data."""
    rng = random.Random(f"graph {seed}")
    groups = _device_groups(rng)
    kinds = list({group["kind"]: None for group in groups})
    layers, edges, classes = _layers(rng)
    layer_types = {
        layer["type"]: _layer_type(rng, kinds, heavy=rng.random() < 0.2) for layer in layers
    }
    data: dict[str, Any] = {
        "name": f"graph-{seed}",
        "model": {"layer_types": layer_types, "layers": layers, "edges": edges},
        "cluster": {
            "device_kinds": {kind: {"memory_bytes": 10**6} for kind in kinds},
            "devices": groups,
            "network": _network(rng, sum(group["count"] for group in groups)),
        },
        "job": {
            "global_batch": 1,
            "bytes_per_parameter": {"weights": 1, "gradients": 0.5, "optimizer": 0},
            "objective": "bottleneck",
            "transfer": "sender-once",
            "split": rng.choice(("contiguous", "contiguous", "any")),
        },
        "constraints": [{"type": "colocation", "layers": members} for members in classes],
    }
    _limit_memory(rng, data)
    if "host" in kinds:
        data["cluster"]["device_kinds"]["host"]["pays_transfers"] = False
    return data


def _device_groups(rng: random.Random) -> list[dict[str, Any]]:
    """Return two to four devices, of one to three kinds, which need not be neighbours."""
    kinds = rng.choice(
        (
            ["fast", "fast"],
            ["fast", "fast", "fast"],
            ["fast", "fast", "host"],
            ["fast", "host", "fast"],
            ["host", "fast"],
            ["fast", "slow", "host"],
            ["fast", "fast", "slow", "slow"],
            ["host", "host", "fast"],
        )
    )
    return [{"kind": kind, "count": 1} for kind in kinds]


def _network(rng: random.Random, devices: int) -> dict[str, Any]:
    level = {
        "name": "host link",
        "size": devices + rng.randint(0, 2),
        "bandwidth_bytes_per_s": rng.choice((10**12, 2 * 10**12)),
        "latency_s": rng.choice((0, 0, 0, 40e-12)),
    }
    return {"type": "hierarchical", "levels": [level]}


def _layers(
    rng: random.Random,
) -> tuple[list[dict[str, Any]], list[dict[str, Any]], list[list[str]]]:
    """Return layers, edges and classes of a graph, with or without a backward pass."""
    count = rng.randint(2, MOST_FORWARD)
    density = rng.choice((0.3, 0.5, 0.8))
    pairs = [
        (low, high)
        for high in range(count)
        for low in range(high)
        if rng.random() < (density if high - low > 1 else max(density, 0.7))
    ]
    layers = [{"id": f"f{place}", "type": f"type-f{place}"} for place in range(count)]
    edges: list[dict[str, Any]] = [{"source": f"f{u}", "target": f"f{v}"} for u, v in pairs]
    classes = []
    if rng.random() < 0.6:
        backward = [place for place in range(count)[::-1] if rng.random() < 0.85]
        layers += [
            {"id": f"b{place}", "type": f"type-b{place}", "phase": "backward"} for place in backward
        ]
        edges += [
            {"source": f"b{v}", "target": f"b{u}"}
            for u, v in pairs
            if u in backward and v in backward
        ]
        edges += [
            {"source": f"f{place}", "target": f"b{place}"}
            for place in backward
            if rng.random() < 0.4
        ]
        classes = [[f"f{place}", f"b{place}"] for place in backward if rng.random() < 0.8]
    names = [layer["id"] for layer in layers]
    if rng.random() < 0.25:
        classes.append(rng.sample(names, 2))
    known = {(edge["source"], edge["target"]) for edge in edges}
    for _ in range(rng.choice((0, 0, 1, 2))):
        u, v = rng.sample(names, 2)
        if (u, v) not in known:
            known.add((u, v))
            edges.append({"source": u, "target": v, "order_only": True})
    return layers, edges, classes


def _layer_type(rng: random.Random, kinds: list[str], heavy: bool) -> dict[str, Any]:
    supported = [kind for kind in kinds if rng.random() < 0.85] or [rng.choice(kinds)]
    profiles = [_profile(rng, kind, heavy) for kind in supported]
    if rng.random() < 0.15:
        # One profile for every kind, or for those without one of their own.
        profiles = [_profile(rng, None, heavy), *profiles[: rng.randint(0, 1)]]
    return {
        "output_bytes": {"1": rng.choice((0, *[rng.randint(1, 400)] * 3))},
        "profiles": profiles,
    }


def _profile(rng: random.Random, kind: str | None, heavy: bool) -> dict[str, Any]:
    slow = 3 if kind in ("host", "slow") else 1
    passes = [0, 0, 0]
    passes[rng.randrange(3)] = rng.randint(0, MOST_TIME_PS) * slow * (2 if heavy else 1)
    passes[rng.randrange(3)] += rng.choice((0, 0, 100))
    footprint = {"stash_bytes": rng.randint(0, 10), "work_bytes": rng.choice((0, 0, 5))}
    profile: dict[str, Any] = {
        "microbatch": 1,
        **{
            name: f"{time_ps}e-12"
            for name, time_ps in zip(
                ("forward_s", "backward_input_s", "backward_weight_s"), passes, strict=True
            )
        },
        "dense_parameters": rng.choice((0, 0, 3)),
        "recompute": {"none": footprint},
    }
    return profile if kind is None else {"kind": kind, **profile}


def _limit_memory(rng: random.Random, data: dict[str, Any]) -> None:
    """Give each kind memory for a random share of all layers; a reserve at times."""
    types = data["model"]["layer_types"]
    for name, kind in data["cluster"]["device_kinds"].items():
        sizes = [
            profile["recompute"]["none"]["stash_bytes"] + 6
            for layer_type in types.values()
            for profile in layer_type["profiles"]
            if profile.get("kind", name) == name
        ]
        if rng.random() < 0.6:
            kind["reserve_bytes"] = rng.choice((0, 0, 4))
            share = rng.choice((0.4, 0.6, 0.8))
            kind["memory_bytes"] = kind["reserve_bytes"] + max(15, int(share * sum(sizes)))
