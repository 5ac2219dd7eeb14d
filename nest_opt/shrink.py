"""Shrinks a problem greedily while something about it stays true."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from decimal import Decimal
from math import prod
from typing import Any

from nest_opt.errors import InstanceError
from nest_opt.problem import Problem
from nest_opt.problem.files import to_json_data
from nest_opt.problem.validation import build

Data = dict[str, Any]

AMPLE_BYTES = 10**9


def shrink(problem: Problem, holds: Callable[[Problem], bool]) -> Problem:
    """Return a problem for which `holds` is true and of no smaller neighbour is.

    Neighbours have fewer layers, devices, degrees or constraints, or smaller
    or rounder numbers. The parameters of a user's constraint only lose the names
    of layers that are gone: what else they may be is the user's to say. The
    problem comes back as it is if `holds` is false of it.
    """
    current = _plainly_written(problem)
    if not _is_one(current, holds):
        return problem
    while True:
        found = next((smaller for smaller in neighbours(current) if _is_one(smaller, holds)), None)
        if found is None:
            return build(Problem, current, "shrunk")
        current = found


def _is_one(data: Data, holds: Callable[[Problem], bool]) -> bool:
    try:
        return holds(build(Problem, data, "shrunk"))
    except InstanceError:
        return False


def _plainly_written(problem: Problem) -> Data:
    """Return a problem's data with repeated layers and devices of one kind written out."""
    plain = to_json_data(problem)
    types = [entry.type for entry in problem.model.layers for _ in range(entry.repeat)]
    plain["model"]["layers"] = [
        {"id": name, "type": kind} for name, kind in zip(problem.model.ids, types, strict=True)
    ]
    kind = problem.cluster.devices[0].kind
    plain["cluster"]["devices"] = [{"kind": kind, "count": problem.cluster.device_count}]
    plain.setdefault("search", {})
    plain.setdefault("constraints", [])
    return plain


def neighbours(data: Data) -> Iterator[Data]:
    """Yield problems that are a little smaller or plainer, the largest steps first."""
    yield from _fewer_layers(data)
    yield from _fewer_devices(data)
    yield from _fewer_pairs(data)
    yield from _fewer_fields(data)
    yield from _plainer_constraints(data)
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
    kept = (_without(layer, constraint) for constraint in data["constraints"])
    data["constraints"] = [
        constraint
        for constraint in kept
        if constraint.get("after") != layer
        and len(constraint.get("layers", "any")) > (constraint["type"] != "pinned-layers")
    ]
    return data


def _without(value: str, item: Any) -> Any:
    """Return an item without a value in its arrays."""
    if isinstance(item, dict):
        return {name: _without(value, part) for name, part in item.items()}
    return [part for part in item if part != value] if isinstance(item, list) else item


def _fewer_devices(data: Data) -> Iterator[Data]:
    network_levels = data["cluster"]["network"].get("levels", [])
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
    for number in range(len(data["constraints"])):
        smaller = deepcopy(data)
        del smaller["constraints"][number]
        yield smaller
    for number in range(len(data["model"].get("edges", ()))):
        smaller = deepcopy(data)
        del smaller["model"]["edges"][number]
        yield smaller
    optional = (
        [("model", name) for name in ("edges", "attention_heads", "experts")]
        + [("search", name) for name in sorted(data["search"])]
        + [("job", "pad")]
    )
    for room, name in optional:
        if name in data[room]:
            smaller = deepcopy(data)
            del smaller[room][name]
            yield smaller
    for name in sorted(_device_kind(data).keys() - {"memory_bytes"}):
        smaller = deepcopy(data)
        del _device_kind(smaller)[name]
        yield smaller


def _device_kind(data: Data) -> Data:
    kind: Data = data["cluster"]["device_kinds"][data["cluster"]["devices"][0]["kind"]]
    return kind


def _plainer_constraints(data: Data) -> Iterator[Data]:
    """Shorten the arrays of constraints and lower their numbers, but for a user's parameters."""
    for number, constraint in enumerate(data["constraints"]):
        for field, value in constraint.items():
            for plainer in _plainer_values(value):
                smaller = deepcopy(data)
                smaller["constraints"][number][field] = plainer
                yield smaller


def _plainer_values(value: Any) -> Iterator[Any]:
    """Yield shorter arrays, and whole numbers nearer to 0."""
    if isinstance(value, list):
        yield from (value[:place] + value[place + 1 :] for place in range(len(value)))
    elif isinstance(value, int) and not isinstance(value, bool) and value:
        sign = 1 if value > 0 else -1
        yield from sorted({0, sign, value - value // 2, value - sign} - {value}, key=abs)


def _plainer_profiles(data: Data) -> Iterator[Data]:
    """Take collectives, what hides them, parameters, bytes and backward passes out of a type."""
    for name, kind in data["model"]["layer_types"].items():
        for field, plain in (
            ("collectives", []),
            ("tied_parameters", 0),
            ("dense_parameters", 0),
            ("expert_parameters", 0),
            ("backward_input_s", 0),
            ("backward_weight_s", 0),
            ("recompute", {"none": {"stash_bytes": 0}}),
        ):
            if any(profile.get(field, plain) != plain for profile in kind["profiles"]):
                smaller = deepcopy(data)
                for profile in smaller["model"]["layer_types"][name]["profiles"]:
                    profile[field] = deepcopy(plain)
                yield smaller
        calls = [call for profile in kind["profiles"] for call in profile.get("collectives", ())]
        if any("hidden_s" in call for call in calls):
            smaller = deepcopy(data)
            for profile in smaller["model"]["layer_types"][name]["profiles"]:
                for call in profile.get("collectives", ()):
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
    network_levels = data["cluster"]["network"].get("levels", [])
    if any(level["latency_s"] for level in network_levels):
        smaller = deepcopy(data)
        for level in smaller["cluster"]["network"]["levels"]:
            level["latency_s"] = 0
        yield smaller
    if _device_kind(data)["memory_bytes"] < AMPLE_BYTES:
        smaller = deepcopy(data)
        _device_kind(smaller)["memory_bytes"] = AMPLE_BYTES
        yield smaller
    smaller = deepcopy(data)
    for kind in smaller["model"]["layer_types"].values():
        for profile in kind["profiles"]:
            for name in ("forward_s", "backward_input_s", "backward_weight_s"):
                profile[name] = _one_digit(profile[name])
    if smaller != data:
        yield smaller


def _one_digit(number: float | str) -> str | float:
    """Round a number to its first digit."""
    exact = Decimal(str(number))
    rounded = Decimal(f"{exact:.0e}")
    return number if rounded == exact else str(rounded)
