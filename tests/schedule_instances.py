"""Seeded tiny problems of `milp_instances` and `free_instances` that ask for schedules.

What a schedule needs is made possible: rounds that stages divide, more layers
than stages, a part of the backward that makes gradients of weights.
"""

import random
from typing import Any

from free_instances import free_data
from milp_instances import whole_number_data

from nest_opt import Problem
from nest_opt.problem.schedule import SCHEDULES
from nest_opt.problem.validation import build

PS = "e-12"


def scheduled_data(seed: int) -> dict[str, Any]:
    """Return the problem of a seed, in small integers, as JSON data."""
    rng = random.Random(f"schedules {seed}")
    data = whole_number_data(seed)
    _ask(rng, data, list(SCHEDULES))
    if "interleaved" in data["search"]["schedule"]:
        _lengthen(rng, data)
    if rng.random() < 0.7:
        # Left alone, replicas of few stages are best.
        layers = sum(entry.get("repeat", 1) for entry in data["model"]["layers"])
        stages = [s for s in rng.choice(((2, 3), (2, 4), (3, 4))) if s <= layers]
        if stages:
            data["search"]["pp"] = stages
    return data


def scheduled_free_problem(seed: int) -> Problem:
    """Return a problem of the free family, with schedules of one chunk."""
    return build(Problem, _scheduled_free_data(seed), f"seed {seed}")


def _scheduled_free_data(seed: int) -> dict[str, Any]:
    data = free_data(seed)
    rng = random.Random(f"free schedules {seed}")
    _ask(rng, data, [name for name in SCHEDULES if name != "interleaved"])
    return data


def choosing_problem(seed: int) -> Problem:
    """Return a problem whose stages choose tp or sp, with schedules and ZeRO levels 0 and 1."""
    data = _scheduled_free_data(seed)
    rng = random.Random(f"choosing {seed}")
    search = data["search"]
    search["per_stage"] = search["per_stage"] or ["tp"]
    search["zero"] = rng.choice(([1], [1], [0, 1]))
    if rng.random() < 0.5:
        search["zero_expert"] = rng.choice(([0], [1], [0, 1]))
    if rng.random() < 0.6:
        # Of one replica's parameters there are copies only where cp has several ranks.
        search["dp"] = [2]
        data["job"]["global_batch"] *= rng.choice((1, 2))
    return build(Problem, data, f"seed {seed}")


def _ask(rng: random.Random, data: dict[str, Any], names: list[str]) -> None:
    """Ask for some schedules, the rarer ones more often, and make rounds that they run."""
    others = [name for name in names if name != "1f1b"]
    chosen = rng.sample(others, rng.randint(1, len(others)))
    if "interleaved" in names and rng.random() < 0.4:
        chosen = ["interleaved"]
    elif rng.random() < 0.3:
        chosen.append("1f1b")
    data["search"]["schedule"] = chosen
    if "interleaved" in chosen:
        data["search"]["chunks"] = rng.choice(([2], [2], [2, 3], [3]))
    data["job"]["global_batch"] *= rng.choice((1, 2, 4, 6, 12))
    # More is in flight than under 1F1B.
    kind = data["cluster"]["device_kinds"]["device"]
    kind["memory_bytes"] = int(kind["memory_bytes"] * rng.choice((1, 1.3, 1.7, 2.5)))
    for kind in data["model"]["layer_types"].values():
        for profile in kind["profiles"]:
            # ZB-H1 takes W twice off F: now and then nothing is left.
            whole = sum(_picoseconds(profile[f"backward_{part}_s"]) for part in ("input", "weight"))
            weight = int(whole * rng.choice((0, 0.3, 0.5, 0.9)))
            profile["backward_weight_s"] = f"{weight}{PS}"
            profile["backward_input_s"] = f"{whole - weight}{PS}"


def _picoseconds(text: str) -> int:
    return int(text.removesuffix(PS))


def _lengthen(rng: random.Random, data: dict[str, Any]) -> None:
    """Repeat a layer without a name that anything refers to, until chunks have layers."""
    named = {
        name
        for constraint in data.get("constraints", ())
        for name in (*constraint.get("layers", ()), constraint.get("after"))
    } | {edge[end] for edge in data["model"].get("edges", ()) for end in ("source", "target")}
    layers = data["model"]["layers"]
    total = sum(entry.get("repeat", 1) for entry in layers)
    for entry in layers:
        if entry["id"] not in named and entry.get("repeat", 1) == 1 and total < 6:
            extra = rng.randint(1, 6 - total)
            entry["repeat"] = 1 + extra
            total += extra
