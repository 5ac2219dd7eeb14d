"""Parts: what every legal placement keeps on one device, taken together. No Pyomo here.

Layers of one class share a device. In a contiguous split so do parts on a
cycle of precedence pairs, each of which is in the stage of the next or in one
before it. A part's time and size are its layers' sums; tensors inside a part
are never moved, and those that one part sends to the same parts are one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from nest_opt.cost.graph_table import GraphKind, GraphTable
from nest_opt.cost.table import Row


@dataclass(frozen=True)
class Tensor:
    """What a part sends to the same other parts, and the time to move it once."""

    source: int
    targets: tuple[int, ...]
    transfer_ps: int


@dataclass(frozen=True)
class PartKind:
    """Devices of one kind, and what the parts cost on them.

    Attributes
    ----------
    devices
        How many there are.
    usable_bytes, pays_transfers
        As in `GraphKind`.
    time_ps
        Per part, its time; None where the kind does not support all its layers.
    size_bytes
        Per part, the memory that it takes.
    """

    devices: int
    usable_bytes: int
    pays_transfers: bool
    time_ps: tuple[int | None, ...]
    size_bytes: Row


@dataclass(frozen=True)
class Parts:
    """A placement graph of parts.

    Attributes
    ----------
    layers
        Layers of each part; parts are in a topological order of `precedence`
        where the split is contiguous.
    kinds
        The table's kinds, in its order.
    tensors
        Tensors that a placement may have to move, by source.
    precedence
        (u, v): part u is in the stage of part v or in one before it; transitively
        reduced. Empty unless the split is contiguous.
    contiguous
        Whether the split must be contiguous.
    """

    layers: tuple[tuple[int, ...], ...]
    kinds: tuple[PartKind, ...]
    tensors: tuple[Tensor, ...]
    precedence: tuple[tuple[int, int], ...]
    contiguous: bool

    @property
    def count(self) -> int:
        """How many parts there are."""
        return len(self.layers)

    @cached_property
    def reaches(self) -> Any:
        """Boolean array (parts, parts): whether v is u or after it along the precedence."""
        found = np.eye(self.count, dtype=bool)
        after = _targets(self.count, self.precedence)
        for u in reversed(range(self.count)):
            for v in after[u]:
                found[u] |= found[v]
        return found


def parts(table: GraphTable) -> Parts:
    """Return the parts of a table."""
    pairs = table.precedence if table.contiguous else ()
    links = [*pairs]
    for members in table.classes:
        links += zip(members, (*members[1:], members[0]), strict=True)
    component = _components(len(table.layers), links)
    layers: list[list[int]] = [[] for _ in range(max(component, default=-1) + 1)]
    for layer, part in enumerate(component):
        layers[part].append(layer)
    of_parts = {(component[u], component[v]) for u, v in pairs if component[u] != component[v]}
    return Parts(
        tuple(map(tuple, layers)),
        tuple(_kind(kind, layers) for kind in table.kinds),
        _tensors(table, component),
        _reduced(len(layers), of_parts),
        table.contiguous,
    )


def _kind(kind: GraphKind, layers: Sequence[Sequence[int]]) -> PartKind:
    times: list[int | None] = []
    for members in layers:
        known = [time for layer in members if (time := kind.time_ps[layer]) is not None]
        times.append(sum(known) if len(known) == len(members) else None)
    sizes = (sum(kind.size_bytes[layer] for layer in members) for members in layers)
    return PartKind(
        len(kind.devices), kind.usable_bytes, kind.pays_transfers, tuple(times), tuple(sizes)
    )


def _tensors(table: GraphTable, component: Sequence[int]) -> tuple[Tensor, ...]:
    """Return the tensors between parts; of the same source and targets, one with the sum."""
    found: dict[tuple[int, tuple[int, ...]], int] = {}
    for layer, consumers in enumerate(table.consumers):
        source = component[layer]
        targets = tuple(sorted({component[consumer] for consumer in consumers} - {source}))
        if targets and table.transfer_ps[layer]:
            key = source, targets
            found[key] = found.get(key, 0) + table.transfer_ps[layer]
    return tuple(Tensor(*key, transfer_ps) for key, transfer_ps in sorted(found.items()))


def _targets(count: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    found: list[list[int]] = [[] for _ in range(count)]
    for u, v in pairs:
        found[u].append(v)
    return found


def _components(count: int, pairs: Iterable[tuple[int, int]]) -> list[int]:
    """Return each node's strongly connected component, numbered in a topological order.

    Tarjan's algorithm (1972) without recursion: components come out last first.
    """
    after = _targets(count, pairs)
    number, low = [-1] * count, [0] * count
    component = [-1] * count
    stack: list[int] = []
    seen = found = 0
    for root in reversed(range(count)):
        path = [(root, 0)] if number[root] < 0 else []
        while path:
            node, place = path.pop()
            if place == 0:
                number[node] = low[node] = seen
                seen += 1
                stack.append(node)
            if place < len(after[node]):
                path.append((node, place + 1))
                other = after[node][place]
                if number[other] < 0:
                    path.append((other, 0))
                elif component[other] < 0:
                    low[node] = min(low[node], number[other])
                continue
            if low[node] == number[node]:
                while component[node] < 0:
                    component[stack.pop()] = found
                found += 1
            if path:
                parent = path[-1][0]
                low[parent] = min(low[parent], low[node])
    return [found - 1 - part for part in component]


def _reduced(count: int, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the pairs that no chain of others implies; nodes are in a topological order."""
    after = _targets(count, pairs)
    reached: list[set[int]] = [set() for _ in range(count)]
    kept = []
    for u in reversed(range(count)):
        # The nearest first: a pair that a chain implies is then found implied.
        for v in sorted(after[u]):
            if v not in reached[u]:
                kept.append((u, v))
                reached[u] |= {v} | reached[v]
    return tuple(sorted(kept))
