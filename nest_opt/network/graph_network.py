"""A network that is a graph: transfers take the routes of a router and share its links."""

from collections.abc import Collection, Iterable, Sequence
from fractions import Fraction

from nest_opt.errors import InstanceError
from nest_opt.network.connectivity import check_connected
from nest_opt.network.distances import PairTable, PathTable, pair_table
from nest_opt.network.flows import Flow, flow_seconds, loads
from nest_opt.network.graph import LinkGraph
from nest_opt.network.routing import STAY, Metric, Route, Router

MAX_REMEMBERED = 2**18


class GraphNetwork:
    """Transfers between the devices of a graph.

    Parameters
    ----------
    graph
        The graph; every device must have a route to every other.
    metric, sharing
        See `Router`.

    Raises
    ------
    InstanceError
        If a device has no route to another; the message names them.
    """

    def __init__(self, graph: LinkGraph, metric: Metric = "latency", sharing: bool = False) -> None:
        check_connected(graph)
        self.graph = graph
        self.router = Router(graph, metric, sharing)
        self._known: dict[tuple[int, int], Route] = {}
        self._paths: PathTable | None = None

    @property
    def device_count(self) -> int:
        """Devices are numbered 0 to one less."""
        return self.graph.device_count

    def route(self, source: int, target: int) -> Route:
        """Return the route between two devices; it is remembered."""
        return self.routes(source, (target,))[0]

    def routes(self, source: int, targets: Collection[int]) -> list[Route]:
        """Return the routes to several devices, found by one search where they are not known."""
        self._check(source, *targets)
        unknown = [
            target for target in targets if target != source and (source, target) not in self._known
        ]
        if unknown:
            if len(self._known) + len(unknown) > MAX_REMEMBERED:
                self._known.clear()
                unknown = [target for target in targets if target != source]
            if self._paths is not None:
                found = {to: self.router.along(self._paths.path(source, to)) for to in unknown}
            else:
                found = self.router.routes(source, unknown)
            for target, route in found.items():
                self._known[source, target] = route
        return [STAY if target == source else self._known[source, target] for target in targets]

    def tabulate(self) -> None:
        """Find the paths between all devices at once, for who needs thousands of routes.

        Routes stay the same. Without effect where a path is not all of a
        route (sharing), and for the widest.

        Raises
        ------
        InstanceError
            As `pair_table`.
        """
        metric = self.router.metric
        if self._paths is None and metric != "widest" and not self.router.sharing:
            self._paths = PathTable(self.graph, metric)

    def pair_table(self) -> PairTable:
        """Return latency and width between all devices, from the paths if they are tabulated.

        Raises
        ------
        InstanceError
            As `distances.pair_table`.
        """
        if self._paths is not None:
            return self._paths.pair_table()
        return pair_table(self.graph, self.router.metric)

    def transfer_s(self, source: int, target: int, size_bytes: Fraction | int) -> Fraction:
        """Return the seconds of one transfer while nothing else is under way.

        Latency of the route plus bytes over its rate: links pass bytes on as
        they arrive (cut-through), so bandwidths do not add up.
        """
        route = self.route(source, target)
        return Fraction(0) if route.rate is None else route.latency_s + size_bytes / route.rate

    def concurrent_s(self, flows: Iterable[Flow]) -> Fraction:
        """Return the seconds until the last of several transfers begun at once is over.

        At the best constant rates; see `flow_seconds`.
        """
        return max(self.flow_times_s(tuple(flows)), default=Fraction(0))

    def flow_times_s(self, flows: Sequence[Flow]) -> list[Fraction]:
        """Return the seconds of each of several transfers begun at once."""
        routed = [(flow, self.route(flow.source, flow.target)) for flow in flows]
        load = loads(routed)
        return [flow_seconds(self.graph, flow, route, load) for flow, route in routed]

    def link_loads(self, flows: Iterable[Flow]) -> dict[int, Fraction | int]:
        """Return the bytes that flows put on every link that they use."""
        return loads((flow, self.route(flow.source, flow.target)) for flow in flows)

    def _check(self, *devices: int) -> None:
        for device in devices:
            if not 0 <= device < self.device_count:
                raise InstanceError(
                    f"network: found device number {device}, 0 to {self.device_count - 1} are "
                    "allowed: correct it"
                )
