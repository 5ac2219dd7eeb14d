"""Routes through a graph of links: fewest seconds, fewest links, widest, or shared.

Labels are compared by (cost, width): least cost first, and of equal costs the
widest. Every link costs at least 1, so a vertex is settled after all that
could come before it, and a search may stop once its targets are settled with
the same result as if it went on.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from heapq import heappop, heappush
from typing import Literal

from nest_opt.errors import InstanceError
from nest_opt.network.graph import LinkGraph, shown

Metric = Literal["latency", "links", "widest"]


@dataclass(frozen=True)
class Route:
    """How the bytes of a transfer travel.

    Attributes
    ----------
    shares
        (link number, share of the bytes that it carries), by link number; all
        shares are 1 on a single path.
    latency_s
        Of the slowest path in use.
    rate
        Bytes/s of the transfer when nothing else is under way: the least of
        bandwidth over share. None from a device to itself.
    """

    shares: tuple[tuple[int, Fraction], ...]
    latency_s: Fraction
    rate: Fraction | None


ONE = Fraction(1)
STAY = Route((), Fraction(0), None)


@dataclass(frozen=True)
class _Labels:
    """What a search found: cost, width and link of arrival of every settled vertex."""

    cost: Mapping[int, int]
    width: Mapping[int, int]
    arrival: Mapping[int, int]


class Router:
    """Finds the routes of a graph, the same ones in every run.

    Parameters
    ----------
    graph
        The graph.
    metric
        `latency`: least latency, then fewest links. `links`: fewest links,
        then least latency. `widest`: the greatest bandwidth that any path
        offers, and of the paths that offer it the one of least latency, then
        fewest links.
    sharing
        False: one path; of those that tie, the widest, and then the one whose
        last link has the lowest number, and so on backwards. True: all that
        tie; every vertex splits what it passes on equally over the links that
        lie on one of them (equal-cost multipath, RFC 2992).
    """

    def __init__(self, graph: LinkGraph, metric: Metric = "latency", sharing: bool = False) -> None:
        self.graph = graph
        self.metric = metric
        self.sharing = sharing
        self.costs = link_costs(graph, metric)
        # Devices that do not forward matter only as ends of a search.
        self._onward = tuple(tuple(self._distinct(numbers)) for numbers in graph.out_links)

    def _distinct(self, numbers: Iterable[int]) -> Iterable[int]:
        """Return the links that a search looks at: of equal cables the one of the lowest number."""
        graph, first = self.graph, dict[tuple[int, int, int], int]()
        for number in sorted(numbers):
            target = graph.links[number].target
            if graph.forwards(target):
                first.setdefault((target, self.costs[number], graph.widths[number]), number)
        return first.values()

    def route(self, source: int, target: int) -> Route:
        """Return the route between two vertices.

        Raises
        ------
        InstanceError
            If there is none; the message names the two.
        """
        return self.routes(source, (target,))[target]

    def routes(self, source: int, targets: Collection[int]) -> dict[int, Route]:
        """Return the route to each of several vertices, found by one search.

        Raises
        ------
        InstanceError
            If one cannot be reached; the message names all of those.
        """
        labels = self._search(source, targets)
        unreached = [target for target in targets if target not in labels.cost]
        if unreached:
            raise self._no_route(source, unreached)
        return {target: self._to(source, target, labels) for target in targets}

    def _to(self, source: int, target: int, labels: _Labels) -> Route:
        if source == target:
            return STAY
        if self.metric != "widest":
            return self._route(source, target, labels)
        # Least latency among the widest paths is a search of its own: a
        # prefix of the best such path need not be the best to where it ends.
        least = labels.width[target]
        return self._route(source, target, self._search(source, (target,), least))

    def _search(
        self, source: int, targets: Collection[int], narrowest: int | None = None
    ) -> _Labels:
        """Settle vertices from a source until all targets are.

        Under `widest` and without a least width, width comes before cost.
        """
        graph, links = self.graph, self.graph.links
        by_width = self.metric == "widest" and narrowest is None
        least = narrowest or 0
        arrival: dict[int, int] = {}
        settled_cost: dict[int, int] = {}
        settled_width: dict[int, int] = {}
        waiting = set(targets)
        last: dict[int, list[int]] = {}
        for end in waiting:
            for number in () if graph.forwards(end) else graph.in_links[end]:
                last.setdefault(links[number].source, []).append(number)
        # The source is wider than any link.
        start = (0, -len(graph.bandwidths))
        best = {source: start[::-1] if by_width else start}
        heap: list[tuple[int, int, int]] = [(*best[source], source)]
        while heap and waiting:
            first, second, vertex = heappop(heap)
            if vertex in settled_cost:
                continue
            cost, width = (second, -first) if by_width else (first, -second)
            settled_cost[vertex], settled_width[vertex] = cost, width
            waiting.discard(vertex)
            if vertex != source and not graph.forwards(vertex):
                continue
            for number in (*self._onward[vertex], *last.get(vertex, ())):
                target = links[number].target
                if target in settled_cost or graph.widths[number] < least:
                    continue
                reached_cost = cost + self.costs[number]
                reached_width = min(width, graph.widths[number])
                label = (
                    (-reached_width, reached_cost) if by_width else (reached_cost, -reached_width)
                )
                known = best.get(target)
                if known is None or label < known:
                    best[target] = label
                    arrival[target] = number
                    heappush(heap, (*label, target))
                elif label == known and number < arrival[target]:
                    arrival[target] = number
        return _Labels(settled_cost, settled_width, arrival)

    def _route(self, source: int, target: int, labels: _Labels) -> Route:
        if not self.sharing:
            return self.along(_path(self.graph, source, target, labels))
        return self._shared(source, target, labels)

    def along(self, path: Iterable[int]) -> Route:
        """Return the route along a path of link numbers."""
        graph, numbers = self.graph, tuple(path)
        latency = sum(graph.latencies[number] for number in numbers)
        return Route(
            tuple((number, ONE) for number in sorted(numbers)),
            Fraction(latency, graph.latency_unit),
            graph.bandwidths[min(graph.widths[number] for number in numbers)],
        )

    def _shared(self, source: int, target: int, labels: _Labels) -> Route:
        """Return the route over all paths that tie, split equally at each vertex."""
        graph, links = self.graph, self.graph.links
        least = labels.width[target] if self.metric == "widest" else 0
        onward: dict[int, list[int]] = {target: []}
        waiting = [target]
        while waiting:
            vertex = waiting.pop()
            for number in graph.in_links[vertex]:
                before = links[number].source
                if not self._ties(number, before, vertex, source, least, labels):
                    continue
                if before not in onward:
                    onward[before] = []
                    waiting.append(before)
                onward[before].append(number)
        passing = {source: ONE}
        slowest = {source: Fraction(0)}
        shares: dict[int, Fraction] = {}
        for vertex in sorted(onward, key=lambda vertex: (labels.cost[vertex], vertex)):
            for number in onward[vertex]:
                shares[number] = passing[vertex] / len(onward[vertex])
                after = links[number].target
                passing[after] = passing.get(after, Fraction(0)) + shares[number]
                arrival = slowest[vertex] + links[number].latency_s
                slowest[after] = max(slowest.get(after, arrival), arrival)
        return Route(
            tuple(sorted(shares.items())),
            slowest[target],
            min(links[number].bandwidth / share for number, share in shares.items()),
        )

    def _ties(
        self, number: int, before: int, after: int, source: int, least: int, labels: _Labels
    ) -> bool:
        """Whether a link lies on a path of least cost to the vertex at its end."""
        graph = self.graph
        return (
            before in labels.cost
            and (before == source or graph.forwards(before))
            and graph.widths[number] >= least
            and labels.cost[before] + self.costs[number] == labels.cost[after]
        )

    def _no_route(self, source: int, unreached: Collection[int]) -> InstanceError:
        graph = self.graph
        return InstanceError(
            f"network: found no route from {graph.names[source]!r} to "
            f"{shown([graph.names[target] for target in unreached])}, one is needed: add links, "
            "or leave those devices out"
            + ("" if graph.devices_forward else ", or let devices forward (devices_forward)")
        )


def link_costs(graph: LinkGraph, metric: Metric) -> tuple[int, ...]:
    """Return per link a cost of at least 1 whose sums order paths as the metric says.

    A path has fewer links than the graph has vertices, so `latency` * that
    many + 1 compares latencies first; `links` compares counts first likewise.
    """
    if metric == "links":
        more = 1 + max(graph.latencies, default=0) * graph.vertex_count
        return tuple(more + latency for latency in graph.latencies)
    return tuple(latency * graph.vertex_count + 1 for latency in graph.latencies)


def _path(graph: LinkGraph, source: int, target: int, labels: _Labels) -> list[int]:
    path = []
    vertex = target
    while vertex != source:
        number = labels.arrival[vertex]
        path.append(number)
        vertex = graph.links[number].source
    return path[::-1]
