"""What the thresholds ask of a cell: least sums and maxima under two limits."""

from typing import Generic, Protocol, TypeVar

Stages = TypeVar("Stages")


class Passes(Protocol, Generic[Stages]):
    """A cell's stages as the passes see them; `Stages` is what names a way to place them."""

    def least_max_time(self, most_sync: int) -> int:
        """Return the least max F over plans with all Z at most `most_sync`.

        Where the objective is the sum, a lower bound will do.
        """
        ...

    def least_max_sync(self, most_time: int) -> int:
        """Return the least max Z over plans with all F at most `most_time`."""
        ...

    def least_sum_time(self, most_time: int, most_sync: int) -> tuple[int, Stages]:
        """Return the least sum F under two limits, and stages that have it."""
        ...

    def measure(self, stages: Stages) -> tuple[int, int]:
        """Return (max F, max Z) of such stages."""
        ...
