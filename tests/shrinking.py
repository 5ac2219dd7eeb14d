"""Shrinks a problem greedily while something about it stays true."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from math import prod
from typing import Any

from oracle import layer_names

Data = dict[str, Any]


def shrink(data: Data, holds: Callable[[Data], bool]) -> Data:
    """Return a problem for which `holds` is true and of no smaller neighbour is.

    `holds` must be true of `data`, and false of data that is no valid problem.
    """
    current = _plainly_written(data)
    if not holds(current):
        return data
    while True:
        found = next((smaller for smaller in neighbours(current) if holds(smaller)), None)
        if found is None:
            return current
        current = found


def _plainly_written(data: Data) -> Data:
    """Return the same problem with repeated layers and devices of one kind written out."""
    plain = deepcopy(data)
    plain["model"]["layers"] = [
        {"id": name, "type": entry["type"]}
        for entry in data["model"]["layers"]
        for name in layer_names(entry)
    ]
    groups = data["cluster"]["devices"]
    count = sum(group["count"] for group in groups)
    plain["cluster"]["devices"] = [{"kind": groups[0]["kind"], "count": count}]
    return plain


def neighbours(data: Data) -> Iterator[Data]:
    """Yield problems that are a little smaller or plainer, the largest steps first."""
    yield from _fewer_layers(data)
    yield from _fewer_devices(data)
    yield from _fewer_pairs(data)
    yield from _fewer_fields(data)
    yield from _plainer_profiles(data)
    yield from _plainer_numbers(data)


def _fewer_layers(data: Data) -> Iterator[Data]:
    layers = data["model"]["layers"]
    for place in range(len(layers)):
        if len(layers) > 1:
            smaller = deepcopy(data)
            del smaller["model"]["layers"][place]
            yield _without_references(smaller, layers[place]["id"])
    for entry in layers[1:]:
        if entry["type"] != layers[0]["type"]:
            smaller = deepcopy(data)
            for other in smaller["model"]["layers"]:
                if other["type"] == entry["type"]:
                    other["type"] = layers[0]["type"]
            yield smaller
    used = {entry["type"] for entry in layers}
    types = data["model"]["layer_types"]
    if used < set(types):
        smaller = deepcopy(data)
        smaller["model"]["layer_types"] = {n: deepcopy(types[n]) for n in types if n in used}
        yield smaller


def _without_references(data: Data, layer: str) -> Data:
    """Drop the edges and the constraints that name a layer."""
    model = data["model"]
    if "edges" in model:
        model["edges"] = [e for e in model["edges"] if layer not in (e["source"], e["target"])]
    kept = []
    for constraint in data.get("constraints", ()):
        if layer in constraint.get("layers", ()):
            constraint["layers"].remove(layer)
            if len(constraint["layers"]) < 2:
                continue
        if constraint.get("after") != layer:
            kept.append(constraint)
    data["constraints"] = kept
    return data


def _fewer_devices(data: Data) -> Iterator[Data]:
    network_levels = data["cluster"]["network"]["levels"]
    places = prod(level["size"] for level in network_levels)
    count = data["cluster"]["devices"][0]["count"]
    for number, level in enumerate(network_levels):
        if len(network_levels) > 1:
            smaller = deepcopy(data)
            del smaller["cluster"]["network"]["levels"][number]
            _limit_devices(smaller, places // level["size"])
            yield smaller
        if level["size"] > 1:
            smaller = deepcopy(data)
            smaller["cluster"]["network"]["levels"][number]["size"] -= 1
            _limit_devices(smaller, places // level["size"] * (level["size"] - 1))
            yield smaller
    if count > 1:
        smaller = deepcopy(data)
        _limit_devices(smaller, count - 1)
        yield smaller


def _limit_devices(data: Data, most: int) -> None:
    group = data["cluster"]["devices"][0]
    group["count"] = min(group["count"], most)


PAIR = {"microbatch": None, "tp": 1, "cp": 1, "ep": 1, "sp": False}


def _pair(profile: Data) -> tuple[Any, ...]:
    return tuple(profile.get(name, default) for name, default in PAIR.items())


def _fewer_pairs(data: Data) -> Iterator[Data]:
    """Drop all profiles of one (microbatch size, configuration), and what only they used."""
    kinds = data["model"]["layer_types"].values()
    pairs = sorted({_pair(profile) for kind in kinds for profile in kind["profiles"]})
    for pair in pairs:
        rest = [other for other in pairs if other != pair]
        if not rest:
            return
        smaller = deepcopy(data)
        for kind in smaller["model"]["layer_types"].values():
            kind["profiles"] = [p for p in kind["profiles"] if _pair(p) != pair]
        for place, name in enumerate(PAIR):
            if name in smaller["search"]:
                have = {other[place] for other in rest}
                smaller["search"][name] = [v for v in smaller["search"][name] if v in have]
        yield smaller


def _fewer_fields(data: Data) -> Iterator[Data]:
    """Drop constraints, edges, and fields that have a default."""
    for number in range(len(data.get("constraints", ()))):
        smaller = deepcopy(data)
        del smaller["constraints"][number]
        yield smaller
    for number in range(len(data["model"].get("edges", ()))):
        smaller = deepcopy(data)
        del smaller["model"]["edges"][number]
        yield smaller
    optional = (
        [("model", name) for name in ("edges", "attention_heads", "experts")]
        + [("search", name) for name in ("dp", "pp", "order", "pitch", "recompute", *PAIR)]
        + [("job", "pad")]
    )
    for room, name in optional:
        if name in data[room]:
            smaller = deepcopy(data)
            del smaller[room][name]
            yield smaller
    for name in data["cluster"]["device_kinds"]["device"].keys() - {"memory_bytes"}:
        smaller = deepcopy(data)
        del smaller["cluster"]["device_kinds"]["device"][name]
        yield smaller


def _plainer_profiles(data: Data) -> Iterator[Data]:
    """Take collectives, what hides them, and parameters out of a layer type."""
    for name, kind in data["model"]["layer_types"].items():
        for field, plain in (
            ("collectives", []),
            ("dense_parameters", 0),
            ("expert_parameters", 0),
            ("backward_input_s", 0),
            ("backward_weight_s", 0),
        ):
            if any(profile.get(field, plain) != plain for profile in kind["profiles"]):
                smaller = deepcopy(data)
                for profile in smaller["model"]["layer_types"][name]["profiles"]:
                    profile[field] = deepcopy(plain)
                yield smaller
        calls = [call for profile in kind["profiles"] for call in profile["collectives"]]
        if any("hidden_s" in call for call in calls):
            smaller = deepcopy(data)
            for profile in smaller["model"]["layer_types"][name]["profiles"]:
                for call in profile["collectives"]:
                    call.pop("hidden_s", None)
            yield smaller
        if any(kind["output_bytes"].values()):
            smaller = deepcopy(data)
            plain_kind = smaller["model"]["layer_types"][name]
            plain_kind["output_bytes"] = dict.fromkeys(kind["output_bytes"], 0)
            yield smaller


def _plainer_numbers(data: Data) -> Iterator[Data]:
    """Lower the global batch, clear latencies, round times, ask for ample memory."""
    batch = data["job"]["global_batch"]
    for divisor in (2, 3, 5):
        if batch % divisor == 0:
            smaller = deepcopy(data)
            smaller["job"]["global_batch"] = batch // divisor
            yield smaller
    network_levels = data["cluster"]["network"]["levels"]
    if any(level["latency_s"] for level in network_levels):
        smaller = deepcopy(data)
        for level in smaller["cluster"]["network"]["levels"]:
            level["latency_s"] = 0
        yield smaller
    if data["cluster"]["device_kinds"]["device"]["memory_bytes"] < 10**9:
        smaller = deepcopy(data)
        smaller["cluster"]["device_kinds"]["device"]["memory_bytes"] = 10**9
        yield smaller
    smaller = deepcopy(data)
    for kind in smaller["model"]["layer_types"].values():
        for profile in kind["profiles"]:
            for name in ("forward_s", "backward_input_s", "backward_weight_s"):
                profile[name] = round(profile[name])
    if smaller != data:
        yield smaller
