"""Rings in meshes of few links: how many a group of devices finds."""

from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import permutations

from nest_opt.errors import InstanceError

MAX_DEVICES = 8

Arc = tuple[int, int]


def ring_count(links: Sequence[Sequence[int]], devices: Sequence[int]) -> int:
    """Return how many rings through all the devices run at once, each over links of its own.

    The most directed Hamiltonian cycles that share no link and direction, by
    trying all: what NCCL's search for rings looks for in a node.

    Parameters
    ----------
    links
        links[i][j] is the number of links from device i to device j.
    devices
        The devices that take part.

    Raises
    ------
    InstanceError
        If there are more devices than can be tried.
    """
    if len(devices) > MAX_DEVICES:
        raise InstanceError(
            f"mesh: found {len(devices)} devices, at most {MAX_DEVICES} are allowed (all rings "
            "through them are tried): state the bandwidth in place of the links"
        )
    if len(devices) < 2:
        return 0
    first, *rest = devices
    free = {(one, other): links[one][other] for one in devices for other in devices if one != other}
    rings: dict[int, list[list[Arc]]] = {second: [] for second in rest}
    for order in permutations(rest):
        arcs = list(zip((first, *order), (*order, first), strict=True))
        if all(free[arc] for arc in arcs):
            rings[order[0]].append(arcs)
    starts = [second for second in rest for _ in range(free[first, second])]
    most = min(sum(links[one][other] for other in devices if other != one) for one in devices)
    return _most_rings([rings[second] for second in starts], free, 0, most)


@cache
def mesh_bandwidths(
    links: tuple[tuple[int, ...], ...], link_bytes_per_s: Fraction
) -> tuple[Fraction, ...]:
    """Return the bytes/s that collectives of 1, 2, ... of a mesh's first devices get.

    As many rings as there are, one link's bandwidth each. Where there is no
    ring, a chain hands sums up and results down: a buffer each way, which as
    bus bandwidth is 2 (n - 1) / n of a link.
    """
    found = [link_bytes_per_s]
    for count in range(2, len(links) + 1):
        rings = ring_count(links, range(count))
        found.append(link_bytes_per_s * (rings or Fraction(2 * (count - 1), count)))
    return tuple(found)


def _most_rings(
    rings_by_start: Sequence[Sequence[Sequence[Arc]]], free: dict[Arc, int], start: int, most: int
) -> int:
    """Return the most rings from the start-th first link on; `most` of them are enough."""
    if start == len(rings_by_start) or most <= 0:
        return 0
    best = 0
    for arcs in rings_by_start[start]:
        if best == most:
            return best
        if all(free[arc] for arc in arcs):
            for arc in arcs:
                free[arc] -= 1
            best = max(best, 1 + _most_rings(rings_by_start, free, start + 1, most - 1))
            for arc in arcs:
                free[arc] += 1
    if best < min(most, len(rings_by_start) - start):
        best = max(best, _most_rings(rings_by_start, free, start + 1, most))
    return best
