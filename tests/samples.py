"""Small problems that tests build on."""

from collections.abc import Mapping
from typing import Any

from nest_opt import Problem
from nest_opt.problem.validation import build


def layer_type(
    forward_s: float = 0.01,
    backward_s: float = 0.02,
    parameters: int = 1000,
    output_bytes: int = 1000,
    stash_bytes: int = 100,
    **profile: Any,
) -> dict[str, Any]:
    """Return a layer type with one profile for microbatch 1 and tp 1."""
    return {
        "output_bytes": {"1": output_bytes},
        "profiles": [
            {
                "microbatch": 1,
                "forward_s": forward_s,
                "backward_input_s": backward_s,
                "backward_weight_s": 0,
                "dense_parameters": parameters,
                "recompute": {
                    "none": {"stash_bytes": stash_bytes},
                    "full": {"stash_bytes": 0, "work_bytes": stash_bytes},
                },
                **profile,
            }
        ],
    }


def problem_data(
    layers: int = 4,
    sizes: tuple[int, ...] = (4, 2),
    memory_bytes: int = 10**9,
    global_batch: int = 8,
    **parts: Any,
) -> dict[str, Any]:
    """Return a chain of equal layers on a hierarchical network, as JSON data."""
    devices = 1
    for size in sizes:
        devices *= size
    data: dict[str, Any] = {
        "format": "nest-opt-problem",
        "version": 1,
        "name": "sample",
        "model": {
            "layer_types": {"block": layer_type()},
            "layers": [{"id": f"layer-{place}", "type": "block"} for place in range(layers)],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": memory_bytes}},
            "devices": [{"kind": "device", "count": devices}],
            "network": {
                "type": "hierarchical",
                "levels": [
                    {
                        "name": f"level-{place}",
                        "size": size,
                        "bandwidth_bytes_per_s": 10**9 // 10**place,
                        "latency_s": 1e-6 * (place + 1),
                    }
                    for place, size in enumerate(sizes)
                ],
            },
        },
        "job": {
            "global_batch": global_batch,
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 12},
        },
    }
    for name, part in parts.items():
        data[name] = {**data.get(name, {}), **part} if isinstance(part, Mapping) else part
    return data


def sample(**parts: Any) -> Problem:
    """Return the problem of `problem_data`."""
    return build(Problem, problem_data(**parts), "sample")
