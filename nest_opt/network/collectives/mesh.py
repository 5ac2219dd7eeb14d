"""Rings in meshes of few links: how many a group of devices finds."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import permutations


def ring_count(links: Sequence[Sequence[int]], devices: Sequence[int]) -> int:
    """Return how many rings through all the devices run at once, each over links of its own.

    Parameters
    ----------
    links
        links[i][j] is the number of links between devices i and j; each
        carries one ring in each direction.
    devices
        The devices that take part, at most 8: every set of rings is tried.
    """
    if len(devices) < 2:
        return 0
    if len(devices) == 2:
        first, second = devices
        return links[first][second]
    first, *rest = devices
    cycles = {
        frozenset(_edges((first, *order)))
        for order in permutations(rest)
        if order[0] < order[-1]
        and all(links[one][other] for one, other in _edges((first, *order)))
    }
    capacity = {
        (one, other): links[one][other]
        for one in devices
        for other in devices
        if one < other and links[one][other]
    }
    most = min(sum(links[one][other] for other in devices) for one in devices) // 2
    return 2 * _most_cycles(sorted(map(sorted, cycles)), capacity, 0, most)


def mesh_bandwidths(
    links: Sequence[Sequence[int]], link_bytes_per_s: Fraction
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


def _edges(order: Sequence[int]) -> list[tuple[int, int]]:
    pairs = zip(order, (*order[1:], order[0]), strict=True)
    return [(min(pair), max(pair)) for pair in pairs]


def _most_cycles(
    cycles: Sequence[Sequence[tuple[int, int]]],
    capacity: dict[tuple[int, int], int],
    first: int,
    most: int,
) -> int:
    """Return the most cycles, from the first-th on, that share no link; stop at `most`."""
    best = 0
    for place in range(first, len(cycles)):
        if best == most:
            break
        if all(capacity[edge] for edge in cycles[place]):
            for edge in cycles[place]:
                capacity[edge] -= 1
            best = max(best, 1 + _most_cycles(cycles, capacity, place, most - 1))
            for edge in cycles[place]:
                capacity[edge] += 1
    return best
