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
    kind["memory_bytes"] = int(kind["memory_bytes"] * rng.choice((0.5, 0.7, 1, 1, 2)))
    if rng.random() < 0.5:
        # Parameters that take time: their sync is what devices are chosen for.
        factor = rng.choice((2, 4))
        data["job"]["bytes_per_parameter"]["gradients"] = 2 * factor
        kind["memory_bytes"] *= factor
    return data


def free_zero_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    return build(Problem, free_zero_data(seed), f"seed {seed}")
