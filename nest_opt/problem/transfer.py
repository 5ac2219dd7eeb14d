"""What the two kinds of problems allow: pipelines (`relay`) and placement graphs (`sender-once`).

A placement graph puts every layer on one device, with one microbatch in
flight. Its fields say nothing in a pipeline, and most choices of a pipeline
are none in a placement graph: either is refused, not ignored.
"""

from collections.abc import Iterator
from typing import Protocol

from nest_opt.problem.base import listed
from nest_opt.problem.cluster import Cluster
from nest_opt.problem.constraints import Colocation, Constraint
from nest_opt.problem.graph import MAX_LAYERS, LayerGraph
from nest_opt.problem.hierarchical import HierarchicalSpec
from nest_opt.problem.job import Job
from nest_opt.problem.profile import Configuration, Profile
from nest_opt.problem.search import SearchSpace


class Parts(Protocol):
    """A problem's parts, as far as its kind is told by them."""

    model: LayerGraph
    cluster: Cluster
    job: Job
    search: SearchSpace
    constraints: tuple[Constraint, ...]


_PIPELINE = 'remove it, or set job.transfer to "sender-once"'


def refuse_other_than_pipeline(problem: Parts) -> None:
    """Refuse what only placement graphs have.

    Raises
    ------
    ValueError
        If there are several kinds of devices, too many layers, or a field
        that says nothing in a pipeline.
    """
    kinds = problem.cluster.devices_by_kind
    if len(kinds) > 1:
        raise ValueError(
            f"cluster.devices: found {len(kinds)} kinds ({listed(kinds)}), 1 is allowed: a "
            "pipeline does not mix kinds of devices yet; give it those of one kind"
        )
    try:
        problem.model.refuse_more_layers(MAX_LAYERS)
    except ValueError as error:
        raise ValueError(f"model.{error}") from error
    for place, what in _fields_of_placement_graphs(problem):
        raise ValueError(
            f'{place}: found {what}, which says nothing under job.transfer "relay": {_PIPELINE}'
        )


def _fields_of_placement_graphs(problem: Parts) -> Iterator[tuple[str, str]]:
    """Yield (place, what was found) of every field that only placement graphs have."""
    for name, kind in problem.cluster.device_kinds.items():
        if not kind.pays_transfers:
            yield f"cluster.device_kinds: kind {name!r}", "pays_transfers false"
    for name, layer_type in problem.model.layer_types.items():
        for kind_name in filter(None, (profile.kind for profile in layer_type.profiles)):
            yield f"model.layer_types: type {name!r}", f"a profile of kind {kind_name!r}"
    for entry in problem.model.layers:
        if entry.phase != "forward":
            yield f"model.layers: layer {entry.id!r}", f"phase {entry.phase!r}"
    for edge in problem.model.edges or ():
        if edge.order_only:
            yield f"model.edges: {edge}", "order_only true"
    if problem.job.split != "contiguous":
        yield "job.split", repr(problem.job.split)


def refuse_other_than_placement_graph(problem: Parts) -> None:
    """Refuse what a placement graph has no meaning for, and layers that no device can run.

    Raises
    ------
    ValueError
        If there is any.
    """
    _refuse_job(problem)
    _refuse_search(problem)
    network = problem.cluster.network
    if not isinstance(network, HierarchicalSpec):
        raise ValueError(
            f"cluster.network.type: found {network.type!r}, 'hierarchical' is needed in a "
            "placement graph (one level, which connects the devices to their host): write that"
        )
    levels = network.levels
    if len(levels) > 1:
        raise ValueError(
            f"cluster.network.levels: found {len(levels)}, 1 is allowed in a placement graph "
            "(what connects the devices to their host): leave the others out"
        )
    for name, layer_type in problem.model.layer_types.items():
        for profile in layer_type.profiles:
            _refuse_profile(problem, name, profile)
    _refuse_unsupported(problem)
    _refuse_tensors(problem)
    for number, constraint in enumerate(problem.constraints):
        if not isinstance(constraint, Colocation):
            raise ValueError(
                f"constraints[{number}]: found {constraint.type!r}, 'colocation' alone is "
                "allowed in a placement graph: remove it"
            )


def _refuse_job(problem: Parts) -> None:
    job = problem.job
    if job.objective != "bottleneck":
        raise ValueError(
            f"job.objective: found {job.objective!r}, 'bottleneck' is needed in a placement "
            "graph: write that"
        )
    if job.cost_model != "default":
        raise ValueError(
            f"job.cost_model: found {job.cost_model!r}, 'default' is needed in a placement "
            "graph: leave the field out"
        )


def _refuse_search(problem: Parts) -> None:
    """Refuse a search space that is not the one point of a placement graph."""
    batch = problem.job.global_batch
    allowed = {
        "microbatch": (batch,),
        "tp": (1,),
        "cp": (1,),
        "ep": (1,),
        "sp": (False,),
        "dp": (1,),
        "recompute": ("none",),
    }
    for name, field in SearchSpace.model_fields.items():
        found = getattr(problem.search, name)
        if found not in (field.default, allowed.get(name)):
            point = f", or {list(allowed[name])}" if name in allowed else ""
            raise ValueError(
                f"search.{name}: found {_written(found)}, nothing{point} is allowed in a placement "
                "graph (each stage is one device, with the whole batch): leave it out"
            )


def _written(value: object) -> object:
    """Return the value of a dimension as a file would have it."""
    return list(value) if isinstance(value, tuple) else repr(value)


def _refuse_profile(problem: Parts, name: str, profile: Profile) -> None:
    place, batch = f"model.layer_types: type {name!r}", problem.job.global_batch
    if (profile.microbatch, profile.configuration) != (batch, Configuration(1)):
        raise ValueError(
            f"{place}: found a profile for microbatch={profile.microbatch} "
            f"{profile.configuration}, microbatch={batch} (the global batch) "
            f"{Configuration(1)} is needed in a placement graph: remove it, or correct it"
        )
    if set(profile.recompute) != {"none"}:
        raise ValueError(
            f"{place}: found footprints for {listed(profile.recompute)}, 'none' alone is "
            "needed in a placement graph: give that one"
        )
    if profile.collectives:
        raise ValueError(
            f"{place}: found collectives, none are allowed in a placement graph (a layer is on "
            "one device): remove them"
        )
    if profile.tied_parameters:
        raise ValueError(
            f"{place}: found {profile.tied_parameters} tied_parameters, none are known in a "
            "placement graph (use colocation for layers that share weights): leave them out"
        )
    if profile.kind is not None and profile.kind not in problem.cluster.device_kinds:
        raise ValueError(
            f"{place}: found a profile of kind {profile.kind!r}, which is not in "
            f"cluster.device_kinds ({listed(problem.cluster.device_kinds)}): add it or correct it"
        )


def _refuse_unsupported(problem: Parts) -> None:
    kinds = problem.cluster.devices_by_kind
    for entry in problem.model.layers:
        layer_type = problem.model.layer_types[entry.type]
        if all(layer_type.on_kind(kind) is None for kind in kinds):
            raise ValueError(
                f"model.layers: layer {entry.id!r} of type {entry.type!r} has no profile for any "
                f"kind in cluster.devices ({listed(kinds)}), 1 at least is needed: add a profile"
            )


def _refuse_tensors(problem: Parts) -> None:
    model, batch = problem.model, str(problem.job.global_batch)
    for edge in model.all_edges:
        if edge.sizes is not None:
            raise ValueError(
                f"model.edges: {edge} has sizes of its own, none are allowed in a placement "
                "graph (a layer's output is one tensor): use output_bytes of its source's type"
            )
        if not edge.order_only and batch not in model.types[model.index[edge.source]].output_bytes:
            raise ValueError(
                f"model.edges: {edge} has no bytes for microbatch={batch}: add them to "
                "output_bytes of its source's type"
            )
