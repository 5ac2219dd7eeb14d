"""Slurm's topology.conf, tree or block, as a graph.

The file knows nodes and switches, or blocks, but no bandwidths: those come
from the caller, a `FabricLevel` for the inside of a node and for every height
of switch (https://slurm.schedmd.com/topology.conf.html).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise

from nest_opt.errors import InstanceError
from nest_opt.network.graph import (
    MAX_GRAPH_DEVICES,
    MAX_VERTICES,
    Link,
    LinkGraph,
    LinkKind,
    Number,
    exact,
    exact_bandwidth,
    exact_latency,
)
from nest_opt.network.imports.host_list import host_list
from nest_opt.network.imports.text import cut, lines_of, refusal

MAX_HEIGHT = 16
# What Slurm itself gives no meaning, or one that is none of the network's.
_IGNORED = {"linkspeed"}
_ALLOWED: dict[str, set[str]] = {
    "switchname": {"nodes", "switches"},
    "blockname": {"nodes"},
    "blocksizes": set(),
}


@dataclass(frozen=True)
class FabricLevel:
    """What the links up to a height of switch are.

    Attributes
    ----------
    bandwidth_bytes_per_s
        Per device and direction.
    latency_s
        Between two devices that meet there.
    oversubscription
        What the devices below could use over what is there.
    """

    bandwidth_bytes_per_s: Number
    latency_s: Number
    oversubscription: Number = 1


@dataclass
class _Group:
    """A switch or block: its line in the file, and what is in it."""

    name: str
    line: int
    nodes: list[str] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)


def parse_slurm_topology(
    text: str,
    levels: Sequence[FabricLevel],
    devices_per_node: int = 1,
    name: str = "topology.conf",
) -> LinkGraph:
    """Return the graph of a topology.conf.

    Parameters
    ----------
    levels
        The inside of a node first, then from the switches that nodes hang on
        upwards; more than the file has are not used. The devices of a node
        are on a switch of their own; where a node has one device, the inside
        still counts on the way out. Links up are those of `topologies.tree`:
        all devices below share their bandwidths, over the oversubscription.
    devices_per_node
        Devices of every node, named `node:0`, ... (with one, as the node).
    name
        Stands for the text in errors.

    Raises
    ------
    InstanceError
        If a line is malformed, a switch holds itself or what is unknown, a
        node hangs on two, the parts are not joined, or there are more heights
        than levels.
    """
    if not 1 <= devices_per_node <= MAX_GRAPH_DEVICES:
        raise InstanceError(
            f"{name}: found {devices_per_node} devices a node, 1 to {MAX_GRAPH_DEVICES:,} are "
            "allowed: correct the number"
        )
    reader = _Reader(name)
    for line, content in lines_of(text, name, continued=True):
        reader.take(content, line)
    groups = reader.all_groups()
    _check_children(groups, name)
    return _Fabric(groups, levels, devices_per_node, name).graph()


class _Reader:
    """What the lines so far have said.

    Attributes
    ----------
    groups
        The switches or blocks by name.
    sizes
        BlockSizes, with its line.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: dict[str, _Group] = {}
        self.sizes: tuple[int, list[int]] | None = None
        self.first: dict[str, int] = {}
        self.count = 0

    def take(self, content: str, line: int) -> None:
        """Take a line."""
        values = _values(content, self.name, line)
        kind = next((key for key in _ALLOWED if key in values), "")
        if not kind or not set(values) - {kind} - _IGNORED <= _ALLOWED[kind]:
            raise refusal(
                self.name,
                line,
                f"found {cut(content)}, SwitchName with Nodes or Switches, BlockName with Nodes, "
                "or BlockSizes is needed: remove what else the line says",
            )
        self.first.setdefault("tree" if kind == "switchname" else "block", line)
        if len(self.first) > 1:
            raise refusal(
                self.name,
                line,
                f"found both switches and blocks (the others from line {min(self.first.values())}"
                "), one of them is needed: keep either",
            )
        if kind == "blocksizes":
            self._take_sizes(values[kind], line)
        else:
            for label in host_list(values[kind], self.name, line):
                self._take_group(label, values, line)

    def _take_sizes(self, text: str, line: int) -> None:
        if self.sizes is not None:
            raise refusal(
                self.name, line, f"found BlockSizes again (line {self.sizes[0]} has it): remove one"
            )
        self.sizes = line, _block_sizes(text, self.name, line)

    def _take_group(self, label: str, values: Mapping[str, str], line: int) -> None:
        if label in self.groups:
            raise refusal(
                self.name,
                line,
                f"found {cut(label)}, which line {self.groups[label].line} has already: rename it",
            )
        group = self.groups[label] = _Group(label, line)
        for key, found in (("nodes", group.nodes), ("switches", group.groups)):
            if key in values:
                found += host_list(values[key], self.name, line)
        self.count += len(group.nodes) + len(group.groups)
        if self.count > MAX_VERTICES:
            raise refusal(
                self.name,
                line,
                f"found {self.count:,} nodes and switches up to here, at most {MAX_VERTICES:,} are "
                "allowed: describe a smaller part",
            )
        if not group.nodes and not group.groups:
            raise refusal(
                self.name,
                line,
                f"found nothing in {cut(label)}, Nodes or Switches are needed: add them",
            )

    def all_groups(self) -> dict[str, _Group]:
        """Return switches or blocks, and what joins the blocks."""
        if not self.groups:
            raise InstanceError(
                f"{self.name}: found no switch or block, 1 at least is needed: add it"
            )
        if "block" in self.first:
            _add_blocks(self.groups, self.sizes or (0, []), self.name)
        return self.groups


def _values(content: str, name: str, line: int) -> dict[str, str]:
    values: dict[str, str] = {}
    for word in content.split():
        key, sign, value = word.partition("=")
        if not sign or not value:
            raise refusal(
                name, line, f"found {cut(word)}, Parameter=value is needed: correct the word"
            )
        if key.lower() in values:
            raise refusal(name, line, f"found {key} 2 times, 1 is allowed: remove one")
        values[key.lower()] = value
    return values


def _block_sizes(text: str, name: str, line: int) -> list[int]:
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and 0 < len(word) < 8 for word in words):
        raise refusal(
            name, line, f"found BlockSizes={cut(text)}, whole numbers are needed: correct it"
        )
    sizes = [int(word) for word in words]
    for inner, outer in pairwise([1, *sizes]):
        if outer < inner or outer % inner or sizes[0] < 1:
            raise refusal(
                name,
                line,
                f"found BlockSizes={cut(text)}, each a multiple of the one before is needed: "
                "correct it",
            )
    return sizes


def _add_blocks(groups: dict[str, _Group], sizes: tuple[int, list[int]], name: str) -> None:
    """Join blocks, as many at a time as BlockSizes says, and at last all of them."""
    line, nodes = sizes
    below = list(groups.values())
    if nodes:
        small = next((group for group in below if len(group.nodes) < nodes[0]), None)
        if small is not None:
            raise refusal(
                name,
                small.line,
                f"found {len(small.nodes)} nodes in {cut(small.name)}, at least {nodes[0]} are "
                f"needed (BlockSizes, line {line}): add nodes or lower it",
            )
    ratios = [outer // inner for inner, outer in pairwise(nodes)]
    for height, ratio in enumerate([*ratios, len(below)], 2):
        if ratio < 2 or len(below) < 2:
            continue
        joined = []
        for start in range(0, len(below), ratio):
            part = below[start : start + ratio]
            label = _unused(f"blocks-{height}-{start // ratio}", groups)
            joined.append(_Group(label, line, groups=[group.name for group in part]))
            groups[label] = joined[-1]
        below = joined


def _unused(label: str, groups: Mapping[str, _Group]) -> str:
    while label in groups:
        label += "'"
    return label


def _check_children(groups: Mapping[str, _Group], name: str) -> None:
    """Refuse unknown switches, and what has two parents."""
    parent: dict[tuple[str, str], _Group] = {}
    for group in groups.values():
        for kind, children in (("node", group.nodes), ("switch", group.groups)):
            for child in children:
                if kind == "switch" and child not in groups:
                    raise refusal(
                        name,
                        group.line,
                        f"found switch {cut(child)}, which no line has: add it or correct the name",
                    )
                if kind == "node" and child in groups:
                    raise refusal(
                        name,
                        group.line,
                        f"found node {cut(child)}, which is a switch or block too: rename one",
                    )
                other = parent.get((kind, child))
                parent[kind, child] = group
                if other is not None:
                    raise refusal(
                        name,
                        group.line,
                        f"found {kind} {cut(child)} again (under {cut(other.name)}, line "
                        f"{other.line}), 1 place is allowed: remove one",
                    )


class _Fabric:
    """The graph of nodes under switches, from the leaves upwards."""

    def __init__(
        self,
        groups: Mapping[str, _Group],
        levels: Sequence[FabricLevel],
        devices_per_node: int,
        name: str,
    ) -> None:
        self.groups = groups
        self.per_node = devices_per_node
        self.name = name
        self.order = list(self._upwards())
        self.heights: dict[str, int] = {}
        for group in self.order:
            below = (self.heights[child] for child in group.groups)
            self.heights[group.name] = 1 + max(below, default=0)
        self._check_height(max(self.heights.values()), len(levels))
        self.bandwidth = [
            exact_bandwidth(level.bandwidth_bytes_per_s, f"level {place}: bandwidth")
            for place, level in enumerate(levels)
        ]
        self.latency = [
            exact_latency(level.latency_s, f"level {place}: latency")
            for place, level in enumerate(levels)
        ]
        self.ratio = [
            exact(level.oversubscription, f"level {place}: oversubscription", 1, 10**6)
            for place, level in enumerate(levels)
        ]
        for place, (inner, outer) in enumerate(pairwise(self.latency)):
            if outer < inner:
                raise InstanceError(
                    f"level {place + 1}: found latency {float(outer):g} s, at least "
                    f"{float(inner):g} s is needed (that of the level inside it): raise it"
                )

    def _check_height(self, height: int, levels: int) -> None:
        if height > MAX_HEIGHT:
            raise InstanceError(
                f"{self.name}: found {height} switches above one another, at most {MAX_HEIGHT} are "
                "allowed: describe a flatter network"
            )
        if height >= levels:
            raise InstanceError(
                f"{self.name}: found {height} heights of switches, and {levels} levels to tell "
                f"what their links are: {height + 1} are needed (the inside of a node first): "
                f"add bandwidth and latency of switch-{levels}"
            )

    def _upwards(self) -> Iterator[_Group]:
        """Yield all switches, each after those in it; refuse one that holds itself."""
        children = {child for group in self.groups.values() for child in group.groups}
        roots = [group for label, group in self.groups.items() if label not in children]
        if len(roots) > 1:
            raise refusal(
                self.name,
                roots[1].line,
                f"found {cut(roots[1].name)} in no switch, as {cut(roots[0].name)} (line "
                f"{roots[0].line}): 1 switch above all others is needed: add it",
            )
        downwards = list(roots)
        for group in downwards:
            downwards += [self.groups[child] for child in group.groups]
        if len(downwards) < len(self.groups):
            reached = {group.name for group in downwards}
            lost = next(group for label, group in self.groups.items() if label not in reached)
            raise refusal(
                self.name, lost.line, f"found {cut(lost.name)} inside itself: correct Switches"
            )
        yield from reversed(downwards)

    def graph(self) -> LinkGraph:
        """Return the graph."""
        nodes = [node for group in self.groups.values() for node in group.nodes]
        count = len(nodes) * self.per_node
        if count > MAX_GRAPH_DEVICES:
            raise InstanceError(
                f"{self.name}: found {count:,} devices ({len(nodes):,} nodes of {self.per_node}), "
                f"at most {MAX_GRAPH_DEVICES:,} are allowed: describe a smaller part"
            )
        devices = [
            node if self.per_node == 1 else f"{node}:{place}"
            for node in nodes
            for place in range(self.per_node)
        ]
        names = [*devices, *(f"node {node}" for node in nodes), *self.groups]
        number = {name: place for place, name in enumerate(names)}
        links: list[Link] = []
        for place in range(count):
            links += self._up(0, None, 1).both_ways(place, count + place // self.per_node)
        below: dict[str, int] = {}
        for group in self.order:
            height = self.heights[group.name]
            below[group.name] = len(group.nodes) * self.per_node
            for node in group.nodes:
                kind = self._up(height, 0, self.per_node)
                links += kind.both_ways(number[f"node {node}"], number[group.name])
            for child in group.groups:
                below[group.name] += below[child]
                kind = self._up(height, self.heights[child], below[child])
                links += kind.both_ways(number[child], number[group.name])
        return LinkGraph(tuple(names), count, tuple(links))

    def _up(self, height: int, child: int | None, devices: int) -> LinkKind:
        before = Fraction(0) if child is None else self.latency[child]
        capacity = self.bandwidth[height] * devices / self.ratio[height]
        return LinkKind(
            min(self.bandwidth[height], capacity), (self.latency[height] - before) / 2, capacity
        )
