"""Import of the files that the NEST paper's artifact feeds its own solver.

`docs/artifact.md` describes the format and the cost model that goes with it.
"""

from collections.abc import Mapping
from decimal import Decimal
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from nest_opt.errors import InstanceError
from nest_opt.problem import Problem
from nest_opt.problem.base import Exact, json_number
from nest_opt.problem.validation import build, read_json

_Amount = Annotated[Exact, Field(ge=0)]
_Whole = Annotated[int, Field(strict=True)]
_Degree = Annotated[int, Field(strict=True, ge=1)]


class _Foreign(BaseModel):
    """Base of the foreign entities: fields that no formula uses are skipped."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Node(_Foreign):
    id: _Whole
    activation: _Amount = Field(alias="activationSize")
    parameters: _Amount = Field(alias="parameterSize")
    forward: _Amount = Field(alias="optimalLatencyFw")
    backward: _Amount = Field(alias="optimalLatencyBw")


class _Edge(_Foreign):
    source: _Whole = Field(alias="sourceId")
    target: _Whole = Field(alias="destId")
    size: _Amount = Field(alias="communicationCost")


class Baseline(_Foreign):
    """A configuration that the artifact's paper compares with.

    Attributes
    ----------
    layers
        L, its transformer layers: those of the file less the embedding.
    pp, dp, tp
        Its degrees.
    partition
        Layers of each stage, from the first on; ceil(L / pp) in each if empty.
    """

    layers: _Degree = Field(alias="num_transformer_layers")
    pp: _Degree = Field(alias="p")
    dp: _Degree = Field(alias="d")
    tp: _Degree = Field(alias="t")
    partition: tuple[_Whole, ...] = Field(default=(), alias="layer_partition")


class _Baselines(_Foreign):
    baselines: dict[str, Baseline] = {}


class _Artifact(_Foreign):
    ep_degree: _Degree
    cp_degree: _Degree = 1
    memory: _Amount = Field(alias="maxMemoryPerDevice")
    devices: _Degree = Field(alias="maxDevices")
    bandwidths: tuple[Annotated[Exact, Field(gt=0)], ...] = Field(
        alias="bws", min_length=1, max_length=6
    )
    latencies: tuple[_Amount, ...] = Field(alias="latency_per_level")
    sizes: tuple[_Degree, ...] = Field(alias="devices_per_level")
    microbatches: Annotated[Exact, Field(ge=1)] = Field(alias="mbsInBatch")
    nodes: dict[str, Annotated[tuple[_Node, ...], Field(min_length=1)]] = Field(min_length=1)
    edges: dict[str, tuple[_Edge, ...]]
    recompute: bool = Field(alias="activationRecomputation")
    optimizer: Literal["SGD", "Adam"] = Field(alias="optimizerAlgorithm")

    @model_validator(mode="after")
    def _validate_network(self) -> "_Artifact":
        counts = len(self.bandwidths), len(self.latencies), len(self.sizes)
        if len(set(counts)) > 1:
            raise ValueError(
                f"bws, latency_per_level, devices_per_level: found {counts[0]}, {counts[1]} and "
                f"{counts[2]} levels, equal numbers are needed: complete the shorter ones"
            )
        if self.devices > prod(self.sizes):
            raise ValueError(
                f"maxDevices: found {self.devices}, at most {prod(self.sizes)} are allowed (the "
                "product of devices_per_level): lower it, or raise one of those"
            )
        for place, (inner, outer) in enumerate(pairwise(self.latencies), start=1):
            if outer < inner:
                raise ValueError(
                    f"latency_per_level: found {outer} s at place {place}, at least {inner} s is "
                    "needed (the latency inside it): list the innermost level first"
                )
        return self

    @model_validator(mode="after")
    def _validate(self) -> "_Artifact":
        orders = {tuple(sorted(node.id for node in nodes)) for nodes in self.nodes.values()}
        if len(orders) > 1:
            raise ValueError(
                f"nodes: found {len(orders)} different sets of node ids for the tensor degrees "
                f"{', '.join(self.nodes)}, 1 is needed: list the same nodes for each"
            )
        for degree in self.nodes:
            if not degree.isdecimal() or not degree.isascii() or len(degree) > 6 or int(degree) < 1:
                raise ValueError(
                    f"nodes: found tensor degree {degree[:20]!r}, a positive whole number is "
                    "needed: correct the key"
                )
            if degree not in self.edges:
                raise ValueError(
                    f"edges: found none for tensor degree {degree}, which nodes has: add them"
                )
        pairs = {
            degree: sorted((e.source, e.target) for e in self.edges[degree])
            for degree in self.nodes
        }
        if len({tuple(p) for p in pairs.values()}) > 1:
            raise ValueError(
                "edges: found different edges for different tensor degrees, equal ones are "
                "needed: list the same edges for each"
            )
        return self

    @model_validator(mode="after")
    def _validate_edges(self) -> "_Artifact":
        ids = {node.id for nodes in self.nodes.values() for node in nodes}
        # All degrees have the same nodes and edges by now.
        degree = next(iter(self.nodes))
        for place, edge in enumerate(self.edges[degree]):
            for end in (edge.source, edge.target):
                if end not in ids:
                    raise ValueError(
                        f"edges.{degree}[{place}]: names node {end}, which nodes does not have: "
                        "correct sourceId or destId"
                    )
            if edge.source >= edge.target:
                raise ValueError(
                    f"edges.{degree}[{place}]: goes from node {edge.source} to node "
                    f"{edge.target}, a higher id is needed: number nodes in a topological order"
                )
        return self


def read_nest_artifact(path: Path, microbatch: int = 1) -> Problem:
    """Read an input file of the artifact's solver.

    Parameters
    ----------
    path
        The file.
    microbatch
        Sequences in a microbatch. The file has no such field; it scales the
        global batch and so the printed throughput, never the batch time.

    Raises
    ------
    InstanceError
        If the file is malformed, or asks for more devices than its network has.
    """
    source = build(_Artifact, read_json(path), str(path))
    return build(Problem, _problem_data(source, path.stem, microbatch), str(path))


def read_baselines(path: Path) -> dict[str, Baseline]:
    """Read the baselines that an input file of the artifact's solver carries, by name.

    Raises
    ------
    InstanceError
        If the file is malformed.
    """
    return build(_Baselines, read_json(path), str(path)).baselines


def _whole(amount: Decimal, what: str) -> int:
    if amount != amount.to_integral_value():
        raise InstanceError(f"{what}: found {amount}, a whole number is needed: round it")
    return int(amount)


def _problem_data(source: _Artifact, name: str, microbatch: int) -> Mapping[str, Any]:
    degrees = sorted(source.nodes, key=int)
    nodes = {degree: sorted(source.nodes[degree], key=lambda node: node.id) for degree in degrees}
    ids = [str(node.id) for node in nodes[degrees[0]]]
    types: dict[str, Any] = {}
    names: dict[str, str] = {}
    layers = []
    for place, layer in enumerate(ids):
        profiles = [
            _profile(source, degree, nodes[degree][place], microbatch) for degree in degrees
        ]
        # Equal nodes share a type, so a table of 80 equal layers stays small.
        type_name = names.setdefault(repr(profiles), f"type-{len(names)}")
        types[type_name] = {"profiles": profiles}
        layers.append({"id": layer, "type": type_name})
    return {
        "name": name[:200],
        "note": "Imported from an input of the NEST artifact. dense_parameters counts bytes of "
        "weights, stash_bytes all operator outputs of a layer.",
        "model": {"layer_types": types, "layers": layers, "edges": _edges(source, microbatch)},
        "cluster": _cluster(source),
        "job": {
            "global_batch": _whole(source.microbatches, "mbsInBatch")
            * source.ep_degree
            * microbatch,
            "bytes_per_parameter": {
                "weights": 1,
                "gradients": 1,
                "optimizer": 6 if source.optimizer == "Adam" else 0,
            },
            "objective": "nest",
            "pad": True,
            "cost_model": "artifact",
        },
        "search": {
            "microbatch": [microbatch],
            "tp": [int(degree) for degree in degrees],
            "cp": [source.cp_degree],
            "ep": [source.ep_degree],
            "recompute": ["full" if source.recompute else "none"],
            "order": ["pp-inner"],
            "pitch": ["tight"],
        },
    }


def _profile(source: _Artifact, degree: str, node: _Node, microbatch: int) -> dict[str, Any]:
    activation = _whole(node.activation, f"node {node.id}: activationSize")
    return {
        "microbatch": microbatch,
        "tp": int(degree),
        "cp": source.cp_degree,
        "ep": source.ep_degree,
        "forward_s": json_number(node.forward),
        "backward_input_s": json_number(node.backward),
        "backward_weight_s": 0,
        "dense_parameters": _whole(node.parameters, f"node {node.id}: parameterSize"),
        "recompute": {
            "none": {"stash_bytes": activation},
            "full": {"stash_bytes": 0, "work_bytes": activation},
        },
    }


def _edges(source: _Artifact, microbatch: int) -> list[dict[str, Any]]:
    sizes: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for degree in sorted(source.nodes, key=int):
        for edge in source.edges[degree]:
            sizes.setdefault((str(edge.source), str(edge.target)), []).append(
                {
                    "microbatch": microbatch,
                    "tp": int(degree),
                    "bytes": _whole(
                        edge.size, f"edge {edge.source} -> {edge.target}: communicationCost"
                    ),
                }
            )
    return [
        {"source": producer, "target": consumer, "sizes": size}
        for (producer, consumer), size in sizes.items()
    ]


def _cluster(source: _Artifact) -> dict[str, Any]:
    return {
        "device_kinds": {"device": {"memory_bytes": _whole(source.memory, "maxMemoryPerDevice")}},
        "devices": [{"kind": "device", "count": source.devices}],
        "network": {
            "type": "hierarchical",
            "levels": [
                {
                    "name": f"level-{place}",
                    "size": size,
                    "bandwidth_bytes_per_s": json_number(bandwidth),
                    "latency_s": json_number(latency),
                }
                for place, (size, bandwidth, latency) in enumerate(
                    zip(source.sizes, source.bandwidths, source.latencies, strict=True)
                )
            ],
        },
    }
