"""Random layer graphs: types, profiles, collectives, edges."""

import random
from collections.abc import Mapping
from typing import Any, Literal

from oracle import layer_names

# What brute force can enumerate in about a second.
MOST_LAYERS_TIMES_DEVICES = 72

Degrees = tuple[int, int, int, bool]

# `duel`: equally slow layers with very different gradients, so that the plan
# with the fastest bottleneck is often not the best one. `plain`: whole seconds
# and even splits, so that many plans are equal and the order of ties decides.
Character = Literal["any", "duel", "plain"]


def random_model(
    rng: random.Random,
    devices: int,
    pairs: list[tuple[int, Degrees]],
    character: Character,
) -> dict[str, Any]:
    """Return the layer graph of a problem, with profiles for the given pairs (b, k)."""
    kinds = rng.choice((1, 2, 3, 3, 4))
    style = {
        "character": character,
        "whole": rng.random() < 0.25,
        "comm": rng.choice((0, 5, 20, 60, 150)),
        "gradients": rng.choice((0, 20, 60, 200, 400, 800)),
        "contrast": kinds > 1 and rng.random() < 0.7,
        "stash": rng.choice((5, 50)),
        "missing_mode": rng.choices((None, "full", "none"), (17, 2, 1))[0],
    }
    if character == "duel":
        kinds, style["comm"] = 4, 5
    elif character == "plain":
        style.update(comm=rng.choice((0, 200)), contrast=False, unit=rng.choice((1, 4, 12)))
    types = {f"type-{number}": _layer_type(rng, pairs, style) for number in range(kinds)}
    layers = _layers(rng, sorted(types), devices)
    model: dict[str, Any] = {"layer_types": types, "layers": layers}
    if rng.random() < 0.3:
        model["attention_heads"] = rng.choice((1, 2, 4, 6))
    if rng.random() < 0.4:
        model["experts"] = rng.choice((1, 2, 3, 4, 6, 12))
    names = [name for entry in layers for name in layer_names(entry)]
    if len(names) > 1 and rng.random() < 0.35:
        model["edges"] = random_edges(rng, names, pairs, style["comm"])
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
    if style["character"] == "duel":
        weight, most = rng.choice((1, 1.1)), rng.choice((0, 200, 600, 900))
    elif style["contrast"]:
        # Slow layers without parameters and fast ones with many: F and Y pull apart.
        weight, most = rng.choice(((0.5, 4 * most), (1, 4 * most), (1, 0), (2, most // 8)))
    if style["character"] == "plain":
        return _plain_type(rng, pairs, style)
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


def _plain_type(
    rng: random.Random, pairs: list[tuple[int, Degrees]], style: Mapping[str, Any]
) -> dict[str, Any]:
    """Return a type of whole seconds, split evenly by every degree: many plans are equal."""
    weight, parameters = rng.choice((1, 1, 2, 3)), rng.choice((0, 0, 150, 300, 600))
    stash = rng.choice((0, 1, 2))

    def profile(microbatch: int, k: Degrees) -> dict[str, Any]:
        seconds = style["unit"] * weight * microbatch // (k[0] * k[1])
        held = stash * microbatch
        return {
            "microbatch": microbatch,
            **dict(zip(("tp", "cp", "ep", "sp"), k, strict=True)),
            "forward_s": seconds,
            "backward_input_s": seconds,
            "backward_weight_s": 0,
            "dense_parameters": parameters,
            "expert_parameters": parameters if k[2] > 1 else 0,
            "collectives": [],
            "recompute": {
                "none": {"stash_bytes": held},
                "full": {"stash_bytes": 0, "work_bytes": held},
            },
        }

    return {
        "output_bytes": {
            str(microbatch): style["comm"] * microbatch
            for microbatch in sorted({microbatch for microbatch, _ in pairs})
        },
        "profiles": [profile(microbatch, k) for microbatch, k in pairs],
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


def hide_collectives(
    rng: random.Random, model: Mapping[str, Any], bytes_per_s: int | float | str
) -> None:
    """Hide some calls behind computation: a part of them, about all, or more than all."""
    for kind in model["layer_types"].values():
        for profile in kind["profiles"]:
            for collective in profile["collectives"]:
                if rng.random() < 0.6:
                    seconds = collective["bytes"] / float(bytes_per_s)
                    collective["hidden_s"] = round(rng.uniform(0, 1.5) * seconds, 3)


def offer_selective(rng: random.Random, model: Mapping[str, Any]) -> None:
    """Offer selective recomputation: mostly between the other modes, now and then no gain at all.

    It repeats nothing, all or a part of the forward pass. A layer now and then lacks it.
    """
    lacking = 0.3 if rng.random() < 0.15 else 0
    for kind in model["layer_types"].values():
        for profile in kind["profiles"]:
            modes = profile["recompute"]
            full = modes.get("full", {"stash_bytes": 0, "work_bytes": 10**6})
            # What full does not bring back was not kept by selective either.
            most = full["stash_bytes"] + full.get("work_bytes", 0)
            none = modes.get("none", {"stash_bytes": most})["stash_bytes"]
            middle = (full["stash_bytes"] + none) // 2
            stash = rng.randint(full["stash_bytes"], rng.choice((middle, middle, none, none + 10)))
            stash = min(most, stash)
            work = max(0, none - stash) + rng.choice((0, rng.randint(0, 30)))
            if rng.random() >= lacking:
                share = rng.choice((0, 1, *(0.4 * rng.random() for _ in range(4))))
                repeated = min(profile["forward_s"], round(share * profile["forward_s"], 3))
                modes["selective"] = {
                    "stash_bytes": stash, "work_bytes": work, "repeated_forward_s": repeated
                }  # fmt: skip


def random_edges(
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
