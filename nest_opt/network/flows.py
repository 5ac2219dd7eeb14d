"""Transfers that are under way at once, and what they make of shared links."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from nest_opt.network.graph import LinkGraph
from nest_opt.network.routing import ONE, Route


@dataclass(frozen=True)
class Flow:
    """A transfer of bytes from one device to another."""

    source: int
    target: int
    size_bytes: Fraction | int


def ring_flows(order: Sequence[int], size_bytes: Fraction | int) -> list[Flow]:
    """Return one step of a ring: every device sends to its successor. Empty for one device."""
    if len(order) < 2:
        return []
    successors = (*order[1:], order[0])
    return [Flow(*pair, size_bytes) for pair in zip(order, successors, strict=True)]


def chain_flows(order: Sequence[int], size_bytes: Fraction | int) -> list[Flow]:
    """Return a ring's step without the way back from the last device to the first."""
    return ring_flows(order, size_bytes)[:-1]


def loads(flows: Iterable[tuple[Flow, Route]]) -> dict[int, Fraction | int]:
    """Return the bytes that every link in use carries."""
    # Whole bytes on whole routes are added as integers, which is much faster.
    found: dict[int, Fraction | int] = {}
    for flow, route in flows:
        for number, share in route.shares:
            part = flow.size_bytes if share is ONE else share * flow.size_bytes
            found[number] = found.get(number, 0) + part
    return found


def flow_seconds(
    graph: LinkGraph, flow: Flow, route: Route, load: Mapping[int, Fraction | int]
) -> Fraction:
    """Return the time of a flow among others that load the links.

    Its latency, and the most over its links of the link's bytes over its
    capacity and the flow's own over its bandwidth. All flows attain these
    times at once: at constant rates of size over time, no link is overfull,
    as each of its flows takes at most the share that it has of its bytes.
    """
    if not route.shares:
        return Fraction(0)
    return route.latency_s + max(
        max(
            load[number] / graph.links[number].capacity,
            share * flow.size_bytes / graph.links[number].bandwidth,
        )
        for number, share in route.shares
    )


def crossings(groups: Mapping[int, int] | Sequence[int], flows: Iterable[Flow]) -> int:
    """Return how many flows lead from one group to another; `groups` gives a device's group."""
    return sum(groups[flow.source] != groups[flow.target] for flow in flows)
