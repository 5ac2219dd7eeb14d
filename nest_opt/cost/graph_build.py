"""Building the coefficients of a placement graph: exact rationals, each rounded once."""

from collections.abc import Iterable
from fractions import Fraction

from nest_opt.cost.graph_table import GraphKind, GraphTable
from nest_opt.cost.states import state_bytes
from nest_opt.cost.table import refuse_total
from nest_opt.cost.units import to_bytes, to_ps
from nest_opt.network import build_network
from nest_opt.problem import Colocation, Problem, Profile


def build_graph_table(problem: Problem) -> GraphTable:
    """Compute the coefficients of a placement graph.

    Raises
    ------
    InstanceError
        If the times of all layers and transfers, or the bytes of all layers,
        leave the range of the search.
    """
    model = problem.model
    kinds = tuple(
        _kind(problem, name, devices) for name, devices in problem.cluster.devices_by_kind.items()
    )
    index = model.index
    pairs = [(index[e.source], index[e.target], e.order_only) for e in model.all_edges]
    edges = tuple((source, target) for source, target, order_only in pairs if not order_only)
    forward = [phase == "forward" for phase in model.phases]
    table = GraphTable(
        layers=model.ids,
        kinds=kinds,
        edges=edges,
        transfer_ps=_transfer_ps(problem, {source for source, _ in edges}),
        precedence=tuple(
            (source, target)
            for source, target, order_only in pairs
            if order_only or (forward[source] and forward[target])
        ),
        classes=merged_classes(
            [index[name] for name in constraint.layers]
            for constraint in problem.constraints
            if isinstance(constraint, Colocation)
        ),
        contiguous=problem.job.split == "contiguous",
    )
    _refuse_overflow(table)
    return table


def _kind(problem: Problem, name: str, devices: tuple[int, ...]) -> GraphKind:
    device = problem.cluster.device_kinds[name]
    profiles = [layer_type.on_kind(name) for layer_type in problem.model.types]
    return GraphKind(
        name=name,
        devices=devices,
        usable_bytes=device.usable_bytes - device.reserve_bytes,
        pays_transfers=device.pays_transfers,
        time_ps=tuple(_time_ps(profile) if profile else None for profile in profiles),
        size_bytes=tuple(_size_bytes(problem, profile) if profile else 0 for profile in profiles),
    )


def _time_ps(profile: Profile) -> int:
    return to_ps(
        Fraction(profile.forward_s)
        + Fraction(profile.backward_input_s)
        + Fraction(profile.backward_weight_s)
    )


def _size_bytes(problem: Problem, profile: Profile) -> int:
    """Return states, stash and work of a layer, one microbatch being in flight."""
    per_parameter = state_bytes(problem.job.bytes_per_parameter, zero_level=0, copies=1)
    footprint = profile.recompute["none"]
    return (
        to_bytes(profile.dense_parameters * per_parameter)
        + to_bytes(profile.expert_parameters * per_parameter)
        + footprint.stash_bytes
        + footprint.work_bytes
    )


def _transfer_ps(problem: Problem, producers: set[int]) -> tuple[int, ...]:
    network, batch = build_network(problem.cluster), str(problem.job.global_batch)
    return tuple(
        to_ps(network.hop_s(Fraction(layer_type.output_bytes[batch]), 0))
        if layer in producers
        else 0
        for layer, layer_type in enumerate(problem.model.types)
    )


def merged_classes(groups: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """Return the classes of layers that must share a device: groups with a layer in common merge.

    Each class is sorted, and they are by their first layer.
    """
    class_of: dict[int, set[int]] = {}
    for group in groups:
        merged = set(group).union(*(class_of.get(layer, ()) for layer in group))
        class_of.update(dict.fromkeys(merged, merged))
    distinct = {min(layers): tuple(sorted(layers)) for layers in class_of.values()}
    return tuple(distinct[first] for first in sorted(distinct))


def _refuse_overflow(table: GraphTable) -> None:
    transfers = 2 * sum(table.transfer_ps)
    for kind in table.kinds:
        name = f"profiles for kind {kind.name!r}"
        refuse_total(name, sum(time or 0 for time in kind.time_ps) + transfers, "ps")
        refuse_total(name, sum(kind.size_bytes), "bytes")
