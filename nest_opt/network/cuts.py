"""Lower bounds on collectives: what must cross a cut, over what the cut carries.

A cut puts every vertex on one of two sides. Whatever the algorithm, the
routes, and whoever computes on the way (switches that reduce included), bytes
that one side needs from the other cross its links.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from nest_opt.errors import InstanceError
from nest_opt.network.distances import sites_of
from nest_opt.network.graph import LinkGraph
from nest_opt.problem.profile import Operation


@dataclass(frozen=True)
class CutBound:
    """A collective takes at least so long.

    Attributes
    ----------
    seconds
        Bytes that must cross, over the capacity that they cross by, and the
        least latency of a link there.
    side
        Vertices on the side that sends.
    capacity
        Bytes/s of the links from it to the other side.
    """

    seconds: Fraction
    side: frozenset[int]
    capacity: Fraction


def cut_bound(
    graph: LinkGraph,
    operation: Operation,
    devices: Collection[int],
    size_bytes: int,
    sides: Iterable[Collection[int]] = (),
    max_flow: bool = False,
) -> CutBound:
    """Return the greatest lower bound that some cuts give for a collective.

    Every single device is cut off in both directions, and every one of
    `sides`; of devices at one site, one. Each cut is then drawn where the links
    between are narrow: by moving switches, and devices that do not take part,
    to the other side while that helps; or exactly, by a maximum flow
    (networkx), which takes longer.

    Parameters
    ----------
    operation, devices, size_bytes
        The collective, who takes part, and the bytes of the full buffer, as
        for `Network.collective_s`.
    sides
        Sets of devices to cut off; see `order_sides`.

    Raises
    ------
    InstanceError
        If fewer than two devices take part.
    """
    members = frozenset(devices)
    if len(members) < 2:
        raise InstanceError(
            f"devices: found {len(members)}, at least 2 must take part: a collective of one takes "
            "no time"
        )
    best: _Cut | None = None
    # Devices of one site are alike, so one of them is enough.
    alike = [members & frozenset(site) for site in sites_of(graph)]
    for side in (*({min(site)} for site in alike if site), *sides):
        inside = members & frozenset(side)
        outside = members - inside
        for core, rest in ((inside, outside), (outside, inside)) if inside and outside else ():
            if len(core) > len(rest):
                continue
            for outward in (True, False):
                found = _cut(graph, operation, core, rest, outward, size_bytes, max_flow)
                if best is None or found.seconds > best.seconds:
                    best = found
    if best is None:
        raise InstanceError("devices: found no cut between them: give their numbers once each")
    everything = frozenset(range(graph.vertex_count))
    side = best.side if best.outward else everything - best.side
    return CutBound(best.seconds, frozenset(side), best.capacity)


@dataclass(frozen=True)
class _Cut:
    """A bound by the links out of a side, or into it."""

    seconds: Fraction
    side: set[int]
    outward: bool
    capacity: Fraction


def order_sides(order: Sequence[int], sizes: Sequence[int]) -> Iterator[frozenset[int]]:
    """Yield every group of an order at every level, and all runs of groups from its beginning."""
    for size in sizes:
        for start in range(0, len(order), size):
            yield frozenset(order[start : start + size])
            yield frozenset(order[: start + size])


def crossing_bytes(operation: Operation, senders: int, receivers: int, size_bytes: int) -> Fraction:
    """Return the bytes that a collective must move from some of its devices to the others.

    An all-reduce: the senders' sum, the whole buffer. An all-gather: the
    senders' parts. A reduce-scatter: the senders' sums of the receivers'
    parts. An all-to-all: one part from every sender to every receiver. A part
    is the buffer over the number of devices.
    """
    part = Fraction(size_bytes, senders + receivers)
    return {
        "all-reduce": Fraction(size_bytes),
        "all-gather": part * senders,
        "reduce-scatter": part * receivers,
        "all-to-all": part * senders * receivers,
    }[operation]


def _cut(
    graph: LinkGraph,
    operation: Operation,
    core: frozenset[int],
    rest: frozenset[int],
    outward: bool,
    size_bytes: int,
    max_flow: bool,
) -> _Cut:
    """Bound by what the smaller set of devices must send to the rest, or receive from it."""
    drawn = _by_flow if max_flow else _by_moves
    side = drawn(graph, core, rest, outward)
    leaving = graph.out_links if outward else graph.in_links
    crossing = [
        graph.links[number]
        for vertex in side
        for number in leaving[vertex]
        if _far_end(graph, number, outward) not in side
    ]
    if not crossing:
        raise InstanceError(
            f"network: found no link {'out of' if outward else 'into'} "
            f"{graph.names[min(core)]!r} and those with it, one is needed: add it"
        )
    capacity = _capacity(graph, side, outward)
    ends = (len(core), len(rest)) if outward else (len(rest), len(core))
    needed = crossing_bytes(operation, *ends, size_bytes)
    latency = min(link.latency_s for link in crossing)
    return _Cut(latency + needed / capacity, side, outward, capacity)


def _far_end(graph: LinkGraph, number: int, outward: bool) -> int:
    link = graph.links[number]
    return link.target if outward else link.source


def _by_moves(
    graph: LinkGraph, core: frozenset[int], rest: frozenset[int], outward: bool
) -> set[int]:
    """Move vertices to the other side while the capacity out of the core's (or in) falls.

    Begun with nothing beside the core; and, where that is more than one
    device, with all that is nearer to it than to the rest, which joins
    switches that no single move would.
    """
    found = _improved(graph, set(core), core, rest, outward)
    if len(core) == 1:
        return found
    other = _improved(graph, _nearer(graph, core, rest), core, rest, outward)
    return min(found, other, key=lambda side: _capacity(graph, side, outward))


def _capacity(graph: LinkGraph, side: set[int], outward: bool) -> Fraction:
    leaving = graph.out_links if outward else graph.in_links
    return sum(
        (
            graph.links[number].capacity
            for vertex in side
            for number in leaving[vertex]
            if _far_end(graph, number, outward) not in side
        ),
        Fraction(0),
    )


def _improved(
    graph: LinkGraph, side: set[int], core: frozenset[int], rest: frozenset[int], outward: bool
) -> set[int]:
    """Move one vertex after another; those beside any that moved are tried anew."""
    leaving, entering, whole = graph.out_links, graph.in_links, graph.out_capacity
    if not outward:
        leaving, entering, whole = entering, leaving, graph.in_capacity
    moved = set(side)
    while moved:
        near = {_far_end(graph, n, outward) for vertex in moved for n in leaving[vertex]}
        near |= {_far_end(graph, n, not outward) for vertex in moved for n in entering[vertex]}
        moved = set()
        for vertex in sorted(near - core - rest):
            inside = sum(
                graph.links[number].capacity
                for number in entering[vertex]
                if _far_end(graph, number, not outward) in side
            )
            outside = whole[vertex] - sum(
                graph.links[number].capacity
                for number in leaving[vertex]
                if _far_end(graph, number, outward) in side
            )
            if outside < inside and vertex not in side:
                side.add(vertex)
            elif inside < outside and vertex in side:
                side.remove(vertex)
            else:
                continue
            moved.add(vertex)
    return side


def _nearer(graph: LinkGraph, core: frozenset[int], rest: frozenset[int]) -> set[int]:
    """Return the vertices that are fewer links from the core than from the rest."""
    side, seen = set(core), core | rest
    front = sorted(seen)
    while front:
        reached: dict[int, bool] = {}
        for vertex in front:
            for number in graph.out_links[vertex]:
                target = graph.links[number].target
                if target not in seen:
                    reached[target] = reached.get(target, True) and vertex in side
        side |= {vertex for vertex, inside in reached.items() if inside}
        seen |= reached.keys()
        front = sorted(reached)
    return side


def _by_flow(
    graph: LinkGraph, core: frozenset[int], rest: frozenset[int], outward: bool
) -> set[int]:
    """Return the side of the core in a cut of least capacity out of it, or into it."""
    import networkx as nx

    unit = lcm(*{link.capacity.denominator for link in graph.links})
    flow = nx.DiGraph()
    for number, link in enumerate(graph.links):
        ends = _far_end(graph, number, not outward), _far_end(graph, number, outward)
        known = flow.get_edge_data(*ends, {"capacity": 0})["capacity"]
        flow.add_edge(*ends, capacity=known + int(link.capacity * unit))
    # Edges without a capacity carry anything.
    flow.add_edges_from(("core", device) for device in core)
    flow.add_edges_from((device, "rest") for device in rest)
    _, (side, _) = nx.minimum_cut(flow, "core", "rest")
    return {vertex for vertex in side if vertex != "core"}
