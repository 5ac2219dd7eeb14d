"""Networks of catalogue clusters that are no nested levels: rails, torus, dragonfly.

Each takes a number of devices and the (size, link) of a template's levels, and
returns the network as a problem file has it.
"""

from collections.abc import Sequence
from itertools import combinations_with_replacement
from math import prod
from typing import Any

from nest_opt.errors import InstanceError

Level = tuple[int | None, dict[str, Any]]

# Cubes of 4x4x4 chips are joined to tori of up to 16x16x16 (TPU v4).
CUBE_SIDE = 4
MOST_SIDE = 16


def _figures(link: dict[str, Any]) -> dict[str, Any]:
    return {name: link[name] for name in ("bandwidth_bytes_per_s", "latency_s")}


def torus_of_cubes(devices: int, levels: Sequence[Level]) -> dict[str, Any]:
    """Return the torus of the fewest cubes that has the devices, the most cubic of these.

    Its one level is a link between neighbours.
    """
    ((_, link),) = levels
    sides = range(CUBE_SIDE, MOST_SIDE + 1, CUBE_SIDE)
    shapes = [shape for shape in combinations_with_replacement(sides, 3) if prod(shape) >= devices]
    if not shapes:
        raise InstanceError(
            f"cluster: found {devices} devices, at most {MOST_SIDE**3} are joined to one torus: "
            "ask for fewer, or for the cluster whose pods a network joins"
        )
    shape = min(shapes, key=lambda each: (prod(each), sum(each)))
    return {"type": "torus", "axes": [{"size": side, **_figures(link)} for side in shape]}


def rails_of_nodes(devices: int, levels: Sequence[Level]) -> dict[str, Any]:
    """Return nodes with a rail for each of their devices, in no more groups than needed."""
    groups = devices
    sized: list[dict[str, Any]] = []
    for size, link in levels:
        sized.append({**link, "size": min(size or groups, groups) if sized else size})
        groups = -(-groups // (size or groups))
        if groups == 1:
            break
    if len(sized) == 1:
        return {"type": "hierarchical", "levels": sized}
    return {"type": "rails", "rails": sized[0]["size"], "levels": sized}


def dragonfly_of_nodes(devices: int, levels: Sequence[Level]) -> dict[str, Any]:
    """Return a dragonfly of nodes.

    Levels are node (devices), router (nodes), group (routers), whose link is
    between two routers, and system, whose size is the links between two groups.
    """
    (node, inside), (nodes, own), (routers, local), (pair, across) = levels
    on_router = (node or 1) * (nodes or 1)
    return {
        "type": "dragonfly",
        "groups": -(-devices // (on_router * (routers or 1))),
        "routers": routers,
        "devices": on_router,
        "node": {"size": node, **_figures(inside)},
        "device_link": _figures(own),
        "local_link": _figures(local),
        "global_link": _figures(across),
        "links_per_pair": pair,
    }
