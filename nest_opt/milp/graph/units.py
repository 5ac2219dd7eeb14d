"""Units of a cell's program: what brings its numbers near 1. No Pyomo here.

Times at or above the cutoff all mean the same, so they count as the cutoff.
What is left may still span more than a solver's tolerances: numbers below
`SMALLEST` units are left out. That makes the program a relaxation, whose
bound holds; solutions are checked and valued in integers.
"""

from collections.abc import Iterable

from nest_opt.milp.graph.cells import GraphCell
from nest_opt.milp.units import LARGEST, Units

# As a solver session refuses smaller ones.
SMALLEST = 1e-7


class GraphUnits(Units):
    """Units that know what is too small to be told."""

    def time(self, picoseconds: int) -> float:
        """Return a time in units; 0 for one that tolerances would hide."""
        return _visible(super().time(picoseconds))

    def size(self, size_bytes: int) -> float:
        """Return a size in units; 0 for one that tolerances would hide."""
        return _visible(super().size(size_bytes))


def graph_units(cell: GraphCell) -> GraphUnits:
    """Return the units of a cell."""
    kinds = [cell.parts.kinds[kind] for kind in set(cell.kinds)]
    times = [time for kind in kinds for time in kind.time_ps if time is not None]
    times += [tensor.transfer_ps for tensor in cell.parts.tensors]
    sizes = [
        size for kind in kinds if needs_memory_row(kind.size_bytes, kind.usable_bytes)
        for size in kind.size_bytes
    ]  # fmt: skip
    return GraphUnits(_power(capped_ps(cell, time) for time in times), _power(sizes))


def capped_ps(cell: GraphCell, time_ps: int) -> int:
    """Return a time, or the cutoff where that is less."""
    return time_ps if cell.cutoff_ps is None else min(time_ps, cell.cutoff_ps)


def needs_memory_row(sizes_bytes: Iterable[int], usable_bytes: int) -> bool:
    """Whether some parts may not fit together."""
    return sum(sizes_bytes) > usable_bytes


def _power(numbers: Iterable[int]) -> int:
    largest, power = max(numbers, default=0), 1
    while largest > power * LARGEST:
        power *= 10
    return power


def _visible(number: float) -> float:
    return number if number >= SMALLEST else 0.0
