"""Seeded tiny problems in small integers: no tolerance of a solver can hide a unit of them.

They are those of `random_instances` with every second made 1e10 times
shorter, every bandwidth as much higher, and times rounded to picoseconds, so
that times are integers of at most about 1e4 ps. Sizes stay what they are.
"""

from copy import deepcopy
from typing import Any

from random_instances import random_data

SHRINK = 10**10
PS_PER_S = 10**12


def whole_number_data(seed: int) -> dict[str, Any]:
    """Return the problem of a seed as JSON data."""
    data = deepcopy(random_data(seed))
    data["name"] = f"whole-{seed}"
    shrink_times(data)
    return data


def shrink_times(data: dict[str, Any]) -> None:
    """Make all times of a problem 1e10 times shorter, in whole picoseconds."""
    for kind in data["model"]["layer_types"].values():
        for profile in kind["profiles"]:
            for name in ("forward_s", "backward_input_s", "backward_weight_s"):
                profile[name] = _shrunk(profile[name])
            if "selective" in profile["recompute"]:
                selective = profile["recompute"]["selective"]
                selective["repeated_forward_s"] = _shrunk(selective["repeated_forward_s"])
            for collective in profile["collectives"]:
                if "hidden_s" in collective:
                    collective["hidden_s"] = _shrunk(collective["hidden_s"])
    for level in data["cluster"]["network"]["levels"]:
        level["bandwidth_bytes_per_s"] *= SHRINK
        level["latency_s"] = _shrunk(level["latency_s"])
    for constraint in data.get("constraints", ()):
        if constraint["type"] == "hop-latency":
            constraint["limit_s"] = _shrunk(constraint["limit_s"])


def _shrunk(seconds: float) -> str:
    """Return seconds shrunk, in whole picoseconds."""
    return f"{round(seconds * PS_PER_S / SHRINK)}e-12"
