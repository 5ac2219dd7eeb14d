"""What transfers take that are under way at once, on the network that a plan's levels stand for.

`concurrent_s` of `GraphNetwork` for flows of equal size, whatever the size: each
flow has a latency, and seconds per byte that the links which it shares leave
it. A step of a collective that many groups do at once, or the hops of all
replicas, are such flows.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from operator import mul
from typing import Protocol

import numpy as np

from nest_opt.network.derived import MANY_ROUTES
from nest_opt.network.flows import Flow, loads
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.planned import device_vertices, routed
from nest_opt.problem.cluster import Cluster
from nest_opt.problem.hierarchical import HierarchicalSpec

Pair = tuple[int, int]
Step = tuple[Fraction, Fraction]


@dataclass(frozen=True)
class Pace:
    """The slowest of some flows of equal size, for every size.

    Attributes
    ----------
    steps
        (seconds of latency, seconds per byte) of each flow, every one once.
    """

    steps: frozenset[Step]

    def seconds(self, size_bytes: Fraction | int) -> Fraction:
        """Return the seconds until the last of the flows is over, 0 if there are none."""
        return max((wait + size_bytes * each for wait, each in self.steps), default=Fraction(0))


class AtOnce(Protocol):
    """Times of transfers between plan devices that begin at once and have equal sizes."""

    def steps(self, pairs: Sequence[Pair]) -> Sequence[Step]:
        """Return each transfer's (seconds of latency, seconds per byte)."""
        ...


def at_once(cluster: Cluster) -> AtOnce | None:
    """Return what times transfers on a cluster's own network.

    None where its levels are all that is known: they are hierarchical and not
    oversubscribed, so that transfers do not share links.
    """
    network = cluster.network
    if not isinstance(network, HierarchicalSpec):
        return GraphAtOnce(routed(network), device_vertices(cluster))
    if all(level.oversubscription == 1 for level in network.levels):
        return None
    return TreeAtOnce(network)


class GraphAtOnce:
    """Transfers take the routes of a graph.

    Parameters
    ----------
    network
        The graph and its routes.
    vertices
        The vertex of every plan device.
    """

    def __init__(self, network: GraphNetwork, vertices: Sequence[int]) -> None:
        self._network, self._vertices = network, vertices
        if len(vertices) > MANY_ROUTES:
            network.tabulate()
        numbers: dict[Fraction, int] = {}
        self._kinds = [
            numbers.setdefault(link.capacity, len(numbers)) for link in network.graph.links
        ]
        self._capacities = tuple(numbers)

    def steps(self, pairs: Sequence[Pair]) -> list[Step]:
        """Return each transfer's (seconds of latency, seconds per byte)."""
        network = self._network
        routes = [
            network.route(self._vertices[source], self._vertices[target])
            for source, target in pairs
        ]
        load = loads(
            (Flow(source, target, 1), route)
            for (source, target), route in zip(pairs, routes, strict=True)
        )
        # Comparing fractions is slow: each is formed once, and has a place among the others.
        kinds = {(load[number], self._kinds[number]) for number in load}
        shared = {(each, kind): each / self._capacities[kind] for each, kind in kinds}
        slowest = sorted(set(shared.values()))
        places = {each: place for place, each in enumerate(slowest)}
        place_of = {kind: places[each] for kind, each in shared.items()}
        place_at = {number: place_of[load[number], self._kinds[number]] for number in load}
        known: dict[tuple[int, ...], Step] = {}
        found = []
        for route in routes:
            place = max((place_at[link] for link, _ in route.shares), default=-1)
            key = place, *_digits(route.latency_s), *_digits(route.rate)
            if key not in known:
                alone = Fraction(0) if route.rate is None else 1 / route.rate
                each = max(alone, slowest[place]) if route.shares else alone
                known[key] = route.latency_s, each
            found.append(known[key])
        return found


def _digits(number: Fraction | None) -> tuple[int, int]:
    """Return a fraction as integers, which are hashed much faster; (0, 0) for none."""
    return (0, 0) if number is None else (number.numerator, number.denominator)


class TreeAtOnce:
    """Transfers go up and down the tree of switches of a hierarchical network.

    The same as `GraphAtOnce` on `topologies.tree`, by arithmetic: a transfer
    takes the way up from its source's group, and down to its target's, at
    each level inside the one that they share.
    """

    def __init__(self, spec: HierarchicalSpec) -> None:
        self._inside = (1, *accumulate((level.size for level in spec.levels), mul))
        self._latency_s = [Fraction(level.latency_s) for level in spec.levels]
        self._capacity = [
            Fraction(level.bandwidth_bytes_per_s) * inside / Fraction(level.oversubscription)
            for level, inside in zip(spec.levels, self._inside, strict=False)
        ]
        self._bandwidth = [
            min(Fraction(level.bandwidth_bytes_per_s), capacity)
            for level, capacity in zip(spec.levels, self._capacity, strict=True)
        ]

    def steps(self, pairs: Sequence[Pair]) -> list[Step]:
        """Return each transfer's (seconds of latency, seconds per byte)."""
        if not pairs:
            return []
        sources, targets = np.array(pairs, np.int64).T
        loads = []
        for inside in self._inside[:-1]:
            up, down = sources // inside, targets // inside
            crosses = up != down
            most = [
                np.bincount(group[crosses], minlength=int(group.max()) + 1)[group]
                for group in (up, down)
            ]
            loads.append(np.where(crosses, np.maximum(*most), 0))
        rows, places = np.unique(np.stack(loads, axis=1), axis=0, return_inverse=True)
        found = [self._step([int(load) for load in row]) for row in rows]
        return [found[place] for place in places.reshape(-1)]

    def _step(self, loads: Sequence[int]) -> Step:
        """Return the step of a transfer by what shares its links at each level, 0 above its own."""
        crossed = [level for level, load in enumerate(loads) if load]
        if not crossed:
            return Fraction(0), Fraction(0)
        return self._latency_s[crossed[-1]], max(
            max(loads[level] / self._capacity[level], 1 / self._bandwidth[level])
            for level in crossed
        )


def paces(network: AtOnce, owned: Iterable[tuple[int, Pair]]) -> dict[int, Pace]:
    """Return the pace of each owner's flows while those of all owners are under way."""
    listed = list(owned)
    found: dict[int, dict[int, Step]] = {}
    steps = network.steps([pair for _, pair in listed])
    # Equal steps are mostly one object; hashing every flow's fractions is slow.
    for (owner, _), step in zip(listed, steps, strict=True):
        found.setdefault(owner, {})[id(step)] = step
    return {owner: Pace(frozenset(steps.values())) for owner, steps in found.items()}
