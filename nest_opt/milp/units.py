"""Units of the program: powers of ten of picoseconds and bytes that bring numbers near 1.

A solver works with absolute tolerances, so coefficients are divided by a
power of ten that leaves the largest at most `LARGEST`. Integers up to it stay
as they are: there, no tolerance can hide a unit.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from nest_opt.errors import ModelError
from nest_opt.milp.coefficients import CellCoefficients

LARGEST = 10**4

# Below the largest by more than this, a coefficient is lost in the tolerances.
WIDEST_RANGE = 10**11


@dataclass(frozen=True)
class Units:
    """Picoseconds in a unit of time, and bytes in a unit of memory."""

    time_ps: int
    size_bytes: int

    @property
    def exact(self) -> bool:
        """Whether coefficients are the integers themselves."""
        return self.time_ps == 1 and self.size_bytes == 1

    def time(self, picoseconds: int) -> float:
        """Return a time in units."""
        return picoseconds / self.time_ps

    def size(self, size_bytes: int) -> float:
        """Return a size in units."""
        return size_bytes / self.size_bytes


def units(coefficients: CellCoefficients) -> Units:
    """Return the units of a cell.

    Raises
    ------
    ModelError
        If its smallest and largest coefficients are too far apart.
    """
    return Units(_power(coefficients.times_ps(), "ps"), _power(coefficients.sizes_bytes(), "bytes"))


def _power(numbers: Iterable[int], unit: str) -> int:
    sizes = {abs(number) for number in numbers} - {0}
    if not sizes:
        return 1
    largest, smallest = max(sizes), min(sizes)
    if largest > smallest * WIDEST_RANGE:
        raise ModelError(
            f"coefficients of the integer program: found {smallest} to {largest} {unit}, a factor "
            f"of at most {WIDEST_RANGE:.0e} is allowed, since the solver works with tolerances: "
            "merge very small layers with their neighbours, or check the units of the profiles"
        )
    power = 1
    while largest > power * LARGEST:
        power *= 10
    return power
