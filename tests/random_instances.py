"""Seeded tiny problems on which every rule of the cost model gets its turn.

Sizes are balanced on purpose: hops, collectives, gradient synchronisation and
compute take about as long as each other, memory is near what some plan needs,
groups are of 3, 5 or 7 devices, outer links may be the faster ones. Anything
less lets a wrong search pass.
"""

import random
from collections.abc import Mapping
from fractions import Fraction
from itertools import product
from math import ceil, prod
from typing import Any

from oracle import Oracle, layer_names

from nest_opt import Problem
from nest_opt.cost.schedule import rounds_per_batch
from nest_opt.plan import Placement
from nest_opt.problem.search import ORDERS, Order
from nest_opt.problem.validation import build

MOST_DEVICES = 12
MOST_PLACES = 20
# What brute force can enumerate in about a second.
MOST_LAYERS_TIMES_DEVICES = 72
MOST_PAIRS = 8

# Networks on which nothing but an even spread keeps replicas apart: tight ones
# straddle a group, rounded ones do not fit. (Sizes, devices, devices in use.)
ROOMY = (((5, 2), 9, 6), ((5, 2), 10, 6), ((5, 3), 11, 6), ((7, 2), 12, 9), ((8, 2), 12, 9))
ROOMY_SHARE = 0.1

# Problems of equally slow layers with very different gradients, on fixed d > 1
# and S > 1: the plan with the fastest bottleneck is often not the best one.
DUEL_SHARE = 0.12

Degrees = tuple[int, int, int, bool]


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
    duel = rng.random() < DUEL_SHARE
    model = _model(rng, devices, pairs, {"duel": duel})
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
    if duel:
        data["job"]["objective"] = rng.choice(("nest", "nest", "nest", "fill-drain"))
    if roomy:
        _fix_degrees(rng, data, pairs, in_use, in_use)
    elif duel or rng.random() < 0.45:
        _fix_degrees(rng, data, pairs, devices // 2, devices)
    _constrain(rng, data)
    _tighten(rng, data, pairs, devices)
    return data


def random_artifact_data(seed: int) -> dict[str, Any]:
    """Return a problem of a seed that asks for the artifact's cost model."""
    rng = random.Random(f"artifact {seed}")
    sizes = _group_sizes(rng)
    devices = _device_count(rng, prod(sizes))
    pairs = [(1, (tp, 1, 1, False)) for tp in sorted(rng.sample((1, 2, 3, 4), rng.randint(1, 2)))]
    model = _model(rng, devices, pairs, {"missing_mode": None, "duel": False})
    names = [name for entry in model["layers"] for name in layer_names(entry)]
    model["edges"] = _edges(rng, names, pairs, rng.choice((0, 20, 150)), own_size=1)
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


def random_placement(rng: random.Random, problem: Problem) -> Placement | None:
    """Return any placement that can be evaluated, of the aligned family or not.

    None where no degrees are legal.
    """
    devices, layers = problem.cluster.device_count, len(problem.model.ids)
    shapes = [
        (microbatch, k, replicas, stages)
        for microbatch, k in problem.candidates
        for replicas in problem.search.dp or range(1, devices + 1)
        for stages in range(1, layers + 1)
        if k.block_size * replicas * stages <= devices
        and rounds_per_batch(problem.job, microbatch, k.ep, replicas) is not None
    ]
    if not shapes:
        return None
    microbatch, k, replicas, stages = rng.choice(shapes)
    order: Order = rng.choice(ORDERS)
    inner, outer = (stages, replicas) if order == "pp-inner" else (replicas, stages)
    unit = inner * k.block_size
    largest = (devices - unit) // (outer - 1) if outer > 1 else devices
    modes = [
        mode
        for mode in problem.search.recompute
        if all(mode in kind.by_key[microbatch, k].recompute for kind in problem.model.types)
    ]
    return Placement(
        microbatch,
        k,
        replicas,
        order,
        rng.randint(unit, largest),
        (*sorted(rng.sample(range(1, layers), stages - 1)), layers),
        tuple(rng.choice(modes) for _ in range(stages)),
    )


def placement_data(placement: Placement) -> dict[str, Any]:
    """Return a placement as plain data, as the oracle reads it."""
    tp, cp, ep, sp = placement.configuration
    return {
        "microbatch": placement.microbatch,
        **{"tp": tp, "cp": cp, "ep": ep, "sp": sp, "dp": placement.replicas},
        "order": placement.order,
        "pitch": placement.pitch,
        "ends": list(placement.ends),
        "recompute": list(placement.recompute),
    }


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


# Model


def _model(
    rng: random.Random,
    devices: int,
    pairs: list[tuple[int, Degrees]],
    fixed_style: Mapping[str, Any],
) -> dict[str, Any]:
    kinds = rng.choice((1, 2, 3, 3, 4))
    style = {
        "whole": rng.random() < 0.25,
        "comm": rng.choice((0, 5, 20, 60, 150)),
        "gradients": rng.choice((0, 20, 60, 200, 400, 800)),
        "contrast": kinds > 1 and rng.random() < 0.7,
        "stash": rng.choice((5, 50)),
        "missing_mode": rng.choices((None, "full", "none"), (17, 2, 1))[0],
        **fixed_style,
    }
    if style["duel"]:
        kinds, style["comm"] = 4, 5
    types = {f"type-{number}": _layer_type(rng, pairs, style) for number in range(kinds)}
    layers = _layers(rng, sorted(types), devices)
    model: dict[str, Any] = {"layer_types": types, "layers": layers}
    if rng.random() < 0.3:
        model["attention_heads"] = rng.choice((1, 2, 4, 6))
    if rng.random() < 0.4:
        model["experts"] = rng.choice((1, 2, 3, 4, 6, 12))
    names = [name for entry in layers for name in layer_names(entry)]
    if len(names) > 1 and rng.random() < 0.35:
        model["edges"] = _edges(rng, names, pairs, style["comm"])
    return model


def _layers(rng: random.Random, kinds: list[str], devices: int) -> list[dict[str, Any]]:
    count = min(rng.choices((1, 2, 3, 4, 5, 6), (1, 2, 3, 5, 6, 5))[0],
                MOST_LAYERS_TIMES_DEVICES // devices)  # fmt: skip
    layers: list[dict[str, Any]] = []
    while count:
        repeat = rng.randint(2, count) if count > 1 and rng.random() < 0.15 else 1
        entry = {"id": f"layer-{len(layers)}", "type": rng.choice(kinds)}
        layers.append({**entry, "repeat": repeat} if repeat > 1 else entry)
        count -= repeat
    # Types that no layer has stay in the file: they must not matter.
    return layers


def _layer_type(
    rng: random.Random, pairs: list[tuple[int, Degrees]], style: Mapping[str, Any]
) -> dict[str, Any]:
    weight, most = rng.choice((1, 1, 2, 5)), style["gradients"]
    if style["duel"]:
        weight, most = rng.choice((1, 1.1)), rng.choice((0, 200, 600, 900))
    elif style["contrast"]:
        # Slow layers without parameters and fast ones with many: F and Y pull apart.
        weight, most = rng.choice(((0.5, 4 * most), (1, 4 * most), (1, 0), (2, most // 8)))
    parameters = {
        k: (
            rng.randint(most // 2, most) if rng.random() < 0.8 else 0,
            rng.randint(0, most) if k[2] > 1 or rng.random() < 0.2 else 0,
        )
        for k in sorted({k for _, k in pairs})
    }
    return {
        "output_bytes": {
            str(microbatch): rng.randint(0, style["comm"]) * microbatch
            for microbatch in sorted({microbatch for microbatch, _ in pairs})
        },
        "profiles": [
            _profile(rng, microbatch, k, parameters[k], weight, style) for microbatch, k in pairs
        ],
    }


def _profile(
    rng: random.Random,
    microbatch: int,
    k: Degrees,
    parameters: tuple[int, int],
    weight: float,
    style: Mapping[str, Any],
) -> dict[str, Any]:
    def seconds(scale: float) -> float | int:
        # Larger microbatches are a little cheaper a sequence, splitting a little dearer.
        ideal = scale * weight * microbatch**0.9 / (k[0] * k[1]) ** 0.9
        if style["whole"]:
            return max(0, round(ideal * rng.uniform(0.7, 1.3)))
        return round(ideal * rng.uniform(0.7, 1.3), rng.choice((1, 3, 13)))

    stash = rng.randint(0, style["stash"]) * microbatch
    kept = rng.randint(0, stash) if rng.random() < 0.5 else 0
    recompute = {
        "none": {"stash_bytes": stash, "work_bytes": rng.randint(0, 20)},
        "full": {"stash_bytes": kept, "work_bytes": stash - kept + rng.randint(0, 10)},
    }
    if style["missing_mode"] and rng.random() < 0.5:
        del recompute[style["missing_mode"]]
    return {
        "microbatch": microbatch,
        **dict(zip(("tp", "cp", "ep", "sp"), k, strict=True)),
        "forward_s": seconds(1),
        "backward_input_s": seconds(1),
        "backward_weight_s": seconds(rng.choice((0, 1))),
        "dense_parameters": parameters[0],
        "expert_parameters": parameters[1],
        "collectives": _collectives(rng, k, style["comm"]),
        "recompute": recompute,
    }


def _collectives(rng: random.Random, k: Degrees, most_bytes: int) -> list[dict[str, Any]]:
    found = []
    for group, degree in zip(("tp", "cp", "ep"), k[:3], strict=True):
        # Those over one rank cost nothing, and some profiles still list them.
        if rng.random() < (0.8 if degree > 1 else 0.1):
            for phase in rng.choice((("forward",), ("backward",), ("forward", "backward"))):
                found.append(
                    {
                        "operation": rng.choice(
                            ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
                        ),
                        "group": group,
                        "phase": phase,
                        "bytes": rng.randint(0, most_bytes),
                        "count": rng.choice((1, 1, 2, 3)),
                    }
                )
    return found


def _edges(
    rng: random.Random,
    names: list[str],
    pairs: list[tuple[int, Degrees]],
    most_bytes: int,
    own_size: float = 0.4,
) -> list[dict[str, Any]]:
    """Return a random graph along the listed order: chain links, skips, sizes of their own."""
    edges = []
    for target in range(1, len(names)):
        for source in range(target):
            if rng.random() > (0.8 if source == target - 1 else 0.25):
                continue
            edge: dict[str, Any] = {"source": names[source], "target": names[target]}
            if rng.random() < own_size:
                edge["sizes"] = _sizes(rng, pairs, most_bytes)
            edges.append(edge)
    rng.shuffle(edges)
    return edges


def _sizes(
    rng: random.Random, pairs: list[tuple[int, Degrees]], most_bytes: int
) -> list[dict[str, Any]]:
    microbatches = sorted({microbatch for microbatch, _ in pairs})
    if rng.random() < 0.5:
        return [{"microbatch": b, "bytes": rng.randint(0, most_bytes)} for b in microbatches]
    return [
        {"microbatch": b, "tp": tp, "bytes": rng.randint(0, most_bytes)}
        for b, tp in sorted({(microbatch, k[0]) for microbatch, k in pairs})
    ]


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
            "ends": ends,
            "recompute": [rng.choice(modes) for _ in ends],
            "order": "pp-inner",
            "pitch": 1,
        },
    )
    return max(sum(oracle.memory(stage).values()) for stage in range(stages))
