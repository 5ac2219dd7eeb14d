"""Whether every device of a graph reaches every other."""

from collections.abc import Callable

from nest_opt.errors import InstanceError
from nest_opt.network.graph import LinkGraph, shown


def check_connected(graph: LinkGraph) -> None:
    """Refuse a graph in which some device has no route to another.

    Usually some vertex that forwards reaches every device and is reached from
    every device: that takes two searches. Only where it is not so is every
    device searched from.

    Raises
    ------
    InstanceError
        If there is no route; the message names the devices.
    """
    if _one_part_joins_all(graph):
        return
    for device in range(graph.device_count):
        seen = _reached(graph, device, _onward(graph))
        missing = [other for other in range(graph.device_count) if other not in seen]
        if missing:
            raise InstanceError(
                f"network: found no route from device {graph.names[device]!r} to "
                f"{shown([graph.names[other] for other in missing])} ({len(missing):,} of "
                f"{graph.device_count:,} devices), every device must reach every other: add "
                "links, or leave those devices out"
                + ("" if graph.devices_forward else ", or let devices forward (devices_forward)")
            )


def _onward(graph: LinkGraph) -> Callable[[int], list[int]]:
    return lambda vertex: [graph.links[number].target for number in graph.out_links[vertex]]


def _backward(graph: LinkGraph) -> Callable[[int], list[int]]:
    return lambda vertex: [graph.links[number].source for number in graph.in_links[vertex]]


def _one_part_joins_all(graph: LinkGraph) -> bool:
    starts = [vertex for vertex in (0, *_onward(graph)(0)) if graph.forwards(vertex)]
    if not starts:
        return graph.device_count == 1
    # What a device sends reaches the start, and the start reaches every device:
    # joined there, the two are a route, as the start forwards.
    reached = [_reached(graph, starts[0], way) for way in (_onward(graph), _backward(graph))]
    return all(
        device in reached[0] and device in reached[1] for device in range(graph.device_count)
    )


def _reached(graph: LinkGraph, start: int, way: Callable[[int], list[int]]) -> set[int]:
    seen = {start}
    waiting = [start]
    while waiting:
        vertex = waiting.pop()
        if vertex != start and not graph.forwards(vertex):
            continue
        for other in way(vertex):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return seen
