"""Seeded tiny problems of 4 to 8 devices on which it matters where devices are.

All numbers are small integers, which no tolerance of a solver can hide. Hops,
collectives and sync are as long as layers, outer levels much slower, sizes of
groups such that replicas do not fit them: the aligned family is often worse.
"""

import random
from itertools import product
from math import prod
from typing import Any

from random_instances import MAKERS, WATTS

NETWORKS = (
    ((2, 2), 4), ((3, 2), 6), ((4, 2), 8), ((2, 3), 6), ((2, 4), 8), ((3, 2), 5), ((4, 2), 7),
    ((2, 3), 5), ((2, 2, 2), 8), ((2, 2, 2), 7), ((1, 3, 2), 6), ((2, 2, 2), 6), ((5, 2), 8),
    ((3, 3), 7), ((1, 2, 3), 6),
)  # fmt: skip
# Degrees (tp, cp, ep) that a problem may have, one set of them for each.
DEGREES = (
    *(((1, 1, 1), (2, 1, 1)),) * 6,
    *(((1, 1, 1),),) * 5,
    *(((2, 1, 1),),) * 4,
    ((1, 1, 1), (3, 1, 1)),
    ((1, 1, 1), (2, 1, 1), (4, 1, 1)),
    ((1, 2, 1),),
    ((1, 1, 2),),
    ((1, 1, 2), (1, 1, 1)),
    ((2, 2, 1),),
    ((2, 1, 2),),
    ((1, 2, 2),),
    ((1, 1, 2), (2, 1, 2)),
    ((1, 2, 1), (2, 2, 1)),
)


def free_data(seed: int) -> dict[str, Any]:
    """Return the problem of a seed as JSON data."""
    rng = random.Random(f"free {seed}")
    sizes, devices = rng.choice(NETWORKS)
    degrees = rng.choice(DEGREES)
    while min(map(prod, degrees)) > devices // 2 and rng.random() < 0.8:
        degrees = rng.choice(DEGREES)
    sliced = rng.choices(((False,), (True,), (False, True)), (6, 1, 2))[0]
    keys = [(*k, sp) for k, sp in product(degrees, sliced)]
    microbatches = rng.choice(((1,), (1,), (1,), (2,), (1, 2)))
    layers = rng.randint(3, 5)
    experts = max(k[2] for k in degrees) > 1
    kinds = [_layer_type(rng, keys, microbatches, experts) for _ in range(rng.randint(1, 3))]
    # A source of its own: problems without this mode stay what they were.
    if seed % 7 == 2:
        _offer_selective(random.Random(f"selective free {seed}"), kinds)
    per_stage = rng.choices(((), ("tp",), ("sp",), ("tp", "sp")), (4, 4, 1, 2))[0]
    replicas = min(rng.choice((1, 1, 2, 2, 2, 3, 4)), devices // min(map(prod, degrees)))
    ep = degrees[0][2]
    data: dict[str, Any] = {
        "name": f"free-{seed}",
        "model": {
            "layer_types": {f"type-{place}": kind for place, kind in enumerate(kinds)},
            "layers": [
                {"id": f"layer-{place}", "type": f"type-{rng.randrange(len(kinds))}"}
                for place in range(layers)
            ],
        },
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**6, "watts": WATTS}},
            "devices": [{"kind": "device", "count": devices}],
            "network": {"type": "hierarchical", "levels": _levels(rng, sizes)},
        },
        "job": {
            "global_batch": max(microbatches) * ep * replicas * rng.choice((1, 2, 2, 3, 4)),
            "bytes_per_parameter": {"weights": 2, "gradients": 2, "optimizer": 4},
            "objective": rng.choice(("fill-drain", "fill-drain", "nest", "bottleneck")),
        },
        "search": {
            "microbatch": list(microbatches),
            "tp": sorted({k[0] for k in keys}),
            "cp": sorted({k[1] for k in keys}),
            "ep": sorted({k[2] for k in keys}),
            "sp": list(sliced),
            "per_stage": list(per_stage),
        },
    }
    used = {kind["type"] for kind in data["model"]["layers"]}
    data["model"]["layer_types"] = {
        name: kind for name, kind in data["model"]["layer_types"].items() if name in used
    }
    if replicas > 1 and rng.random() < 0.6:
        data["search"]["dp"] = [replicas]
        if rng.random() < 0.6:
            # Left alone, replicas of few stages are best, and mostly aligned.
            data["search"]["pp"] = [s for s in (2, 3, 4) if s <= layers]
    _tighten(rng, data)
    constraints = []
    while rng.random() < 0.25:
        made = rng.choice(list(MAKERS.values()))(rng, data)
        if made:
            constraints.append(made)
    if rng.random() < 0.15:
        levels = data["cluster"]["network"]["levels"]
        constraints.append({"type": "hop-latency", "limit_s": rng.choice(levels)["latency_s"]})
    if rng.random() < 0.1:
        constraints.append(
            {"type": "forbidden-boundary", "after": f"layer-{rng.randrange(layers)}"}
        )
    if constraints:
        data["constraints"] = constraints
    return data


def _levels(rng: random.Random, sizes: tuple[int, ...]) -> list[dict[str, Any]]:
    bandwidth, latency, levels = 10**12, 0, []
    for number, size in enumerate(sizes):
        levels.append(
            {
                "name": f"level-{number}",
                "size": size,
                "bandwidth_bytes_per_s": bandwidth,
                "latency_s": f"{latency}e-12",
            }
        )
        bandwidth //= rng.choice((1, 2, 4, 10))
        latency += rng.choice((0, 5, 20))
    return levels


def _layer_type(
    rng: random.Random,
    keys: list[tuple[int, int, int, bool]],
    microbatches: tuple[int, ...],
    experts: bool,
) -> dict[str, Any]:
    forward, backward = rng.randint(20, 300), rng.randint(20, 300)
    stash, parameters, expert = rng.randint(0, 60), rng.randint(0, 120), rng.randint(0, 90)
    reduced = rng.choice((0, 20, 60, 150))
    profiles = []
    for b, (tp, cp, ep, sp) in product(microbatches, keys):
        share = tp * cp
        calls = [
            {"phase": phase, "group": group, "operation": operation, "bytes": reduced * b,
             "count": rng.choice((1, 2))}
            for group, degree, operation in (
                ("tp", tp, "all-reduce"), ("cp", cp, "all-gather"), ("ep", ep, "all-to-all"))
            for phase in ("forward", "backward")
            if degree > 1 and reduced
        ]  # fmt: skip
        held = {
            "none": {"stash_bytes": b * stash // share, "work_bytes": rng.choice((0, 10))},
            "full": {"stash_bytes": b * stash // (4 * share), "work_bytes": b * stash // share},
        }
        profiles.append(
            {
                "microbatch": b, "tp": tp, "cp": cp, "ep": ep, "sp": sp,
                "forward_s": f"{b * forward // share}e-12",
                "backward_input_s": f"{b * backward // share}e-12",
                "backward_weight_s": "0",
                "dense_parameters": parameters // tp,
                "expert_parameters": expert // (tp * ep) if experts else 0,
                "collectives": calls,
                "recompute": held,
            }
        )  # fmt: skip
    size = rng.choice((0, 30, 100, 200))
    return {
        "output_bytes": {str(b): size * b for b in microbatches},
        "profiles": profiles,
    }


def _offer_selective(rng: random.Random, kinds: list[dict[str, Any]]) -> None:
    """Offer selective recomputation of all layers: half of the stash for a part of the time."""
    share = rng.choice((0.05, 0.2, 0.5))
    for profile in (profile for kind in kinds for profile in kind["profiles"]):
        stash = profile["recompute"]["none"]["stash_bytes"]
        repeated = int(share * int(profile["forward_s"].removesuffix("e-12")))
        profile["recompute"]["selective"] = {
            "stash_bytes": stash // 2,
            "work_bytes": stash - stash // 2,
            "repeated_forward_s": f"{repeated}e-12",
        }


def _tighten(rng: random.Random, data: dict[str, Any]) -> None:
    """Set the memory so that a stage holds about half of the layers, or all."""
    kinds = data["model"]["layer_types"]
    need = 0
    for entry in data["model"]["layers"]:
        profile = kinds[entry["type"]]["profiles"][0]
        need += 8 * (profile["dense_parameters"] + profile["expert_parameters"])
        need += 2 * profile["recompute"]["none"]["stash_bytes"]
    if rng.random() < 0.8:
        share = rng.choice((0.3, 0.45, 0.6, 0.8))
        data["cluster"]["device_kinds"]["device"]["memory_bytes"] = 30 + int(need * share)
