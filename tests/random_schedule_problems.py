"""Random small problems whose plans choose a pipeline schedule."""

import random
from typing import Any

from random_instances import MAKERS, WATTS, layer_names, random_data

from nest_opt.problem.schedule import SCHEDULES

MOST_LAYERS = 9


def random_schedule_data(seed: int) -> dict[str, Any]:
    """Return the problem of a seed with other schedules, more layers and more rounds.

    Interleaving needs S * v layers and a multiple of S rounds, ZB-H1 S rounds, and
    all need several stages, so most problems are given what these take.
    """
    data = random_data(seed)
    rng = random.Random(f"schedules {seed}")
    search, job = data["search"], data["job"]
    search["schedule"] = rng.choice(
        (
            list(SCHEDULES),
            list(SCHEDULES),
            ["interleaved"],
            ["interleaved"],
            ["gpipe"],
            ["zb-h1"],
            rng.sample(SCHEDULES, 2),
            rng.sample(SCHEDULES, 3),
        )
    )
    if rng.random() < 0.9:
        search["chunks"] = rng.choice(([2], [2], [3], [2, 3], [4, 2]))
    _lengthen(rng, data["model"])
    if rng.random() < 0.7:
        job["global_batch"] *= rng.choice((2, 3, 4, 6, 12))
    if rng.random() < 0.6:
        search["pp"] = rng.choice(([2], [2], [3], [2, 3], [2, 4]))
        search.pop("dp", None)
        if rng.random() < 0.6:
            search["dp"] = [rng.choice((1, 1, 2))]
    # Longer models and more stashes take more memory.
    if rng.random() < 0.7:
        kind = data["cluster"]["device_kinds"]["device"]
        kind["memory_bytes"] = int(kind["memory_bytes"] * rng.choice((1, 1.2, 1.5, 2, 3, 10)))
    if seed % 3 == 0:
        _constrain_stages(rng, data)
    return data


def _constrain_stages(rng: random.Random, data: dict[str, Any]) -> None:
    """Add a constraint: those on stages mean any of their chunks."""
    names = [name for entry in data["model"]["layers"] for name in layer_names(entry)]
    levels = data["cluster"]["network"]["levels"]
    kind = rng.choice(
        ("colocation", "colocation", "forbidden-boundary", "hop-latency", *MAKERS, "pinned-layers")
    )
    made: dict[str, Any] | None
    if kind in MAKERS:
        made = MAKERS[kind](rng, data)
    elif kind == "colocation":
        made = {"type": kind, "layers": rng.sample(names, 2)} if len(names) > 1 else None
    elif kind == "forbidden-boundary":
        made = {"type": kind, "after": rng.choice(names)}
    else:
        made = {"type": kind, "limit_s": rng.choice(levels)["latency_s"]}
    if made:
        data.setdefault("constraints", []).append(made)
        data["cluster"]["device_kinds"]["device"]["watts"] = WATTS


def _lengthen(rng: random.Random, model: dict[str, Any]) -> None:
    """Repeat the last entry of a chain without edges, so that stages can have chunks."""
    if model.get("edges") is not None:
        return
    layers = sum(entry.get("repeat", 1) for entry in model["layers"])
    more = rng.choice((0, 1, 2, 3, 4))
    if layers + more > MOST_LAYERS or layers < 2:
        return
    kinds = [entry["type"] for entry in model["layers"]]
    for number in range(more):
        model["layers"].append({"id": f"more-{number}", "type": rng.choice(kinds)})
