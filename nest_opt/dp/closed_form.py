"""Bounds of groups in closed form: sums over all layers, even shares, the largest layer."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nest_opt.cost.objective import ObjectiveWeights
from nest_opt.dp.chain import Array


class LayerTimes(NamedTuple):
    """What the bounds take of the layers of a pair, each layer's time F_l at its least.

    Attributes
    ----------
    total, largest
        The sum of F_l and the largest of them.
    gradients
        The sum of W_l.
    hidden, hidden_of_largest
        The sum of min(F_l, 2 W_l), and that of a layer with the largest F_l.
    """

    total: int
    largest: int
    gradients: int
    hidden: int
    hidden_of_largest: int


def layer_times(times: Array, gradients: Array) -> LayerTimes:
    """Return the sums of layers of these times and weights' gradients."""
    hidden, place = np.minimum(times, 2 * gradients), int(times.argmax())
    return LayerTimes(
        int(times.sum()),
        int(times[place]),
        int(gradients.sum()),
        int(hidden.sum()),
        int(hidden[place]),
    )


def closed_form_ps(layers: LayerTimes, hops_ps: int, stages: int, weights: ObjectiveWeights) -> int:
    """Return a bound on the objective without sync, where all hops take `hops_ps` at least.

    `docs/dp.md` has the proof: the slowest stage has an even share of all time
    and the largest layer at least. Loads are m F - f = (m - 1) F + min(F, 2 W), or
    m F + (S - 1) max(0, F - 2 W).
    """
    total = layers.total + hops_ps
    if not weights.has_loads:
        slowest = max(layers.largest, -(-total // stages))
        return weights.whole_ps(weights.sum_weight * total + weights.max_weight * slowest)
    fills = max(0, total - weights.hidden_weight * layers.gradients)
    if weights.fill_weight > 0:
        loads = weights.round_weight * total + weights.fill_weight * fills
        largest = weights.round_weight * layers.largest
    else:
        loads = weights.max_weight * total + layers.hidden
        largest = weights.max_weight * layers.largest + layers.hidden_of_largest
    return weights.sum_weight * fills + max(largest, -(-loads // stages))


def closed_forms(
    layers: LayerTimes,
    hops_ps: npt.NDArray[np.float64],
    stages: Sequence[int],
    weights: Sequence[ObjectiveWeights],
) -> npt.NDArray[np.float64]:
    """Return the same for several numbers of stages at once, in floats and not rounded up.

    All the weights are of one objective and schedule.
    """
    count = np.array(stages, np.float64)
    round_weight, fill_weight = (
        np.array([getattr(each, name) for each in weights], np.float64)
        for name in ("round_weight", "fill_weight")
    )
    first = weights[0]
    total = layers.total + hops_ps
    if not first.hidden_weight:
        slowest = np.maximum(layers.largest, total / count)
        return (first.sum_weight * total + (round_weight + fill_weight) * slowest) / first.chunks
    fills = np.maximum(0, total - first.hidden_weight * layers.gradients)
    if first.fill_weight < 0:
        loads = (round_weight + fill_weight) * total + layers.hidden
        largest = (round_weight + fill_weight) * layers.largest + layers.hidden_of_largest
    else:
        loads = round_weight * total + fill_weight * fills
        largest = round_weight * layers.largest
    return first.sum_weight * fills + np.maximum(largest, loads / count)
