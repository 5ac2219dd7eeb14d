"""The places where a pipeline may be cut, as the matrices count them.

A stage is named by the cut before it and the cut after it. In the listed order
cut c is before layer c; in any order the cuts are the downsets of the layer
graph. Either way cut 0 is before all layers, the last one after all, and a
stage's second cut comes after its first.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from nest_opt.cost.cuts import GraphCuts
from nest_opt.dp.chain import INFINITE, Array
from nest_opt.dp.rules import Restriction
from nest_opt.plan.placement import ends_and_order
from nest_opt.problem.downsets import members

Mask: TypeAlias = npt.NDArray[np.bool_]

# Layers that a stage must hold, None where any will do.
Held: TypeAlias = tuple[int, ...] | None
# Ends of stages, and the order of layers where it is not the listed one.
EndsAndOrder: TypeAlias = tuple[tuple[int, ...], tuple[int, ...] | None]


class Cuts(Protocol):
    """What the matrices ask of the cuts."""

    def __len__(self) -> int: ...

    def sums(self, of_layers: Array) -> Array:
        """Return, for each cut, the sum over the layers before it."""
        ...

    def largest(self, of_layers: Array) -> Array:
        """Return the largest value, at least 0, of the layers between each two cuts."""
        ...

    def forbidden(self, restriction: Restriction) -> Mask:
        """Return between which two cuts there is no stage."""
        ...

    @property
    def alone(self) -> tuple[Array, Array]:
        """For each layer, cuts with it alone between them."""
        ...

    @property
    def first(self) -> Array:
        """The cuts with one layer before them."""
        ...

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return a matrix that is `INFINITE` for stages without the layers to be held."""
        ...

    def stages(self, path: Sequence[int]) -> EndsAndOrder:
        """Return ends and order of the stages that end at these cuts."""
        ...


class ListedCuts:
    """The n + 1 prefixes of the listed order."""

    def __init__(self, layers: int) -> None:
        self._layers = layers

    def __len__(self) -> int:
        return self._layers + 1

    def sums(self, of_layers: Array) -> Array:
        """Return running sums."""
        sums = np.zeros(len(self), np.int64)
        np.cumsum(of_layers, out=sums[1:])
        return sums

    def largest(self, of_layers: Array) -> Array:
        """Return running maxima from each layer on."""
        largest = np.zeros((len(self), len(self)), np.int64)
        ordered = np.arange(self._layers)[:, None] <= np.arange(self._layers)[None, :]
        largest[:-1, 1:] = np.where(ordered, of_layers[None, :], 0)
        np.maximum.accumulate(largest, axis=1, out=largest)
        return largest

    def forbidden(self, restriction: Restriction) -> Mask:
        """Return which intervals are empty, or what the constraints forbid."""
        cut = np.zeros(len(self), np.bool_)
        cut[[c for c in restriction.interval_cuts if 0 < c < self._layers]] = True
        ordered = np.arange(len(self))[:, None] < np.arange(len(self))[None, :]
        forbidden: Mask = ~ordered | cut[:, None] | cut[None, :]
        for first, second in restriction.apart:
            forbidden[: first + 1, second + 1 :] = True
        return forbidden

    @cached_property
    def alone(self) -> tuple[Array, Array]:
        """For each layer, the cuts before and after it."""
        return np.arange(self._layers), np.arange(1, self._layers + 1)

    @property
    def first(self) -> Array:
        """The cut after the first layer."""
        return np.array([1])

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return a matrix that is `INFINITE` for intervals without the layers to be held."""
        return with_held(matrix, held)

    def stages(self, path: Sequence[int]) -> EndsAndOrder:
        """Return the ends: they are the cuts."""
        return tuple(path), None


class DownsetCuts:
    """The downsets of a layer graph, by size."""

    def __init__(self, graph: GraphCuts) -> None:
        self._graph = graph
        self._inside = np.zeros((len(graph.cuts), graph.layers), np.bool_)
        for number, cut in enumerate(graph.cuts):
            self._inside[number, list(members(cut))] = True

    def __len__(self) -> int:
        return len(self._graph.cuts)

    def sums(self, of_layers: Array) -> Array:
        """Return the sum over each downset."""
        sums: Array = self._ones @ of_layers
        return sums

    @cached_property
    def _ones(self) -> Array:
        """Which layers each downset has, 1 if so."""
        return self._inside.astype(np.int64)

    def _counts(self, layers: Mask) -> Array:
        """Return how many of some layers, given as a mask, are between each two cuts."""
        before = self.sums(layers.astype(np.int64))
        counts: Array = before[None, :] - before[:, None]
        return counts

    def _with_all(self, layers: Sequence[int]) -> Mask:
        """Return between which two cuts some layers all are."""
        named = self._ones[:, list(layers)].sum(axis=1)
        both: Mask = (named == 0)[:, None] & (named == len(layers))[None, :]
        return both

    def largest(self, of_layers: Array) -> Array:
        """Return, where one downset holds the other, the largest value of the layers between.

        Layers of one value are looked at together: of many layers few are different.
        """
        largest = np.zeros((len(self), len(self)), np.int64)
        for value in np.unique(of_layers):
            if value > 0:
                largest[self._counts(of_layers == value) > 0] = value
        return largest

    @cached_property
    def _within(self) -> Mask:
        """Which downsets are strictly inside which."""
        outside = (~self._inside).astype(np.float32)
        # How many layers of the first are not in the second: small whole numbers, exact.
        missing = self._inside.astype(np.float32) @ outside.T
        size = self._inside.sum(axis=1)
        within: Mask = (missing == 0) & (size[:, None] < size[None, :])
        return within

    def forbidden(self, restriction: Restriction) -> Mask:
        """Return which pairs are no stages, or what the constraints forbid."""
        split = np.zeros(len(self), np.bool_)
        for together in restriction.together:
            named = self._ones[:, sorted(set(together))].sum(axis=1)
            split |= (named > 0) & (named < len(set(together)))
        forbidden: Mask = ~self._within | split[:, None] | split[None, :]
        for first, second in restriction.apart:
            forbidden |= self._with_all((first, second))
        places = np.arange(self._graph.layers)
        for last in restriction.not_last:
            ends = (self._counts(places == last) > 0) & (self._counts(places > last) == 0)
            ends[:, -1] = False
            forbidden |= ends
        return forbidden

    @cached_property
    def alone(self) -> tuple[Array, Array]:
        """For each layer, the cut after all that must come before it, and the one with it too."""
        number = {cut: place for place, cut in enumerate(self._graph.cuts)}
        above = self._graph.ancestors
        return (
            np.array([number[cut] for cut in above]),
            np.array([number[cut | 1 << layer] for layer, cut in enumerate(above)]),
        )

    @cached_property
    def first(self) -> Array:
        """The cuts with one layer before them."""
        return np.flatnonzero(self._inside.sum(axis=1) == 1)

    def holding(self, matrix: Array, held: Held) -> Array:
        """Return a matrix that is `INFINITE` for stages without the layers to be held."""
        if held is None:
            return matrix
        return np.where(self._with_all(held), matrix, INFINITE)

    def stages(self, path: Sequence[int]) -> EndsAndOrder:
        """Return ends and order of the stages: inside each, the listed order."""
        cuts = [0, *(self._graph.cuts[place] for place in path)]
        return ends_and_order(members(after & ~before) for before, after in pairwise(cuts))


def cuts_of(graph: GraphCuts | None, layers: int) -> Cuts:
    """Return the cuts of a layer graph, None being a graph of the listed order alone."""
    return ListedCuts(layers) if graph is None else DownsetCuts(graph)


def with_held(matrix: Array, held: Held) -> Array:
    """Return a matrix that is `INFINITE` for intervals without the layers to be held."""
    if held is None:
        return matrix
    first, last = min(held), max(held)
    masked = np.full_like(matrix, INFINITE)
    masked[: first + 1, last + 1 :] = matrix[: first + 1, last + 1 :]
    return masked
