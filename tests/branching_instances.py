"""Tiny problems whose layers branch and may be in any topological order."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from oracle import layer_names
from random_instances import random_data

from nest_opt import Problem
from nest_opt.problem.validation import build

# Ways to give each layer a stage: brute force tries all for each cell.
MOST_LAYERS = 5


def branching_data(seed: int) -> dict[str, Any] | None:
    """Return a drawn problem with fewer edges and `layer_order` any; None if it has many layers.

    Memory, constraints and search space are the drawn ones.
    """
    data = random_data(seed)
    names = [name for entry in data["model"]["layers"] for name in layer_names(entry)]
    if not 3 <= len(names) <= MOST_LAYERS:
        return None
    rng = random.Random(f"branching {seed}")
    model = data["model"]
    drawn = model.get("edges")
    if drawn is None:
        drawn = [
            {"source": source, "target": target}
            for place, target in enumerate(names)
            for source in names[:place]
            if rng.random() < 0.7
        ]
    share = rng.choice((0.3, 0.5, 0.8))
    model["edges"] = [edge for edge in drawn if rng.random() < share]
    data["search"]["layer_order"] = "any"
    return data


def reordered(data: Mapping[str, Any], order: Sequence[int] | None) -> dict[str, Any]:
    """Return a problem that lists its layers in another order, which its edges allow."""
    names = [name for entry in data["model"]["layers"] for name in layer_names(entry)]
    types = [e["type"] for e in data["model"]["layers"] for _ in range(e.get("repeat", 1))]
    places = range(len(names)) if order is None else order
    layers = [{"id": names[place], "type": types[place]} for place in places]
    search = {**data["search"], "layer_order": "listed"}
    return {**data, "model": {**data["model"], "layers": layers}, "search": search}


def diamond(
    order: str = "any",
    names: str = "abcd",
    constraints: list[dict[str, Any]] | None = None,
    **changes: Any,
) -> Problem:
    """Return a -> b, a -> c, b -> d, c -> d of 2, 4, 2 and 0 s, two stages, listed as named."""
    seconds = {"a": 2, "b": 4, "c": 2, "d": 0}

    def layer_type(name: str) -> dict[str, Any]:
        profile = {
            "microbatch": 1,
            "forward_s": seconds[name],
            "backward_input_s": 0,
            "backward_weight_s": 0,
            "dense_parameters": 0,
            "recompute": {"none": {"stash_bytes": seconds[name]}},
        }
        return {"output_bytes": {"1": 0}, "profiles": [profile]}

    data = {
        "name": "diamond",
        "model": {
            "layer_types": {name: layer_type(name) for name in names},
            "layers": [{"id": name, "type": name} for name in names],
            "edges": [{"source": s, "target": t} for s, t in ("ab", "ac", "bd", "cd")],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": changes.pop("memory", 100)}},
            "devices": [{"kind": "device", "count": 4}],
            "network": {
                "type": "hierarchical",
                "levels": [{"name": "node", "size": 4, "bandwidth_bytes_per_s": 1, "latency_s": 0}],
            },
        },
        "job": {
            "global_batch": 8,
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
            "objective": "bottleneck",
        },
        "search": {"pp": [2], "dp": [1], "layer_order": order, **changes},
        "constraints": constraints or [],
    }
    return build(Problem, data, "diamond")
