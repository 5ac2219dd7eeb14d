"""Bounds that know the memory: how many layers the stages of a pipeline have room for.

Of all layers only those of the most frequent type count, and they are alike,
so that a stage is a number of layers. Leaving out the others makes no stage
slower or larger, which makes what is found here a bound on every plan.
`docs/dp.md` has the proof.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nest_opt.dp.chain import Array

# Halvings of the range that the slowest stage's time is known to be in: to a thousandth.
HALVINGS = 10


@dataclass(frozen=True)
class Layers:
    """Layers of one type, and what each takes on a device, mode by mode.

    Attributes
    ----------
    count
        How many there are.
    time_ps
        F of one layer under each mode, hops aside; never falling.
    states_bytes
        Of one layer.
    stash_bytes, work_bytes
        Of one layer under each mode.
    """

    count: int
    time_ps: Sequence[int]
    states_bytes: int
    stash_bytes: Sequence[int]
    work_bytes: Sequence[int]


@dataclass(frozen=True)
class Room:
    """How many layers each stage has room for, and the hops that it has.

    Attributes
    ----------
    layers
        The layers.
    most
        Per mode and stage, the most layers that fit, shape (modes, S).
    hop_ps
        The least time of the hops of each stage, shape (S,).
    """

    layers: Layers
    most: Array
    hop_ps: Array

    def has_all(self) -> bool:
        """Whether the stages together have room for all layers."""
        return int(self.most.max(axis=0).sum()) >= self.layers.count

    def least_slowest(self, least_ps: int) -> int:
        """Return a bound on max F, at least `least_ps`, which must be one.

        In time T a stage takes as many layers as fit and are done by T, under
        the best mode. A T in which the stages do not take all layers is below
        max F; the bound is one such T, or `least_ps`.
        """
        low, step = least_ps, max(1, least_ps >> 4)
        while not self._done_in(low + step):
            low, step = low + step, 2 * step
        high = low + step
        for _ in range(HALVINGS):
            if high - low < 2:
                break
            middle = (low + high) // 2
            low, high = (low, middle) if self._done_in(middle) else (middle, high)
        return low

    def _done_in(self, time_ps: int) -> bool:
        """Whether the stages take all layers in a time each."""
        left = np.maximum(time_ps - self.hop_ps, 0)
        taken = [
            np.minimum(most, left // time) if time else most
            for most, time in zip(self.most, self.layers.time_ps, strict=True)
        ]
        return int(np.maximum.reduce(taken).sum()) >= self.layers.count

    def least_repeats(self) -> int:
        """Return the least time that recomputation adds to the sum of F.

        A layer for which there is no room under the first mode is in a stage
        under another one, and costs what the cheapest of those adds.
        """
        times = self.layers.time_ps
        if len(times) < 2:
            return 0
        over = self.layers.count - int(self.most[0].sum())
        return max(0, over) * (times[1] - times[0])


def room(layers: Layers, free_bytes: int, in_flight: Array, hop_ps: Array, chunks: int = 1) -> Room:
    """Return the room of stages with `free_bytes` for states, stashes and work.

    Parameters
    ----------
    layers
        The layers.
    free_bytes
        Usable memory less the reserve.
    in_flight
        Stashes of one microbatch that each stage holds, shape (S,).
    hop_ps
        The least time of the hops of each stage, shape (S,).
    chunks
        v: stashes are of a v-th of a stage's layers, or more.
    """
    most = []
    for stash, work in zip(layers.stash_bytes, layers.work_bytes, strict=True):
        if free_bytes < work:
            most.append(0 * in_flight)
            continue
        # More than fill the memory are one too many, however many they are.
        full = chunks * free_bytes
        held = np.minimum(in_flight, full // stash + 1 if stash else 0) * stash
        each = min(chunks * layers.states_bytes, full + 1) + held
        fits = chunks * (free_bytes - work) // np.maximum(each, 1)
        most.append(np.clip(np.where(each > 0, fits, layers.count), 0, layers.count))
    return Room(layers, np.array(most), hop_ps)
