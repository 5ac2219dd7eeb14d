"""GraphML (http://graphml.graphdrawing.org) as a graph of links.

Read by a parser that takes elements as they come: a document type or nested
graphs are refused, and unknown data is passed over.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from nest_opt.errors import InstanceError
from nest_opt.network.graph import MAX_LINKS, MAX_VERTICES, LinkGraph, LinkKind
from nest_opt.network.imports.text import cut, refusal
from nest_opt.network.topologies import Edge, graph_of_edges

MAX_DEPTH = 64
MAX_VALUE_CHARACTERS = 200
_FIELDS = ("kind", "bandwidth_bytes_per_s", "latency_s", "capacity_bytes_per_s")
_PLAIN = {"graphml", "graph", "key", "node", "edge", "data", "default", "desc"}


@dataclass
class _Item:
    """A node or an edge while it is read."""

    line: int
    attributes: Mapping[str, str]
    data: dict[str, str] = field(default_factory=dict)


def parse_graphml(text: str, devices_forward: bool = False, name: str = "GraphML") -> LinkGraph:
    """Return the graph of a GraphML text.

    The attributes are those of `graph_of_networkx`: `kind` of nodes ("device",
    the default, or "switch"), and of edges `bandwidth_bytes_per_s`, `latency_s`
    and `capacity_bytes_per_s`, found by the names (attr.name) of their keys.
    Defaults of keys count.

    Raises
    ------
    InstanceError
        If the text is not such XML, has a document type, a nested graph, a
        hyperedge or port, or an item is malformed; the message says in which
        line.
    """
    reader = _Reader(name)
    reader.read(text)
    return reader.graph(devices_forward)


class _Reader:
    """What the parser calls, and what it has found."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path: list[str] = []
        self.keys: dict[str, tuple[str, str]] = {}
        self.defaults: dict[tuple[str, str], str] = {}
        self.nodes: dict[str, _Item] = {}
        self.edges: list[_Item] = []
        self.directed = False
        self.seen_graph = False
        self.item: _Item | None = None
        self.field: tuple[str, str] | None = None
        self.value = ""
        self.parser = expat.ParserCreate("UTF-8", " ")
        self.parser.StartElementHandler = self.start
        self.parser.EndElementHandler = self.end
        self.parser.CharacterDataHandler = self.characters
        self.parser.StartDoctypeDeclHandler = self.doctype

    @property
    def line(self) -> int:
        """The line that is being read."""
        return self.parser.CurrentLineNumber

    def read(self, text: str) -> None:
        """Read a whole text."""
        try:
            self.parser.Parse(text.encode(errors="replace"), True)
        except expat.ExpatError as error:
            message = f"not XML ({expat.ErrorString(error.code)}): correct that place"
            raise refusal(self.name, error.lineno, message) from error
        if not self.seen_graph:
            raise InstanceError(f"{self.name}: found no graph, 1 is needed: check the file")

    def doctype(self, *_: object) -> None:
        """Refuse a document type, which could define endless entities."""
        raise refusal(self.name, self.line, "found a document type, none is allowed: remove it")

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        """Take the beginning of an element."""
        self.path.append(tag.rpartition(" ")[2])
        if len(self.path) > MAX_DEPTH:
            raise refusal(
                self.name, self.line, f"nested deeper than {MAX_DEPTH} elements: flatten it"
            )
        inside, element = self.path[:-1], self.path[-1]
        if "data" in inside:
            return
        if element not in _PLAIN:
            raise refusal(
                self.name,
                self.line,
                f"found the element {cut(element)}, nodes and edges with data are read: remove it",
            )
        taken = {
            "graph": self._start_graph,
            "key": self._start_key,
            "node": self._start_node,
            "edge": self._start_edge,
            "data": self._start_data,
            "default": self._start_default,
        }.get(element)
        if taken:
            taken(attributes)

    def _start_graph(self, attributes: Mapping[str, str]) -> None:
        if self.seen_graph:
            raise refusal(
                self.name, self.line, "found a second graph, 1 is allowed: remove it or flatten it"
            )
        self.seen_graph = True
        self.directed = attributes.get("edgedefault") == "directed"

    def _start_key(self, attributes: Mapping[str, str]) -> None:
        key = self._needed(attributes, "id", "key")
        if key in self.keys:
            raise refusal(self.name, self.line, f"found key {cut(key)} again: remove one")
        domain = attributes.get("for", "all")
        self.keys[key] = domain, attributes.get("attr.name", key)
        self.field = self.keys[key]

    def _start_default(self, _: Mapping[str, str]) -> None:
        self.value = ""

    def _start_node(self, attributes: Mapping[str, str]) -> None:
        label = self._needed(attributes, "id", "node")
        if label in self.nodes:
            raise refusal(
                self.name,
                self.line,
                f"found node {cut(label)} again (line {self.nodes[label].line}): rename one",
            )
        if len(self.nodes) == MAX_VERTICES:
            raise refusal(
                self.name, self.line, f"found more than {MAX_VERTICES:,} nodes: describe fewer"
            )
        self.item = self.nodes[label] = _Item(self.line, attributes)

    def _start_edge(self, attributes: Mapping[str, str]) -> None:
        for end in ("source", "target"):
            self._needed(attributes, end, "edge")
        if len(self.edges) == MAX_LINKS:
            raise refusal(
                self.name, self.line, f"found more than {MAX_LINKS:,} edges: describe fewer"
            )
        self.item = _Item(self.line, attributes)
        self.edges.append(self.item)

    def _start_data(self, attributes: Mapping[str, str]) -> None:
        key = self._needed(attributes, "key", "data")
        if key not in self.keys:
            raise refusal(
                self.name, self.line, f"found data of key {cut(key)}, which is not there: add it"
            )
        self.field = self.keys[key]
        self.value = ""

    def _needed(self, attributes: Mapping[str, str], attribute: str, element: str) -> str:
        value = attributes.get(attribute, "")
        if not 1 <= len(value) <= MAX_VALUE_CHARACTERS:
            raise refusal(
                self.name,
                self.line,
                f"found {attribute}={cut(value)} of {element}, 1 to {MAX_VALUE_CHARACTERS} "
                "characters are needed: correct it",
            )
        return value

    def characters(self, text: str) -> None:
        """Take text inside data that means something here."""
        if self.field is None or self.field[1] not in _FIELDS:
            return
        if len(self.value) <= MAX_VALUE_CHARACTERS and self.path[-1] in ("data", "default"):
            self.value += text

    def end(self, _: str) -> None:
        """Take the end of an element."""
        element = self.path.pop()
        if "data" in self.path:
            return
        if element == "default" and self.field is not None:
            self.defaults[self.field] = self.value.strip()
        elif element == "data" and self.field is not None and self.item is not None:
            self.item.data[self.field[1]] = self.value.strip()
        elif element in ("node", "edge"):
            self.item = None
        if element in ("key", "data"):
            self.field = None

    def _of(self, item: _Item, domain: str, attribute: str) -> str | None:
        if attribute in item.data:
            return item.data[attribute]
        return self.defaults.get((domain, attribute), self.defaults.get(("all", attribute)))

    def graph(self, devices_forward: bool) -> LinkGraph:
        """Return what was read."""
        devices: list[str] = []
        switches: list[str] = []
        for label, node in self.nodes.items():
            kind = self._of(node, "node", "kind") or "device"
            if kind not in ("device", "switch"):
                raise refusal(
                    self.name,
                    node.line,
                    f"found kind {cut(kind)} of node {cut(label)}, device or switch is needed: "
                    "correct it",
                )
            (devices if kind == "device" else switches).append(label)
        if not devices:
            raise InstanceError(f"{self.name}: found no device, 1 at least is needed: add a node")
        return graph_of_edges(devices, map(self._edge, self.edges), devices_forward, switches)

    def _edge(self, edge: _Item) -> Edge:
        source, target = edge.attributes["source"], edge.attributes["target"]
        for end in (source, target):
            if end not in self.nodes:
                raise refusal(
                    self.name,
                    edge.line,
                    f"found node {cut(end)}, which is not there: add it or correct the edge",
                )
        if source == target:
            raise refusal(
                self.name, edge.line, f"found an edge from {cut(source)} to itself: remove it"
            )
        values = [self._of(edge, "edge", attribute) for attribute in _FIELDS[1:]]
        for attribute, value in zip(_FIELDS[1:3], values, strict=False):
            if not value:
                raise refusal(
                    self.name,
                    edge.line,
                    f"found no {attribute} of the edge {cut(source)} - {cut(target)}, one is "
                    "needed: add the data",
                )
        kind = LinkKind.of(
            values[0] or 0,
            values[1] or 0,
            values[2] or None,
            what=f"{self.name}: line {edge.line}",
        )
        if kind.capacity < kind.bandwidth:
            raise refusal(
                self.name,
                edge.line,
                f"found capacity {values[2]}, at least {values[0]} is needed: raise it",
            )
        directed = edge.attributes.get("directed", str(self.directed).lower()) == "true"
        return Edge(source, target, kind, not directed)
