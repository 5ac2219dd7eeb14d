"""Seeded tiny problems of `free_instances` that ask for ZeRO levels, and for runs of replicas.

What makes levels matter is made likelier: several replicas, more copies than a
group of devices holds, memory that a level saves, expert parameters of a level
of their own.
"""

import random
from math import prod
from typing import Any

from free_instances import free_data

from nest_opt import Problem
from nest_opt.problem.validation import build

PARTS = ("microbatch", "tp", "cp", "ep")


def free_zero_data(seed: int) -> dict[str, Any]:
    """Return the problem of a seed, with one configuration for all stages, as JSON data."""
    rng = random.Random(f"zero free {seed}")
    data = free_data(seed)
    search = data["search"]
    search["per_stage"] = []
    devices = data["cluster"]["devices"][0]["count"]
    least = prod(min(search[name]) for name in PARTS[1:])
    most = devices // least
    replicas = [d for d in (2, 2, 2, 3, 4, 4) if d <= most]
    if replicas and rng.random() < 0.8:
        chosen = rng.choice(replicas)
        search["dp"] = [chosen]
        largest = max(search["microbatch"]) * max(search["ep"])
        data["job"]["global_batch"] = largest * chosen * rng.choice((1, 2, 2, 3))
        runs = [h for h in (2, 4) if chosen % h == 0]
        if runs and rng.random() < 0.5:
            search["zero_instances"] = [*rng.choice(((), (1,))), rng.choice(runs)]
        layers = len(data["model"]["layers"])
        if most // chosen > 1 and rng.random() < 0.5:
            search["pp"] = [s for s in rng.choice(((2,), (1, 2), (2, 3))) if s <= layers]
    elif rng.random() < 0.5:
        search.pop("dp", None)
    search["zero"] = sorted(rng.sample(range(4), rng.randint(1, 2)))
    experts = any(
        profile["expert_parameters"]
        for kind in data["model"]["layer_types"].values()
        for profile in kind["profiles"]
    )
    if experts and rng.random() < 0.6:
        search["zero_expert"] = [rng.randrange(4)]
    # Sharded states are less: of the memory that is left, some stays tight.
    kind = data["cluster"]["device_kinds"]["device"]
    kind["memory_bytes"] = int(kind["memory_bytes"] * rng.choice((0.7, 1, 1.5, 2, 3)))
    if rng.random() < 0.5:
        # Parameters that take time: their sync is what devices are chosen for.
        factor = rng.choice((2, 4))
        data["job"]["bytes_per_parameter"]["gradients"] = 2 * factor
        kind["memory_bytes"] *= factor
    return data


def free_zero_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    return build(Problem, free_zero_data(seed), f"seed {seed}")


def runs_data(kind: str) -> dict[str, Any]:
    """Return a problem of one stage with two ranks of a kind, and four replicas in two runs.

    All 8 devices are in use, so that of both ranks not all copies can be near: one may
    have its runs far apart, and the other the equals between them.
    """
    # Its block is worth being together, not only its copies.
    operation = "all-to-all" if kind == "ep" else "all-reduce"
    call = {"phase": "forward", "group": kind, "operation": operation, "bytes": 20, "count": 1}
    layer = {
        "output_bytes": {"1": 10},
        "profiles": [
            {
                "microbatch": 1, kind: 2, "forward_s": "20e-12",
                "backward_input_s": "30e-12", "backward_weight_s": "0",
                "dense_parameters": 40, "expert_parameters": 70 if kind == "ep" else 0,
                "recompute": {"none": {"stash_bytes": 10, "work_bytes": 10}}, "collectives": [call],
            }
        ],
    }  # fmt: skip
    levels = [
        {
            "name": name, "size": 2, "bandwidth_bytes_per_s": bandwidth, "latency_s": latency,
        }
        for name, bandwidth, latency in (
            ("pair", 10**12, "0"), ("node", 2 * 10**11, "7e-12"), ("rack", 5 * 10**10, "90e-12"),
        )
    ]  # fmt: skip
    return {
        "name": f"runs of {kind}",
        "model": {"layer_types": {"only": layer}, "layers": [{"id": "one", "type": "only"}]},
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**6}},
            "devices": [{"kind": "device", "count": 8}],
            "network": {"type": "hierarchical", "levels": levels},
        },
        "job": {
            "global_batch": 4 * (2 if kind == "ep" else 1),
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 4},
        },
        "search": {
            "microbatch": [1], kind: [2], "dp": [4], "pp": [1], "zero": [1],
            "zero_instances": [2],
        },
    }  # fmt: skip


def runs_problem(kind: str) -> Problem:
    """Return the problem."""
    return build(Problem, runs_data(kind), f"runs of {kind}")


def equals_problem() -> Problem:
    """Return a problem of eight replicas in four runs, whose equals have the most to send.

    Two groups of four devices hold the equals, and tear the runs.
    """
    data = runs_data("tp")
    (profile,) = data["model"]["layer_types"]["only"]["profiles"]
    profile |= {"tp": 1, "collectives": []}
    data["cluster"]["network"]["levels"] = [
        level | {"size": size}
        for level, size in zip(data["cluster"]["network"]["levels"], (4, 2), strict=False)
    ]
    data["job"] |= {
        "global_batch": 8,
        "bytes_per_parameter": {"weights": 1, "gradients": 8, "optimizer": 4},
    }
    data["search"] |= {"tp": [1], "dp": [8], "zero_instances": [4]}
    return build(Problem, data, "equals")
