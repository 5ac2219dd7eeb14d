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
    `sides`. Each cut is then drawn where the links between are narrow: by
    moving switches, and devices that do not take part, to the other side
    while that helps; or exactly, by a maximum flow (networkx), which takes
    longer.

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
    best: CutBound | None = None
    for side in (*({device} for device in sorted(members)), *sides):
        inside = members & frozenset(side)
        outside = members - inside
        if not inside or not outside:
            continue
        for one, other in ((inside, outside), (outside, inside)):
            found = _bound(graph, operation, one, other, size_bytes, max_flow)
            if best is None or found.seconds > best.seconds:
                best = found
    if best is None:
        raise InstanceError("devices: found no cut between them: give their numbers once each")
    return best


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


def _bound(
    graph: LinkGraph,
    operation: Operation,
    senders: frozenset[int],
    receivers: frozenset[int],
    size_bytes: int,
    max_flow: bool,
) -> CutBound:
    drawn = _by_flow if max_flow else _by_moves
    side = drawn(graph, senders, receivers)
    crossing = [link for link in graph.links if link.source in side and link.target not in side]
    capacity = sum((link.capacity for link in crossing), Fraction(0))
    if not crossing:
        raise InstanceError(
            f"network: found no link out of {graph.names[min(senders)]!r} and those with it, one "
            "is needed: add it"
        )
    needed = crossing_bytes(operation, len(senders), len(receivers), size_bytes)
    latency = min(link.latency_s for link in crossing)
    return CutBound(latency + needed / capacity, frozenset(side), capacity)


def _by_moves(graph: LinkGraph, senders: frozenset[int], receivers: frozenset[int]) -> set[int]:
    """Move vertices to the side of the senders while the capacity out of it falls."""
    side = set(senders)
    links = graph.links
    waiting = list(side)
    while waiting:
        for number in graph.out_links[waiting.pop()]:
            vertex = links[number].target
            if vertex in side or vertex in receivers:
                continue
            saved = sum(
                links[n].capacity for n in graph.in_links[vertex] if links[n].source in side
            )
            added = sum(
                links[n].capacity for n in graph.out_links[vertex] if links[n].target not in side
            )
            if added < saved:
                side.add(vertex)
                waiting.append(vertex)
    return side


def _by_flow(graph: LinkGraph, senders: frozenset[int], receivers: frozenset[int]) -> set[int]:
    """Return the side of the senders in a cut of least capacity."""
    import networkx as nx

    unit = lcm(*{link.capacity.denominator for link in graph.links})
    flow = nx.DiGraph()
    for link in graph.links:
        known = flow.get_edge_data(link.source, link.target, {"capacity": 0})["capacity"]
        flow.add_edge(link.source, link.target, capacity=known + int(link.capacity * unit))
    # Edges without a capacity carry anything.
    flow.add_edges_from(("from", device) for device in senders)
    flow.add_edges_from((device, "to") for device in receivers)
    _, (side, _) = nx.minimum_cut(flow, "from", "to")
    return {vertex for vertex in side if vertex != "from"}
