"""How many devices of each kind are in use, as one number; what those left can still do."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from nest_opt.dp.chain import INFINITE, Array
from nest_opt.dp.graph.blocks import Blocks
from nest_opt.dp.graph.cuts import Flags

# Resolution of the kinds' weights in the relaxation.
_UNIT = 1024


@dataclass(frozen=True)
class DeviceCounts:
    """Counts of devices in use: digits of a number, one of each kind, the first kind's lowest.

    Attributes
    ----------
    most
        Per kind, its devices, or the number of blocks if that is less.
    """

    most: tuple[int, ...]

    @classmethod
    def of(cls, blocks: Blocks) -> "DeviceCounts":
        """Return those of a graph's devices."""
        return cls(tuple(min(kind.devices, len(blocks)) for kind in blocks.kinds))

    @cached_property
    def step(self) -> tuple[int, ...]:
        """Per kind, by how much one device more raises the number."""
        return tuple(int(np.prod([m + 1 for m in self.most[:k]])) for k in range(len(self.most)))

    @property
    def total(self) -> int:
        """How many counts there are."""
        total = 1
        for most in self.most:
            total *= most + 1
        return total

    @cached_property
    def left(self) -> Array:
        """Devices left of each kind, shape (kinds, counts)."""
        number = np.arange(self.total)
        used = [
            number // step % (most + 1) for step, most in zip(self.step, self.most, strict=True)
        ]
        return np.array(self.most, np.int64)[:, None] - np.array(used, np.int64)

    @cached_property
    def extendable(self) -> tuple[Array, ...]:
        """Per kind, the counts that leave a device of it."""
        return tuple(np.flatnonzero(left) for left in self.left)


@dataclass(frozen=True)
class Relaxation:
    """A bound that lets blocks be split and ignores transfers and memory.

    With weights w > 0 of the kinds, blocks left over take at least the sum of
    min over kinds of w * time, and devices left with loads up to a limit offer
    limit * sum of w.

    Attributes
    ----------
    work
        Per block, the least of weight times time over the kinds that support it.
    offered
        Per count of devices in use, the sum of weights of those left.
    """

    work: tuple[int, ...]
    offered: Array

    def least_value(self) -> int:
        """Return a value that no plan is below; there must be devices."""
        return -(-sum(self.work) // int(self.offered[0]))

    def hopeless(self, work_left: int, limit: int) -> Flags:
        """Return which counts leave too little for some work with loads up to a limit."""
        if limit == 0:
            return np.full(len(self.offered), work_left > 0)
        hopeless: Flags = self.offered < min(-(-work_left // limit), INFINITE)
        return hopeless


def relaxations(blocks: Blocks, counts: DeviceCounts) -> list[Relaxation]:
    """Return the relaxations of a graph each of whose blocks some kind supports.

    One has equal weights, which is good where one kind is left; the other
    weighs kinds by their speed.
    """
    totals = [max(1, sum(kind.time_ps)) for kind in blocks.kinds]
    speeds = [max(1, _UNIT * min(totals) // total) for total in totals]
    return [_relaxation(blocks, counts, weights) for weights in ([1] * len(totals), speeds)]


def _relaxation(blocks: Blocks, counts: DeviceCounts, weights: Sequence[int]) -> Relaxation:
    weighed = list(zip(weights, blocks.kinds, strict=True))
    work = tuple(
        min(weight * kind.time_ps[n] for weight, kind in weighed if kind.supported[n])
        for n in range(len(blocks))
    )
    return Relaxation(work, np.array(weights, np.int64) @ counts.left)
