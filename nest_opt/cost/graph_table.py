"""The coefficients of a placement graph: layers on single devices, each output sent once.

Such a problem has `job.transfer` `sender-once`: every layer is on one device,
forward and backward passes are layers of their own, and a device's load is
the time of its layers plus, where its kind pays for transfers, the outputs
that it receives and those that it sends, once each. It is the throughput
problem of Tarnawski et al. 2020 (arXiv:2006.16423, section 4).
"""

from dataclasses import dataclass
from functools import cached_property

from nest_opt.cost.table import Row


@dataclass(frozen=True)
class GraphKind:
    """Devices of one kind, and what the layers cost on them.

    Attributes
    ----------
    name
        The kind's name in the problem.
    devices
        Numbers of its devices.
    usable_bytes
        Memory that layers may fill (usable memory less the reserve).
    pays_transfers
        Whether its devices' loads include transfers; a host's do not.
    time_ps
        Per layer, its time; None where the kind does not support it.
    size_bytes
        Per layer, the memory that it takes.
    """

    name: str
    devices: tuple[int, ...]
    usable_bytes: int
    pays_transfers: bool
    time_ps: tuple[int | None, ...]
    size_bytes: Row


@dataclass(frozen=True)
class GraphTable:
    """All coefficients of a placement graph, as integers.

    Attributes
    ----------
    layers
        Their ids, in the listed topological order; a layer's index is its place.
    kinds
        Kinds of devices, in the order of the problem's device groups.
    edges
        (source, target) of every tensor; a layer's output is one tensor,
        however many consume it.
    transfer_ps
        Per layer, the time to move its output between a device and the host;
        0 where nobody consumes it.
    precedence
        (u, v): u is in the stage of v or in one before it. In a contiguous
        split the stages are numbered along these pairs; a cycle of them is in
        one stage.
    classes
        Layers that must share a device, disjoint, each with two layers at least.
    contiguous
        Whether the split must be contiguous.
    """

    layers: tuple[str, ...]
    kinds: tuple[GraphKind, ...]
    edges: tuple[tuple[int, int], ...]
    transfer_ps: Row
    precedence: tuple[tuple[int, int], ...]
    classes: tuple[tuple[int, ...], ...]
    contiguous: bool

    @cached_property
    def kind_of(self) -> dict[int, GraphKind]:
        """The kind of each device, by its number."""
        return {device: kind for kind in self.kinds for device in kind.devices}

    @cached_property
    def consumers(self) -> tuple[tuple[int, ...], ...]:
        """Per layer, the layers that consume its output."""
        found: list[list[int]] = [[] for _ in self.layers]
        for source, target in self.edges:
            found[source].append(target)
        return tuple(map(tuple, found))
