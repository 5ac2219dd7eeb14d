"""Where a pipeline may be cut in any order of its layers: the downsets of the layer graph.

What crosses a boundary is a function of the layers before it alone. So a cut
is a downset, and a pipeline is a chain of them: each stage is the difference
of two. Sets of layers are bits of an integer. The cuts of the listed order are
its prefixes, which `nest_opt.cost.build` costs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, islice

from nest_opt.cost.build import hop_times
from nest_opt.cost.table import CostTable, PairCosts, refuse_overflow
from nest_opt.errors import InstanceError
from nest_opt.network import Network
from nest_opt.problem import Configuration, Problem
from nest_opt.problem.downsets import count_downsets, downsets, members

# A matrix has 8 MB then, and a search keeps some dozens of them: 1 GB in all.
MOST_CUTS = 1_000
# A refusal tells the number up to here, counted in about a second.
MOST_COUNTED = 100_000


@dataclass(frozen=True)
class GraphCuts:
    """Every cut of a layer graph.

    Attributes
    ----------
    layers
        n, the number of layers.
    edges
        (producer, consumer), each once.
    """

    layers: int
    edges: tuple[tuple[int, int], ...]

    @cached_property
    def after(self) -> tuple[tuple[int, ...], ...]:
        """Per layer, its consumers."""
        found: list[list[int]] = [[] for _ in range(self.layers)]
        for source, target in self.edges:
            found[source].append(target)
        return tuple(tuple(sorted(targets)) for targets in found)

    @cached_property
    def before(self) -> tuple[int, ...]:
        """Per layer, the set of its producers."""
        found = [0] * self.layers
        for source, target in self.edges:
            found[target] |= 1 << source
        return tuple(found)

    @cached_property
    def ancestors(self) -> tuple[int, ...]:
        """Per layer, the set of all layers that must come before it."""
        found: list[int] = []
        for before in self.before:
            every = before
            for layer in members(before):
                every |= found[layer]
            found.append(every)
        return tuple(found)

    @cached_property
    def descendants(self) -> tuple[int, ...]:
        """Per layer, the set of all layers that must come after it."""
        found = [0] * self.layers
        for layer, above in enumerate(self.ancestors):
            for ancestor in members(above):
                found[ancestor] |= 1 << layer
        return tuple(found)

    @cached_property
    def cuts(self) -> tuple[int, ...]:
        """All downsets: by size, and then by their layers in the listed order.

        Raises
        ------
        InstanceError
            If there are more than `MOST_CUTS`.
        """
        found = list(islice(downsets(self), MOST_CUTS + 1))
        if len(found) > MOST_CUTS:
            raise InstanceError(
                f"search.layer_order: found 'any' with {_counted(self)} downsets of the "
                f"{self.layers} layers, at most {MOST_CUTS:,} are searched: use layer_order "
                "listed, or merge layers that are never split"
            )
        return tuple(sorted(found, key=lambda cut: (cut.bit_count(), *members(cut))))

    @property
    def is_chain(self) -> bool:
        """Whether the listed order is the only one: each layer consumes the one before it."""
        return all(self.before[layer] >> (layer - 1) & 1 for layer in range(1, self.layers))


def _counted(graph: GraphCuts) -> str:
    """Return the number of downsets in words, as far as it is worth counting."""
    count = count_downsets(graph, MOST_COUNTED)
    return f"more than {MOST_COUNTED:,}" if count > MOST_COUNTED else f"{count:,}"


def graph_cuts(problem: Problem) -> GraphCuts | None:
    """Return the cuts of a problem; None where those of the listed order are all."""
    if problem.search.layer_order == "listed":
        return None
    index = problem.model.index
    edges = {(index[edge.source], index[edge.target]) for edge in problem.model.all_edges}
    graph = GraphCuts(len(index), tuple(sorted(edges)))
    return None if graph.is_chain else graph


def table_of_cuts(
    problem: Problem, network: Network, table: CostTable, cuts: Sequence[int]
) -> CostTable:
    """Return a cost table whose `hop_ps` has an entry for each of some cuts.

    Raises
    ------
    InstanceError
        If a total leaves the range of the search.
    """
    found = replace(table, pairs=_pairs(problem, network, table, cuts))
    refuse_overflow(found)
    return found


def table_in_order(
    problem: Problem, network: Network, table: CostTable, layer_order: Sequence[int]
) -> CostTable:
    """Return the cost table of a problem that lists its layers in another order."""
    cuts = list(accumulate((1 << layer for layer in layer_order), int.__or__, initial=0))
    rows = tuple(table.layer_rows[layer] for layer in layer_order)
    return replace(table, layer_rows=rows, pairs=_pairs(problem, network, table, cuts))


def crossing_bytes(
    problem: Problem, microbatch: int, tp: int, cuts: Sequence[int]
) -> tuple[int, ...]:
    """Return the bytes that cross each cut: (10).

    A tensor is relayed: it crosses a cut that has its producer and not all of
    its consumers, once however many it has not.
    """
    tensors = [
        (1 << producer, sum({1 << consumer for consumer in consumers}), size)
        for producer, consumers, size in problem.model.tensors(microbatch, tp)
    ]
    return tuple(
        sum(size for producer, consumers, size in tensors if producer & cut and consumers & ~cut)
        for cut in cuts
    )


def _pairs(
    problem: Problem, network: Network, table: CostTable, cuts: Sequence[int]
) -> dict[tuple[int, Configuration], PairCosts]:
    """Return the costs of every pair with the hops over these cuts."""
    sizes = {
        key: crossing_bytes(problem, *key, cuts) for key in {(b, k.tp) for b, k in table.pairs}
    }
    return {
        (b, k): replace(pair, hop_ps=hop_times(network, k, sizes[b, k.tp]))
        for (b, k), pair in table.pairs.items()
    }
