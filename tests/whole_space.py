"""Seeded tiny problems that draw from the whole space of problem files at once.

Other generators draw one new thing beside what was there before. Here everything that a
problem of runs of layers may hold is drawn in one problem, so that any two
features meet: degrees and microbatches, experts, ZeRO by class and in runs of
replicas, schedules and chunks, recomputation, tied parameters, hidden calls,
rings and trees, uneven levels, stages that differ, all constraints, tight memory.
Times are small integers, so that the integer program is compared exactly.
"""

import random
from copy import deepcopy
from itertools import islice
from math import comb, prod
from typing import Any, Literal

import random_instances as parts
from branching_instances import MOST_LAYERS as MOST_BRANCHING_LAYERS
from milp_instances import shrink_times
from oracle import Oracle, layer_names
from random_models import Degrees, hide_collectives, offer_selective, random_model
from random_placements import placement_data
from tied_instances import tie

from nest_opt import InstanceError, Problem
from nest_opt.certify.brute_force import (
    enumerate_cells,
    enumerate_staged_cells,
)
from nest_opt.plan.placement import AnyCell, MapOrder, Placement
from nest_opt.problem.schedule import SCHEDULES
from nest_opt.problem.validation import build

Data = dict[str, Any]
DrawnCell = tuple[AnyCell, MapOrder, int]

# Plans and stages that brute force values; what is searched is thinned out until no more are left.
MOST_PLANS = 6_000
MOST_LAYERS = 8
DRAWS = 4
STAGED_DRAWS = 12
STAGED_SHARE = 0.18

# Problems of some seeds, by their last digit, have what is seldom best by chance.
Sort = Literal["plain", "chunks", "branches", "runs"]
SORTS: dict[int, Sort] = {2: "runs", 4: "chunks", 7: "branches"}
# Layers in any order have no tied parameters.
TIED_SHARES: dict[Sort, float] = {"plain": 0.4, "runs": 0.4, "chunks": 0.7, "branches": 0}

# What may be thinned out: lists of a search space that may lose a value.
LISTS = (
    "zero",
    "zero_expert",
    "zero_instances",
    "schedule",
    "chunks",
    "recompute",
    "order",
    "pitch",
    "dp",
    "pp",
    "microbatch",
    "tp",
    "cp",
    "ep",
    "sp",
)


def whole_space_data(seed: int) -> Data:
    """Return the problem of a seed as JSON data."""
    if seed % 10 == 9:
        return _staged_data(seed)
    rng = random.Random(f"whole space {seed}")
    # Degrees, rounds and schedules are drawn apart, and often have nothing in common.
    for _ in range(DRAWS):
        data, cells = _drawn(rng, SORTS.get(seed % 10, "plain"))
        if cells:
            break
    data["name"] = f"whole-space-{seed}"
    _tighten(rng, data, cells)
    parts.give_ports(random.Random(f"whole space, ports {seed}"), data)
    return data


def _staged_data(seed: int) -> Data:
    """Return a problem made for stages that differ, with all that may stand beside them.

    With tied parameters both ends have one tp: only in longer pipelines do stages then differ.
    """
    rng = random.Random(f"whole space, staged {seed}")
    least = rng.choice((2, 3, 3))
    for number in range(STAGED_DRAWS):
        data = deepcopy(parts.random_staged_data(STAGED_DRAWS * seed + number))
        if min(data["search"].get("pp") or (1,)) >= least:
            break
    data["name"] = f"whole-space-{seed}"
    model, network = data["model"], data["cluster"]["network"]
    if rng.random() < 0.2:
        _allow_trees(rng, network)
    if rng.random() < 0.5:
        hide_collectives(rng, model, network["levels"][0]["bandwidth_bytes_per_s"])
    offers_selective = any(
        "selective" in profile["recompute"]
        for kind in model["layer_types"].values()
        for profile in kind["profiles"]
    )
    if not offers_selective and rng.random() < 0.4:
        offer_selective(rng, model)
    if least > 2 and rng.random() < 0.6:
        tie(rng, data, (20, 100, 300))
        data["cluster"]["device_kinds"]["device"]["memory_bytes"] *= rng.choice((1, 2, 3))
    if rng.random() < 0.5:
        schedules = (["gpipe"], ["zb-h1"], ["zb-h1"], ["1f1b", "zb-h1"])
        data["search"]["schedule"] = rng.choice(schedules)
    if rng.random() < 0.5:
        data["search"]["zero"] = rng.choice(([1], [1], [2], [3], [0, 1]))
        data["search"]["zero_instances"] = rng.choice(([1], [1], [1, 2]))
    shrink_times(data)
    return data


def _drawn(rng: random.Random, sort: Sort) -> tuple[Data, list[DrawnCell]]:
    """Return a problem with ample memory, and its cells.

    Chunks need layers and rounds that fit: by chance they are seldom best, so that
    some problems have to have them.
    """
    staged = rng.random() < STAGED_SHARE and sort == "plain"
    sizes, devices = _network(rng, staged)
    levels = parts._levels(rng, sizes, rng.choice(("falling", "cliff", "rising", "any", "any")))
    if staged:
        pairs, per_stage = parts._staged_pairs(rng)
    else:
        pairs = _pairs(rng, devices)
    character = rng.choices(parts.CHARACTERS, (75, 10, 15))[0]
    model = random_model(rng, devices, pairs, character)
    if sort == "chunks":
        model.pop("edges", None)
    _shape(rng, model, staged)
    if sort == "branches":
        _branch(rng, model)
    data: Data = {
        "name": "whole space",
        "model": model,
        "cluster": {
            "device_kinds": {"device": {"memory_bytes": 10**12}},
            "devices": parts._device_groups(rng, devices),
            "network": {"type": "hierarchical", "levels": levels},
        },
        "job": parts._job(rng, pairs, devices),
        "search": parts._search(rng, pairs, model, levels[0]["size"]),
    }
    _add_features(rng, data, sort)
    if staged:
        data["search"]["per_stage"] = per_stage
    if staged and rng.random() < 0.8:
        parts._fix_unequal(rng, data, pairs, prod(sizes))
    else:
        _fix_degrees(rng, data, pairs, devices)
    if not staged:
        _ask(rng, data)
    if sort == "chunks":
        _ask_for_chunks(rng, data)
    elif sort == "branches":
        _ask_for_any_order(data["search"])
    elif sort == "runs":
        _ask_for_runs(rng, data, pairs, devices)
    _restrict(rng, data)
    _constrain(rng, data)
    shrink_times(data)
    return data, _thin(rng, data)


def _add_features(rng: random.Random, data: Data, sort: Sort) -> None:
    """Draw what the layers and the network may have on top."""
    model, network = data["model"], data["cluster"]["network"]
    if rng.random() < 0.4:
        _allow_trees(rng, network)
    if rng.random() < 0.4:
        hide_collectives(rng, model, network["levels"][0]["bandwidth_bytes_per_s"])
    if rng.random() < 0.5:
        offer_selective(rng, model)
    if rng.random() < 0.4:
        parts._give_experts(rng, data)
    if rng.random() < TIED_SHARES[sort]:
        tie(rng, data, (20, 100, 300, 900))


def _network(rng: random.Random, staged: bool) -> tuple[tuple[int, ...], int]:
    """Return group sizes and the number of devices; some networks have room for any pitch."""
    if not staged and rng.random() < parts.ROOMY_SHARE:
        sizes, devices, _ = rng.choice(parts.ROOMY)
        return sizes, devices
    while True:
        sizes = parts._group_sizes(rng)
        if len(sizes) > 1 or rng.random() < 0.3:
            devices = parts._device_count(rng, prod(sizes))
            return sizes, min(devices, rng.choice((6, 8, 8))) if staged else devices


def _allow_trees(rng: random.Random, network: Data) -> None:
    """Allow trees, with latencies so large that they pay off over four ranks and more."""
    network["algorithms"] = ["ring", "tree"]
    unit = rng.choice((0.1, 0.4, 1.5))
    steps = sorted(rng.randint(0, 6) for _ in network["levels"])
    for level, step in zip(network["levels"], steps, strict=True):
        level["latency_s"] = round(unit * step, 3)


def _pairs(rng: random.Random, devices: int) -> list[tuple[int, Degrees]]:
    """Return up to four pairs (b, k), small enough for several blocks."""
    microbatches = rng.choice(((1,), (1,), (2,), (1, 2), (1, 3)))
    tps = rng.choice(((1,), (1,), (2,), (1, 2), (1, 2), (3,), (1, 3), (2, 4), (4,)))
    cps = rng.choice(((1,), (1,), (1,), (2,), (1, 2), (3,)))
    eps = rng.choice(((1,), (1,), (1,), (2,), (1, 2), (1, 3)))
    sps = rng.choice(((False,), (False,), (True,), (False, True)))
    every = [
        (b, (tp, cp, ep, sp))
        for b in microbatches
        for tp in tps
        for cp in cps
        for ep in eps
        for sp in sps
        if tp * cp * ep <= max(1, devices // 2)
    ]
    return sorted(rng.sample(every, min(len(every), rng.randint(1, 4)))) or [(1, (1, 1, 1, False))]


def _shape(rng: random.Random, model: Data, staged: bool) -> None:
    """Give a chain more layers, enough for chunks, and the weights' gradients a part of F."""
    layers = sum(entry.get("repeat", 1) for entry in model["layers"])
    if staged:
        parts._shorten(model, rng.choice((3, 4)))
    elif "edges" not in model:
        kinds = [entry["type"] for entry in model["layers"]]
        for number in range(min(rng.choice((0, 1, 2, 4)), MOST_LAYERS - layers)):
            model["layers"].append({"id": f"more-{number}", "type": rng.choice(kinds)})
    for kind in model["layer_types"].values():
        share = rng.choice((None, 0, 0.3, 0.5, 0.9))
        for profile in kind["profiles"]:
            if share is not None:
                whole = profile["backward_input_s"] + profile["backward_weight_s"]
                profile["backward_weight_s"] = whole * share
                profile["backward_input_s"] = whole - profile["backward_weight_s"]


def _ask(rng: random.Random, data: Data) -> None:
    """Ask for schedules and for ZeRO levels."""
    search = data["search"]
    if rng.random() < 0.6:
        search["schedule"] = rng.choice(
            (
                list(SCHEDULES),
                ["interleaved"],
                ["interleaved", "zb-h1"],
                ["gpipe"],
                ["zb-h1"],
                ["1f1b", "zb-h1"],
                rng.sample(SCHEDULES, 2),
                rng.sample(SCHEDULES, 3),
            )
        )
        search["chunks"] = rng.choice(([2], [2], [2], [3], [2, 3]))
    if rng.random() < 0.55:
        search["zero"] = rng.choice(
            ([1], [2], [3], [0, 1], [1, 2], [2, 3], [0, 3], [0, 1, 2, 3], [3, 1])
        )
        if rng.random() < 0.5:
            search["zero_expert"] = rng.sample(range(4), rng.randint(1, 2))
        search["zero_instances"] = rng.choice(([1], [1, 2], [2], [2, 1], [3, 1], [1, 2, 4]))


def _branch(rng: random.Random, model: Data) -> None:
    """Leave few layers, and some of the edges between them."""
    parts._shorten(model, MOST_BRANCHING_LAYERS)
    names = [name for entry in model["layers"] for name in layer_names(entry)]
    drawn = model.get("edges") or [
        {"source": source, "target": target}
        for place, target in enumerate(names)
        for source in names[:place]
        if rng.random() < 0.7
    ]
    share = rng.choice((0.3, 0.5, 0.8))
    model["edges"] = [edge for edge in drawn if rng.random() < share]


def _ask_for_any_order(search: Data) -> None:
    """Let stages be of any topological order; interleaved schedules know the listed one alone."""
    search["layer_order"] = "any"
    if "schedule" in search:
        others = [name for name in search["schedule"] if name != "interleaved"]
        search["schedule"] = others or ["zb-h1"]


def _ask_for_runs(
    rng: random.Random, data: Data, pairs: list[tuple[int, Degrees]], devices: int
) -> None:
    """Leave three runs of replicas or more: the first and the last are then no neighbours."""
    search = data["search"]
    shapes = [
        (microbatch * k[2], length * runs, runs)
        for microbatch, k in pairs
        for runs in (3, 4, 5)
        for length in (1, 2)
        if length * runs * prod(k[:3]) <= devices
    ]
    if shapes:
        streams, replicas, runs = rng.choice(shapes)
        search.update(dp=[replicas], zero_instances=[runs], pp=[1, 2])
        search["zero"] = rng.choice(([1], [2], [3], [1, 3]))
        data["job"]["global_batch"] = streams * replicas * rng.choice((1, 2, 3))
        data["job"]["objective"] = rng.choice(("nest", "fill-drain"))


def _ask_for_chunks(rng: random.Random, data: Data) -> None:
    """Leave interleaved schedules alone, with rounds that two or three stages divide."""
    search, job = data["search"], data["job"]
    search["schedule"], search["chunks"] = ["interleaved"], rng.choice(([2], [2], [2, 3]))
    search["pp"] = rng.choice(([2], [2], [3], [2, 3]))
    job["global_batch"] *= rng.choice((2, 2, 4, 6)) if search["pp"] == [2] else 6
    job["objective"] = rng.choice((job["objective"], "nest", "nest", "fill-drain"))


def _fix_degrees(
    rng: random.Random, data: Data, pairs: list[tuple[int, Degrees]], devices: int
) -> None:
    """Mostly fix d or S so that at least a third of the devices is in use, and S > 1."""
    search = data["search"]
    layers = len(_names(data))
    shapes = [
        (microbatch * k[2], replicas, stages)
        for microbatch, k in pairs
        for replicas in range(1, devices + 1)
        for stages in range(2, min(4, layers) + 1)
        if devices // 3 <= replicas * stages * prod(k[:3]) <= devices
    ]
    if not shapes or rng.random() < 0.2:
        if rng.random() < 0.5:
            parts._restrict(rng, data, devices)
        return
    replicated = [shape for shape in shapes if shape[1] > 1]
    streams, replicas, stages = rng.choice(
        replicated if replicated and rng.random() < 0.7 else shapes
    )
    if rng.random() < 0.8:
        search["pp"] = [stages] if rng.random() < 0.7 else sorted({stages, stages - 1})
    if rng.random() < 0.6:
        search["dp"] = [replicas]
    rounds = rng.choice((1, 1, 2, 3, stages, stages, 2 * stages, 2 * stages, 12))
    padding = rng.randint(0, 3) if data["job"]["pad"] else 0
    data["job"]["global_batch"] = max(1, streams * replicas * rounds - padding)


def _restrict(rng: random.Random, data: Data) -> None:
    """Now and then leave one order, fewer kinds of pitch or fewer modes."""
    search = data["search"]
    if rng.random() < 0.3:
        search["order"] = [rng.choice(("pp-inner", "dp-inner", "dp-inner"))]
    if rng.random() < 0.3:
        search["pitch"] = rng.sample(("tight", "level", "spread"), rng.randint(1, 2))
    common = parts._common_modes(data)
    if common and rng.random() < 0.15:
        search["recompute"] = rng.sample(common, rng.randint(1, len(common)))


def _names(data: Data) -> list[str]:
    return [name for entry in data["model"]["layers"] for name in layer_names(entry)]


def _constrain(rng: random.Random, data: Data) -> None:
    """Add up to three constraints of any types to most of the problems."""
    made: list[Data] = []
    if rng.random() < 0.6:
        for _ in range(rng.choice((1, 1, 2, 3))):
            one = _constraint(rng, data)
            made += [one] if one else []
    if made:
        data["constraints"] = made
        data["cluster"]["device_kinds"]["device"]["watts"] = parts.WATTS


def _constraint(rng: random.Random, data: Data) -> Data | None:
    """Return a constraint, mostly one that some plan breaks; None where none can be."""
    kinds = ["colocation", "forbidden-boundary", "hop-latency", *parts.MAKERS, "degree-limit"]
    if max(data["search"].get("tp") or (1,)) > 1:
        kinds += ["tp-inside-node"] * 2
    kind = rng.choice(kinds)
    names, levels = _names(data), data["cluster"]["network"]["levels"]
    inner = rng.choice(levels[: max(1, len(levels) - 1)])
    if kind == "colocation":
        place = rng.randrange(len(names))
        near = names[max(0, place - 1) : place + 2]
        layers = rng.sample(rng.choice((near, names)), min(2, len(near)))
        return {"type": kind, "layers": layers} if len(layers) > 1 else None
    if kind == "forbidden-boundary":
        return {"type": kind, "after": rng.choice(names)}
    if kind == "hop-latency":
        return {"type": kind, "limit_s": inner["latency_s"]}
    if kind == "tp-inside-node":
        return {"type": kind, "level": levels[0]["name"]}
    if kind == "degree-limit":
        return _degree_limit(rng, data)
    return parts.MAKERS[kind](rng, data)


def _degree_limit(rng: random.Random, data: Data) -> Data:
    """Return a limit of a degree that a plan still chooses, of any degree if there is none."""
    search = data["search"]
    chosen = [
        name
        for name in ("microbatch", "tp", "cp", "ep", "dp", "pp")
        if len(search.get(name) or (1, 2)) > 1 and (search.get(name) or name in ("dp", "pp"))
    ]
    made = parts._degree_limit(rng, data)
    return {**made, "degree": rng.choice(chosen)} if chosen else made


def _thin(rng: random.Random, data: Data) -> list[DrawnCell]:
    """Take values out of the search space until few plans are left; return the cells."""
    while True:
        try:
            problem = build(Problem, data, data["name"])
            cells = _cells(problem, MOST_PLANS)
        except InstanceError:
            return []
        modes = _modes(data)
        search = data["search"]
        kept = search.get("per_stage", ())
        long = [name for name in LISTS if name not in kept and len(search.get(name) or ()) > 1]
        if _plans(problem, cells, len(modes)) <= MOST_PLANS or not long:
            return cells
        values = search[rng.choice(long)]
        values.remove(rng.choice(values))


def _cells(problem: Problem, most: int) -> list[DrawnCell]:
    """Return the cells of a problem, `most` at the most."""
    found: list[DrawnCell] = [
        (cell, cell.device_map.order, cell.device_map.pitch)
        for cell in islice(enumerate_cells(problem), most)
    ]
    if problem.search.per_stage:
        found += islice(enumerate_staged_cells(problem), most)
    return found


def _modes(data: Data) -> list[str]:
    """Return the recomputation modes that a plan may choose among."""
    offered = parts._common_modes(data)
    return [mode for mode in offered if mode in data["search"].get("recompute", offered)]


def _plans(problem: Problem, cells: list[DrawnCell], modes: int) -> int:
    """Return about how many plans and stages brute force values."""
    layers = len(problem.model.ids)
    total = 0
    for cell, _, _ in cells:
        stages, chunks = cell.device_map.stages, cell.schedule.chunks
        cuts = layers * layers if chunks > 1 else comb(layers - 1, stages - 1)
        if problem.search.layer_order == "any":
            cuts = stages**layers
        total += cuts * modes**stages + 4 * stages
    return total


def _tighten(rng: random.Random, data: Data, cells: list[DrawnCell]) -> None:
    """Set the memory to what some random plan needs, or a byte beside it; now and then ample."""
    kind = data["cluster"]["device_kinds"]["device"]
    if rng.random() < 0.4:
        kind["reserve_bytes"] = rng.randint(0, 30)
    needs = sorted(_needs(rng, data, cells))
    if not needs or rng.random() < 0.15:
        return
    # Near the least that any needs, most of the time: there modes and levels decide.
    need = needs[min(len(needs) - 1, int(len(needs) * (0.08 + rng.random() ** 1.7)))]
    usable = need + rng.choice((0, 0, 0, 1, -1, need // 10, need // 4))
    kind["memory_bytes"] = max(usable, kind.get("reserve_bytes", 0) + 1)


def _needs(rng: random.Random, data: Data, cells: list[DrawnCell]) -> list[int]:
    """Return the bytes that the heaviest stage of each of some random plans takes."""
    found = []
    layers = len(_names(data))
    modes = _modes(data)
    for _ in range(20 if cells and modes else 0):
        cell, order, pitch = rng.choice(cells)
        chunks = cell.device_map.stages * cell.schedule.chunks
        if chunks > layers:
            continue
        ends = (*sorted(rng.sample(range(1, layers), chunks - 1)), layers)
        placement = Placement(
            cell.microbatch,
            cell.configurations,
            cell.device_map.replicas,
            order,
            pitch,
            ends,
            tuple(rng.choice(modes) for _ in range(cell.device_map.stages)),
            zero=cell.zero,
            schedule=cell.schedule,
        )
        oracle = Oracle(data, placement_data(placement))
        found.append(max(sum(oracle.memory(stage).values()) for stage in range(placement.stages)))
    return found
