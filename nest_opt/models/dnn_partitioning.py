"""Import of the device-placement inputs published with Tarnawski et al. 2020 (arXiv:2006.16423).

`docs/placement_graphs.md` describes the format and what becomes of it.
"""

from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from heapq import heapify, heappop, heappush
from itertools import count
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, model_validator

from nest_opt.errors import InstanceError
from nest_opt.problem import Problem
from nest_opt.problem.base import MAX_BYTES, MAX_DIGITS, Exact, first_repeated, json_number
from nest_opt.problem.cluster import MAX_DEVICES
from nest_opt.problem.graph import MAX_GRAPH_LAYERS
from nest_opt.problem.validation import build, read_json

MAX_MILLISECONDS = 10**6
PS_PER_MS = 10**9
# So that an output's bytes are the picoseconds that it takes to move.
BYTES_PER_S = 10**12

Split = Literal["contiguous", "any"]


def _flag(value: Any) -> Any:
    """Take 0 and 1 for false and true."""
    return bool(value) if type(value) is int and value in (0, 1) else value


def _whole(value: Any) -> Any:
    """Take a number with nothing but zeros behind its point for a whole one."""
    if isinstance(value, Decimal) and value.is_finite() and abs(value.adjusted()) <= MAX_DIGITS:
        whole = int(value)
        return whole if whole == value else value
    return value


def _few(nodes: Any) -> Any:
    """Refuse more nodes than a placement graph has layers, before they are read one by one."""
    if isinstance(nodes, list) and len(nodes) > MAX_GRAPH_LAYERS:
        raise ValueError(
            f"found {len(nodes):,}, at most {MAX_GRAPH_LAYERS:,} are allowed: merge nodes that "
            "are never split"
        )
    return nodes


_Whole = Annotated[int, Field(strict=True), BeforeValidator(_whole)]
_Bytes = Annotated[int, Field(strict=True, ge=0, le=MAX_BYTES), BeforeValidator(_whole)]
_Devices = Annotated[int, Field(strict=True, ge=0, le=MAX_DEVICES), BeforeValidator(_whole)]
_Bit = Annotated[bool, Field(strict=True), BeforeValidator(_flag)]
_Milliseconds = Annotated[Exact, Field(ge=0, le=MAX_MILLISECONDS)]


class _Foreign(BaseModel):
    """Base of the foreign entities: fields that say nothing of a placement are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Node(_Foreign):
    id: _Whole
    on_accelerator: _Bit = Field(alias="supportedOnFpga")
    cpu_ms: _Milliseconds = Field(alias="cpuLatency")
    accelerator_ms: _Milliseconds = Field(alias="fpgaLatency")
    backward: _Bit = Field(alias="isBackwardNode", default=False)
    color: _Whole | None = Field(alias="colorClass", default=None)
    size: _Bytes

    @property
    def class_key(self) -> tuple[str, int]:
        """What nodes of one class share; a node without a class is its own."""
        return ("node", self.id) if self.color is None else ("class", self.color)


class _Edge(_Foreign):
    source: _Whole = Field(alias="sourceId")
    target: _Whole = Field(alias="destId")
    cost_ms: _Milliseconds = Field(alias="cost")

    def __str__(self) -> str:
        return f"{self.source} -> {self.target}"


class _Graph(_Foreign):
    memory: Annotated[_Bytes, Field(ge=1)] = Field(alias="maxSizePerFPGA")
    accelerators: _Devices = Field(alias="maxFPGAs")
    cpus: _Devices = Field(alias="maxCPUs")
    nodes: Annotated[tuple[_Node, ...], Field(min_length=1), BeforeValidator(_few)]
    # A file may hold millions, whose errors would take minutes to list.
    edges: Annotated[tuple[_Edge, ...], FailFast()]

    @cached_property
    def by_id(self) -> dict[int, _Node]:
        """Each node by its id."""
        return {node.id: node for node in self.nodes}

    @model_validator(mode="after")
    def _validate(self) -> "_Graph":
        if self.accelerators + self.cpus == 0:
            raise ValueError(
                "maxFPGAs, maxCPUs: found 0 devices in all, 1 at least is needed: raise one of them"
            )
        homeless = next((node.id for node in self.nodes if not node.on_accelerator), None)
        if homeless is not None and not self.cpus:
            raise ValueError(
                f"maxCPUs: found 0, 1 at least is needed by node {homeless}, of which "
                "supportedOnFpga is false: raise it, or correct the node"
            )
        twice = first_repeated(node.id for node in self.nodes)
        if twice is not None:
            raise ValueError(f"nodes: found 2 of id {twice}, 1 is allowed: renumber one")
        for edge in self.edges:
            for end in (edge.source, edge.target):
                if end not in self.by_id:
                    raise ValueError(
                        f"edges: {edge} names node {end}, which nodes does not have: "
                        "correct sourceId or destId"
                    )
        pair = first_repeated((edge.source, edge.target) for edge in self.edges)
        if pair:
            raise ValueError(
                f"edges: found {pair[0]} -> {pair[1]} 2 times, 1 is allowed: remove one"
            )
        return self

    @model_validator(mode="after")
    def _validate_costs(self) -> "_Graph":
        first: dict[int, _Edge] = {}
        for edge in self.edges:
            other = first.setdefault(edge.source, edge)
            if edge.cost_ms != other.cost_ms:
                raise ValueError(
                    f"edges: {edge} has cost {edge.cost_ms}, {other.cost_ms} is needed (that of "
                    f"{other}: a node's output is one tensor): make them equal"
                )
        return self


def read_dnn_partitioning(path: Path, split: Split = "contiguous") -> Problem:
    """Read a device-placement input as a placement graph.

    Parameters
    ----------
    path
        The file.
    split
        What the problem asks for: stages along a topological order of the
        forward nodes, or any.

    Raises
    ------
    InstanceError
        If the file is malformed, its edges form a cycle, or edges out of one
        node differ in cost.
    """
    graph = build(_Graph, read_json(path), str(path))
    return build(Problem, _problem_data(graph, path, split), str(path))


def _problem_data(graph: _Graph, path: Path, split: Split) -> Mapping[str, Any]:
    layers = _Layers(graph)
    types: dict[str, Any] = {}
    entries = []
    outputs = {edge.source: edge.cost_ms for edge in graph.edges}
    names: dict[str, str] = {}
    for node in layers.in_order(str(path)):
        layer_type = _layer_type(node, outputs.get(node.id))
        # Equal nodes share a type.
        type_name = names.setdefault(repr(layer_type), f"type-{len(names)}")
        types[type_name] = layer_type
        entry = {"id": layers.names[node.id], "type": type_name}
        entries.append({**entry, "phase": "backward"} if node.backward else entry)
    return {
        "name": path.stem[:200],
        "note": "Imported from a device-placement input (dnn-partitioning). Times were "
        "milliseconds, and are rounded half up to whole picoseconds. The network moves a byte in "
        "a picosecond: output_bytes are the picoseconds that an output takes to move. stash_bytes "
        "is all that a layer takes on an accelerator; the file limits no memory of the CPUs.",
        "model": {
            "layer_types": types,
            "layers": entries,
            "edges": [
                *(
                    {"source": layers.names[edge.source], "target": layers.names[edge.target]}
                    for edge in graph.edges
                ),
                *(
                    {"source": layers.names[u], "target": layers.names[v], "order_only": True}
                    for u, v in layers.orders()
                ),
            ],
        },
        "cluster": _cluster(graph),
        "job": {
            "global_batch": 1,
            "bytes_per_parameter": {"weights": 0, "gradients": 0, "optimizer": 0},
            "objective": "bottleneck",
            "transfer": "sender-once",
            "split": split,
        },
        "constraints": [
            {"type": "colocation", "layers": [layers.names[member] for member in members]}
            for members in layers.classes.values()
            if len(members) > 1
        ],
    }


class _Layers:
    """The nodes, and a twin for each class that has backward nodes only.

    Attributes
    ----------
    nodes
        Both, by id; twins have ids above those of the file.
    twins
        Of each class without a forward node, its twin.
    classes
        Ids of the nodes of each class.
    """

    def __init__(self, graph: _Graph) -> None:
        self.graph = graph
        self.nodes = dict(graph.by_id)
        self.classes: dict[tuple[str, int], list[int]] = {}
        for node in graph.nodes:
            self.classes.setdefault(node.class_key, []).append(node.id)
        self.twins: dict[tuple[str, int], int] = {}
        nothing = {"backward": False, "cpu_ms": Decimal(0), "accelerator_ms": Decimal(0), "size": 0}
        unused = count(max(self.nodes) + 1)
        for key, members in self.classes.items():
            if all(graph.by_id[member].backward for member in members):
                twin = next(unused)
                orphan = graph.by_id[members[0]]
                self.nodes[twin] = orphan.model_copy(update={"id": twin, **nothing})
                self.twins[key] = twin
                members.append(twin)

    @cached_property
    def names(self) -> dict[int, str]:
        """Each layer's name: the node's id, or its orphan's with a word that no id has."""
        twins = {twin: f"{self.classes[key][0]}.twin" for key, twin in self.twins.items()}
        return {node: twins.get(node, str(node)) for node in self.nodes}

    def orders(self) -> Iterator[tuple[int, int]]:
        """Yield (v's twin, u's twin) for every backward edge (u, v) with an orphan at an end.

        Orphans have no forward edges that would keep their stages in order.
        """
        found: dict[tuple[int, int], None] = {}
        for edge in self.graph.edges:
            source, target = self.graph.by_id[edge.source], self.graph.by_id[edge.target]
            keys = source.class_key, target.class_key
            orphaned = any(key in self.twins for key in keys)
            if source.backward and target.backward and orphaned and keys[0] != keys[1]:
                found[self._forward(keys[1]), self._forward(keys[0])] = None
        yield from found

    def _forward(self, key: tuple[str, int]) -> int:
        """Return the first forward node of a class: all of them are in one stage."""
        return next(node for node in self.classes[key] if not self.nodes[node].backward)

    def in_order(self, name: str) -> Iterator[_Node]:
        """Yield the nodes in a topological order, forward ones first, else as they are listed."""
        place = {node: place for place, node in enumerate(self.graph.by_id)}
        place.update((twin, place[self.classes[key][0]]) for key, twin in self.twins.items())
        targets: dict[int, list[int]] = {}
        sources: dict[int, set[int]] = {node: set() for node in self.nodes}
        for edge in self.graph.edges:
            targets.setdefault(edge.source, []).append(edge.target)
            sources[edge.target].add(edge.source)

        def key(node: int) -> tuple[bool, int, int]:
            return (self.nodes[node].backward, place[node], node)

        ready = [key(node) for node, waiting in sources.items() if not waiting]
        heapify(ready)
        while ready:
            node = heappop(ready)[-1]
            del sources[node]
            yield self.nodes[node]
            for target in targets.get(node, ()):
                sources[target].discard(node)
                if not sources[target]:
                    heappush(ready, key(target))
        if sources:
            raise InstanceError(
                f"{name}: edges: found the cycle {self._cycle(sources)}, none is allowed: "
                "remove one of its edges"
            )

    def _cycle(self, sources: Mapping[int, set[int]]) -> str:
        """Return a cycle among nodes each of which waits for another, the first few of it."""
        walk = [min(sources)]
        while walk[-1] not in walk[:-1]:
            walk.append(min(sources[walk[-1]]))
        cycle = walk[walk.index(walk[-1]) :][::-1]
        names = [self.names[node] for node in cycle]
        return " -> ".join([*names[:8], "..."] if len(names) > 9 else names)


def _ps(milliseconds: Decimal) -> int:
    """Round exact milliseconds to picoseconds, half up."""
    scaled = 2 * Fraction(milliseconds) * PS_PER_MS + 1
    return scaled.numerator // (2 * scaled.denominator)


def _layer_type(node: _Node, output_ms: Decimal | None) -> dict[str, Any]:
    profiles = []
    if node.on_accelerator:
        profiles.append(_profile(node, "accelerator", node.accelerator_ms, node.size))
    profiles.append(_profile(node, "cpu", node.cpu_ms, 0))
    if output_ms is None:
        return {"profiles": profiles}
    return {"output_bytes": {"1": _ps(output_ms)}, "profiles": profiles}


def _profile(node: _Node, kind: str, milliseconds: Decimal, size: int) -> dict[str, Any]:
    seconds = json_number(Decimal(_ps(milliseconds)).scaleb(-12))
    return {
        "microbatch": 1,
        "kind": kind,
        "forward_s": 0 if node.backward else seconds,
        "backward_input_s": seconds if node.backward else 0,
        "backward_weight_s": 0,
        "recompute": {"none": {"stash_bytes": size}},
    }


def _cluster(graph: _Graph) -> dict[str, Any]:
    counts = {"accelerator": graph.accelerators, "cpu": graph.cpus}
    return {
        "device_kinds": {
            "accelerator": {"memory_bytes": graph.memory},
            "cpu": {"memory_bytes": MAX_BYTES, "pays_transfers": False},
        },
        "devices": [
            {"kind": kind, "count": devices} for kind, devices in counts.items() if devices
        ],
        "network": {
            "type": "hierarchical",
            "levels": [
                {
                    "name": "host",
                    "size": sum(counts.values()),
                    "bandwidth_bytes_per_s": BYTES_PER_S,
                    "latency_s": 0,
                }
            ],
        },
    }
