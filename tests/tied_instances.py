"""Seeded tiny problems whose last layer shares parameters with the first.

They are those of the other generators, varied: the last layer gets a type of
its own, both ends get more parameters, and the memory is drawn anew.
"""

import random
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import free_instances
import random_instances
from milp_instances import whole_number_data
from oracle import layer_names
from random_schedule_problems import random_schedule_data

Data = dict[str, Any]


def tied_data(seed: int) -> Data:
    """Return the problem of a seed, one configuration for all stages."""
    return _retightened(f"tied {seed}", random_instances.random_data(seed))


def tied_whole_data(seed: int) -> Data:
    """Return the same in small integers."""
    return _retightened(f"tied {seed}", whole_number_data(seed))


def tied_staged_data(seed: int) -> Data:
    """Return a problem in which tp or sp may differ by stage."""
    return _retightened(f"tied staged {seed}", random_instances.random_staged_data(seed))


def tied_schedule_data(seed: int) -> Data:
    """Return a problem whose plans choose a pipeline schedule; its memory stays what it is."""
    data = deepcopy(random_schedule_data(seed))
    tie(random.Random(f"tied schedules {seed}"), data, (20, 100, 300, 900))
    kind = data["cluster"]["device_kinds"]["device"]
    kind["memory_bytes"] *= 1 + seed % 3
    return data


def tied_free_data(seed: int) -> Data:
    """Return a problem of the free family; its memory stays what it is, or there is ample."""
    rng = random.Random(f"tied free {seed}")
    data = deepcopy(free_instances.free_data(seed))
    tie(rng, data, (20, 60, 150))
    if rng.random() < 0.7:
        data["cluster"]["device_kinds"]["device"]["memory_bytes"] = 10**6
    return data


def untied(data: Data) -> Data:
    """Return a problem with as many parameters, of which none are tied."""
    other = deepcopy(data)
    for profile in _profiles(other):
        profile.pop("tied_parameters", None)
    return other


def _retightened(name: str, data: Data) -> Data:
    rng = random.Random(name)
    data = deepcopy(data)
    tie(rng, data, (20, 100, 300, 900))
    degrees = sorted(
        {
            (p["microbatch"], (p["tp"], p.get("cp", 1), p.get("ep", 1), p.get("sp", False)))
            for p in _profiles(data)
        }
    )
    devices = sum(group["count"] for group in data["cluster"]["devices"])
    if random_instances._common_modes(data):
        random_instances._tighten(rng, data, degrees, devices)
    return data


def tie(rng: random.Random, data: Data, sizes: tuple[int, ...]) -> None:
    """Tie some parameters of the last layer to the first's; nothing where there is one layer."""
    model = data["model"]
    names = [name for entry in model["layers"] for name in layer_names(entry)]
    if len(names) == 1:
        return
    *before, last = model["layers"]
    if last.get("repeat", 1) > 1:
        before += [{"id": name, "type": last["type"]} for name in layer_names(last)[:-1]]
    first = model["layers"][0]["type"]
    model["layer_types"]["tied"] = deepcopy(model["layer_types"][last["type"]])
    model["layers"] = [*before, {"id": names[-1], "type": "tied"}]
    share: dict[int, int] = {}
    for kind in (first, "tied"):
        for profile in model["layer_types"][kind]["profiles"]:
            tp = profile["tp"]
            more = share.setdefault(tp, rng.choice(sizes) // tp)
            profile["dense_parameters"] += more
            if kind == "tied":
                profile["tied_parameters"] = more


def _profiles(data: Mapping[str, Any]) -> Iterator[Data]:
    return (p for kind in data["model"]["layer_types"].values() for p in kind["profiles"])
