"""Graphs of the usual shapes: torus, dragonfly, tree, rails; and of given edges."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

from nest_opt.errors import InstanceError
from nest_opt.network.graph import (
    MAX_GRAPH_DEVICES,
    Link,
    LinkGraph,
    LinkKind,
    Number,
    exact,
)
from nest_opt.problem.cluster import HierarchicalSpec

if TYPE_CHECKING:
    from networkx import Graph

MAX_AXES = 8


@dataclass(frozen=True)
class Edge:
    """A link between two named vertices, in one direction or (`both_ways`) in each."""

    source: str
    target: str
    kind: LinkKind
    both_ways: bool = True


def graph_of_edges(
    devices: Sequence[str],
    edges: Iterable[Edge],
    devices_forward: bool = False,
    switches: Sequence[str] = (),
) -> LinkGraph:
    """Build the graph of named edges; vertices that are not devices are switches.

    Those of `switches` are numbered first, and are there without an edge too.
    Several edges between the same two vertices are several cables: one
    transfer takes one of them, or with sharing all that tie.
    """
    # A name that is given twice is refused by the graph.
    names = [*devices, *switches]
    numbers = {name: number for number, name in enumerate(names)}
    links: list[Link] = []
    for edge in edges:
        for name in (edge.source, edge.target):
            if name not in numbers:
                numbers[name] = len(names)
                names.append(name)
        ends = numbers[edge.source], numbers[edge.target]
        links.append(edge.kind.link(*ends))
        if edge.both_ways:
            links.append(edge.kind.link(*ends[::-1]))
    return LinkGraph(tuple(names), len(devices), tuple(links), devices_forward)


def graph_of_networkx(graph: "Graph[Any]", devices_forward: bool = False) -> LinkGraph:
    """Build the graph that a networkx graph of any of its four classes describes.

    A node is a switch if its attribute `kind` is "switch", else a device (with
    no such attribute, or "device"); the devices are numbered in the order of
    the nodes. An edge has the attributes `bandwidth_bytes_per_s` and
    `latency_s`, and `capacity_bytes_per_s` if several transfers together get
    more than one. An undirected edge is a link in each direction, and parallel
    edges are several cables.

    Raises
    ------
    InstanceError
        If an attribute is missing or out of range, or two names are the same
        text.
    """
    devices: list[str] = []
    switches: list[str] = []
    for node, attributes in graph.nodes(data=True):
        kind = attributes.get("kind", "device")
        if kind not in ("device", "switch"):
            raise InstanceError(
                f"node {str(node)!r}: found kind {kind!r}, 'device' or 'switch' is needed: "
                "correct the attribute"
            )
        (devices if kind == "device" else switches).append(str(node))
    names = (*devices, *switches)
    known = {name: number for number, name in enumerate(names)}
    links: list[Link] = []
    for source, target, attributes in graph.edges(data=True):
        ends = known[str(source)], known[str(target)]
        kind_of = _edge_kind(attributes, f"edge {str(source)!r} - {str(target)!r}")
        links.append(kind_of.link(*ends))
        if not graph.is_directed():
            links.append(kind_of.link(*ends[::-1]))
    return LinkGraph(names, len(devices), tuple(links), devices_forward)


def _edge_kind(attributes: dict[str, Any], what: str) -> LinkKind:
    for field in ("bandwidth_bytes_per_s", "latency_s"):
        if field not in attributes:
            raise InstanceError(f"{what}: found no {field}, one is needed: add the attribute")
    return LinkKind.of(
        attributes["bandwidth_bytes_per_s"],
        attributes["latency_s"],
        attributes.get("capacity_bytes_per_s"),
        what,
    )


def torus(
    shape: Sequence[int], kinds: Sequence[LinkKind], wrap: Sequence[bool] | None = None
) -> LinkGraph:
    """Build a torus, or a mesh along the axes that do not wrap around.

    Devices are named by their coordinates and numbered along the last axis
    first; they forward. On an axis of two that wraps around, two links join
    the same two devices.

    Parameters
    ----------
    shape
        Devices along each axis.
    kinds
        What the links of each axis are.
    wrap
        Whether each axis wraps around; None: all do.
    """
    wraps = [True] * len(shape) if wrap is None else list(wrap)
    if not 1 <= len(shape) <= MAX_AXES or not len(shape) == len(kinds) == len(wraps):
        raise InstanceError(
            f"torus: found {len(shape)} axes, {len(kinds)} kinds of link and {len(wraps)} "
            f"wrap-arounds, 1 to {MAX_AXES} axes and one of each an axis are needed: correct them"
        )
    _check_size("torus", shape)
    strides = [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    links: list[Link] = []
    places = list(product(*map(range, shape)))
    for number, place in enumerate(places):
        for axis, (at, size, stride) in enumerate(zip(place, shape, strides, strict=True)):
            if at + 1 < size:
                links += kinds[axis].both_ways(number, number + stride)
            elif wraps[axis] and size > 1:
                links += kinds[axis].both_ways(number, number - at * stride)
    names = tuple("-".join(map(str, place)) for place in places)
    return LinkGraph(names, len(names), tuple(links), devices_forward=True)


def torus_distance(
    shape: Sequence[int], wrap: Sequence[bool], one: Sequence[int], other: Sequence[int]
) -> int:
    """Return the links between two places of a torus: per axis the shorter way round."""
    return sum(
        min(abs(a - b), size - abs(a - b)) if wraps else abs(a - b)
        for a, b, size, wraps in zip(one, other, shape, wrap, strict=True)
    )


def dragonfly(
    groups: int,
    routers: int,
    devices: int,
    device_link: LinkKind,
    local_link: LinkKind,
    global_link: LinkKind,
    links_per_pair: int = 1,
) -> LinkGraph:
    """Build a dragonfly (Kim, Dally, Scott and Abts, ISCA 2008).

    All routers of a group are joined to each other by local links, and every
    two groups by `links_per_pair` global links. Global ports of a group are
    numbered by the distance to the group that they lead to, and dealt to its
    routers in runs of equal length: with groups = routers * h + 1 each router
    has h of them. No two devices are more than 5 links apart (device, local,
    global, local, device).

    Parameters
    ----------
    groups, routers, devices
        Number of groups, routers in a group, devices on a router.
    """
    _check_size("dragonfly", (groups, routers, devices))
    if not 1 <= links_per_pair <= MAX_GRAPH_DEVICES:
        raise InstanceError(
            f"dragonfly: found {links_per_pair} links between two groups, 1 to "
            f"{MAX_GRAPH_DEVICES:,} are allowed: correct the number"
        )
    count = groups * routers * devices
    links: list[Link] = []
    for device in range(count):
        links += device_link.both_ways(device, count + device // devices)
    for group in range(groups):
        first = count + group * routers
        for one in range(routers):
            for other in range(one + 1, routers):
                links += local_link.both_ways(first + one, first + other)
    ports = links_per_pair * (groups - 1)
    run = -(-ports // routers) or 1
    for group in range(groups):
        for port in range(ports):
            away, copy = divmod(port, links_per_pair)
            other = (group + away + 1) % groups
            if other < group:
                continue
            # Seen from the other group, this one is as far the other way round.
            back = (groups - 2 - away) * links_per_pair + copy
            ends = group * routers + port // run, other * routers + back // run
            links += global_link.both_ways(count + ends[0], count + ends[1])
    names = [
        f"{group}-{router}-{device}"
        for group, router, device in product(range(groups), range(routers), range(devices))
    ]
    names += [
        f"router-{group}-{router}" for group, router in product(range(groups), range(routers))
    ]
    return LinkGraph(tuple(names), count, tuple(links))


def with_nodes(graph: LinkGraph, size: int, link: LinkKind) -> LinkGraph:
    """Return a graph whose devices, in runs of a size, hang on a switch of their node as well.

    Switches are named "node-0" and so on.
    """
    first = graph.vertex_count
    nodes = -(-graph.device_count // size)
    links = [
        each
        for device in range(graph.device_count)
        for each in link.both_ways(device, first + device // size)
    ]
    return replace(
        graph,
        names=(*graph.names, *(f"node-{number}" for number in range(nodes))),
        links=(*graph.links, *links),
    )


def tree(spec: HierarchicalSpec, oversubscription: Sequence[Number] | None = None) -> LinkGraph:
    """Build the tree of switches of a hierarchical network.

    A group of each level has a switch. What a transfer gets on the way up from
    a group of level l - 1 is the level's bandwidth, and all of the group's
    transfers share that of all its devices together, over the level's
    oversubscription. Latency grows by the difference between levels, half of
    it up and half down: two devices whose level is l are exactly the level's
    latency apart.

    Parameters
    ----------
    spec
        Sizes, bandwidths and latencies of the levels.
    oversubscription
        Per level, the bandwidth that the devices below could use over that
        which is there; None: 1, nothing is oversubscribed.
    """
    return _Tree(spec, oversubscription).graph()


def rails(
    spec: HierarchicalSpec,
    rails_per_node: int,
    oversubscription: Sequence[Number] | None = None,
    devices_forward: bool = True,
) -> LinkGraph:
    """Build a tree of nodes whose devices have links of their own to a switch a rail.

    Level 0 is the node. A group of level 1 has one switch for each rail, which
    device i of every node of the group reaches through its own link, where i
    modulo `rails_per_node` is the rail. Devices forward, so that what is
    for another rail goes inside the node to the device on it (as NCCL's PXN
    does); if they do not, it goes over level 2. Levels above are those of
    `tree`.
    """
    _check_rails(spec, rails_per_node)
    return _Tree(spec, oversubscription, rails_per_node, devices_forward).graph()


class _Tree:
    """A tree of switches, level by level; `rails` switches a group at level 1, else one."""

    def __init__(
        self,
        spec: HierarchicalSpec,
        oversubscription: Sequence[Number] | None,
        rails_per_node: int = 1,
        devices_forward: bool = False,
    ) -> None:
        self.spec = spec
        ratios = [1] * len(spec.levels) if oversubscription is None else list(oversubscription)
        if len(ratios) != len(spec.levels):
            raise InstanceError(
                f"oversubscription: found {len(ratios)} numbers, {len(spec.levels)} are needed "
                "(one a level): correct it"
            )
        self.ratios = [exact(ratio, "oversubscription", least=1, most=10**6) for ratio in ratios]
        self.rails = rails_per_node
        self.devices_forward = devices_forward
        self.sizes = [level.size for level in spec.levels]
        self.count = prod(self.sizes)
        _check_size("tree", self.sizes)

    def graph(self) -> LinkGraph:
        """Return the graph."""
        names = [str(device) for device in range(self.count)]
        links: list[Link] = []
        for level, spec in enumerate(self.spec.levels):
            below, inside = self._starts(level)
            switches = self.rails if level == 1 else 1
            first = len(names)
            group = inside * spec.size
            for number in range(self.count // group):
                names += [
                    f"{spec.name}-{number}" + (f"-rail-{rail}" if switches > 1 else "")
                    for rail in range(switches)
                ]
            for lower, start, devices in below:
                switch = first + start // group * switches
                if level == 1 and self.rails > 1:
                    switch += start % self.sizes[0] % self.rails
                links += self._kind(level, devices).both_ways(lower, switch)
            self._below = [
                (
                    first + number * switches + rail,
                    number * group,
                    group // switches,
                )
                for number in range(self.count // group)
                for rail in range(switches)
            ]
        return LinkGraph(tuple(names), self.count, tuple(links), self.devices_forward)

    def _starts(self, level: int) -> tuple[list[tuple[int, int, int]], int]:
        """Return (vertex, its first device, devices that share its way up) of the level below.

        With rails the devices themselves go up at level 1.
        """
        inside = prod(self.sizes[:level])
        if level == 0 or (level == 1 and self.rails > 1):
            return [(device, device, 1) for device in range(self.count)], inside
        return self._below, inside

    def _kind(self, level: int, devices: int) -> LinkKind:
        spec = self.spec.levels[level]
        bandwidth = Fraction(spec.bandwidth_bytes_per_s)
        capacity = bandwidth * devices / self.ratios[level]
        inner = level - 1 if level and not (level == 1 and self.rails > 1) else None
        before = Fraction(0) if inner is None else Fraction(self.spec.levels[inner].latency_s)
        return LinkKind(min(bandwidth, capacity), (Fraction(spec.latency_s) - before) / 2, capacity)


def _check_rails(spec: HierarchicalSpec, rails_per_node: int) -> None:
    if len(spec.levels) < 2:
        raise InstanceError("rails: found 1 level, at least 2 are needed: use a tree, or add one")
    node = spec.levels[0].size
    if not 2 <= rails_per_node <= node or node % rails_per_node:
        raise InstanceError(
            f"rails: found {rails_per_node} rails, 2 to {node} that divide the {node} devices of "
            "a node are allowed: correct the number, or use a tree"
        )


def _check_size(what: str, sizes: Sequence[int]) -> None:
    for size in sizes:
        if size < 1:
            raise InstanceError(f"{what}: found size {size}, at least 1 is needed: correct it")
    if prod(sizes) > MAX_GRAPH_DEVICES:
        raise InstanceError(
            f"{what}: found {prod(sizes):,} devices (the product of {list(sizes)}), at most "
            f"{MAX_GRAPH_DEVICES:,} are allowed: lower a size"
        )
