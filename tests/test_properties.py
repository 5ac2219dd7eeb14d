"""What must hold between the optima of a problem and of a changed one, seeded."""

import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from decimal import Decimal
from math import inf, lcm
from typing import Any

import pytest
from agreement import solved
from oracle import layer_names
from random_instances import MOST_DEVICES, random_data

from nest_opt import Problem
from nest_opt.plan import Placement
from nest_opt.problem.validation import build

SEEDS = range(20_000, 20_080)
CONSTRAINED = [seed for seed in range(20_000, 20_300) if "constraints" in random_data(seed)]

Data = dict[str, Any]


def optimum(data: Data) -> tuple[int | float, Placement | None]:
    """Return the least value and its placement; infinity where there is no plan."""
    value, placement = solved(build(Problem, data, "problem"))
    return (inf if value is None else value), placement


def device(data: Data) -> Data:
    """Return the kind of all devices."""
    kind: Data = data["cluster"]["device_kinds"]["device"]
    return kind


def levels(data: Data) -> list[Data]:
    """Return the network levels."""
    found: list[Data] = data["cluster"]["network"]["levels"]
    return found


def profiles(data: Data) -> list[Data]:
    """Return the profiles of all layer types."""
    return [p for kind in data["model"]["layer_types"].values() for p in kind["profiles"]]


# Monotone: each change may only help


def test_the_seeds_have_plans() -> None:
    """Most of the problems below have a plan, so that the comparisons say something."""
    feasible = sum(optimum(random_data(seed))[1] is not None for seed in SEEDS)
    assert feasible >= len(SEEDS) / 2


@pytest.mark.parametrize("seed", SEEDS)
def test_more_memory_never_hurts(seed: int) -> None:
    """With more memory in each device the optimum is no worse."""
    data, rng = random_data(seed), random.Random(seed)
    more = deepcopy(data)
    device(more)["memory_bytes"] += rng.choice((1, 10, 100, 1000))
    assert optimum(more)[0] <= optimum(data)[0]


def test_more_memory_sometimes_helps() -> None:
    """Memory is tight enough in the seeds for more of it to better some optima."""
    helped = 0
    for seed in SEEDS:
        data = random_data(seed)
        more = deepcopy(data)
        device(more)["memory_bytes"] += 1000
        helped += optimum(more)[0] < optimum(data)[0]
    assert helped >= 10


@pytest.mark.parametrize("seed", SEEDS)
def test_higher_bandwidth_never_hurts(seed: int) -> None:
    """With a higher bandwidth at one level the optimum is no worse."""
    data, rng = random_data(seed), random.Random(seed)
    faster = deepcopy(data)
    level = rng.choice(levels(faster))
    level["bandwidth_bytes_per_s"] *= rng.choice((2, 7, 100))
    assert optimum(faster)[0] <= optimum(data)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_lower_latency_never_hurts(seed: int) -> None:
    """With the latency of one level lowered to that of the one below, the optimum is no worse."""
    data, rng = random_data(seed), random.Random(seed)
    faster = deepcopy(data)
    number = rng.randrange(len(levels(faster)))
    below = levels(faster)[number - 1]["latency_s"] if number else 0
    levels(faster)[number]["latency_s"] = below
    assert optimum(faster)[0] <= optimum(data)[0]


def without_spread(seed: int) -> Data:
    """Return a problem with the pitches that do not depend on the number of devices."""
    data = random_data(seed)
    data["search"]["pitch"] = ["tight", "level"]
    return data


@pytest.mark.parametrize("seed", SEEDS)
def test_more_outermost_groups_never_hurt(seed: int) -> None:
    """With one more group of devices in the outermost level the optimum is no worse."""
    data = without_spread(seed)
    more = deepcopy(data)
    *inner, outer = levels(more)
    outer["size"] += 1
    group = 1
    for level in inner:
        group *= level["size"]
    more["cluster"]["devices"].append({"kind": "device", "count": group})
    assert optimum(more)[0] <= optimum(data)[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_one_device_more_never_hurts(seed: int) -> None:
    """With one more device on a free place of the network the optimum is no worse."""
    data = without_spread(seed)
    places = 1
    for level in levels(data):
        places *= level["size"]
    if sum(group["count"] for group in data["cluster"]["devices"]) == places:
        levels(data)[-1]["size"] += 1
    more = deepcopy(data)
    more["cluster"]["devices"][-1]["count"] += 1
    assert optimum(more)[0] <= optimum(data)[0]


@pytest.mark.parametrize("seed", CONSTRAINED)
def test_one_constraint_fewer_never_hurts(seed: int) -> None:
    """With any one constraint left out the optimum is no worse."""
    data = random_data(seed)
    value, _ = optimum(data)
    for number in range(len(data["constraints"])):
        fewer = deepcopy(data)
        del fewer["constraints"][number]
        assert optimum(fewer)[0] <= value


# Scaling


# Shares of a buffer are taken over at most this many ranks: what divides by
# all their numbers, and by 3 for the bandwidths, is never rounded.
WHOLE = 3 * lcm(*range(1, MOST_DEVICES + 1))


def without_rounding(data: Data) -> Data:
    """Return a problem like another one in which every time is a whole number of ps."""
    exact = deepcopy(data)
    for profile in profiles(exact):
        for name in ("forward_s", "backward_input_s", "backward_weight_s"):
            profile[name] = round(profile[name], 6)
        for footprint in selective_footprints(profile):
            footprint["repeated_forward_s"] = round(footprint["repeated_forward_s"], 6)
        for name in ("dense_parameters", "expert_parameters"):
            profile[name] *= WHOLE
        for item in (*profile["collectives"], *profile["recompute"].values()):
            scale_bytes(item)
    for kind in exact["model"]["layer_types"].values():
        scale_bytes(kind["output_bytes"])
    for edge in exact["model"].get("edges", ()):
        for size in edge.get("sizes", ()):
            size["bytes"] *= WHOLE
    scale_bytes(device(exact))
    rng = random.Random(data["name"])
    for level in levels(exact):
        # Powers of two and five times 3: what the 3 leaves is a finite decimal.
        level["bandwidth_bytes_per_s"] = 3 * rng.choice((2, 5, 10, 25, 40, 100)) * 10**5
    return exact


def selective_footprints(profile: Data) -> list[Data]:
    """Return the footprint of selective recomputation, if a profile has one."""
    return [footprint for mode, footprint in profile["recompute"].items() if mode == "selective"]


def scale_bytes(item: Data) -> None:
    """Multiply every number of bytes in a mapping."""
    for name, value in item.items():
        if name.endswith("bytes") or name.isdigit():
            item[name] = value * WHOLE


def three_times_slower(data: Data) -> Data:
    """Return a problem in which every time is three times as long."""

    def thrice(item: Data, *names: str) -> None:
        for name in names:
            item[name] = str(3 * Decimal(str(item[name])))

    slower = deepcopy(data)
    for profile in profiles(slower):
        thrice(profile, "forward_s", "backward_input_s", "backward_weight_s")
        for footprint in selective_footprints(profile):
            thrice(footprint, "repeated_forward_s")
        for collective in profile["collectives"]:
            if "hidden_s" in collective:
                thrice(collective, "hidden_s")
    for level in levels(slower):
        thrice(level, "latency_s")
        assert level["bandwidth_bytes_per_s"] % 3 == 0
        level["bandwidth_bytes_per_s"] //= 3
    for constraint in slower.get("constraints", ()):
        if constraint["type"] == "hop-latency":
            thrice(constraint, "limit_s")
    return slower


@pytest.mark.parametrize("seed", SEEDS)
def test_three_times_slower_is_three_times_the_value(seed: int) -> None:
    """Where nothing is rounded, times three times as long make three times the value."""
    data = without_rounding(random_data(seed))
    value, placement = optimum(data)
    assert optimum(three_times_slower(data)) == (3 * value, placement)


def test_exact_problems_have_plans() -> None:
    """Most problems without rounding have a plan, with hops, collectives or sync in it."""
    found = [optimum(without_rounding(random_data(seed)))[1] for seed in SEEDS]
    assert sum(placement is not None for placement in found) >= len(SEEDS) / 2
    several = [p for p in found if p is not None and p.device_map.devices_used > 1]
    assert len(several) >= len(SEEDS) / 4


# What must not matter


def with_names(data: Data, rename: Callable[[str], str]) -> Data:
    """Return a problem with other names of layers, types, levels, device kinds and itself."""
    model, cluster = data["model"], data["cluster"]
    names = {
        old: new
        for entry in model["layers"]
        for old, new in zip(
            layer_names(entry), layer_names({**entry, "id": rename(entry["id"])}), strict=True
        )
    }
    renamed: Data = deepcopy(data)
    renamed["name"] = rename(data["name"])
    renamed["model"]["layer_types"] = {
        rename(name): kind for name, kind in model["layer_types"].items()
    }
    for entry in renamed["model"]["layers"]:
        entry.update(id=rename(entry["id"]), type=rename(entry["type"]))
    for edge in renamed["model"].get("edges", ()):
        edge.update(source=names[edge["source"]], target=names[edge["target"]])
    for constraint in renamed.get("constraints", ()):
        if "layers" in constraint:
            constraint["layers"] = [names[name] for name in constraint["layers"]]
        if "after" in constraint:
            constraint["after"] = names[constraint["after"]]
        if "level" in constraint:
            constraint["level"] = rename(constraint["level"])
    for level in levels(renamed):
        level["name"] = rename(level["name"])
    renamed["cluster"]["device_kinds"] = {rename("device"): cluster["device_kinds"]["device"]}
    for group in renamed["cluster"]["devices"]:
        group["kind"] = rename("device")
    return renamed


@pytest.mark.parametrize("seed", SEEDS)
def test_names_do_not_matter(seed: int) -> None:
    """Renamed layers, types, levels and kinds leave value and placement as they are."""
    data = random_data(seed)
    # Reversed names sort in another order.
    assert optimum(with_names(data, lambda name: name[::-1])) == optimum(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_splitting_a_layer_type_changes_nothing(seed: int) -> None:
    """Some layers moved to an equal type of another name leave value and placement."""
    data, rng = random_data(seed), random.Random(seed)
    split = deepcopy(data)
    types: Mapping[str, Any] = data["model"]["layer_types"]
    split["model"]["layer_types"] = {f"{name} twin": kind for name, kind in types.items()} | types
    for entry in split["model"]["layers"]:
        if rng.random() < 0.5:
            entry["type"] += " twin"
    assert optimum(split) == optimum(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_writing_out_repeated_layers_changes_nothing(seed: int) -> None:
    """Layers listed one by one instead of repeated leave value and placement."""
    data = random_data(seed)
    written = deepcopy(data)
    written["model"]["layers"] = [
        {"id": name, "type": entry["type"]}
        for entry in data["model"]["layers"]
        for name in layer_names(entry)
    ]
    assert optimum(written) == optimum(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_level_of_single_groups_changes_nothing(seed: int) -> None:
    """One more, slower level around the whole network leaves value and placement."""
    data = random_data(seed)
    wrapped = deepcopy(data)
    outer = levels(data)[-1]
    levels(wrapped).append({**outer, "name": "around", "size": 1, "bandwidth_bytes_per_s": 1})
    assert optimum(wrapped) == optimum(data)
