"""Seeded tiny problems on which every rule of the cost model gets its turn.

Sizes are balanced on purpose: hops, collectives, gradient synchronisation and
compute take about as long as each other, memory is near what some plan needs,
groups are of 3, 5 or 7 devices, outer links may be the faster ones. Anything
less lets a wrong search pass.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import islice, product
from math import ceil, prod
from typing import Any

from oracle import Oracle, layer_names
from random_models import (
    Character,
    Degrees,
    hide_collectives,
    offer_selective,
    random_edges,
    random_model,
)

from nest_opt import InstanceError, Problem, solve
from nest_opt.certify.brute_force import enumerate_cells, enumerate_plans
from nest_opt.plan.check import check
from nest_opt.plan.evaluate import Costs
from nest_opt.plan.placement import Placement
from nest_opt.problem.validation import build

MOST_DEVICES = 12
MOST_PLACES = 20
MOST_PAIRS = 8

# Networks on which only one sort of pitch keeps replicas or stages apart: an
# even spread where rounded units do not fit, or units rounded to a group that
# is not the innermost. (Sizes, devices, devices in use.)
ROOMY = (
    ((5, 2), 9, 6),
    ((5, 2), 10, 6),
    ((5, 3), 11, 6),
    ((7, 2), 12, 9),
    ((8, 2), 12, 9),
    ((2, 3, 2), 10, 8),
    ((2, 3, 2), 11, 8),
    ((1, 5, 2), 9, 8),
    ((1, 4, 3), 11, 9),
)
ROOMY_SHARE = 0.15
PORTS_SHARE = 0.4
CHARACTERS: tuple[Character, ...] = ("any", "duel", "plain")
CHARACTER_WEIGHTS = (70, 12, 18)


def random_problem(seed: int) -> Problem:
    """Return the problem of a seed."""
    return build(Problem, random_data(seed), f"seed {seed}")


def random_data(seed: int) -> dict[str, Any]:
    """Return the problem of a seed as JSON data."""
    rng = random.Random(seed)
    roomy = rng.random() < ROOMY_SHARE
    if roomy:
        sizes, devices, in_use = rng.choice(ROOMY)
        levels = _levels(rng, sizes, "cliff")
    else:
        sizes = _group_sizes(rng)
        devices = _device_count(rng, prod(sizes))
        levels = _levels(rng, sizes, rng.choice(("falling", "cliff", "rising", "any", "any")))
    pairs = _pairs(rng, devices)
    character = rng.choices(CHARACTERS, CHARACTER_WEIGHTS)[0]
    if character == "plain":
        slowdown = rng.choice((1, 2))
        for number, level in enumerate(levels):
            level["bandwidth_bytes_per_s"] = 200 // slowdown**number
            level["latency_s"] = 0
    model = random_model(rng, devices, pairs, character)
    # A source of its own: problems in which nothing is hidden stay what they were.
    if seed % 5 == 3:
        hiding = random.Random(f"hidden collectives {seed}")
        hide_collectives(hiding, model, levels[0]["bandwidth_bytes_per_s"])
    if seed % 7 == 2:
        offer_selective(random.Random(f"selective {seed}"), model)
    data: dict[str, Any] = {
        "name": f"seed-{seed}",
        "model": model,
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**12}},
            "devices": _device_groups(rng, devices),
            "network": {"type": "hierarchical", "levels": levels},
        },
        "job": _job(rng, pairs, devices),
        "search": _search(rng, pairs, model, levels[0]["size"]),
    }
    _restrict(rng, data, devices)
    if character == "duel":
        data["job"]["objective"] = rng.choice(("nest", "nest", "nest", "fill-drain"))
    if roomy:
        _fix_degrees(rng, data, pairs, in_use, in_use)
    elif character == "duel" or rng.random() < 0.45:
        _fix_degrees(rng, data, pairs, devices // 2, devices)
    _constrain(rng, data)
    # A source of its own: problems without these stay what they were.
    _constrain_further(random.Random(f"further constraints {seed}"), data)
    if seed % 8 in (2, 5):
        _shard(random.Random(f"zero {seed}"), data)
    _tighten(rng, data, pairs, devices)
    give_ports(random.Random(f"ports {seed}"), data)
    return data


def give_ports(rng: random.Random, data: dict[str, Any]) -> None:
    """Let collectives leave a group by a port for each rank, in some problems."""
    if rng.random() < PORTS_SHARE:
        data["cluster"]["network"]["collectives"] = "ports"


def _shard(rng: random.Random, data: dict[str, Any]) -> None:
    """Ask for ZeRO levels."""
    levels = rng.sample(range(4), rng.randint(1, 4))
    data["search"]["zero"] = levels if any(levels) else [1]


def random_sharded_data(seed: int) -> dict[str, Any]:
    """Return a problem of a seed with levels for each parameter class, and runs of replicas."""
    data = random_data(seed)
    data["name"] = f"sharded-{seed}"
    instances = ((1,), (1, 2), (2,), (3, 2), (1, 2, 3, 4), (4, 2), (3,))
    _shard_further(random.Random(f"sharded {seed}"), data, instances)
    return data


def random_staged_sharded_data(seed: int) -> dict[str, Any]:
    """Return a problem of a seed whose stages may differ, with ZeRO levels and schedules."""
    data = random_staged_data(seed)
    data["name"] = f"staged-sharded-{seed}"
    rng = random.Random(f"staged sharded {seed}")
    search = data["search"]
    search["schedule"] = rng.choice(
        (["1f1b"], ["gpipe"], ["zb-h1"], ["zb-h1"], ["1f1b", "zb-h1"], ["1f1b", "gpipe", "zb-h1"])
    )
    # ZB-H1 wants S rounds at least.
    if "1f1b" not in search["schedule"] or rng.random() < 0.5:
        data["job"]["global_batch"] *= rng.choice((2, 4, 5))
    replicas = max(search.get("dp", [2]))
    _shard_further(rng, data, ((1,), (1,), (1, 2), (1, 3), (replicas,)))
    # Levels and schedules make a random plan's need tell little of another's.
    if rng.random() < 0.5:
        kind = data["cluster"]["device_kinds"]["device"]
        kind["memory_bytes"] = int(kind["memory_bytes"] * rng.choice((1.1, 1.3, 1.6, 2)))
    return data


def _shard_further(
    rng: random.Random, data: dict[str, Any], instances: Sequence[tuple[int, ...]]
) -> None:
    """Ask for levels of each parameter class and runs of replicas, with a memory near its need."""
    search = data["search"]
    search["zero"] = rng.sample(range(rng.choice((0, 1, 1)), 4), rng.randint(1, 3))
    if rng.random() < 0.7:
        search["zero_expert"] = rng.sample(range(4), rng.randint(1, 3))
    search["zero_instances"] = rng.choice(instances)
    if rng.random() < 0.6:
        _give_experts(rng, data)
    profiles = next(iter(data["model"]["layer_types"].values()))["profiles"]
    pairs = [
        (
            profile["microbatch"],
            (profile["tp"], profile.get("cp", 1), profile.get("ep", 1), profile.get("sp", False)),
        )
        for profile in profiles
    ]
    devices = sum(group["count"] for group in data["cluster"]["devices"])
    _tighten(rng, data, pairs, devices)


def _give_experts(rng: random.Random, data: dict[str, Any]) -> None:
    """Give a type's layers expert parameters, so many for each configuration."""
    kind = rng.choice(list(data["model"]["layer_types"].values()))
    counts: dict[tuple[Any, ...], int] = {}
    for profile in kind["profiles"]:
        key = tuple(profile.get(name) for name in ("tp", "cp", "ep", "sp", "kind"))
        profile["expert_parameters"] = counts.setdefault(key, rng.randint(1, 40))


def random_staged_data(seed: int) -> dict[str, Any]:
    """Return a problem of a seed in which tp or sp may differ by stage."""
    rng = random.Random(f"staged {seed}")
    while True:
        sizes = _group_sizes(rng)
        if len(sizes) > 1:
            break
    devices = min(_device_count(rng, prod(sizes)), rng.choice((6, 8, 10)))
    levels = _levels(rng, sizes, rng.choice(("falling", "cliff", "rising", "any", "any")))
    pairs, per_stage = _staged_pairs(rng)
    character = rng.choices(CHARACTERS, CHARACTER_WEIGHTS)[0]
    model = random_model(rng, devices, pairs, character)
    # A source of its own: problems without this mode stay what they were.
    if seed % 7 == 2:
        offer_selective(random.Random(f"selective staged {seed}"), model)
    # All ways to cut times all configurations of all stages must stay few.
    _shorten(model, rng.choice((3, 4, 4) if len(pairs) > 2 else (4, 4, 5)))
    data: dict[str, Any] = {
        "name": f"staged-seed-{seed}",
        "model": model,
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**12}},
            "devices": _device_groups(rng, devices),
            "network": {"type": "hierarchical", "levels": levels},
        },
        "job": _job(rng, pairs, devices),
        "search": _search(rng, pairs, model, levels[0]["size"]),
    }
    data["search"]["per_stage"] = per_stage
    if rng.random() < 0.75:
        _fix_unequal(rng, data, pairs, prod(sizes))
    else:
        _restrict(rng, data, devices)
    if character == "duel":
        data["job"]["objective"] = rng.choice(("nest", "fill-drain"))
    common = _common_modes(data)
    if common and rng.random() < 0.5:
        data["search"]["recompute"] = [rng.choice(common)]
    _constrain(rng, data)
    _constrain_further(rng, data)
    _tighten(rng, data, pairs, devices)
    give_ports(random.Random(f"ports staged {seed}"), data)
    return data


def _staged_pairs(rng: random.Random) -> tuple[list[tuple[int, Degrees]], list[str]]:
    """Return pairs (b, k) of which several can meet in one plan, and what may differ."""
    per_stage = rng.choice((["tp"], ["tp"], ["tp"], ["sp"], ["tp", "sp"]))
    tps = rng.choice(((1, 2), (1, 2), (2, 4), (1, 3), (1, 2, 4), (1, 2, 4), (2, 3), (1, 2, 3)))
    sps = rng.choice(((False,), (False,), (False, True)))
    if "sp" in per_stage:
        sps = (False, True)
        tps = tps if per_stage == ["sp"] else tps[:2]
    cp, ep = rng.choice(((1, 1), (1, 1), (1, 1), (2, 1), (1, 2), (1, 3), (2, 2)))
    pairs = [(1, (tp, cp, ep, sp)) for tp in tps for sp in sps]
    if rng.random() < 0.2:
        pairs += [(2, k) for _, k in pairs]
    if len(pairs) > 3 and rng.random() < 0.5:
        pairs = sorted(rng.sample(pairs, len(pairs) - 1))
    return pairs, per_stage


def _fix_unequal(
    rng: random.Random, data: dict[str, Any], pairs: list[tuple[int, Degrees]], places: int
) -> None:
    """Fix d and S, and give just the devices for stages of random sizes."""
    layers = sum(entry.get("repeat", 1) for entry in data["model"]["layers"])
    microbatch, (_, cp, ep, _) = rng.choice(pairs)
    blocks = sorted({k[0] * cp * ep for _, k in pairs})
    wide = rng.random() < 0.3
    for _ in range(40):
        stages, replicas = rng.randint(2, max(2, layers)), rng.choice((1, 2, 2, 2, 3))
        sizes = [max(blocks) if wide else rng.choice(blocks) for _ in range(stages)]
        devices = replicas * sum(sizes)
        if stages <= layers and devices <= min(places, MOST_DEVICES):
            data["cluster"]["devices"] = [{"kind": "device", "count": devices}]
            data["search"].update(dp=[replicas], pp=[stages])
            if wide:
                data["search"]["order"] = ["dp-inner"]
            rounds = rng.choice((1, 1, 2, 3, 8))
            data["job"]["global_batch"] = microbatch * ep * replicas * rounds
            return


def _shorten(model: dict[str, Any], most: int) -> None:
    """Keep the first layers of a model, `most` at the most, with the edges between them."""
    kept: list[dict[str, Any]] = []
    for entry in model["layers"]:
        count = min(entry.get("repeat", 1), most - sum(e.get("repeat", 1) for e in kept))
        if count > 0:
            kept.append({**entry, "repeat": count} if entry.get("repeat", 1) > 1 else entry)
    names = {name for entry in kept for name in layer_names(entry)}
    model["layers"] = kept
    if "edges" in model:
        model["edges"] = [
            edge for edge in model["edges"] if {edge["source"], edge["target"]} <= names
        ]


def random_artifact_data(seed: int) -> dict[str, Any]:
    """Return a problem of a seed that asks for the artifact's cost model."""
    rng = random.Random(f"artifact {seed}")
    sizes = _group_sizes(rng)
    devices = _device_count(rng, prod(sizes))
    pairs = [(1, (tp, 1, 1, False)) for tp in sorted(rng.sample((1, 2, 3, 4), rng.randint(1, 2)))]
    model = random_model(rng, devices, pairs, "any")
    for kind in model["layer_types"].values():
        for profile in kind["profiles"]:
            activation = rng.randint(0, 50)
            profile["recompute"] = {
                "none": {"stash_bytes": activation},
                "full": {"stash_bytes": 0, "work_bytes": activation},
            }
    names = [name for entry in model["layers"] for name in layer_names(entry)]
    model["edges"] = random_edges(rng, names, pairs, rng.choice((0, 20, 150)), own_size=1)
    data = {
        "name": f"artifact-seed-{seed}",
        "model": model,
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**12}},
            "devices": _device_groups(rng, devices),
            "network": {"type": "hierarchical", "levels": _levels(rng, sizes, "any")},
        },
        "job": {
            "global_batch": rng.choice((1, 2, 3, 8, 12)),
            "bytes_per_parameter": {"weights": 1, "gradients": 1, "optimizer": 6},
            "objective": "nest",
            "pad": True,
            "cost_model": "artifact",
        },
        "search": {
            "microbatch": [1],
            "tp": [k[0] for _, k in pairs],
            "recompute": [rng.choice(("none", "full"))],
        },
    }
    needs = [_need_bytes(rng, data, pairs, devices) for _ in range(4)]
    data["cluster"]["device_kinds"]["device"]["memory_bytes"] = 1 + rng.choice((*needs, 10**6))
    return data


# Network


def _group_sizes(rng: random.Random) -> tuple[int, ...]:
    count = rng.choices((1, 2, 3, 4), (1, 6, 5, 2))[0]
    least = rng.choice((1, 6, 6, 9))
    while True:
        sizes = tuple(rng.choice((1, 2, 2, 3, 3, 4, 5, 7, 9)) for _ in range(count))
        if least <= prod(sizes) <= MOST_PLACES:
            return sizes


def _levels(rng: random.Random, sizes: tuple[int, ...], style: str) -> list[dict[str, Any]]:
    bandwidths = [rng.choice((20, 50, 70, 100, 256, 400, 1000)) for _ in sizes]
    if style == "cliff":
        bandwidths = [1000] + [rng.choice((10, 15, 30)) for _ in sizes[1:]]
    elif style != "any":
        bandwidths.sort(reverse=style == "falling")
    unit = rng.choice(("0", "0", "0.001", "0.01", "0.1", "0.3"))
    steps = [rng.randint(0, 3) for _ in sizes]
    return [
        {
            "name": f"level-{number}",
            "size": size,
            "bandwidth_bytes_per_s": bandwidth,
            "latency_s": _decimal(Fraction(unit) * sum(steps[: number + 1])),
        }
        for number, (size, bandwidth) in enumerate(zip(sizes, bandwidths, strict=True))
    ]


def _decimal(number: Fraction) -> float | int:
    return int(number) if number.denominator == 1 else float(number)


def _device_count(rng: random.Random, places: int) -> int:
    most = min(places, MOST_DEVICES)
    return most if rng.random() < 0.5 else rng.randint(max(1, 2 * most // 3), most)


def _device_groups(rng: random.Random, devices: int) -> list[dict[str, Any]]:
    if devices == 1 or rng.random() < 0.8:
        return [{"kind": "device", "count": devices}]
    first = rng.randint(1, devices - 1)
    return [{"kind": "device", "count": first}, {"kind": "device", "count": devices - first}]


# Degrees


def _pairs(rng: random.Random, devices: int) -> list[tuple[int, Degrees]]:
    """Return the pairs (b, k) to write profiles for."""

    def some(values: tuple[int, ...], most: int, also_one: float) -> list[int]:
        possible = [value for value in values if value <= devices]
        chosen = set(rng.sample(possible, min(len(possible), rng.randint(1, most))))
        return sorted(chosen | ({1} if rng.random() < also_one else set()))

    every = [
        (microbatch, (tp, cp, ep, sp))
        for microbatch, tp, cp, ep, sp in product(
            some((1, 2, 3, 4, 8), 2, 0.6),
            some((1, 2, 3, 4, 6), 2, 0.9),
            some((1, 2, 3), 1, 0.5) if rng.random() < 0.3 else [1],
            some((1, 2, 3, 4), 2, 0.7) if rng.random() < 0.4 else [1],
            rng.choices(([False], [True], [False, True]), (7, 1, 2))[0],
        )
    ]
    # A few too large for the cluster stay: they must be passed over.
    fitting = [pair for pair in every if prod(pair[1][:3]) <= devices]
    kept = rng.sample(fitting, min(len(fitting), MOST_PAIRS)) + rng.sample(
        every, rng.choice((0, 0, 0, 1))
    )
    return sorted(set(kept or every[:1]))


def _search(
    rng: random.Random,
    pairs: list[tuple[int, Degrees]],
    model: Mapping[str, Any],
    innermost: int,
) -> dict[str, Any]:
    """Return what to ask for: values by name, or nothing where the defaults find some pairs."""
    heads, experts = model.get("attention_heads", 0), model.get("experts", 1)
    defaults = {
        "microbatch": {1, 2, 4, 8},
        "tp": {p for p in (1, 2, 4, 8) if p <= innermost and heads % p == 0},
        "ep": {e for e in range(1, experts + 1) if experts % e == 0},
    }
    columns = {"microbatch": 0, "tp": 1, "cp": 2, "ep": 3, "sp": 4}
    rows = [(microbatch, *k) for microbatch, k in pairs]
    left_open = {name for name in defaults if rng.random() < 0.35}
    found = [row for row in rows if all(row[columns[n]] in defaults[n] for n in left_open)]
    if not found:
        left_open, found = set(), rows
    return {
        name: sorted({row[place] for row in found})
        for name, place in columns.items()
        if name not in left_open
    }


# Job, restrictions, constraints


def _job(rng: random.Random, pairs: list[tuple[int, Degrees]], devices: int) -> dict[str, Any]:
    microbatch, (tp, cp, ep, _) = rng.choice((pairs[0], rng.choice(pairs)))
    replicas = rng.randint(1, max(1, devices // (tp * cp * ep)))
    rounds = rng.choice((1, 1, 1, 1, 2, 2, 3, 60))
    pad = rng.random() < 0.25
    batch = microbatch * ep * replicas * rounds * rng.choice((1, 1, 2, 2, 4))
    return {
        "global_batch": batch + (rng.randint(0, 5) if pad else 0),
        "bytes_per_parameter": rng.choice(
            (
                {"weights": 2, "gradients": 2, "optimizer": 12},
                {"weights": 2, "gradients": 4, "optimizer": 12},
                {"weights": 1, "gradients": 1, "optimizer": 0},
                {"weights": 0, "gradients": 16, "optimizer": 0},
                {"weights": 0.5, "gradients": 1.25, "optimizer": "0.3"},
            )
        ),
        "objective": rng.choice(("fill-drain", "fill-drain", "nest", "nest", "bottleneck")),
        "pad": pad,
    }


def _restrict(rng: random.Random, data: dict[str, Any], devices: int) -> None:
    search = data["search"]
    if rng.random() < 0.25:
        batch = data["job"]["global_batch"]
        search["dp"] = sorted(rng.sample(range(1, devices + 2), rng.randint(1, min(3, devices))))
        if rng.random() < 0.8 and not any(batch % d == 0 for d in search["dp"]):
            search["dp"] = [d for d in (2, 3, 5) if batch % d == 0] or [1]
    if rng.random() < 0.12:
        search["pp"] = sorted(rng.sample(range(1, 8), rng.randint(1, 3)))
    if rng.random() < 0.2:
        search["order"] = [rng.choice(("pp-inner", "dp-inner"))]
    if rng.random() < 0.25:
        search["pitch"] = rng.sample(("tight", "level", "spread"), rng.randint(1, 2))
    common = _common_modes(data)
    if common and rng.random() < 0.1:
        search["recompute"] = [rng.choice(common)]
    elif rng.random() < 0.1:
        search["recompute"] = ["full", "none"]


def _fix_degrees(
    rng: random.Random,
    data: dict[str, Any],
    pairs: list[tuple[int, Degrees]],
    least: int,
    most: int,
) -> None:
    """Fix d and S so that `least` to `most` devices are in use: order and pitch decide."""
    layers = sum(entry.get("repeat", 1) for entry in data["model"]["layers"])
    shapes = [
        (microbatch * k[2], replicas, stages)
        for microbatch, k in pairs
        for replicas in range(2, most + 1)
        for stages in range(2, layers + 1)
        if least <= replicas * stages * prod(k[:3]) <= most
    ]
    if shapes:
        streams, replicas, stages = rng.choice(shapes)
        data["search"].update(dp=[replicas], pp=[stages])
        data["job"]["global_batch"] = streams * replicas * rng.choice((1, 1, 1, 1, 2, 3, 6))


def _common_modes(data: Mapping[str, Any]) -> list[str]:
    """Return the recomputation modes that every profile has."""
    offered = [
        set(profile["recompute"])
        for kind in data["model"]["layer_types"].values()
        for profile in kind["profiles"]
    ]
    return sorted(set.intersection(*offered))


def _constrain(rng: random.Random, data: dict[str, Any]) -> None:
    names = [name for entry in data["model"]["layers"] for name in layer_names(entry)]
    latencies = [level["latency_s"] for level in data["cluster"]["network"]["levels"]]
    constraints: list[dict[str, Any]] = []
    if len(names) > 1 and rng.random() < 0.15:
        together = rng.sample(names, min(len(names), rng.choice((2, 2, 3))))
        constraints.append({"type": "colocation", "layers": together})
    while rng.random() < 0.15:
        constraints.append({"type": "forbidden-boundary", "after": rng.choice(names)})
    if rng.random() < 0.15:
        limit = rng.choice((*latencies, *latencies, 0))
        constraints.append({"type": "hop-latency", "limit_s": limit})
    if constraints:
        data["constraints"] = constraints


FURTHER_SHARE = 0.2
WATTS = "2.5"


def _constrain_further(rng: random.Random, data: dict[str, Any]) -> None:
    """Add constraints on stages, degrees and device maps to some problems."""
    while rng.random() < FURTHER_SHARE:
        made = rng.choice(list(MAKERS.values()))(rng, data)
        if made:
            data.setdefault("constraints", []).append(made)
            data["cluster"]["device_kinds"]["device"]["watts"] = WATTS


def _names(data: Mapping[str, Any]) -> list[str]:
    return [name for entry in data["model"]["layers"] for name in layer_names(entry)]


def _anti_colocation(rng: random.Random, data: Mapping[str, Any]) -> dict[str, Any] | None:
    names = _names(data)
    if len(names) < 2:
        return None
    apart = rng.sample(names, min(len(names), rng.choice((2, 2, 2, 3))))
    return {"type": "anti-colocation", "layers": apart}


def _pinned_layers(rng: random.Random, data: Mapping[str, Any]) -> dict[str, Any]:
    names = _names(data)
    place = rng.randrange(len(names))
    last = len(names) - 1 - place
    stage = rng.choice((rng.randint(0, min(place, 3)), -1 - rng.randint(0, min(last, 3))))
    layers = names[place : place + rng.choice((1, 1, 2))]
    return {"type": "pinned-layers", "layers": layers, "stage": stage}


def _degree_limit(rng: random.Random, data: Mapping[str, Any]) -> dict[str, Any]:
    degree = rng.choice(("microbatch", "tp", "cp", "ep", "dp", "dp", "pp", "pp"))
    limits = rng.choice(
        (
            {"at_least": rng.randint(1, 3)},
            {"at_most": rng.randint(1, 3)},
            {"multiple_of": rng.choice((2, 2, 3))},
            {"divides": rng.choice((4, 6, 9, 10))},
            {"at_least": 2, "at_most": rng.randint(2, 4)},
            {"multiple_of": 2, "divides": rng.choice((4, 6, 12))},
        )
    )
    return {"type": "degree-limit", "degree": degree, **limits}


def _level(rng: random.Random, data: Mapping[str, Any]) -> tuple[str, int]:
    """Return the name of a level and the devices in one of its groups."""
    levels = data["cluster"]["network"]["levels"]
    number = rng.randrange(len(levels)) if rng.random() < 0.4 else max(0, len(levels) - 2)
    return levels[number]["name"], prod(level["size"] for level in levels[: number + 1])


def _tp_inside_node(rng: random.Random, data: Mapping[str, Any]) -> dict[str, Any]:
    return {"type": "tp-inside-node", "level": _level(rng, data)[0]}


def _failure_domains(rng: random.Random, data: Mapping[str, Any]) -> dict[str, Any]:
    made = {"type": "failure-domains", "level": _level(rng, data)[0]}
    return made if rng.random() < 0.5 else {**made, "at_most": rng.randint(1, 3)}


def _power(rng: random.Random, data: Mapping[str, Any]) -> dict[str, Any]:
    level, size = _level(rng, data)
    devices = rng.randint(max(1, size // 2), size)
    limit = devices * Fraction(WATTS) + rng.choice((0, 0, 1, Fraction("-0.5")))
    return {"type": "power", "level": level, "limit_w": _decimal(limit)}


MAKERS = {
    "anti-colocation": _anti_colocation,
    "pinned-layers": _pinned_layers,
    "degree-limit": _degree_limit,
    "tp-inside-node": _tp_inside_node,
    "failure-domains": _failure_domains,
    "power": _power,
}


def binding_data(kind: str, seed: int) -> dict[str, Any] | None:
    """Return a problem with one constraint of a type, which its best plan without it breaks.

    Some other plan of the family keeps it, so that it has a plan. None where few
    tries find no such constraint.
    """
    data = random_data(seed)
    data["cluster"]["device_kinds"]["device"]["watts"] = WATTS
    data["constraints"] = []
    problem = build(Problem, data, "free")
    rng = random.Random(f"{kind} {seed}")
    try:
        best = solve(problem).plan
    except InstanceError:
        return None
    if best is None:
        return None
    placements = list(_some_placements(rng, problem))
    for _ in range(8):
        made = MAKERS[kind](rng, data)
        constrained = {**data, "constraints": [made] if made else []}
        costs = Costs(build(Problem, constrained, kind))
        if check(costs, best.placement()) and any(
            not check(costs, placement) for placement in placements
        ):
            return constrained
    return None


def _some_placements(rng: random.Random, problem: Problem) -> Iterator[Placement]:
    """Yield a placement of each of a few cells, in memory's limits."""
    cells = list(enumerate_cells(problem))
    for cell in rng.sample(cells, min(len(cells), 10)):
        plans = list(islice(enumerate_plans(Costs(problem), cell), 200))
        if plans:
            plan, device_map = rng.choice(plans), cell.device_map
            yield Placement(
                cell.microbatch,
                cell.configurations,
                device_map.replicas,
                device_map.order,
                device_map.pitch,
                plan.ends,
                tuple(stage.recompute for stage in plan.stages),
                zero=cell.zero,
            )


def _tighten(
    rng: random.Random, data: dict[str, Any], pairs: list[tuple[int, Degrees]], devices: int
) -> None:
    """Set the memory near what a random plan needs; sometimes far above, sometimes below."""
    kind = data["cluster"]["device_kinds"]["device"]
    if rng.random() < 0.4:
        kind["reserve_bytes"] = rng.randint(0, 30)
    kind["usable_share"] = rng.choice((1, 1, 0.9, "0.85"))
    needs = sorted(_need_bytes(rng, data, pairs, devices) for _ in range(8))
    need = needs[0] if rng.random() < 0.1 else rng.choice(needs[2:])
    usable = need + rng.choice((0, 0, 0, 0, 1, 2, -1, -1, need // 10, 10**6))
    if rng.random() < 0.03:
        usable = needs[0] // 2
    usable = max(usable, kind.get("reserve_bytes", 0) + 1)
    share = Fraction(str(kind["usable_share"]))
    kind["memory_bytes"] = ceil(usable / share)


def _need_bytes(
    rng: random.Random, data: dict[str, Any], pairs: list[tuple[int, Degrees]], devices: int
) -> int:
    """Return the bytes that the heaviest stage of a random plan takes."""
    microbatch, (tp, cp, ep, sp) = rng.choice(pairs)
    layers = sum(entry.get("repeat", 1) for entry in data["model"]["layers"])
    most = max(1, min(layers, devices // (tp * cp * ep)))
    asked = [s for s in data["search"].get("pp", range(2, most + 1)) if s <= layers]
    stages = rng.choice(asked or [1])
    ends = [*sorted(rng.sample(range(1, layers), stages - 1)), layers]
    modes = _common_modes(data)
    padded = {**data, "job": {**data["job"], "pad": True}}
    oracle = Oracle(
        padded,
        {
            "microbatch": microbatch,
            **{
                "tp": tp,
                "cp": cp,
                "ep": ep,
                "sp": sp,
                "dp": rng.choice(data["search"].get("dp", (1, 2, 3))),
            },
            "zero": {
                "dense": min(data["search"].get("zero", [0])),
                "expert": min(data["search"].get("zero_expert") or data["search"].get("zero", [0])),
            },
            "ends": ends,
            "recompute": [rng.choice(modes) for _ in ends],
            "order": "pp-inner",
            "pitch": 1,
        },
    )
    return max(sum(oracle.memory(stage).values()) for stage in range(stages))
