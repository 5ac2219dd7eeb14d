"""Every network as the planner sees it: levels, and the graph behind them.

The one place that turns the network of a problem file into a
`HierarchicalSpec` for costs, search and constraints, into a `LinkGraph` for
whoever routes real transfers, and plan device numbers into the devices of the
file. All three are computed once a network.
"""

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.network.derived import derived_hierarchy
from nest_opt.network.distances import pair_table
from nest_opt.network.flows import Flow
from nest_opt.network.graph import LinkGraph, LinkKind, with_links, without_links
from nest_opt.network.graph_network import GraphNetwork
from nest_opt.network.order import REFERENCE_BYTES, device_order, natural_sizes
from nest_opt.network.topologies import (
    Edge,
    dragonfly,
    graph_of_edges,
    rails,
    torus,
    tree,
    with_nodes,
)
from nest_opt.network.torus_order import torus_order
from nest_opt.problem.cluster import Cluster
from nest_opt.problem.hierarchical import HierarchicalSpec
from nest_opt.problem.networks import (
    DragonflySpec,
    GraphKind,
    GraphSpec,
    LinkSpec,
    RailsSpec,
    ShapeKind,
    TorusSpec,
    Traffic,
)
from nest_opt.problem.validation import build


def planned_levels(cluster: Cluster) -> HierarchicalSpec:
    """Return the levels that costs and search see.

    Those of a hierarchical network, bandwidths divided by its
    oversubscription; of any other network those that `derived_hierarchy`
    finds under its order, its groups and its traffic.

    Raises
    ------
    InstanceError
        If a device has no route to another, a named link does not exist, or
        the network is larger than what is compared pair by pair.
    """
    network = cluster.network
    if isinstance(network, HierarchicalSpec):
        return network.effective
    if "levels" not in network.memo:
        network.memo["levels"] = _derived_levels(network)
    found: HierarchicalSpec = network.memo["levels"]
    return found


def device_names(cluster: Cluster) -> tuple[str, ...]:
    """Return the network's name of every plan device number.

    Devices of a hierarchical network are called by their numbers.
    """
    network = cluster.network
    if isinstance(network, HierarchicalSpec):
        return tuple(map(str, range(cluster.device_count)))
    names = link_graph(network).names
    return tuple(names[vertex] for vertex in device_vertices(cluster))


def device_vertices(cluster: Cluster) -> tuple[int, ...]:
    """Return the vertex of the network's graph of every plan device number."""
    network = cluster.network
    if isinstance(network, HierarchicalSpec):
        return tuple(range(cluster.device_count))
    return _order(network)[0][: cluster.device_count]


def link_graph(network: HierarchicalSpec | GraphKind) -> LinkGraph:
    """Return the graph of a network; of a hierarchical one, its tree of switches.

    Raises
    ------
    InstanceError
        If a link that is to be missing or changed does not exist, or there
        are more devices than a graph has room for.
    """
    if isinstance(network, HierarchicalSpec):
        return tree(network, [level.oversubscription for level in network.levels])
    if "graph" not in network.memo:
        network.memo["graph"] = _built(network)
    found: LinkGraph = network.memo["graph"]
    return found


def routed(network: GraphKind) -> GraphNetwork:
    """Return the network's graph with its routes.

    Raises
    ------
    InstanceError
        As `link_graph`, and if a device has no route to another.
    """
    if "routed" not in network.memo:
        network.memo["routed"] = GraphNetwork(link_graph(network), network.routing, network.sharing)
    found: GraphNetwork = network.memo["routed"]
    return found


def with_traffic(network: GraphKind, traffic: Traffic) -> GraphKind:
    """Return a network whose levels count with other traffic; it shares graph, routes and order."""
    found = network.model_copy(update={"traffic": traffic})
    found.memo.update((name, known) for name, known in network.memo.items() if name != "levels")
    return found


class PlannedPairs:
    """The graph of a network, asked by plan device numbers: a `PairNetwork`."""

    def __init__(self, cluster: Cluster, network: GraphKind) -> None:
        self._network = routed(network)
        self._vertices = device_vertices(cluster)

    @property
    def device_count(self) -> int:
        """Devices are numbered 0 to one less; those of the cluster, not all of the network."""
        return len(self._vertices)

    def transfer_s(self, source: int, target: int, size_bytes: Fraction | int) -> Fraction:
        """Return the seconds of one transfer while nothing else is under way."""
        ends = self._vertices[source], self._vertices[target]
        return self._network.transfer_s(*ends, size_bytes)

    def concurrent_s(self, flows: Iterable[Flow]) -> Fraction:
        """Return the seconds until the last of several transfers begun at once is over."""
        at = self._vertices
        return self._network.concurrent_s(
            Flow(at[flow.source], at[flow.target], flow.size_bytes) for flow in flows
        )


def _derived_levels(network: GraphKind) -> HierarchicalSpec:
    order, sizes = _order(network)
    derived = derived_hierarchy(routed(network), order, sizes, network.traffic)
    if network.planned_groups is None:
        return derived
    levels = tuple(
        level.model_copy(update={"name": name})
        for level, (name, _) in zip(derived.levels, network.planned_groups, strict=True)
    )
    return derived.model_copy(update={"levels": levels})


def _order(network: GraphKind) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the vertices by plan device number, and devices in a group of all levels but one."""
    if "order" not in network.memo:
        network.memo["order"] = _found_order(network)
    found: tuple[tuple[int, ...], tuple[int, ...]] = network.memo["order"]
    return found


def _found_order(network: GraphKind) -> tuple[tuple[int, ...], tuple[int, ...]]:
    groups = network.planned_groups
    sizes = None if groups is None else tuple(size for _, size in groups[:-1])
    graph = link_graph(network)
    if network.order is not None:
        order = _named(graph, network.order)
        return order, _natural_sizes(network) if sizes is None else sizes
    if isinstance(network, TorusSpec) and sizes is not None:
        return torus_order(network.shape, network.nested).devices, sizes
    if isinstance(network, GraphSpec) and network.device_count > 1:
        routed(network)  # a device without a route is refused by name
        found = device_order(graph, sizes, network.routing)
        return found.devices, found.sizes
    return tuple(range(network.device_count)), sizes or ()


def _natural_sizes(network: GraphKind) -> tuple[int, ...]:
    table = pair_table(routed(network).graph, network.routing)
    return natural_sizes(table, table.times_ps(REFERENCE_BYTES))


def _named(graph: LinkGraph, names: Sequence[str]) -> tuple[int, ...]:
    found = []
    for name in names:
        try:
            found.append(graph.device(name))
        except InstanceError as error:
            raise InstanceError(f"cluster.network.order: {error}") from error
    return tuple(found)


def _built(network: GraphKind) -> LinkGraph:
    graph = _shape(network)
    if not isinstance(network, ShapeKind):
        return graph
    try:
        if network.missing_links:
            gone = [pair for link in network.missing_links for pair in link.directions]
            graph = without_links(graph, gone)
        changed = {pair: _kind(link) for link in network.changed_links for pair in link.directions}
        return with_links(graph, changed) if changed else graph
    except InstanceError as error:
        raise InstanceError(f"cluster.network.missing_links, changed_links: {error}") from error


def _shape(network: GraphKind) -> LinkGraph:
    """Return the graph of a network's shape, with all its links."""
    match network:
        case TorusSpec():
            return torus(
                network.shape,
                [_kind(axis) for axis in network.axes],
                [axis.wrap for axis in network.axes],
            )
        case DragonflySpec():
            graph = dragonfly(
                network.groups,
                network.routers,
                network.devices,
                _kind(network.device_link),
                _kind(network.local_link),
                _kind(network.global_link),
                network.links_per_pair,
            )
            node = network.node
            return graph if node is None else with_nodes(graph, node.size, _kind(node))
        case RailsSpec():
            ratios = [level.oversubscription for level in network.levels]
            return rails(network.hierarchy, network.rails, ratios, network.devices_forward)
        case GraphSpec():
            edges = [
                Edge(link.source, link.target, _kind(link), not link.one_way)
                for link in network.links
            ]
            return graph_of_edges(network.devices, edges, network.devices_forward, network.switches)
    raise InstanceError(f"cluster.network.type: found {type(network).__name__}, no known network")


def _kind(link: LinkSpec) -> LinkKind:
    bandwidth = Fraction(link.bandwidth_bytes_per_s)
    capacity = link.capacity_bytes_per_s
    return LinkKind(
        bandwidth, Fraction(link.latency_s), bandwidth if capacity is None else Fraction(capacity)
    )


def network_of_graph(graph: LinkGraph, **options: object) -> GraphSpec:
    """Return a graph as the network of a problem file.

    Parameters
    ----------
    options
        Fields of `GraphKind`: order, level_sizes, routing, sharing, traffic.

    Raises
    ------
    InstanceError
        If a number has more than 40 digits, or there are more links than a file may have.
    """
    links = [
        {
            "source": graph.names[link.source],
            "target": graph.names[link.target],
            "one_way": True,
            "bandwidth_bytes_per_s": _decimal(link.bandwidth),
            "latency_s": _decimal(link.latency_s),
            **(
                {"capacity_bytes_per_s": _decimal(link.capacity)}
                if link.capacity != link.bandwidth
                else {}
            ),
        }
        for link in graph.links
    ]
    data = {
        "type": "graph",
        "devices": graph.names[: graph.device_count],
        "switches": graph.names[graph.device_count :],
        "devices_forward": graph.devices_forward,
        "links": _both_ways(links),
        **options,
    }
    return build(GraphSpec, data, "network")


def _both_ways(links: list[dict[str, object]]) -> list[dict[str, object]]:
    """Return links with every one that is followed by its own way back as one of both ways."""
    found: list[dict[str, object]] = []
    for link in links:
        back = {**link, "source": link["target"], "target": link["source"]}
        if found and found[-1] == back:
            found[-1] = {**found[-1], "one_way": False}
        else:
            found.append(link)
    return found


def _decimal(number: Fraction) -> Decimal:
    """Return a number exactly, or to 30 digits where it has more."""
    return Context(prec=30).divide(Decimal(number.numerator), Decimal(number.denominator))
