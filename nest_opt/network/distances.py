"""Latency and bandwidth of the routes between all devices at once, in arrays.

The labels are those of `Router` without sharing: (cost, width) per vertex,
for many sources in the columns of a row per vertex. Rows are relaxed over
links, up and down the vertex numbers in turn, until nothing changes.

Devices that hang on one switch by equal links are one site: between sites
their routes differ in nothing that counts here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from nest_opt.errors import ConsistencyError, InstanceError
from nest_opt.network.graph import LinkGraph
from nest_opt.network.routing import Metric, link_costs

MAX_SITES = 4096
MAX_KNOWN = 2**16
Array = npt.NDArray[Any]

_PS_PER_S = 10**12


@dataclass(frozen=True)
class PairTable:
    """Routes between sites; on the diagonal, between two devices of one site.

    Attributes
    ----------
    graph
        The graph.
    site_of
        (K,) the site of every device; sites are numbered by their first device.
    latency
        (S, S) latency in units of 1 / `graph.latency_unit` seconds.
    width
        (S, S) rank of the least bandwidth on the way in `graph.bandwidths`.
    """

    graph: LinkGraph
    site_of: Array
    latency: Array
    width: Array

    @property
    def site_sizes(self) -> Array:
        """(S,) devices of every site."""
        return np.bincount(self.site_of)

    def times_ps(self, size_bytes: int) -> Array:
        """Return (S, S) int64 picoseconds of a transfer alone, rounded, the slower way of the two.

        Latency and bytes count at most 2^61 each. A site of one device has 0
        on the diagonal.
        """
        unit = self.graph.latency_unit
        moves = np.array(
            [_ps(size_bytes / bandwidth) for bandwidth in self.graph.bandwidths], np.int64
        )
        times: Array = moves[self.width]
        for row, latencies in zip(times, self.latency, strict=True):
            values, places = np.unique(latencies, return_inverse=True)
            waits = [_ps(Fraction(int(value), unit)) for value in values]
            row += np.array(waits, np.int64)[places]
        times[np.diag_indices_from(times)] *= self.site_sizes > 1
        return np.maximum(times, times.T)


def pair_table(graph: LinkGraph, metric: Metric = "latency") -> PairTable:
    """Compute the table of a connected graph.

    Raises
    ------
    InstanceError
        If there are more sites than it has room for.
    """
    sites = _checked_sites(graph)
    first = [devices[0] for devices in sites]
    return _table(graph, sites, *_Sweep(graph, metric, first).run())


def _table(graph: LinkGraph, sites: list[list[int]], latency: Array, width: Array) -> PairTable:
    """Return the table of labels between sites, a site's own two devices on the diagonal."""
    for site, devices in enumerate(sites):
        if len(devices) > 1:
            up, down = graph.out_links[devices[0]][0], graph.in_links[devices[1]][0]
            latency[site, site] = graph.latencies[up] + graph.latencies[down]
            width[site, site] = min(graph.widths[up], graph.widths[down])
        else:
            width[site, site] = 0
    return PairTable(graph, _site_numbers(graph, sites), latency, width)


class PathTable:
    """The paths of `Router` between all devices, without sharing, from the labels of all vertices.

    It takes as long as some thousand searches on a large graph, and room for
    two numbers per vertex and site; then a path costs its length.

    Raises
    ------
    InstanceError
        As `pair_table`.
    """

    def __init__(self, graph: LinkGraph, metric: Literal["latency", "links"] = "latency") -> None:
        self.graph = graph
        self._sites = sites = _checked_sites(graph)
        self.site_of = _site_numbers(graph, sites)
        self.first = [devices[0] for devices in sites]
        # Devices of a site of several hang on one switch, by one link each way.
        self.hanging = [len(devices) > 1 for devices in sites]
        self._sweep = _Sweep(graph, metric, self.first)
        self._cost, self._width = self._sweep.labels(0)
        self._known: dict[tuple[int, int], list[int]] = {}
        self._into: dict[int, list[tuple[int, int, int, int, int]]] = {}

    def pair_table(self) -> PairTable:
        """Return the table of the same labels, as `pair_table` computes it."""
        return _table(self.graph, self._sites, *self._sweep.between(self._cost, self._width))

    def path(self, source: int, target: int) -> list[int]:
        """Return the links of the path between two different devices, from its end."""
        graph, links = self.graph, self.graph.links
        site = int(self.site_of[source])
        found, vertex = [], target
        if self.hanging[self.site_of[target]]:
            found.append(graph.in_links[target][0])
            vertex = links[found[-1]].source
        found += self._inner(site, vertex)
        if self.hanging[site]:
            found.append(graph.out_links[source][0])
        return found

    def _inner(self, site: int, vertex: int) -> list[int]:
        """Return the links from a site to a vertex, from its end; those of hanging devices aside.

        Devices of a site share them, so they are remembered.
        """
        known = self._known.get((site, vertex))
        if known is not None:
            return known
        links, found, at = self.graph.links, [], vertex
        start = self.first[site]
        if self.hanging[site]:
            start = links[self.graph.out_links[start][0]].target
        while at != start:
            found.append(self._arrival(at, site))
            at = links[found[-1]].source
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[site, vertex] = found
        return found

    def _arrival(self, vertex: int, site: int) -> int:
        """Return the link of lowest number that gives a vertex its label."""
        cost, width, row = self._cost, self._width, self._sweep.row[vertex]
        label, wide = cost.item(row, site), width.item(row, site)
        for number, before, before_row, link_cost, link_width in self._entries(vertex):
            if self.graph.forwards(before) or before == self.first[site]:
                reached = cost.item(before_row, site) + link_cost
                if reached == label and (
                    self._sweep.one_width or min(width.item(before_row, site), link_width) == wide
                ):
                    return number
        raise ConsistencyError(
            f"network: no link gives vertex {self.graph.names[vertex]!r} its label"
        )

    def _entries(self, vertex: int) -> list[tuple[int, int, int, int, int]]:
        """Return (number, source, its row, cost, width) of the links into a vertex that matter."""
        if vertex not in self._into:
            graph, row = self.graph, self._sweep.row
            self._into[vertex] = [
                (number, before, row[before], self._sweep.costs[number], graph.widths[number])
                for number in graph.in_links[vertex]
                if (before := graph.links[number].source) in row
            ]
        return self._into[vertex]


def _ps(seconds: Fraction) -> int:
    return min(round(seconds * _PS_PER_S), 2**61)


def _checked_sites(graph: LinkGraph) -> list[list[int]]:
    sites = sites_of(graph)
    if len(sites) > MAX_SITES:
        raise InstanceError(
            f"network: found {len(sites):,} places where devices hang on the graph, at most "
            f"{MAX_SITES:,} are compared pair by pair: describe a part of it, or levels (type "
            "'hierarchical')"
        )
    return sites


def _site_numbers(graph: LinkGraph, sites: list[list[int]]) -> Array:
    found: Array = np.empty(graph.device_count, np.intp)
    for site, devices in enumerate(sites):
        found[devices] = site
    return found


def sites_of(graph: LinkGraph) -> list[list[int]]:
    """Return the devices of every site: those that hang on one switch by equal links, else one."""
    found: dict[tuple[object, ...], list[int]] = {}
    ranks, _ = graph.capacity_ranks
    for device in range(graph.device_count):
        key: tuple[object, ...] = ("alone", device)
        if len(graph.out_links[device]) == len(graph.in_links[device]) == 1:
            up, down = graph.out_links[device][0], graph.in_links[device][0]
            switch = graph.links[up].target
            if switch == graph.links[down].source >= graph.device_count:
                key = (
                    switch,
                    *((graph.widths[x], ranks[x], graph.latencies[x]) for x in (up, down)),
                )
        found.setdefault(key, []).append(device)
    return list(found.values())


class _Sweep:
    """Labels of the vertices that matter (rows) from every first device of a site (columns)."""

    def __init__(self, graph: LinkGraph, metric: Metric, sources: list[int]) -> None:
        self.graph = graph
        self.metric = metric
        self.sources = sources
        self.costs = link_costs(graph, metric)
        kept = sorted({*sources, *(v for v in range(graph.vertex_count) if graph.forwards(v))})
        self.row = {vertex: row for row, vertex in enumerate(kept)}
        # Largest sum of costs that could come up, twice so that it can be added to.
        most = max(self.costs, default=0) * graph.vertex_count
        self.kind: Any = np.int64 if most < 2**61 else object
        self.one_width = len(graph.bandwidths) == 1
        self.never = max(2**62, 2 * most) if self.kind is object else 2**62

    def run(self) -> tuple[Array, Array]:
        """Return (S, S) latencies and widths, a row a source."""
        if self.metric != "widest":
            return self.between(*self.labels(0))
        rows = [self.row[source] for source in self.sources]
        widest = self._widest()
        latency = np.zeros_like(widest, dtype=self.kind)
        for least in np.unique(widest[~np.eye(len(widest), dtype=bool)]):
            cost, _ = self.labels(int(least))
            latency = np.where(widest == least, self._latency(cost[rows].T), latency)
        return latency, widest

    def between(self, cost: Array, width: Array) -> tuple[Array, Array]:
        """Return (S, S) latencies and widths of labels, a row a source."""
        rows = [self.row[source] for source in self.sources]
        wide = np.zeros_like(width[rows].T) if self.one_width else width[rows].T
        return self._latency(cost[rows].T), wide

    def _latency(self, cost: Array) -> Array:
        """Return the latency that a cost of `link_costs` holds."""
        graph = self.graph
        if self.metric == "links":
            found: Array = cost % (1 + max(graph.latencies, default=0) * graph.vertex_count)
        else:
            found = cost // graph.vertex_count
        return found

    def _start(self, nothing: int, kind: Any) -> tuple[Array, Array]:
        shape = len(self.row), len(self.sources)
        return np.full(shape, nothing, kind), np.zeros(shape, np.int32)

    def _links(self, least: int) -> dict[int, list[tuple[int, int, int, int]]]:
        """Return per vertex that matters its links as (row, cost, width, target)."""
        graph = self.graph
        return {
            vertex: [
                (self.row[target], self.costs[number], graph.widths[number], target)
                for number in graph.out_links[vertex]
                if graph.widths[number] >= least
                and (target := graph.links[number].target) in self.row
            ]
            for vertex in self.row
        }

    def labels(self, least: int) -> tuple[Array, Array]:
        """Return (rows, S) costs and widths over links of a width or more.

        Where all links are as wide, widths are not kept up.
        """
        graph, links = self.graph, self._links(least)
        cost, width = self._start(self.never, self.kind)
        dirty = set()
        for column, source in enumerate(self.sources):
            cost[self.row[source], column] = 0
            width[self.row[source], column] = len(graph.bandwidths)
            for row, link_cost, link_width, target in links[source]:
                label = (link_cost, -link_width)
                if label < (cost[row, column], -width[row, column]):
                    cost[row, column], width[row, column] = link_cost, link_width
                dirty.add(target)
        downwards = False
        while dirty:
            for vertex in sorted(dirty, reverse=downwards):
                dirty.discard(vertex)
                if graph.forwards(vertex):
                    dirty.update(self._relax(cost, width, vertex, links[vertex]))
            downwards = not downwards
        return cost, width

    def _relax(
        self, cost: Array, width: Array, vertex: int, links: list[tuple[int, int, int, int]]
    ) -> Iterator[int]:
        """Better the labels behind the links of a vertex; yield those vertices that change."""
        here, here_width = cost[self.row[vertex]], width[self.row[vertex]]
        for row, link_cost, link_width, target in links:
            reached = here + link_cost
            better = reached < cost[row]
            if not self.one_width:
                through = np.minimum(here_width, link_width)
                better |= (reached == cost[row]) & (through > width[row])
                np.copyto(width[row], through, where=better)
            if better.any():
                np.copyto(cost[row], reached, where=better)
                yield target

    def _widest(self) -> Array:
        """Return (S, S) the greatest width of any path."""
        graph, links = self.graph, self._links(0)
        width, _ = self._start(-1, np.int32)
        dirty = set()
        for column, source in enumerate(self.sources):
            width[self.row[source], column] = len(graph.bandwidths)
            for row, _cost, link_width, target in links[source]:
                width[row, column] = max(width[row, column], link_width)
                dirty.add(target)
        while dirty:
            vertex = dirty.pop()
            if not graph.forwards(vertex):
                continue
            for row, _cost, link_width, target in links[vertex]:
                through = np.minimum(width[self.row[vertex]], link_width)
                if (through > width[row]).any():
                    np.maximum(width[row], through, out=width[row])
                    dirty.add(target)
        found: Array = width[[self.row[source] for source in self.sources]].T.copy()
        np.fill_diagonal(found, 0)
        return found
