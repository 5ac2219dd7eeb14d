"""A list of edges as text: the package's own plain format for any graph.

    # two nodes of two devices
    switches s[0-1] core
    a0 -- s0  450e9 1e-6
    a1 -- s0  450e9 1e-6
    s0 -> core  50e9 2e-6  100e9

`A -- B` is a link in each direction, `A -> B` in one; bytes/s of one transfer,
seconds, and if more than one transfer fits at once, bytes/s of all together.
What no `switches` line names is a device; `devices` lines number them, else
they are numbered as they appear. The line `devices-forward` says that devices
carry what others send.
"""

from nest_opt.errors import InstanceError
from nest_opt.network.graph import MAX_LINKS, MAX_VERTICES, LinkGraph, LinkKind
from nest_opt.network.imports.host_list import host_list
from nest_opt.network.imports.text import cut, lines_of, refusal
from nest_opt.network.topologies import Edge, graph_of_edges

_ARROWS = {"--": True, "->": False}


def parse_edge_list(text: str, name: str = "edge list") -> LinkGraph:
    """Return the graph of a list of edges; `name` stands for the text in errors.

    Raises
    ------
    InstanceError
        If a line is malformed, or declares a vertex twice; the message says
        which.
    """
    reader = _Reader(name)
    for line, content in lines_of(text, name):
        reader.take(content.split(), line)
    return reader.graph()


class _Reader:
    """What the lines so far have said."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.declared: dict[str, int] = {}
        self.devices: dict[str, None] = {}
        self.switches: list[str] = []
        self.edges: list[Edge] = []
        self.forward = False

    def take(self, words: list[str], line: int) -> None:
        """Take a line."""
        if words == ["devices-forward"]:
            self.forward = True
        elif words[0] in ("switches", "devices") and (len(words) < 2 or words[1] not in _ARROWS):
            self._declare(words, line)
        elif len(self.edges) == MAX_LINKS:
            raise refusal(
                self.name, line, f"found more than {MAX_LINKS:,} edges: describe a smaller network"
            )
        else:
            self.edges.append(_edge(words, self.name, line))

    def _declare(self, words: list[str], line: int) -> None:
        for vertex in host_list(",".join(words[1:]), self.name, line) if words[1:] else ():
            if vertex in self.declared:
                raise refusal(
                    self.name,
                    line,
                    f"found {cut(vertex)}, which line {self.declared[vertex]} names already: "
                    "remove one",
                )
            self.declared[vertex] = line
            if len(self.declared) > MAX_VERTICES:
                raise refusal(
                    self.name,
                    line,
                    f"found more than {MAX_VERTICES:,} names: describe a smaller network",
                )
            if words[0] == "devices":
                self.devices[vertex] = None
            else:
                self.switches.append(vertex)

    def graph(self) -> LinkGraph:
        """Return the graph of all lines."""
        for edge in self.edges:
            for vertex in (edge.source, edge.target):
                if vertex not in self.declared:
                    self.devices[vertex] = None
        if not self.devices:
            raise InstanceError(
                f"{self.name}: found no device, 1 at least is needed: name it in no `switches` line"
            )
        return graph_of_edges(tuple(self.devices), self.edges, self.forward, self.switches)


def _edge(words: list[str], name: str, line: int) -> Edge:
    if len(words) not in (5, 6) or words[1] not in _ARROWS:
        raise refusal(
            name,
            line,
            f"found {cut(' '.join(words))}, `A -- B bytes/s seconds` (or ->, and the capacity "
            "behind) is needed: correct it",
        )
    source, arrow, target, *numbers = words
    if source == target:
        raise refusal(name, line, f"found a link from {cut(source)} to itself: remove it")
    bandwidth, latency, *capacity = numbers
    kind = LinkKind.of(
        bandwidth, latency, capacity[0] if capacity else None, f"{name}: line {line}"
    )
    if kind.capacity < kind.bandwidth:
        raise refusal(
            name,
            line,
            f"found capacity {capacity[0]}, at least {bandwidth} is needed (the bandwidth of one "
            "transfer): raise it",
        )
    return Edge(source, target, kind, _ARROWS[arrow])
