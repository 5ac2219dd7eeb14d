"""Blocks: sets of layers that are in one stage of every plan that matters, and their order."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from nest_opt.cost.graph_build import merged_classes
from nest_opt.cost.graph_table import GraphKind, GraphTable
from nest_opt.dp.graph.order import strong_components
from nest_opt.problem.downsets import members


@dataclass(frozen=True)
class BlockKind:
    """Devices of one kind, and what the blocks cost on them.

    Attributes
    ----------
    devices
        How many there are.
    usable_bytes, pays_transfers
        As in `GraphKind`.
    time_ps, size_bytes
        Per block, the sums over its layers, those supported.
    supported
        Per block, whether there are devices and they support all its layers.
    """

    devices: int
    usable_bytes: int
    pays_transfers: bool
    time_ps: tuple[int, ...]
    size_bytes: tuple[int, ...]
    supported: tuple[bool, ...]

    @property
    def memory_binds(self) -> bool:
        """Whether there are blocks that do not fit together."""
        return sum(self.size_bytes) > self.usable_bytes


@dataclass(frozen=True)
class Blocks:
    """A placement graph as seen by the search: block i is before none of 0, ..., i - 1.

    Sets of blocks are bits of an integer.

    Attributes
    ----------
    layers
        Per block, the indices of its layers.
    after
        Per block, those that must be in its stage or in a later one: direct
        successors, ascending.
    kinds
        Kinds of devices, in the table's order.
    tensors
        (blocks, time to move): the layers that produce or consume an output,
        two blocks at least. Outputs with the same blocks are added up.
    """

    layers: tuple[tuple[int, ...], ...]
    after: tuple[tuple[int, ...], ...]
    kinds: tuple[BlockKind, ...]
    tensors: tuple[tuple[int, int], ...]

    def __len__(self) -> int:
        return len(self.layers)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """Per block, the set of its direct predecessors."""
        found = [0] * len(self)
        for block, targets in enumerate(self.after):
            for target in targets:
                found[target] |= 1 << block
        return tuple(found)

    @cached_property
    def below(self) -> tuple[int, ...]:
        """Per block, the set of all that are before it."""
        found: list[int] = []
        for direct in self.before:
            found.append(direct)
            for block in members(direct):
                found[-1] |= found[block]
        return tuple(found)

    @cached_property
    def above(self) -> tuple[int, ...]:
        """Per block, the set of all that it is before."""
        found = [0] * len(self)
        for block in range(len(self))[::-1]:
            for target in self.after[block]:
                found[block] |= found[target] | 1 << target
        return tuple(found)

    @cached_property
    def touching(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per block, (the other blocks, time to move) of its tensors."""
        found: list[list[tuple[int, int]]] = [[] for _ in self.layers]
        for blocks, time in self.tensors:
            for block in members(blocks):
                found[block].append((blocks ^ 1 << block, time))
        return tuple(map(tuple, found))

    def renumbered(self, order: Sequence[int]) -> "Blocks":
        """Return the same blocks in another topological order."""
        new = {block: place for place, block in enumerate(order)}
        return Blocks(
            layers=tuple(self.layers[block] for block in order),
            after=tuple(
                tuple(sorted(new[target] for target in self.after[block])) for block in order
            ),
            kinds=tuple(
                replace(
                    kind,
                    time_ps=tuple(kind.time_ps[block] for block in order),
                    size_bytes=tuple(kind.size_bytes[block] for block in order),
                    supported=tuple(kind.supported[block] for block in order),
                )
                for kind in self.kinds
            ),
            tensors=tuple(
                (sum(1 << new[block] for block in members(blocks)), time)
                for blocks, time in self.tensors
            ),
        )

    def as_chain(self) -> "Blocks":
        """Return them with each block before the next: fewer downsets, whose plans remain legal."""
        last = len(self) - 1
        return replace(self, after=tuple((n + 1,) if n < last else () for n in range(len(self))))


def contract(table: GraphTable, groups: Iterable[Sequence[int]] = ()) -> Blocks:
    """Return a table's blocks: classes, further groups, and cycles of the precedence among them."""
    n = len(table.layers)
    grouped = merged_classes((*table.classes, *groups))
    first = list(range(n))
    for layers in grouped:
        for layer in layers:
            first[layer] = layers[0]
    targets: list[list[int]] = [[] for _ in range(n)]
    for source, target in table.precedence:
        if first[source] != first[target]:
            targets[first[source]].append(first[target])
    component = [0] * n
    for number, nodes in enumerate(strong_components(targets)):
        for node in nodes:
            component[node] = number
    # Layers that are not the first of their group are components of their own, and empty.
    layers_of: dict[int, list[int]] = defaultdict(list)
    for layer in range(n):
        layers_of[component[first[layer]]].append(layer)
    return _blocks(table, tuple(tuple(layers_of[number]) for number in sorted(layers_of)))


def _blocks(table: GraphTable, layers: tuple[tuple[int, ...], ...]) -> Blocks:
    block_of = {layer: block for block, inside in enumerate(layers) for layer in inside}
    after: list[set[int]] = [set() for _ in layers]
    for source, target in table.precedence:
        if block_of[source] != block_of[target]:
            after[block_of[source]].add(block_of[target])
    tensors: dict[int, int] = defaultdict(int)
    for layer, consumers in enumerate(table.consumers):
        touched = {block_of[end] for end in (layer, *consumers)}
        if len(touched) > 1 and table.transfer_ps[layer]:
            tensors[sum(1 << block for block in touched)] += table.transfer_ps[layer]
    return Blocks(
        layers=layers,
        after=tuple(tuple(sorted(targets)) for targets in after),
        kinds=tuple(_kind(kind, layers) for kind in table.kinds),
        tensors=tuple(tensors.items()),
    )


def _kind(kind: GraphKind, layers: tuple[tuple[int, ...], ...]) -> BlockKind:
    return BlockKind(
        devices=len(kind.devices),
        usable_bytes=kind.usable_bytes,
        pays_transfers=kind.pays_transfers,
        time_ps=tuple(sum(kind.time_ps[layer] or 0 for layer in inside) for inside in layers),
        size_bytes=tuple(sum(kind.size_bytes[layer] for layer in inside) for inside in layers),
        supported=tuple(
            bool(kind.devices) and all(kind.time_ps[layer] is not None for layer in inside)
            for inside in layers
        ),
    )
