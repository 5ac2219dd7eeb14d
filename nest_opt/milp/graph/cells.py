"""Cells: which kind of device is at which stage. No Pyomo here.

A contiguous split has its stages in a row, so it matters where the kinds
stand: each order of all devices' kinds is a cell. Stages may be empty, hence
no cell has fewer devices. Without an order one cell is all.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import comb

from nest_opt.milp.graph.bounds import windows
from nest_opt.milp.graph.parts import PartKind, Parts

Kinds = tuple[int, ...]


@dataclass(frozen=True)
class GraphCell:
    """What the program of a cell is built from.

    Attributes
    ----------
    parts
        The placement graph.
    kinds
        The kind of each stage, an index into `parts.kinds`.
    cutoff_ps
        Only loads below it are of interest; None for all.
    """

    parts: Parts
    kinds: Kinds
    cutoff_ps: int | None = None

    @property
    def stages(self) -> int:
        """How many stages there are."""
        return len(self.kinds)

    def kind(self, stage: int) -> PartKind:
        """Return the kind of a stage."""
        return self.parts.kinds[self.kinds[stage]]

    @cached_property
    def windows(self) -> tuple[range, ...]:
        """Per part, the stages that it may be in, as (G18) says; empty if there are none.

        Without an order of stages: all.
        """
        if self.parts.contiguous:
            return windows(self.parts, self.kinds, self.cutoff_ps)
        return (range(self.stages),) * self.parts.count

    def in_reach(self, part: int, stage: int) -> bool:
        """Whether a stage is in a part's window."""
        return stage in self.windows[part]

    def supports(self, part: int, stage: int) -> bool:
        """Whether a stage's kind has a part, and takes less than the cutoff for it."""
        time = self.kind(stage).time_ps[part]
        return time is not None and (self.cutoff_ps is None or time < self.cutoff_ps)


def device_counts(parts: Parts) -> tuple[int, ...]:
    """Return how many devices of each kind can be of use."""
    return tuple(min(kind.devices, parts.count) for kind in parts.kinds)


def cell_count(parts: Parts) -> int:
    """Return the number of cells."""
    if not parts.contiguous:
        return 1
    count, devices = 1, 0
    for number in device_counts(parts):
        devices += number
        count *= comb(devices, number)
    return count


def cells(parts: Parts) -> Iterator[Kinds]:
    """Yield the kinds of the stages of every cell, in lexicographic order."""
    kinds = [kind for kind, number in enumerate(device_counts(parts)) for _ in range(number)]
    yield tuple(kinds)
    while parts.contiguous:
        # The next order: raise the last kind that a later one exceeds, by as little as possible.
        rises = [i for i in range(len(kinds) - 1) if kinds[i] < kinds[i + 1]]
        if not rises:
            return
        low = rises[-1]
        high = max(i for i in range(low + 1, len(kinds)) if kinds[i] > kinds[low])
        kinds[low], kinds[high] = kinds[high], kinds[low]
        kinds[low + 1 :] = reversed(kinds[low + 1 :])
        yield tuple(kinds)
