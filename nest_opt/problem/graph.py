"""The layer graph: layers in a topological order, their types, and who consumes what."""

from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field, model_validator

from nest_opt.problem.base import (
    Bytes,
    Degree,
    Flag,
    Frozen,
    Identifier,
    Positive,
    first_repeated,
    listed,
)
from nest_opt.problem.profile import Configuration, Profile

# An interval matrix has (layers + 1)^2 entries of 8 bytes, and a search keeps a few dozen.
MAX_LAYERS = 2_000
# A placement graph has none: its integer program has a few variables a layer and device.
MAX_GRAPH_LAYERS = 4_000
MAX_FLOPS = 10**24


class LayerType(Frozen):
    """What layers of one kind have in common.

    `output_bytes` maps a microbatch size to the bytes of the layer's output
    for one microbatch, before any split over ranks.
    """

    output_bytes: dict[Annotated[str, Field(pattern=r"^[1-9][0-9]{0,11}$")], Bytes] = Field(
        default={}
    )
    profiles: tuple[Profile, ...] = Field(min_length=1)

    @cached_property
    def by_key(self) -> dict[tuple[int, Configuration], Profile]:
        """Profiles keyed by (microbatch size, configuration)."""
        return {(p.microbatch, p.configuration): p for p in self.profiles}

    def on_kind(self, kind: str) -> Profile | None:
        """Return the profile for a kind of devices: its own, else the one for any; or None.

        For placement graphs, where a profile is told by its kind alone.
        """
        by_kind = {profile.kind: profile for profile in self.profiles}
        return by_kind.get(kind, by_kind.get(None))

    @model_validator(mode="after")
    def _validate(self) -> "LayerType":
        repeated = first_repeated((p.microbatch, p.configuration, p.kind) for p in self.profiles)
        if repeated:
            kind = "" if repeated[2] is None else f" on kind {repeated[2]!r}"
            raise ValueError(
                f"profiles: found 2 for microbatch {repeated[0]} and {repeated[1]}{kind}, "
                "1 is allowed: remove one of them"
            )
        parameters: dict[tuple[Configuration, str | None], tuple[int, int]] = {}
        for profile in self.profiles:
            counts = (profile.dense_parameters, profile.expert_parameters)
            known = parameters.setdefault((profile.configuration, profile.kind), counts)
            if known != counts:
                raise ValueError(
                    f"profiles: found {counts[0]} dense and {counts[1]} expert parameters for "
                    f"microbatch {profile.microbatch} and {profile.configuration}, {known[0]} and "
                    f"{known[1]} are needed, as for another microbatch size: make them equal"
                )
        tied: dict[int, int] = {}
        for profile in self.profiles:
            before = tied.setdefault(profile.tp, profile.tied_parameters)
            if before != profile.tied_parameters:
                raise ValueError(
                    f"profiles: found {profile.tied_parameters} tied parameters for microbatch "
                    f"{profile.microbatch} and {profile.configuration}, {before} are needed, as in "
                    f"another profile of tp={profile.tp} (tp alone splits them): make them equal"
                )
        return self

    @property
    def has_tied(self) -> bool:
        """Whether some of the parameters are a copy of another layer's."""
        return any(profile.tied_parameters for profile in self.profiles)


class LayerEntry(Frozen):
    """One line of the layer list: a layer, or `repeat` equal layers in a row.

    In a placement graph the two passes are layers of their own: `phase` says
    which one a layer is of.
    """

    id: Identifier
    type: Identifier
    repeat: Annotated[int, Field(strict=True, ge=1, le=MAX_LAYERS)] = 1
    phase: Literal["forward", "backward"] = "forward"

    @property
    def layer_ids(self) -> tuple[str, ...]:
        """Identifiers of the layers: `id`, or `id.0`, `id.1`, ... when repeated."""
        if self.repeat == 1:
            return (self.id,)
        return tuple(f"{self.id}.{index}" for index in range(self.repeat))


class TensorSize(Frozen):
    """Bytes of a tensor for one microbatch size, and for one tp degree if that matters."""

    microbatch: Positive
    tp: Degree | None = None
    bytes: Bytes


class Edge(Frozen):
    """`target` consumes an output of `source`.

    Without `sizes` it is the output that `source`'s type describes, which all
    such consumers share. With `sizes` the edge is a tensor of its own. With
    `order_only`, in a placement graph, it is no tensor: the source's stage is
    the target's or comes before it. Such edges may form cycles, which puts
    their layers in one stage.
    """

    source: Identifier
    target: Identifier
    sizes: tuple[TensorSize, ...] | None = None
    order_only: Flag = False

    @model_validator(mode="after")
    def _validate(self) -> "Edge":
        twice = first_repeated((size.microbatch, size.tp) for size in self.sizes or ())
        if twice:
            raise ValueError(
                f"sizes: found 2 for microbatch={twice[0]} tp={twice[1] or 'any'}, 1 is allowed: "
                "remove one"
            )
        if self.order_only and self.sizes is not None:
            raise ValueError(
                "sizes: found some, none are allowed with order_only (such an edge is no "
                "tensor): remove one of the two fields"
            )
        return self

    def size_bytes(self, microbatch: int, tp: int) -> int | None:
        """Return the bytes of the edge's own tensor, or None where it gives none."""
        for size in self.sizes or ():
            if size.microbatch == microbatch and size.tp in (None, tp):
                return size.bytes
        return None

    def __str__(self) -> str:
        return f"{self.source!r} -> {self.target!r}"


class LayerGraph(Frozen):
    """A directed acyclic graph of layers, listed in a topological order.

    Without `edges` the layers form a chain. `attention_heads` and `experts`
    bound tp and ep where the search space leaves them open.
    `flops_per_sequence` is what forward and backward pass of one sequence
    need (recomputation aside); plans are compared with the peak by it.
    """

    layer_types: dict[Identifier, LayerType] = Field(min_length=1)
    layers: tuple[LayerEntry, ...] = Field(min_length=1)
    # A file may hold millions, whose errors would take minutes to list.
    edges: tuple[Edge, ...] | None = Field(default=None, fail_fast=True)
    flops_per_sequence: Annotated[int, Field(strict=True, ge=1, le=MAX_FLOPS)] | None = None
    attention_heads: Annotated[int, Field(strict=True, ge=1, le=2**20)] | None = None
    experts: Annotated[int, Field(strict=True, ge=1, le=2**20)] | None = None

    @cached_property
    def ids(self) -> tuple[str, ...]:
        """Layer identifiers in the listed order; a layer's index is its place here."""
        return tuple(name for entry in self.layers for name in entry.layer_ids)

    @cached_property
    def types(self) -> tuple[LayerType, ...]:
        """The type of each layer, by index."""
        return tuple(
            self.layer_types[entry.type] for entry in self.layers for _ in range(entry.repeat)
        )

    @cached_property
    def phases(self) -> tuple[Literal["forward", "backward"], ...]:
        """The pass that each layer is of, by index."""
        return tuple(entry.phase for entry in self.layers for _ in range(entry.repeat))

    @cached_property
    def index(self) -> dict[str, int]:
        """Index of each layer identifier."""
        return {name: position for position, name in enumerate(self.ids)}

    @cached_property
    def all_edges(self) -> tuple[Edge, ...]:
        """The edges, those of a chain written out."""
        if self.edges is not None:
            return self.edges
        return tuple(
            Edge(source=source, target=target)
            for source, target in zip(self.ids, self.ids[1:], strict=False)
        )

    def tensors(self, microbatch: int, tp: int) -> tuple[tuple[int, tuple[int, ...], int], ...]:
        """Return every tensor as (producer, consumers, bytes); layers by index.

        Consumers without a size of their own share the producer's output.
        """
        shared: dict[int, list[int]] = {}
        own = []
        for edge in self.all_edges:
            source, target = self.index[edge.source], self.index[edge.target]
            if edge.sizes is None:
                shared.setdefault(source, []).append(target)
            else:
                own.append((source, (target,), edge.size_bytes(microbatch, tp) or 0))
        outputs = [
            (source, tuple(targets), self.types[source].output_bytes[str(microbatch)])
            for source, targets in shared.items()
        ]
        return (*outputs, *own)

    @cached_property
    def used_types(self) -> tuple[LayerType, ...]:
        """Each layer type that some layer has, once."""
        return tuple(self.layer_types[name] for name in {e.type: None for e in self.layers})

    def is_profiled(self, microbatch: int, configuration: Configuration) -> bool:
        """Whether every layer has a profile for this pair, and every tensor a size."""
        if not all((microbatch, configuration) in kind.by_key for kind in self.used_types):
            return False
        return self.edge_without_size(microbatch, configuration.tp) is None

    def edge_without_size(self, microbatch: int, tp: int) -> Edge | None:
        """Return the first edge whose tensor has no bytes for these, or None."""
        for edge in self.all_edges:
            if edge.sizes is None:
                known = str(microbatch) in self.types[self.index[edge.source]].output_bytes
            else:
                known = edge.size_bytes(microbatch, tp) is not None
            if not known:
                return edge
        return None

    @model_validator(mode="after")
    def _validate(self) -> "LayerGraph":
        self.refuse_more_layers(MAX_GRAPH_LAYERS)
        for entry in self.layers:
            if entry.type not in self.layer_types:
                raise ValueError(
                    f"layers: layer {entry.id!r} has type {entry.type!r}, which is not in "
                    f"layer_types ({listed(self.layer_types)}): add it or correct it"
                )
        repeated = first_repeated(self.ids)
        if repeated is not None:
            raise ValueError(f"layers: found 2 layers named {repeated!r}, 1 is allowed: rename one")
        for edge in self.edges or ():
            self._validate_edge(edge)
        twice = first_repeated((edge.source, edge.target) for edge in self.edges or ())
        if twice:
            raise ValueError(
                f"edges: found {twice[0]!r} -> {twice[1]!r} 2 times, 1 is allowed: "
                "remove one, or add up their sizes"
            )
        self._validate_tied()
        return self

    @property
    def has_tied(self) -> bool:
        """Whether parameters of the last layer are a copy of the first layer's."""
        return self.types[-1].has_tied

    def _validate_tied(self) -> None:
        """Refuse tied parameters that are not those of the last layer and of the first."""
        last = self.layers[-1]
        for name, kind in self.layer_types.items():
            if not kind.has_tied:
                continue
            held = sum(entry.repeat for entry in self.layers if entry.type == name)
            if name != last.type or held > 1:
                others = held - (name == last.type)
                raise ValueError(
                    f"layer_types: type {name!r}: found tied_parameters in a type of {others} "
                    f"layer{'' if others == 1 else 's'} before the last, which alone may have some "
                    "(a copy of the first layer's): give the last layer a type of its own, or "
                    "leave them out elsewhere"
                )
            if len(self.ids) == 1:
                raise ValueError(
                    f"layer_types: type {name!r}: found tied_parameters in the only layer, another "
                    "layer is needed that they are a copy of: leave them out"
                )
            for profile in kind.profiles:
                first = self.types[0].by_key.get((profile.microbatch, profile.configuration))
                if first is not None and first.dense_parameters < profile.tied_parameters:
                    raise ValueError(
                        f"layer_types: type {name!r}: found {profile.tied_parameters} "
                        f"tied_parameters for microbatch={profile.microbatch} "
                        f"{profile.configuration}, at most {first.dense_parameters} are allowed "
                        f"(dense_parameters of the first layer, {self.ids[0]!r}): they are a copy "
                        "of its parameters; correct one of the two"
                    )

    def refuse_more_layers(self, most: int) -> None:
        """Refuse a graph of more layers than a kind of problem may have."""
        count = sum(entry.repeat for entry in self.layers)
        if count > most:
            raise ValueError(
                f"layers: found {count}, at most {most} are allowed: "
                "merge layers that are never split"
            )

    def _validate_edge(self, edge: Edge) -> None:
        for name in (edge.source, edge.target):
            if name not in self.index:
                raise ValueError(
                    f"edges: {edge} names layer {name!r}, which does not "
                    "exist: use the ids in layers (repeated ones are called id.0, id.1, ...)"
                )
        if edge.order_only and edge.source != edge.target:
            return
        if self.index[edge.source] >= self.index[edge.target]:
            raise ValueError(
                f"edges: {edge} goes from place {self.index[edge.source]} to place "
                f"{self.index[edge.target]} in layers, a later place is needed: "
                "list layers in a topological order"
            )
