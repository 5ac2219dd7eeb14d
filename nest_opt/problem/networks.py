"""Networks that are graphs: torus, dragonfly, rails, and any graph of named devices and links.

The planner sees them through levels, which `nest_opt.network.planned` derives:
devices take the places of an order, groups of a level are runs of it. What a
file says on the order, the groups, the routes and the traffic that levels
count with is the same for all of them (`GraphKind`).
"""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate, pairwise
from math import prod
from operator import mul
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from nest_opt.problem.base import (
    MAX_BYTES,
    Exact,
    Flag,
    Frozen,
    Identifier,
    Seconds,
    first_repeated,
)
from nest_opt.problem.hierarchical import (
    MAX_LEVELS,
    HierarchicalSpec,
    LevelSpec,
    level_number,
)

MAX_GRAPH_DEVICES = 2**17
MAX_SWITCHES = 2**17
MAX_LINKS = 2**21
# Places of devices that are compared pair by pair.
MAX_SITES = 2**12
MAX_AXES = 8
MAX_CAPACITY = MAX_BYTES * 2**18

Routing = Literal["latency", "links", "widest"]
Traffic = Literal["alone", "rings", "any"]
Size = Annotated[int, Field(strict=True, ge=1, le=MAX_GRAPH_DEVICES)]


class LinkSpec(Frozen):
    """What a link is, in one direction.

    `capacity_bytes_per_s` is what all transfers on it share, the bandwidth if it is not given.
    """

    bandwidth_bytes_per_s: Annotated[Exact, Field(gt=0, le=MAX_BYTES)]
    latency_s: Seconds
    capacity_bytes_per_s: Annotated[Exact, Field(gt=0, le=MAX_CAPACITY)] | None = None

    @model_validator(mode="after")
    def _check_capacity(self) -> "LinkSpec":
        capacity = self.capacity_bytes_per_s
        if capacity is not None and capacity < self.bandwidth_bytes_per_s:
            raise ValueError(
                f"capacity_bytes_per_s: found {capacity} bytes/s, at least the bandwidth "
                f"({self.bandwidth_bytes_per_s} bytes/s) is needed: raise it, or leave it out"
            )
        return self


class LinkEnds(Frozen):
    """The vertices of a link, by name; both directions unless it is `one_way`."""

    source: Identifier
    target: Identifier
    one_way: Flag = False

    @model_validator(mode="after")
    def _check_ends(self) -> "LinkEnds":
        if self.source == self.target:
            raise ValueError(
                f"target: found {self.target!r}, the source as well, another one is needed: remove "
                "the link, or correct a name"
            )
        return self

    @property
    def directions(self) -> tuple[tuple[str, str], ...]:
        """The (source, target) of every direction that is meant."""
        there = self.source, self.target
        return (there,) if self.one_way else (there, there[::-1])

    def __str__(self) -> str:
        """Return the ends for a message."""
        return f"{self.source!r} -> {self.target!r}"


class NamedLink(LinkEnds, LinkSpec):
    """A link between two named vertices."""


class GraphKind(Frozen):
    """What all networks that are graphs have in common.

    Attributes
    ----------
    order
        Names of all devices in the order of plan device numbers; None: found by the package.
    level_sizes
        Devices in a group of each level but the outermost, innermost first;
        None: those of the shape, or found by the package.
    routing, sharing
        What routes minimise, and whether all that tie are taken.
    traffic
        What the levels take to be under way at once.
    """

    order: tuple[Identifier, ...] | None = Field(default=None, max_length=MAX_GRAPH_DEVICES)
    level_sizes: tuple[Size, ...] | None = Field(default=None, max_length=MAX_LEVELS - 1)
    routing: Routing = "latency"
    sharing: Flag = False
    traffic: Traffic = "rings"

    @property
    def device_count(self) -> int:
        """Devices that the network connects."""
        raise NotImplementedError

    def shape_levels(self) -> Iterator[tuple[str, int]] | None:
        """Return (name, devices in a group) of the levels that the shape has; None: not known."""
        raise NotImplementedError

    @cached_property
    def memo(self) -> dict[str, Any]:
        """What packages above compute of this network once."""
        return {}

    @cached_property
    def planned_groups(self) -> tuple[tuple[str, int], ...] | None:
        """The (name, devices in a group) of every level, the outermost last; None: not known.

        Levels whose groups are no larger than those of the level inside are none.
        """
        if self.level_sizes is not None:
            levels = [(f"level-{n}", size) for n, size in enumerate(self.level_sizes)]
            return (*levels, (f"level-{len(levels)}", self.device_count))
        shape = self.shape_levels()
        if shape is None:
            return None
        found: list[tuple[str, int]] = []
        for name, size in shape:
            if size > (found[-1][1] if found else 1):
                found.append((name, size))
        return tuple(found) or (("level-0", 1),)

    @property
    def innermost_size(self) -> int:
        """Devices in a group of the innermost level; all, where it is not known yet."""
        return self.device_count if self.planned_groups is None else self.planned_groups[0][1]

    def level_number(self, name: str) -> int:
        """Return the number of the level of a name, 0 for the innermost.

        Raises
        ------
        ValueError
            If no level has the name, or the levels are not known from the file.
        """
        if self.planned_groups is None:
            raise ValueError(
                f"level: found {name!r}, but the levels of a graph without level_sizes are found "
                "by the search alone: give cluster.network.level_sizes"
            )
        return level_number([known for known, _ in self.planned_groups], name)

    @model_validator(mode="after")
    def _validate_levels(self) -> "GraphKind":
        if self.device_count > MAX_GRAPH_DEVICES:
            raise ValueError(
                f"devices: found {self.device_count:,}, at most {MAX_GRAPH_DEVICES:,} are allowed "
                "in a network of this type: lower a size"
            )
        for inner, outer in pairwise((1, *(self.level_sizes or ()))):
            if outer <= inner or outer % inner or outer >= self.device_count:
                raise ValueError(
                    f"level_sizes: found {outer} after {inner}, a larger multiple below "
                    f"{self.device_count} (all devices) is needed: correct it"
                )
        if self.order is not None:
            twice = first_repeated(self.order)
            if twice is not None:
                raise ValueError(f"order: found {twice!r} twice, once is allowed: remove one")
            if len(self.order) != self.device_count:
                raise ValueError(
                    f"order: found {len(self.order):,} names, each of the {self.device_count:,} "
                    "devices once is needed: add or remove some"
                )
        return self


class ShapeKind(GraphKind):
    """A graph of a regular shape, of which some links may be missing or have other figures."""

    missing_links: tuple[LinkEnds, ...] = Field(default=(), max_length=MAX_LINKS)
    changed_links: tuple[NamedLink, ...] = Field(default=(), max_length=MAX_LINKS)

    @model_validator(mode="after")
    def _validate_links(self) -> "ShapeKind":
        ends = [
            pair for link in (*self.missing_links, *self.changed_links) for pair in link.directions
        ]
        twice = first_repeated(ends)
        if twice is not None:
            raise ValueError(
                f"missing_links, changed_links: found {twice[0]!r} -> {twice[1]!r} twice, once is "
                "allowed: remove one"
            )
        return self


class AxisSpec(LinkSpec):
    """An axis of a torus: devices along it, its links, and whether it wraps around."""

    size: Size
    wrap: Flag = True


class TorusSpec(ShapeKind):
    """A torus, or a mesh along the axes that do not wrap around.

    Devices are named by their coordinates, "0-3-1", and numbered along the
    last axis first. Groups are boxes, innermost first: those of `boxes`, or
    boxes that grow along every axis at once by its least prime factor.
    """

    type: Literal["torus"]
    axes: tuple[AxisSpec, ...] = Field(min_length=1, max_length=MAX_AXES)
    boxes: tuple[tuple[Size, ...], ...] | None = Field(default=None, max_length=MAX_LEVELS - 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Devices along each axis."""
        return tuple(axis.size for axis in self.axes)

    @property
    def device_count(self) -> int:
        """Devices that the network connects."""
        return prod(self.shape)

    @property
    def nested(self) -> tuple[tuple[int, ...], ...]:
        """The boxes of every level but the outermost, innermost first."""
        return tuple(nested_boxes(self.shape)) if self.boxes is None else self.boxes

    def shape_levels(self) -> Iterator[tuple[str, int]]:
        """Return (name, devices in a group) of the boxes."""
        return (("x".join(map(str, box)), prod(box)) for box in (*self.nested, self.shape))

    @model_validator(mode="after")
    def _validate_boxes(self) -> "TorusSpec":
        _check_sites(self.device_count)
        if self.boxes is not None and (self.level_sizes is not None or self.order is not None):
            raise ValueError(
                "boxes: found beside level_sizes or order, one way to say the groups is allowed: "
                "remove the other"
            )
        for inner, outer in pairwise(((1,) * len(self.axes), *self.nested, self.shape)):
            if len(inner) != len(outer) or any(
                wide % narrow for narrow, wide in zip(inner, outer, strict=True)
            ):
                raise ValueError(
                    f"boxes: found {list(inner)} in {list(outer)}, sizes that divide those "
                    "outside are needed on every axis: correct them"
                )
        return self


class NodeSpec(LinkSpec):
    """Nodes of several devices, which a switch inside joins besides the network."""

    size: Size


class DragonflySpec(ShapeKind):
    """A dragonfly: groups of routers that are all joined, some links between every two groups.

    Devices are named "group-router-device" and numbered in that order, routers
    "router-group-router" (Kim, Dally, Scott and Abts, ISCA 2008). With `node`,
    runs of the devices on a router are nodes with a switch of their own.
    """

    type: Literal["dragonfly"]
    groups: Size
    routers: Size
    devices: Size
    device_link: LinkSpec
    local_link: LinkSpec
    global_link: LinkSpec
    links_per_pair: Size = 1
    node: NodeSpec | None = None

    @property
    def device_count(self) -> int:
        """Devices that the network connects."""
        return self.groups * self.routers * self.devices

    def shape_levels(self) -> Iterator[tuple[str, int]]:
        """Return (name, devices in a group) of node, router, group and system."""
        return iter(
            (
                *((("node", self.node.size),) if self.node else ()),
                ("router", self.devices),
                ("group", self.devices * self.routers),
                ("system", self.device_count),
            )
        )

    @model_validator(mode="after")
    def _validate_size(self) -> "DragonflySpec":
        if self.node is not None:
            _check_sites(self.device_count)
        if self.node is not None and self.devices % self.node.size:
            raise ValueError(
                f"node.size: found {self.node.size}, a divisor of the {self.devices} devices on a "
                "router is needed: correct it"
            )
        links = (
            (2 if self.node is None else 4) * self.device_count
            + self.groups * self.routers * (self.routers - 1)
            + self.groups * (self.groups - 1) * self.links_per_pair
        )
        if links > MAX_LINKS:
            raise ValueError(
                f"links: found {links:,} in groups of {self.routers:,} routers, at most "
                f"{MAX_LINKS:,} are allowed: lower groups, routers or links_per_pair"
            )
        return self


class RailsSpec(ShapeKind):
    """Nodes (level 0) whose device i has a link of its own to switch i of its level-1 group.

    Levels are those of a hierarchical network. `rails` is the number of
    switches of a group, device i is on rail i modulo that. Devices
    forward what is for another rail inside the node (NCCL's PXN), unless
    `devices_forward` is false. Devices are named by their numbers.
    """

    type: Literal["rails"]
    levels: tuple[LevelSpec, ...] = Field(min_length=2, max_length=MAX_LEVELS)
    rails: Size
    devices_forward: Flag = True

    @cached_property
    def hierarchy(self) -> HierarchicalSpec:
        """The levels as a hierarchical network."""
        return HierarchicalSpec(type="hierarchical", levels=self.levels)

    @property
    def device_count(self) -> int:
        """Devices that the network connects."""
        return prod(level.size for level in self.levels)

    def shape_levels(self) -> Iterator[tuple[str, int]]:
        """Return (name, devices in a group) of the levels."""
        sizes = accumulate((level.size for level in self.levels), mul)
        return ((level.name, size) for level, size in zip(self.levels, sizes, strict=True))

    @model_validator(mode="after")
    def _validate_rails(self) -> "RailsSpec":
        _check_sites(self.device_count)
        _ = self.hierarchy  # refuses latencies that fall
        node = self.levels[0].size
        if not 2 <= self.rails <= node or node % self.rails:
            raise ValueError(
                f"rails: found {self.rails}, 2 to {node} that divide the {node} devices of a node "
                "(levels[0].size) are allowed: correct the number, or use type 'hierarchical'"
            )
        return self


class GraphSpec(GraphKind):
    """Any graph of named devices and switches.

    A link joins two named vertices, each way unless it is `one_way`; several
    between the same two are several cables. Switches pass on what others
    send, devices only with `devices_forward`.
    """

    type: Literal["graph"]
    devices: tuple[Identifier, ...] = Field(min_length=1, max_length=MAX_GRAPH_DEVICES)
    switches: tuple[Identifier, ...] = Field(default=(), max_length=MAX_SWITCHES)
    links: tuple[NamedLink, ...] = Field(max_length=MAX_LINKS // 2)
    devices_forward: Flag = False

    @property
    def device_count(self) -> int:
        """Devices that the network connects."""
        return len(self.devices)

    def shape_levels(self) -> Iterator[tuple[str, int]] | None:
        """Return None: the package finds the levels; of one device there is one."""
        return iter(()) if self.device_count == 1 else None

    @model_validator(mode="after")
    def _validate_names(self) -> "GraphSpec":
        twice = first_repeated((*self.devices, *self.switches))
        if twice is not None:
            raise ValueError(
                f"devices, switches: found 2 named {twice!r}, 1 is allowed: rename one"
            )
        devices = set(self.devices)
        known = devices.union(self.switches)
        for number, link in enumerate(self.links):
            for name in (link.source, link.target):
                if name not in known:
                    raise ValueError(
                        f"links[{number}] ({link}): found {name!r}, which is neither among devices "
                        "nor among switches: add it there, or correct the name"
                    )
        for name in self.order or ():
            if name not in devices:
                raise ValueError(f"order: found {name!r}, which is no device: correct the name")
        return self


def _check_sites(devices: int) -> None:
    """Refuse more devices than are compared pair by pair, where none is placed like another."""
    if devices > MAX_SITES:
        raise ValueError(
            f"devices: found {devices:,}, at most {MAX_SITES:,} are compared pair by pair in a "
            "network of this type: lower a size, or describe it by levels (type 'hierarchical')"
        )


def nested_boxes(shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return boxes that grow along every axis at once by its least prime factor.

    The innermost are left out where there would be more levels than a
    hierarchical network has.
    """
    box = [1] * len(shape)
    found = []
    while box != list(shape):
        box = [at * _least_factor(size // at) for at, size in zip(box, shape, strict=True)]
        found.append(tuple(box))
    return found[:-1][-(MAX_LEVELS - 1) :]


def _least_factor(number: int) -> int:
    factor = 2
    while factor * factor <= number:
        if number % factor == 0:
            return factor
        factor += 1
    return number


NetworkSpec = Annotated[
    HierarchicalSpec | TorusSpec | DragonflySpec | RailsSpec | GraphSpec,
    Field(discriminator="type"),
]
